import { randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { type Answer, type Door, doors, type Request } from './support/call.ts';
import { useService } from './support/use-service.ts';

const service = await useService();

const create = (
  door: Door,
  body: Request,
  idempotencyKey: string,
  apiKey = service.merchant.keys.testnet.apiKey,
) => service.call('createPaymentIntent', body, { door, apiKey, idempotencyKey });

const rowsWith = async (key: string) =>
  Number(
    (
      await service.query<{ n: string }>(
        'select count(*) as n from payment_intents where idempotency_key = $1',
        [key],
      )
    )[0]?.n,
  );

describe.each([
  ['json', 'json'],
  ['json', 'grpc'],
  ['grpc', 'json'],
  ['grpc', 'grpc'],
] as const)('first over %s, then over %s', (first, second) => {
  const body = {
    amount_units: 5,
    chain: 'polygon',
    expires_in_minutes: 45,
    lane: 'manual',
    wallet_address: '0xd8dA6BF26964aF9D7eEd9e03E53415D37aA96045',
    metadata: { b: 1, a: { '2': [0.1, null], '1': 'x' }, ключ: '😀' },
  };

  test('the same key and request return the same intent', async () => {
    const key = randomUUID();
    const original = await create(first, body, key);
    const again = await create(second, body, key);
    expect([original.code, original.replayed]).toEqual(['ok', false]);
    expect([again.code, again.replayed]).toEqual(['ok', true]);
    expect(again.json).toEqual(original.json);
    expect(JSON.stringify(again.json.metadata)).toBe(JSON.stringify(original.json.metadata));
    expect(await rowsWith(key)).toBe(1);
  });

  test.each<[string, Request]>([
    ['in other words', { ...body, wallet_address: body.wallet_address.toLowerCase(), token: 'USDC' }],
    [
      'with its metadata in another order',
      { ...body, metadata: { ключ: '😀', a: { '1': 'x', '2': [0.1, null] }, b: 1 } },
    ],
  ])('the request %s is the same request', async (_, same) => {
    const key = randomUUID();
    const original = await create(first, body, key);
    expect(await create(second, same, key)).toMatchObject({
      code: 'ok',
      replayed: true,
      json: original.json,
    });
  });

  test('explicit defaults and values that are clamped to the same result are the same request', async () => {
    const key = randomUUID();
    const original = await create(first, { amount_units: 1, expires_in_minutes: 61 }, key);
    const same = { amount_units: 1, chain: 'base', lane: 'sdk', expires_in_minutes: 100_000, metadata: {} };
    expect(await create(second, same, key)).toMatchObject({
      code: 'ok',
      replayed: true,
      json: original.json,
    });
  });

  test.each<[string, Request]>([
    ['amount', { ...body, amount_units: 6 }],
    ['chain', { ...body, chain: 'base' }],
    ['expiry', { ...body, expires_in_minutes: 46 }],
    ['lane', { ...body, lane: 'sdk' }],
    ['wallet', { ...body, wallet_address: undefined }],
    ['metadata', { ...body, metadata: { ...body.metadata, b: '1' } }],
    ['metadata, by one more key', { ...body, metadata: { ...body.metadata, c: null } }],
    [
      'order of a list in its metadata',
      { ...body, metadata: { ...body.metadata, a: { '2': [null, 0.1], '1': 'x' } } },
    ],
  ])('the same key with a different %s is refused and changes nothing', async (_, other) => {
    const key = randomUUID();
    const original = await create(first, body, key);
    expect((await create(second, other, key)).code).toBe('idempotency_key_reused');
    expect((await create(first, body, key)).json).toEqual(original.json);
    expect(await rowsWith(key)).toBe(1);
  });

  test('a refused request does not use up its key', async () => {
    const key = randomUUID();
    expect((await create(first, { amount_units: 0 }, key)).code).toBe('invalid_body');
    expect(await create(second, body, key)).toMatchObject({ code: 'ok', replayed: false });
  });
});

test('a bare and a quoted key are the same key', async () => {
  const key = `a"b\\c-${randomUUID()}`;
  const original = await create('json', { amount_units: 1 }, key);
  const quoted = `"${key.replace(/[\\"]/g, '\\$&')}"`;
  expect(await create('grpc', { amount_units: 1 }, quoted)).toMatchObject({
    replayed: true,
    json: original.json,
  });
});

test('a key may have 255 characters', async () => {
  const key = 'k'.repeat(255);
  const original = await create('json', { amount_units: 1 }, key);
  expect(await create('grpc', { amount_units: 1 }, key)).toMatchObject({
    replayed: true,
    json: original.json,
  });
});

test('keys of different merchants and modes are independent', async () => {
  const other = await service.newMerchant();
  const key = randomUUID();
  const apiKeys = [service.merchant, other].flatMap(({ keys }) => [keys.testnet.apiKey, keys.mainnet.apiKey]);
  const answers = await Promise.all(
    apiKeys.flatMap((apiKey, i) => doors.map((door) => create(door, { amount_units: i + 1 }, key, apiKey))),
  );
  expect(answers.map(({ code }) => code)).toEqual(Array(8).fill('ok'));
  expect(new Set(answers.map(({ json }) => json.id)).size).toBe(4);
  expect(await rowsWith(key)).toBe(4);
});

test('a retry returns the same intent after the merchant has changed its wallet', async () => {
  const merchant = await service.newMerchant();
  const key = randomUUID();
  const original = await create('json', { amount_units: 1 }, key, merchant.keys.testnet.apiKey);
  await service.query(`update payout_wallets set address = $1 where merchant_id = $2`, [
    `0x${'6'.repeat(40)}`,
    merchant.id,
  ]);
  await service.keyChangesHeard();
  expect(await create('grpc', { amount_units: 1 }, key, merchant.keys.testnet.apiKey)).toMatchObject({
    replayed: true,
    json: original.json,
  });
});

test('without a key every call creates an intent', async () => {
  const authorization = `Bearer ${service.merchant.keys.testnet.apiKey}`;
  const answers = await Promise.all(
    doors.flatMap((d) => [
      service.call('createPaymentIntent', { amount_units: 1 }, { door: d, authorization }),
      service.call('createPaymentIntent', { amount_units: 1 }, { door: d, authorization }),
    ]),
  );
  expect(new Set(answers.map(({ json }) => json.id)).size).toBe(4);
});

test('100 keys, each sent by 16 calls at once over both doors: one row per key, 1,600 equal answers', async () => {
  const keys = Array.from({ length: 100 }, () => randomUUID());
  const answersByKey = new Map<string, Answer[]>();
  const calls = keys.flatMap((key, n) =>
    Array.from({ length: 16 }, (_, i) => ({ key, n, door: doors[i % 2] as Door })),
  );
  // All calls of one key are adjacent, so 64 concurrent callers contend for at least four keys.
  let next = 0;
  const caller = async () => {
    for (let call = calls[next++]; call !== undefined; call = calls[next++]) {
      const answer = await create(call.door, { amount_units: call.n + 1, metadata: { n: call.n } }, call.key);
      answersByKey.set(call.key, [...(answersByKey.get(call.key) ?? []), answer]);
    }
  };
  await Promise.all(Array.from({ length: 64 }, caller));

  const answers = [...answersByKey.values()];
  expect(answers.flat()).toHaveLength(1600);
  expect(answers.flat().filter(({ code }) => code !== 'ok')).toEqual([]);
  for (const sameKey of answers) {
    expect(new Set(sameKey.map(({ json }) => JSON.stringify(json))).size).toBe(1);
    expect(sameKey.filter(({ replayed }) => !replayed)).toHaveLength(1);
  }
  const rows = await service.query<{ rows: string; keys: string }>(
    'select count(*) as rows, count(distinct idempotency_key) as keys from payment_intents where idempotency_key = any($1)',
    [keys],
  );
  expect(rows).toEqual([{ rows: '100', keys: '100' }]);
});
