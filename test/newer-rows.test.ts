// A row with a value that only a newer version knows is not misread.

import { create } from '@bufbuild/protobuf';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { PaymentIntentSchema } from '../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { createJsonCodec } from '../src/contract/json/json-codec.ts';
import { type Door, openDoors } from './support/doors.ts';
import { startService, type TestService } from './support/service.ts';

let service: TestService;
let doors: [Door, Door];

beforeAll(async () => {
  service = await startService();
  doors = openDoors(service);
});

afterAll(async () => {
  for (const door of doors) door.close();
  await service.close();
});

test.each([
  ['status', 'refunded', "alter type payment_intent_status add value 'refunded'"],
  // Allowed by the current schema, but not written by any current version.
  ['status', 'succeeded', undefined],
  ['network', 'network 99', undefined],
  ['lane', 'express', "alter type payment_lane add value 'express'"],
])('a replay of an intent whose %s is now "%s" is refused, not misread', async (column, word, migration) => {
  const call = {
    authorization: `Bearer ${service.merchant.keys.testnet.apiKey}`,
    idempotencyKey: `newer-${word.replace(' ', '-')}`,
  };
  const [publicDoor] = doors;
  expect((await publicDoor.create({ amount_units: 1 }, call)).code).toBe('ok');
  // Simulates a newer version's migration.
  if (migration !== undefined) await service.query(migration);
  await service.query(`update payment_intents set ${column} = $1 where idempotency_key = $2`, [
    word.replace('network ', ''),
    call.idempotencyKey,
  ]);
  for (const door of doors) {
    const answer = await door.create({ amount_units: 1 }, call);
    expect([door.name, answer.code, answer.intent]).toEqual([door.name, 'internal', undefined]);
  }
  expect(JSON.stringify(service.log.at(-1))).toContain(`the database holds ${word}`);
});

test('the public JSON has no word for a number that the contract does not have', () => {
  const intent = create(PaymentIntentSchema, { ...({ status: 5 } as object) });
  expect(() => createJsonCodec(PaymentIntentSchema).encode(intent)).toThrow(
    'payments.v1.PaymentIntentStatus has no word for 5',
  );
});
