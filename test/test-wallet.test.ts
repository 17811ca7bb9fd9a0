// The test wallet of the checkout page, on the chains of the embedded mode: a real service, watcher and anvil.

import { pino } from 'pino';
import type { Hex } from 'viem';
import { afterAll, describe, expect, test, vi } from 'vitest';
import { loadConfig } from '../src/config/config.ts';
import { networkFor } from '../src/contract/chains.ts';
import { parseIdentifier } from '../src/database/identifiers.ts';
import type { NodeRequest } from '../src/doors/node-headers.ts';
import { isOwnOrigin } from '../src/doors/public/own-origin.ts';
import { findLocalChain } from '../src/embedded/local-chain.ts';
import { runLocalChains } from '../src/embedded/run-local-chains.ts';
import { testPay } from '../src/processes/chain-tasks.ts';
import { useFolder } from './support/folder.ts';
import { type HttpAnswer, httpRequest, startService, type TestService } from './support/service.ts';
import { createMerchantCalls, idBytes } from './support/settlement.ts';

let stopChains: () => Promise<void>;

const dataDir = await useFolder();
const env = { DATA_DIR: dataDir, RATE_LIMIT_CHECKOUT: '0' };
// The local chain for Polygon is announced, but never runs.
const service = await startService(env, { localChains: ['base', 'polygon'] });
const merchant = createMerchantCalls(service);
const { server, database } = service;
stopChains = runLocalChains(
  { chains: ['base'], missing: undefined },
  loadConfig(env),
  database.orm.em,
  server,
  pino({ level: 'silent' }),
);
await vi.waitUntil(() => findLocalChain(dataDir, 'base'), 30_000);
await vi.waitUntil(async () => (await service.query('select from watched_chains')).length > 0, 30_000);

afterAll(async () => {
  await service.close();
  await stopChains();
});

interface PayOptions {
  headers?: Record<string, string>;
  method?: string;
  from?: TestService;
}

/** Sends the request of a button on the page: this body, as JSON unless it is a string. */
function press(
  secret: string,
  body: unknown,
  { headers = {}, method = 'POST', from = service }: PayOptions = {},
): Promise<HttpAnswer> {
  return httpRequest(
    `${from.publicUrl}/checkout/test-wallet`,
    {
      method,
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json', ...headers },
    },
    typeof body === 'string' ? body : JSON.stringify(body),
  );
}

const exact = { amount: 'exact' };
const codeOf = ({ status, body }: HttpAnswer) => [status, JSON.parse(body).error?.code];

/** Returns the amount, the bytes after the arguments, and the receiver of a payment's transaction. */
async function paidBy(hash: Hex): Promise<{ amountUnits: bigint; suffix: string; to: string | null }> {
  const chain = await findLocalChain(dataDir, 'base');
  if (chain === undefined) throw new Error('no chain');
  const { input, to } = await chain.client.getTransaction({ hash });
  return { amountUnits: BigInt(`0x${input.slice(74, 138)}`), suffix: `0x${input.slice(138)}`, to };
}

async function pressAndRead(secret: string, amount: string): Promise<bigint> {
  const answer = await press(secret, { amount });
  expect([answer.status, answer.body]).toEqual([
    200,
    expect.stringMatching(/^\{"transaction_hash":"0x[0-9a-f]{64}"\}$/),
  ]);
  return (await paidBy(JSON.parse(answer.body).transaction_hash)).amountUnits;
}

describe('the test wallet', () => {
  test('is offered by the page for its chains', async () => {
    const page = await (await fetch(`${service.publicUrl}/checkout`)).text();
    expect(page).toContain('<meta name="test-wallet" content="base polygon">');
  });

  test('pays an intent, which succeeds', async () => {
    const { id, client_secret, amount_units } = await merchant.createIntent();
    const answer = await press(client_secret, exact);
    expect(answer.status).toBe(200);
    expect(answer.headers).toMatchObject({
      'content-type': 'application/json',
      'cache-control': 'no-store',
      'x-request-id': expect.stringMatching(/^req_/),
    });
    expect(await paidBy(JSON.parse(answer.body).transaction_hash)).toEqual({
      amountUnits: BigInt(amount_units),
      suffix: idBytes(id),
      to: networkFor('testnet', 'base').tokenAddress.toLowerCase(),
    });
    await vi.waitUntil(async () => (await merchant.getIntent(id)).status === 'processing', 20_000);
    expect(await merchant.getIntent(id)).toMatchObject({ amount_received_units: amount_units });
    // Nothing is left to pay.
    expect(codeOf(await press(client_secret, exact))).toEqual([409, 'invalid_state']);
  });

  test('pays the missing amount after a partial payment', async () => {
    const { id, client_secret } = await merchant.createIntent({ amount_units: 1_001 });
    expect(await pressAndRead(client_secret, 'too_little')).toBe(500n);
    await vi.waitUntil(async () => (await merchant.getIntent(id)).amount_received_units === 500, 20_000);
    expect(await pressAndRead(client_secret, 'exact')).toBe(501n);
  });

  test.each([
    ['exact', 1, 1n],
    ['too_little', 1, 1n],
    ['too_little', 2, 1n],
    ['too_little', 3, 1n],
    ['too_little', 12_500_001, 6_250_000n],
    ['too_much', 1, 2n],
    ['too_much', 19, 20n],
    ['too_much', 20, 22n],
    ['too_much', 12_500_000, 13_750_000n],
    ['too_much', 9_007_199_254_740_991, 9_907_919_180_215_090n],
  ])('pays for %s of %d units: %d', async (amount, amount_units, expected) => {
    const { client_secret } = await merchant.createIntent({ amount_units });
    expect(await pressAndRead(client_secret, amount)).toBe(expected);
  });

  test('pays in the same way as admin test-pay', async () => {
    const { id } = await merchant.createIntent({ amount_units: 7 });
    const { json } = await testPay(service.database, { intent: id });
    const { transaction_hash } = json as { transaction_hash: Hex };
    expect(await paidBy(transaction_hash)).toMatchObject({ amountUnits: 7n, suffix: idBytes(id) });
    const bare = await testPay(service.database, { intent: id, withoutId: true });
    expect(await paidBy((bare.json as { transaction_hash: Hex }).transaction_hash)).toMatchObject({
      suffix: '0x',
    });
  });
});

const change = (id: string, columns: string) =>
  service.query(`update payment_intents set ${columns} where id = $1`, [parseIdentifier('pi', id)]);

describe('does not pay', () => {
  test.each([
    ['a canceled intent', `status = 'canceled', canceled_at = now()`],
    ['an expired intent', `status = 'expired', expired_at = now()`],
    ['a processing intent', `status = 'processing'`],
    ['a succeeded intent', `status = 'succeeded', succeeded_at = now()`],
    ['a mainnet intent', `mode = 'mainnet', network = 1`],
    ['an intent that has received its amount', 'amount_received_units = amount_units'],
  ])('%s', async (_, columns) => {
    const { id, client_secret } = await merchant.createIntent();
    await change(id, columns);
    expect(codeOf(await press(client_secret, exact))).toEqual([409, 'invalid_state']);
  });

  test('an intent whose chain is not running yet; a retry works', async () => {
    const { client_secret } = await merchant.createIntent({ chain: 'polygon' });
    const answer = await press(client_secret, exact);
    expect([codeOf(answer), answer.headers['retry-after']]).toEqual([[503, 'unavailable'], '1']);
  });

  test('an intent whose wallet the token refuses, with the reason', async () => {
    const { id, client_secret } = await merchant.createIntent();
    await change(id, `expected_wallet = '\\x${'00'.repeat(20)}'`);
    const answer = await press(client_secret, exact);
    expect(codeOf(answer)).toEqual([409, 'invalid_state']);
    expect(JSON.parse(answer.body).error.message).toMatch(/refused.*zero address/);
  });

  test('an intent on a chain that is not local', async () => {
    const { client_secret } = await merchant.createIntent({ chain: 'polygon' });
    const other = await startService(
      { DATA_DIR: dataDir, ROLES: 'api' },
      { beside: service, localChains: ['base'] },
    );
    const answer = await press(client_secret, exact, { from: other });
    await other.close();
    expect(codeOf(answer)).toEqual([409, 'invalid_state']);
  });
});

describe('is refused:', async () => {
  const { client_secret: secret } = await merchant.createIntent();

  test.each<[string, unknown, string | undefined]>([
    ['no amount', {}, 'amount'],
    ['an unknown amount', { amount: 'all' }, 'amount'],
    ['an inherited name', { amount: 'constructor' }, 'amount'],
    ['a number', { amount: 12_500_000 }, 'amount'],
    ['null', { amount: null }, 'amount'],
    ['a list', { amount: ['exact'] }, 'amount'],
    ['a wallet', { amount: 'exact', wallet: '0x0' }, 'wallet'],
    ['__proto__', '{"amount":"exact","__proto__":{}}', '__proto__'],
    ['an array', ['exact'], 'body'],
    ['a string', '"exact"', 'body'],
    ['a number that a double cannot hold', '9007199254740993', 'body'],
    ['a name twice', '{"amount":"exact","amount":"exact"}', undefined],
    ['invalid JSON', '{"amount":', undefined],
    ['nothing', '', undefined],
    ['deep nesting', `${'['.repeat(10_000)}`, undefined],
  ])('a body with %s', async (_, body, field) => {
    const answer = await press(secret, body);
    expect(codeOf(answer)).toEqual([400, 'invalid_body']);
    expect(JSON.parse(answer.body).error.details?.[0].field).toBe(field);
  });

  test('a body that is too large', async () => {
    expect(codeOf(await press(secret, ' '.repeat(70_000)))).toEqual([413, 'body_too_large']);
  });

  test.each(['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data', ''])(
    'a body of the type "%s", which a form on another site could send',
    async (type) => {
      const answer = await press(secret, exact, { headers: { 'content-type': type } });
      expect(codeOf(answer)).toEqual([415, 'unsupported_media_type']);
    },
  );

  test('an invalid client secret, or an API key', async () => {
    for (const other of ['', `${secret}x`, secret.slice(0, -1), service.merchant.keys.testnet.apiKey]) {
      const answer = await press(other, exact);
      expect(codeOf(answer)).toEqual([401, 'client_secret_invalid']);
      expect(answer.headers['www-authenticate']).toBe('Bearer error="invalid_token"');
    }
  });

  test.each(['GET', 'HEAD', 'PUT', 'OPTIONS'])('%s', async (method) => {
    const { status, headers } = await press(secret, '', { method });
    expect([status, headers.allow]).toEqual([405, 'POST']);
  });

  test('a request beyond the rate limit of the checkout, also with made-up secrets', async () => {
    const limited = await startService(
      { DATA_DIR: dataDir, ROLES: 'api', RATE_LIMIT_CHECKOUT: '1', TRUSTED_PROXIES: '127.0.0.0/8' },
      { beside: service, localChains: ['base'] },
    );
    const pressBehindProxy = (given: string, address: string) =>
      press(given, {}, { from: limited, headers: { 'x-forwarded-for': address } });
    const many = (given: string) =>
      Promise.all(Array.from({ length: 5 }, () => pressBehindProxy(given, '203.0.113.7')));
    const [known, guessed] = [await many(secret), await many('pi_guess')];
    const elsewhere = await pressBehindProxy('pi_guess', '198.51.100.2');
    await limited.close();
    expect(elsewhere.status).toBe(401);
    expect(known.map(({ status }) => status).sort()).toEqual([400, 400, 429, 429, 429]);
    expect(guessed.map(({ status }) => status).sort()).toEqual([401, 401, 429, 429, 429]);
    expect(known.find(({ status }) => status === 429)?.headers['retry-after']).toBe('1');
  });
});

describe('a page', () => {
  const pressFrom = async (origin: string, host?: string) => {
    const { client_secret } = await merchant.createIntent();
    const answer = await press(client_secret, exact, { headers: { origin, ...(host && { host }) } });
    const cors = Object.keys(answer.headers).filter((name) => name.startsWith('access-control-'));
    return [answer.status, JSON.parse(answer.body).error?.code ?? 'ok', cors];
  };
  const portOf = () => service.server.ports.http;

  test.each(['localhost', '127.0.0.1'])('of this port may use the test wallet: %s', async (host) => {
    expect(await pressFrom(`http://${host}:${portOf()}`)).toEqual([200, 'ok', []]);
  });

  test.each<[string, (port: number) => string]>([
    ['another site', () => 'https://shop.example'],
    ['another port', (port) => `http://localhost:${port + 1}`],
    ['another scheme', (port) => `https://localhost:${port}`],
    ['a longer name', (port) => `http://localhost.evil.example:${port}`],
    ['a sandboxed frame', () => 'null'],
    ['nowhere', () => ''],
  ])('of %s may not use it', async (_, origin) => {
    expect(await pressFrom(origin(portOf()))).toEqual([403, 'browser_forbidden', []]);
  });

  test('of a name that DNS rebinding points to this machine may not use it', async () => {
    const host = `rebound.example:${portOf()}`;
    expect(await pressFrom(`http://${host}`, host)).toEqual([403, 'browser_forbidden', []]);
  });
});

test.each<[string, string, string, number, 'http' | 'https', boolean]>([
  ['localhost', 'http://localhost:8080', '192.0.2.1', 8080, 'http', true],
  ['the address of the connection', 'http://192.0.2.1:8080', '192.0.2.1', 8080, 'http', true],
  ['another address', 'http://192.0.2.2:8080', '192.0.2.1', 8080, 'http', false],
  ['IPv6', 'http://[2001:db8::1]:8080', '2001:db8::1', 8080, 'http', true],
  ['IPv4 in IPv6', 'http://192.0.2.1:8080', '::ffff:192.0.2.1', 8080, 'http', true],
  ['TLS', 'https://localhost:8443', '127.0.0.1', 8443, 'https', true],
  ['TLS on a port without', 'https://localhost:8080', '127.0.0.1', 8080, 'http', false],
  ['the port of http', 'http://localhost', '127.0.0.1', 80, 'http', true],
  ['the port of https', 'https://localhost', '127.0.0.1', 443, 'https', true],
  ['the port of http over TLS', 'https://localhost', '127.0.0.1', 80, 'https', false],
  ['a closed connection', 'http://', '', 8080, 'http', false],
])('recognises the own origin of a port: %s', (_, origin, localAddress, localPort, scheme, expected) => {
  const request = { socket: { localAddress, localPort } } as unknown as NodeRequest;
  expect(isOwnOrigin(origin, request, scheme)).toBe(expected);
});

test('requests of the test wallet are logged with the intent, and without the secret', async () => {
  const { id, client_secret } = await merchant.createIntent();
  const { headers } = await press(client_secret, exact);
  const line = await service.loggedLine(({ request_id }) => request_id === headers['x-request-id']);
  expect(line).toMatchObject({ rpc: 'test_wallet', payment_intent: id, code: 'ok' });
  expect(JSON.stringify(service.log)).not.toMatch(/_secret_[\w-]{20}/);
});
