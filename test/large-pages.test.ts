// A page counts against the rate limit by what it holds, and a large one yields to the event loop.

import { afterEach, describe, expect, test, vi } from 'vitest';
import { newUuid } from '../src/database/identifiers.ts';
import { createPositioner } from '../src/events/position-events.ts';
import { type Door, doors } from './support/call.ts';
import { insertEventRows } from './support/event-rows.ts';
import { insertIntents } from './support/intent-rows.ts';
import { httpRequest, type TestMerchant } from './support/service.ts';
import { useService } from './support/use-service.ts';

const service = await useService({ ROLES: 'api', RATE_LIMIT: '500' });

/** Another process, with an allowance of 10 requests. */
const strict = await useService({ ROLES: 'api', RATE_LIMIT_READS: '5' }, { beside: service });

/** The allowance of a key that has sent nothing yet. */
const burst = 1_000;

afterEach(() => {
  vi.restoreAllMocks();
});

/** A merchant with intents that have this many payments each. */
async function withIntents(count: number, payments: number, metadata = '{}'): Promise<TestMerchant> {
  const merchant = await service.newMerchant();
  const columns = { status: `'succeeded'`, payments_count: String(payments), metadata: `'${metadata}'` };
  await insertIntents(service, { merchantId: merchant.id, count, firstAtMs: Date.now(), columns });
  await service.query(
    `insert into transfers (id, merchant_id, mode, chain_id, transaction_hash, log_index, block_number, block_hash, block_time,
                            from_address, to_address, token_address, amount_units, ordinal, state, payment_intent, counts, created_at)
     select gen_random_uuid(), merchant_id, mode, 84532, decode(md5(id::text || n), 'hex') || '\\x00000000000000000000000000000000', n, 1,
            decode(repeat('01', 32), 'hex'), now(), decode(repeat('02', 20), 'hex'), expected_wallet,
            decode(repeat('03', 20), 'hex'), 1, 0, 'confirmed', id, true, now()
       from payment_intents, generate_series(1, $2::int) as n where merchant_id = $1`,
    [merchant.id, payments],
  );
  return merchant;
}

/** A merchant with events whose data has this many characters each. */
async function withEvents(count: number, characters: number): Promise<TestMerchant> {
  const merchant = await service.newMerchant();
  const data = `{"payment_intent":{"id":"${'x'.repeat(characters - 28)}"}}`;
  expect(data).toHaveLength(characters);
  const events = Array.from({ length: count }, () => ({
    merchantId: merchant.id,
    paymentIntent: newUuid(),
    data,
  }));
  await insertEventRows(service.query, events);
  await createPositioner(service.database.orm.em).positionAll();
  return merchant;
}

/** Lists over HTTP. `left` is the remaining allowance. */
async function list({ keys }: TestMerchant, path: string) {
  const { body, headers, status } = await httpRequest(`${service.publicUrl}/v1/${path}`, {
    method: 'GET',
    headers: { authorization: `Bearer ${keys.testnet.apiKey}` },
  });
  const [, left] = /r=(\d+)/.exec(String(headers.ratelimit)) ?? [];
  return { json: JSON.parse(body), left: Number(left), status };
}

describe('the rate limit counts what a page holds', () => {
  test.each([
    ['20 intents with a payment each', 20, 1, 1],
    ['100 intents without payments', 100, 0, 5],
    ['20 intents with 40 payments each', 20, 40, 40],
    ['an intent with 100 payments', 1, 100, 5],
  ])('%s', async (_, count, payments, cost) => {
    const { json, left } = await list(await withIntents(count, payments), 'payment_intents?page_size=100');
    expect(json.payment_intents).toHaveLength(count);
    expect(json.payment_intents.every((intent: object) => lengthOf(intent) === payments)).toBe(true);
    expect(left).toBe(burst - cost);
  });

  test('metadata of 16 KiB', async () => {
    const merchant = await withIntents(20, 0, JSON.stringify({ text: 'x'.repeat(16 * 1_024 - 11) }));
    expect((await list(merchant, 'payment_intents')).left).toBe(burst - 8);
  });

  test('refunds with metadata of 16 KiB', async () => {
    const merchant = await withIntents(1, 20);
    const { apiKey } = merchant.keys.testnet;
    const { payment_intents } = (await service.call('listPaymentIntents', {}, { apiKey })).json;
    const metadata = { text: 'x'.repeat(16 * 1_024 - 11) };
    const destination = `0x${'4'.repeat(40)}`;
    const asked = { payment_intent: payment_intents[0]?.id, amount_units: 1, destination, metadata };
    for (let i = 0; i < 10; i++) {
      expect((await service.call('createRefund', asked, { apiKey })).json.metadata).toEqual(metadata);
    }
    const { json, left } = await list(merchant, 'refunds');
    expect(json.refunds).toHaveLength(10);
    expect(left).toBe(burst - 4);
  });

  test.each([
    ['20 events of 2 KiB', 20, 2_048, 1],
    ['100 events of 1 KiB', 100, 1_024, 5],
    ['20 events of 64 KiB', 20, 65_536, 32],
  ])('%s', async (_, count, characters, cost) => {
    const { json, left } = await list(await withEvents(count, characters), 'events?page_size=100');
    expect(json.events).toHaveLength(count);
    expect(left).toBe(burst - cost);
  });

  test.each(doors)('over %s: a key that has read a page of 10,000 payments is in debt', async (door) => {
    const { keys } = await withIntents(100, 100);
    const page = () =>
      strict.call('listPaymentIntents', { page_size: 100 }, { door, apiKey: keys.testnet.apiKey });
    expect((await page()).code).toBe('ok');
    expect((await page()).code).toBe('rate_limited');
  });

  test.each(doors)('over %s: a key that has read a page of 3 MiB of events is in debt', async (door) => {
    const { keys } = await withEvents(50, 65_536);
    const page = () => strict.call('listEvents', { page_size: 100 }, { door, apiKey: keys.testnet.apiKey });
    expect((await page()).code).toBe('ok');
    expect((await page()).code).toBe('rate_limited');
  });
});

function lengthOf({ payments = [] }: { payments?: unknown[] }): number {
  return payments.length;
}

describe('a page yields to the event loop', () => {
  /** Returns a function that returns how often sliced work has yielded. */
  const countTurns = () => {
    const immediates = vi.spyOn(globalThis, 'setImmediate');
    return () => immediates.mock.calls.filter(([callback]) => callback.name === 'resumeNext').length;
  };
  const intentsOf = (door: Door, merchant: TestMerchant) =>
    service.call('listPaymentIntents', { page_size: 100 }, { door, apiKey: merchant.keys.testnet.apiKey });

  test.each(doors)('over %s if it is large', async (door) => {
    const merchant = await withIntents(100, 100);
    const turns = countTurns();
    expect((await intentsOf(door, merchant)).json.payment_intents).toHaveLength(100);
    expect(turns()).toBeGreaterThan(5);
  });

  test.each(doors)('over %s never if it is small', async (door) => {
    const merchant = await withIntents(20, 1);
    const turns = countTurns();
    expect((await intentsOf(door, merchant)).json.payment_intents).toHaveLength(20);
    expect(turns()).toBe(0);
  });

  test('of large events over gRPC', async () => {
    const { keys } = await withEvents(50, 65_536);
    const turns = countTurns();
    const answer = await service.call(
      'listEvents',
      { page_size: 100 },
      { door: 'grpc', apiKey: keys.testnet.apiKey },
    );
    expect(answer.json.events).toHaveLength(50);
    expect(turns()).toBeGreaterThan(0);
  });
});
