import { fromString, toUUID } from 'typeid-js';
import { describe, expect, test } from 'vitest';
import { type Door, doors } from './support/call.ts';
import { httpRequest } from './support/service.ts';
import { useService } from './support/use-service.ts';

const service = await useService();

async function create(door: Door, body: Record<string, unknown>, mode: 'testnet' | 'mainnet' = 'testnet') {
  const answer = await service.call('createPaymentIntent', body, {
    door,
    apiKey: service.merchant.keys[mode].apiKey,
  });
  expect(answer, answer.message).toMatchObject({ code: 'ok' });
  return answer.json;
}

/** UUIDv7: the first 48 bits are milliseconds since 1970. */
function createdAtMs(id: string): number {
  return Number.parseInt(toUUID(fromString(id)).replaceAll('-', '').slice(0, 12), 16);
}

describe.each(doors)('over %s', (door) => {
  test('fills in every default', async () => {
    const before = Date.now();
    const intent = await create(door, { amount_units: 1 });
    expect(intent).toEqual({
      id: expect.stringMatching(/^pi_[0-7][0-9a-hjkmnp-tv-z]{25}$/),
      status: 'requires_payment',
      client_secret: expect.stringMatching(new RegExp(`^${intent.id}_secret_[A-Za-z0-9_-]{43}$`)),
      mode: 'testnet',
      chain: 'base',
      chain_id: 84532,
      confirmations_required: 10,
      amount_units: 1,
      decimals: 6,
      token_symbol: 'USDC',
      token_address: '0x036CbD53842c5426634e7929541eC2318f3dCF7e',
      expected_wallet: service.merchant.wallets.testnet.base,
      expires_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      expires_in_minutes: 30,
      lane: 'sdk',
      metadata: {},
    });
    expect(createdAtMs(intent.id)).toBeGreaterThanOrEqual(before);
    expect(createdAtMs(intent.id)).toBeLessThanOrEqual(Date.now());
  });

  test.each([
    ['mainnet', 'base', 8453, 10, '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913'],
    ['mainnet', 'polygon', 137, 12, '0x3c499c542cEF5E3811e1192ce70d8cC03d5c3359'],
    ['testnet', 'base', 84532, 10, '0x036CbD53842c5426634e7929541eC2318f3dCF7e'],
    ['testnet', 'polygon', 80002, 12, '0x41E94Eb019C0762f9Bfcf9Fb1E58725BfB0e7582'],
  ] as const)('uses the chain data of %s %s', async (mode, chain, chainId, confirmations, token) => {
    expect(await create(door, { amount_units: 12_500_000, chain }, mode)).toMatchObject({
      mode,
      chain,
      chain_id: chainId,
      confirmations_required: confirmations,
      token_address: token,
      expected_wallet: service.merchant.wallets[mode][chain],
    });
  });

  test('returns every field as requested', async () => {
    const body = {
      amount_units: 9007199254740991,
      chain: 'polygon',
      wallet_address: '0xd8dA6BF26964aF9D7eEd9e03E53415D37aA96045',
      expires_in_minutes: 7,
      lane: 'manual',
      metadata: {
        order_id: 'order-1',
        nested: { list: [1, 'two', null, true, { deep: 0.1 }] },
        ключ: '✓ 😀',
      },
      token: 'USDC',
    };
    const { token, wallet_address, ...echoed } = body;
    const intent = await create(door, body);
    expect(intent).toMatchObject({ ...echoed, expected_wallet: wallet_address, token_symbol: token });
  });

  test.each([
    [-2147483648, 5],
    [-1, 5],
    [0, 5],
    [4, 5],
    [5, 5],
    [6, 6],
    [59, 59],
    [60, 60],
    [61, 60],
    [2147483647, 60],
  ])('clamps %d minutes to %d, and sets the expiry exactly', async (asked, effective) => {
    const intent = await create(door, { amount_units: 1, expires_in_minutes: asked });
    expect(intent.expires_in_minutes).toBe(effective);
    expect(Date.parse(intent.expires_at) - createdAtMs(intent.id)).toBe(effective * 60_000);
  });

  test('stores what it returns', async () => {
    const intent = await create(door, {
      amount_units: 42,
      chain: 'polygon',
      metadata: { order_id: 'stored' },
    });
    const [row] = await service.query(
      `select merchant_id, i.mode, status, chain, chain_id, confirmations_required, amount_units, decimals, token_symbol,
              '0x' || encode(token_address, 'hex') as token_address, '0x' || encode(expected_wallet, 'hex') as expected_wallet,
              lane, metadata::text, expires_at - created_at = interval '30 minutes' as is_half_an_hour, expires_at,
              idempotency_key
         from payment_intents i join networks n on n.id = i.network where i.id = $1`,
      [toUUID(fromString(intent.id))],
    );
    expect(row).toEqual({
      merchant_id: service.merchant.id,
      mode: 'testnet',
      status: 'requires_payment',
      chain: 'polygon',
      chain_id: 80002,
      confirmations_required: 12,
      amount_units: '42',
      decimals: 6,
      token_symbol: 'USDC',
      token_address: '0x41E94Eb019C0762f9Bfcf9Fb1E58725BfB0e7582'.toLowerCase(),
      expected_wallet: service.merchant.wallets.testnet.polygon?.toLowerCase(),
      lane: 'sdk',
      metadata: '{"order_id":"stored"}',
      is_half_an_hour: true,
      expires_at: new Date(intent.expires_at),
      idempotency_key: null,
    });
  });
});

test('integers beyond int32 and beyond any double are clamped too', async () => {
  const authorization = `Bearer ${service.merchant.keys.testnet.apiKey}`;
  for (const [asked, effective] of [
    ['2147483648', 60],
    ['9007199254740993', 60],
    ['1e400', 60],
    ['-1e400', 5],
    ['-0', 5],
    ['3e1', 30],
    ['3.5e1', 35],
  ] as const) {
    const { status, body } = await httpRequest(
      `${service.publicUrl}/v1/payment_intents`,
      { headers: { Authorization: authorization, 'Content-Type': 'application/json' } },
      `{"amount_units":1,"expires_in_minutes":${asked}}`,
    );
    expect([asked, status, JSON.parse(body).expires_in_minutes]).toEqual([asked, 201, effective]);
  }
});

test('every response of the public door forbids caching and has a request id', async () => {
  const { headers } = await httpRequest(
    `${service.publicUrl}/v1/payment_intents`,
    {
      headers: {
        Authorization: `bEaReR ${service.merchant.keys.testnet.apiKey}`,
        'Content-Type': 'application/json; charset=UTF-8',
      },
    },
    '{"amount_units":1}',
  );
  expect(headers).toMatchObject({
    'content-type': 'application/json',
    'cache-control': 'no-store',
    'x-request-id': expect.stringMatching(/^req_[0-9a-f]{32}$/),
  });
  expect(Object.keys(headers).filter((name) => name.startsWith('access-control'))).toEqual([]);
});
