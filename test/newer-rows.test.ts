// A row with a value that only a newer version knows is not misread.

import { create } from '@bufbuild/protobuf';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { PaymentIntentSchema } from '../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { createJsonCodec } from '../src/contract/json/json-codec.ts';
import { parseIdentifier } from '../src/database/identifiers.ts';
import { type Door, type Intent, openDoors } from './support/doors.ts';
import { type IntentMethods, openIntentMethods } from './support/intent-methods.ts';
import { startService, type TestService } from './support/service.ts';
import { openTransferMethods } from './support/transfer-methods.ts';
import { insertTransfers } from './support/transfer-rows.ts';

let service: TestService;
let doors: [Door, Door];
let methods: [IntentMethods, IntentMethods];
let apiKey: string;

beforeAll(async () => {
  service = await startService();
  doors = openDoors(service);
  methods = openIntentMethods(service);
  apiKey = service.merchant.keys.testnet.apiKey;
  // Simulates a newer version's migration.
  await service.query("alter type payment_intent_status add value 'refunded'");
  await service.query("alter type payment_lane add value 'express'");
});

afterAll(async () => {
  for (const each of [...doors, ...methods]) each.close();
  await service.close();
});

/** Creates an intent, sets a column of its row, and returns how to create it again. */
async function createNewer(column: string, value: string) {
  const call = { authorization: `Bearer ${apiKey}`, idempotencyKey: `newer-${column}-${value}` };
  const { intent } = await doors[0].create({ amount_units: 1 }, call);
  const { id } = intent as Intent;
  await service.query(`update payment_intents set ${column} = $1 where id = $2`, [
    value,
    parseIdentifier('pi', id),
  ]);
  return { call, id, intent: intent as Intent };
}

const expectLogged = (word: string) =>
  expect(JSON.stringify(service.log.at(-1))).toContain(`the database holds ${word}`);

describe.each([
  ['status', 'refunded', 'refunded'],
  ['network', '99', 'network 99'],
  ['lane', 'express', 'express'],
])('an intent whose %s is now "%s"', (column, value, word) => {
  test('is refused by retrieval, cancellation and lists, and not misread', async () => {
    const { id } = await createNewer(column, value);
    for (const door of methods) {
      for (const answer of [
        await door.get(id, apiKey),
        await door.cancel(id, apiKey),
        await door.list({}, apiKey),
      ]) {
        expect([door.name, answer.code]).toEqual([door.name, 'internal']);
        expectLogged(word);
      }
    }
    await service.query('delete from payment_intents');
  });
});

test.each([
  ['network', '99', 'network 99'],
  ['lane', 'express', 'express'],
])('a replay of an intent whose %s is now "%s" is refused, not misread', async (column, value, word) => {
  const { call } = await createNewer(column, value);
  for (const door of doors) {
    const answer = await door.create({ amount_units: 1 }, call);
    expect([door.name, answer.code, answer.intent]).toEqual([door.name, 'internal', undefined]);
    expectLogged(word);
  }
});

test.each(['refunded', 'succeeded'])(
  'a replay of an intent whose status is now "%s" returns what the creation returned',
  async (status) => {
    const { call, intent } = await createNewer('status', status);
    for (const door of doors) {
      expect(await door.create({ amount_units: 1 }, call)).toMatchObject({ replayed: true, intent });
    }
  },
);

test('a transfer on an unknown newer chain is refused by lists, not misread', async () => {
  await insertTransfers(service, service.merchant, [{}]);
  await service.query('update transfers set chain_id = 424242');
  for (const door of openTransferMethods(service)) {
    expect([door.name, (await door.list({}, apiKey)).code]).toEqual([door.name, 'internal']);
    expectLogged('chain 424242');
    door.close();
  }
});

test('the public JSON has no word for a number that the contract does not have', () => {
  const intent = create(PaymentIntentSchema, { ...({ status: 99 } as object) });
  expect(() => createJsonCodec(PaymentIntentSchema).encode(intent)).toThrow(
    'payments.v1.PaymentIntentStatus has no word for 99',
  );
});
