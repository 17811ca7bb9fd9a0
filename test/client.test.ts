import { readFile } from 'node:fs/promises';
import { describe, expect, test } from 'vitest';
import {
  type CreatePaymentIntent,
  createPaymentIntentsClient,
  type PaymentIntentsClientOptions,
  PaymentIntentsError,
} from '../client/index.ts';
import { createPaymentIntentsClient as createJsonClient } from '../client/json.ts';
import { startLossyNetwork } from './support/lossy-network.ts';
import { startService } from './support/service.ts';
import { useService } from './support/use-service.ts';

const service = await useService();

describe.each(['json', 'grpc'] as const)('over %s', (protocol) => {
  const port = () => service.server.ports[protocol === 'json' ? 'http' : 'grpc'];
  const clientAt = (toPort: number, change: Partial<PaymentIntentsClientOptions> = {}) =>
    createPaymentIntentsClient({
      baseUrl: `http://127.0.0.1:${toPort}`,
      apiKey: service.merchant.keys.testnet.apiKey,
      protocol,
      ...change,
    });

  test('returns the intent with all its fields', async () => {
    const intent = await clientAt(port()).createPaymentIntent({
      amountUnits: 12_500_000n,
      chain: 'polygon',
      expiresInMinutes: 45,
      lane: 'manual',
      metadata: { order_id: 'order-1', nested: [1, null, { a: 'b' }] },
    });
    expect(intent).toEqual({
      id: expect.stringMatching(/^pi_/),
      status: 'requires_payment',
      clientSecret: expect.stringMatching(/^pi_.*_secret_/),
      mode: 'testnet',
      chain: 'polygon',
      chainId: 80002,
      confirmationsRequired: 12,
      amountUnits: 12_500_000n,
      decimals: 6,
      tokenSymbol: 'USDC',
      tokenAddress: '0x41E94Eb019C0762f9Bfcf9Fb1E58725BfB0e7582',
      expectedWallet: service.merchant.wallets.testnet.polygon,
      expiresAt: expect.any(Date),
      expiresInMinutes: 45,
      lane: 'manual',
      metadata: { order_id: 'order-1', nested: [1, null, { a: 'b' }] },
      replayed: false,
    });
  });

  test('the largest amount is exact, and a larger one is refused', async () => {
    const client = clientAt(port());
    const { amountUnits } = await client.createPaymentIntent({ amountUnits: 2n ** 53n - 1n });
    expect(amountUnits).toBe(9007199254740991n);
    await expect(client.createPaymentIntent({ amountUnits: 2n ** 53n + 1n })).rejects.toMatchObject({
      code: 'invalid_body',
    });
  });

  test('each call uses a new idempotency key, or the given one', async () => {
    const client = clientAt(port());
    const [a, b] = [
      await client.createPaymentIntent({ amountUnits: 1 }),
      await client.createPaymentIntent({ amountUnits: 1 }),
    ];
    expect(a.id).not.toBe(b.id);
    const idempotencyKey = `${protocol}-given`;
    const first = await client.createPaymentIntent({ amountUnits: 1 }, { idempotencyKey });
    const again = await client.createPaymentIntent({ amountUnits: 1 }, { idempotencyKey });
    expect(again).toEqual({ ...first, replayed: true });
  });

  test('an expired intent keeps its key; the next attempt at its order uses another key', async () => {
    const client = clientAt(port());
    const order = `${protocol}-order-1001`;
    const first = await client.createPaymentIntent({ amountUnits: 1 }, { idempotencyKey: order });
    await service.query(
      `update payment_intents set created_at = created_at - interval '1 day', expires_at = expires_at - interval '1 day'
       where idempotency_key = $1`,
      [order],
    );
    const replay = await client.createPaymentIntent({ amountUnits: 1 }, { idempotencyKey: order });
    expect(replay).toMatchObject({ id: first.id, replayed: true });
    expect(replay.expiresAt.getTime()).toBeLessThan(Date.now());
    const second = await client.createPaymentIntent({ amountUnits: 1 }, { idempotencyKey: `${order}/2` });
    expect(second.replayed).toBe(false);
    expect(second.expiresAt.getTime()).toBeGreaterThan(Date.now());
  });

  test('a lost request and a lost answer are retried with the same key and create one intent', async () => {
    const network = await startLossyNetwork(port());
    const mark = `${protocol} lossy`;
    const intent = await clientAt(network.port).createPaymentIntent({
      amountUnits: 1,
      metadata: { mark },
    });
    network.close();
    // The client chose the key: a second key would have created a second intent.
    expect(intent.replayed).toBe(true);
    expect(
      await service.query(`select id from payment_intents where metadata->>'mark' = $1`, [mark]),
    ).toHaveLength(1);
  });

  test.each<[string, Record<string, unknown>]>([
    ['chain', { chain: 'solana' }],
    ['lane', { lane: 'fast' }],
    ['token', { token: 'DAI' }],
    ['amount_units', { amountUnits: 1.5 }],
    ['amount_units', { amountUnits: 2n ** 64n }],
    ['expires_in_minutes', { expiresInMinutes: 1.5 }],
  ])('input that the types forbid is refused and not retried: %s in %o', async (field, change) => {
    const linesBefore = service.log.length;
    const create = { amountUnits: 1, ...change } as CreatePaymentIntent;
    const error = await clientAt(port())
      .createPaymentIntent(create)
      .catch((reason) => reason);
    expect(error).toMatchObject({ code: 'invalid_body', isRetryable: false });
    expect(error.message + JSON.stringify(error.details)).toMatch(
      new RegExp(`${field}|expiresInMinutes|expires_in`),
    );
    expect(service.log.length - linesBefore).toBeLessThanOrEqual(1);
  });

  test('a refusal is a typed error and is not retried', async () => {
    const linesBefore = service.log.length;
    const error = await clientAt(port())
      .createPaymentIntent({ amountUnits: 0, walletAddress: 'nobody' })
      .catch((reason) => reason);
    expect(error).toBeInstanceOf(PaymentIntentsError);
    expect(error).toMatchObject({
      code: 'invalid_body',
      requestId: expect.stringMatching(/^req_/),
      details: [
        { field: 'amount_units', message: expect.any(String) },
        { field: 'wallet_address', message: expect.any(String) },
      ],
      isRetryable: false,
    });
    expect(service.log.slice(linesBefore).filter(({ code }) => code === 'invalid_body')).toHaveLength(1);
    const badKey = clientAt(port(), { apiKey: 'sk_testnet_nonsense' });
    await expect(badKey.createPaymentIntent({ amountUnits: 1 })).rejects.toMatchObject({
      code: 'api_key_invalid',
    });
  });

  test('nothing listens: fails after the last try, and the error has the idempotency key', async () => {
    const client = clientAt(1, { maxTries: 2 });
    const error = await client.createPaymentIntent({ amountUnits: 1 }).catch((reason) => reason);
    expect(error).toMatchObject({ code: 'network', isRetryable: true, requestId: undefined });
    expect(error.idempotencyKey).toMatch(/^[0-9a-f-]{36}$/);
  });

  test('Retry-After is respected', async () => {
    const limited = await startService({ RATE_LIMIT: '1' });
    const client = createPaymentIntentsClient({
      baseUrl: protocol === 'json' ? limited.publicUrl : limited.internalUrl,
      apiKey: limited.merchant.keys.testnet.apiKey,
      protocol,
    });
    // A limit of one allows a burst of two; the third is told to retry after a second.
    await Promise.all([1, 2].map(() => client.createPaymentIntent({ amountUnits: 1 })));
    const startedAtMs = performance.now();
    await client.createPaymentIntent({ amountUnits: 1 });
    expect(performance.now() - startedAtMs).toBeGreaterThan(950);
    expect(limited.log.filter(({ code }) => code === 'rate_limited')).toHaveLength(1);
    await limited.close();
  });

  test('a signal aborts the call', async () => {
    const ended = AbortSignal.timeout(50);
    const call = clientAt(1, { maxTries: 50 }).createPaymentIntent({ amountUnits: 1 }, { signal: ended });
    await expect(call).rejects.toMatchObject({ name: 'TimeoutError' });
  });
});

test.each([
  ['seconds', '1'],
  ['a date', () => new Date(Date.now() + 2_000).toUTCString()],
])('a 503 from a proxy is understood, with Retry-After in %s', async (_, retryAfter) => {
  const unavailableOnce = typeof retryAfter === 'string' ? retryAfter : retryAfter();
  const network = await startLossyNetwork(service.server.ports.http, { unavailableOnce });
  const client = createPaymentIntentsClient({
    baseUrl: `http://127.0.0.1:${network.port}`,
    apiKey: service.merchant.keys.testnet.apiKey,
  });
  const startedAtMs = performance.now();
  const intent = await client.createPaymentIntent({ amountUnits: 1 });
  network.close();
  expect(intent.replayed).toBe(true);
  expect(performance.now() - startedAtMs).toBeGreaterThan(950);
});

test('a Retry-After of more than a minute is not waited for', async () => {
  const network = await startLossyNetwork(service.server.ports.http, { unavailableOnce: '3600' });
  const client = createPaymentIntentsClient({
    baseUrl: `http://127.0.0.1:${network.port}`,
    apiKey: service.merchant.keys.testnet.apiKey,
  });
  await expect(client.createPaymentIntent({ amountUnits: 1 })).rejects.toMatchObject({
    code: 'unavailable',
    retryAfterMs: 3_600_000,
  });
  network.close();
});

test('refuses to run in a browser', () => {
  const browser = globalThis as { window?: unknown };
  browser.window = {};
  try {
    for (const create of [createPaymentIntentsClient, createJsonClient]) {
      expect(() => create({ baseUrl: 'http://x', apiKey: 'x' })).toThrow(/servers only/);
    }
  } finally {
    delete browser.window;
  }
});

test.each([
  'docs/integrate.md',
  'client/README.md',
  'src/contract/gen/openapi.json',
  'examples/checkout-server.ts',
  'examples/create-payment-intent.sh',
])('%s says how long an idempotency key lives, and what to do afterwards', async (file) => {
  const text = (await readFile(file, 'utf8')).replaceAll(/\s+(?:[#*] )?/g, ' ');
  expect(text).toMatch(/key lives as long as (?:its|the) intent/);
  expect(text).toMatch(/expired/);
  expect(text).toContain('order-1001/2');
});
