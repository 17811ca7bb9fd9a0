// A row with a value that only a newer version knows is refused, not misread.

import { create } from '@bufbuild/protobuf';
import { beforeAll, describe, expect, test } from 'vitest';
import { PaymentIntentSchema } from '../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { createJsonCodec } from '../src/contract/json/json-codec.ts';
import { parseIdentifier } from '../src/database/identifiers.ts';
import { doors } from './support/call.ts';
import { insertTransfers } from './support/transfer-rows.ts';
import { useService } from './support/use-service.ts';

const service = await useService();

beforeAll(async () => {
  // Simulates a newer version's migration.
  await service.query("alter type payment_intent_status add value 'refunded'");
  await service.query("alter type payment_lane add value 'express'");
});

/** Creates an intent, sets a column of its row, and returns how to create it again. */
async function createNewer(column: string, value: string) {
  const idempotencyKey = `newer-${column}-${value}`;
  const { json } = await service.call('createPaymentIntent', { amount_units: 1 }, { idempotencyKey });
  await service.query(`update payment_intents set ${column} = $1 where id = $2`, [
    value,
    parseIdentifier('pi', json.id),
  ]);
  return { idempotencyKey, json };
}

const expectLogged = (word: string) =>
  expect(JSON.stringify(service.log.at(-1))).toContain(`the database holds ${word}`);

describe.each([
  ['status', 'refunded', 'refunded'],
  ['network', '99', 'network 99'],
  ['lane', 'express', 'express'],
])('an intent whose %s is now "%s"', (column, value, word) => {
  test('is refused by retrieval, cancellation and lists, and not misread', async () => {
    const { json } = await createNewer(column, value);
    for (const door of doors) {
      for (const answer of [
        await service.call('getPaymentIntent', { id: json.id }, { door }),
        await service.call('cancelPaymentIntent', { id: json.id }, { door }),
        await service.call('listPaymentIntents', {}, { door }),
      ]) {
        expect([door, answer.code]).toEqual([door, 'internal']);
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
  const { idempotencyKey } = await createNewer(column, value);
  for (const door of doors) {
    const answer = await service.call('createPaymentIntent', { amount_units: 1 }, { door, idempotencyKey });
    expect([door, answer.code, answer.json]).toEqual([door, 'internal', {}]);
    expectLogged(word);
  }
});

test.each(['refunded', 'succeeded'])(
  'a replay of an intent whose status is now "%s" returns what the creation returned',
  async (status) => {
    const { idempotencyKey, json } = await createNewer('status', status);
    for (const door of doors) {
      expect(
        await service.call('createPaymentIntent', { amount_units: 1 }, { door, idempotencyKey }),
      ).toMatchObject({ replayed: true, json });
    }
  },
);

test('a transfer on an unknown newer chain is refused by lists, not misread', async () => {
  await insertTransfers(service, service.merchant, [{}]);
  await service.query('update transfers set chain_id = 424242');
  for (const door of doors) {
    expect([door, (await service.call('listTransfers', {}, { door })).code]).toEqual([door, 'internal']);
    expectLogged('chain 424242');
  }
});

test('a number that is not in the enum of the contract cannot be written as public JSON', () => {
  const intent = create(PaymentIntentSchema, { ...({ status: 99 } as object) });
  expect(() => createJsonCodec(PaymentIntentSchema).encode(intent)).toThrow(
    'payments.v1.PaymentIntentStatus has no word for 99',
  );
});
