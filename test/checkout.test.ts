import { randomBytes } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { parseKeyRing } from '../src/config/key-ring.ts';
import { parseIdentifier } from '../src/database/identifiers.ts';
import { createClientAddress } from '../src/doors/client-address.ts';
import { setOrigins } from '../src/merchants/administration.ts';
import { clientSecret, intentOpenedBy } from '../src/payment-intents/payment-intent.ts';
import { type HttpAnswer, httpRequest } from './support/service.ts';
import { createMerchantCalls } from './support/settlement.ts';
import { insertTransfers } from './support/transfer-rows.ts';
import { useService } from './support/use-service.ts';

const older = `1:${randomBytes(32).toString('base64')}`;
const secrets = { CLIENT_SECRET_KEYS: `2:${randomBytes(32).toString('base64')},${older}` };
const metadata = { order_id: 'mark-of-metadata' };

const service = await useService({ ROLES: 'api', RATE_LIMIT_CHECKOUT: '0' }, { secrets });

const merchant = createMerchantCalls(service);

type Headers = Record<string, string>;

const get = (secret: string | undefined, headers: Headers = {}, from = service): Promise<HttpAnswer> =>
  httpRequest(`${from.publicUrl}/v1/checkout`, {
    method: 'GET',
    headers: { ...(secret !== undefined && { authorization: `Bearer ${secret}` }), ...headers },
  });

const codeOf = ({ status, body }: HttpAnswer) => [status, body === '' ? '' : JSON.parse(body).error?.code];

describe('a checkout', () => {
  test('has only the fields that a payer may see', async () => {
    const {
      client_secret,
      metadata: _,
      expires_in_minutes,
      ...shown
    } = await merchant.createIntent({ metadata });
    const answer = await get(client_secret);
    expect(answer.status).toBe(200);
    expect(JSON.parse(answer.body)).toEqual({
      ...shown,
      merchant_name: 'Test merchant',
      amount_received_units: 0,
      payments_count: 0,
      allowed_origins: [],
      gasless: false,
    });
    expect(answer.headers).toMatchObject({
      'cache-control': 'no-store',
      'content-type': 'application/json',
      'x-request-id': expect.stringMatching(/^req_/),
    });
  });

  test('over gRPC is the same', async () => {
    const { client_secret } = await merchant.createIntent();
    const over = (apiKey: string) => service.call('getCheckout', {}, { door: 'grpc', apiKey });
    const answer = await over(client_secret);
    const refused = await over(`${client_secret}x`);
    expect(answer.json).toEqual(JSON.parse((await get(client_secret)).body));
    expect(refused).toMatchObject({ code: 'client_secret_invalid', status: 16 });
  });

  test('many concurrent requests each get their own intent', async () => {
    const intents = [];
    for (let i = 1; i <= 20; i++) intents.push(await merchant.createIntent({ amount_units: i }));
    const answers = await Promise.all(
      [...intents, ...intents].map(({ client_secret }) => get(client_secret)),
    );
    expect(answers.map(({ body }) => JSON.parse(body).id)).toEqual(
      [...intents, ...intents].map(({ id }) => id),
    );
  });

  test('shows what has been paid', async () => {
    const { id, client_secret } = await merchant.createIntent();
    await insertTransfers(service, service.merchant, [{ amountUnits: 5, paymentIntent: id }]);
    await service.query(
      `update payment_intents set amount_received_units = 5, payments_count = 1, labels = '{late}' where id = $1`,
      [parseIdentifier('pi', id)],
    );
    const { payments } = await merchant.getIntent(id);
    expect(payments).toHaveLength(1);
    expect(JSON.parse((await get(client_secret)).body)).toMatchObject({
      payments,
      payments_count: 1,
      amount_received_units: 5,
      labels: ['late'],
    });
  });

  test('names the origins of its merchant and mode', async () => {
    const { client_secret } = await merchant.createIntent();
    const other = await service.newMerchant();
    const { em } = service.database.orm;
    await setOrigins(em, other.merchantId, 'testnet', ['https://other.example']);
    await setOrigins(em, service.merchant.merchantId, 'mainnet', ['https://real.example']);
    await setOrigins(em, service.merchant.merchantId, 'testnet', [
      'https://shop.example/',
      'http://localhost:3000',
    ]);
    const origins = async () => JSON.parse((await get(client_secret)).body).allowed_origins;
    expect(await origins()).toEqual(['https://shop.example', 'http://localhost:3000']);
    await setOrigins(em, service.merchant.merchantId, 'testnet', []);
    expect(await origins()).toEqual([]);
    await service.query(`delete from checkout_settings where mode = 'testnet'`);
    expect(await origins()).toEqual([]);
  });

  test('takes no fields, in a query or a body', async () => {
    const { client_secret } = await merchant.createIntent();
    const authorization = `Bearer ${client_secret}`;
    const asked = (query: string, body = '') =>
      httpRequest(
        `${service.publicUrl}/v1/checkout${query}`,
        { method: 'GET', headers: { authorization, 'content-length': body.length } },
        body,
      );
    expect(codeOf(await asked('?id=1'))).toEqual([400, 'invalid_body']);
    expect(codeOf(await asked('', '{}'))).toEqual([400, 'invalid_body']);
  });
});

describe('a client secret is refused', () => {
  const secretOf = async () => (await merchant.createIntent()).client_secret as string;
  const changed = (text: string, at: number) =>
    `${text.slice(0, at)}${text[at] === 'A' ? 'B' : 'A'}${text.slice(at + 1)}`;

  test.each<[string, (secret: string) => string | undefined]>([
    ['that is missing', () => undefined],
    ['that is empty', () => ''],
    ['without its second half', (secret) => secret.slice(0, secret.indexOf('_secret_'))],
    ['with another first character', (secret) => changed(secret, secret.indexOf('_secret_') + 8)],
    ['with another last character', (secret) => changed(secret, secret.length - 2)],
    ['one character longer', (secret) => `${secret}A`],
    ['one character shorter', (secret) => secret.slice(0, -1)],
    ['in capital letters', (secret) => secret.toUpperCase()],
    ['after another one', (secret) => `${secret} ${secret}`],
    ['that is an API key', () => service.merchant.keys.testnet.apiKey],
  ])('%s', async (_, make) => {
    const answer = await get(make(await secretOf()));
    expect(codeOf(answer)).toEqual([401, 'client_secret_invalid']);
    expect(answer.headers['www-authenticate']).toBe('Bearer error="invalid_token"');
  });

  test('without a database query, if it is made up', async () => {
    const secret = await secretOf();
    await service.query('alter table payment_intents rename to hidden');
    try {
      expect(codeOf(await get(changed(secret, secret.length - 2)))).toEqual([401, 'client_secret_invalid']);
      expect((await get(secret)).status).toBeGreaterThanOrEqual(500);
    } finally {
      await service.query('alter table hidden rename to payment_intents');
    }
  });

  test('of another intent', async () => {
    const [one, another] = [await secretOf(), await secretOf()];
    const mixed = one.slice(0, one.indexOf('_secret_')) + another.slice(another.indexOf('_secret_'));
    expect(codeOf(await get(mixed))).toEqual([401, 'client_secret_invalid']);
  });

  test('of an intent that was never stored', async () => {
    const keys = parseKeyRing(secrets.CLIENT_SECRET_KEYS);
    expect(codeOf(await get(clientSecret(keys, 2, 'pi_00000000000000000000000000')))).toEqual([
      401,
      'client_secret_invalid',
    ]);
  });

  test('by a method that takes an API key', async () => {
    const secret = await secretOf();
    const answer = await httpRequest(`${service.publicUrl}/v1/payment_intents`, {
      method: 'GET',
      headers: { authorization: `Bearer ${secret}` },
    });
    expect(codeOf(answer)).toEqual([401, 'api_key_invalid']);
  });
});

test('a client secret is valid with every key of the ring, and with no other', () => {
  const id = 'pi_01m7yzn0mtexwagr0spq4wg7vz';
  const both = parseKeyRing(secrets.CLIENT_SECRET_KEYS);
  const ofOlder = clientSecret(parseKeyRing(older), 1, id);
  const opened = { id: parseIdentifier('pi', id), typeId: id };
  expect(intentOpenedBy(both, ofOlder)).toEqual(opened);
  expect(intentOpenedBy(both, clientSecret(both, 2, id))).toEqual(opened);
  expect(intentOpenedBy(parseKeyRing(`1:${randomBytes(32).toString('base64')}`), ofOlder)).toBe(undefined);
});

describe('ETag', () => {
  test('identifies the answer: 304 while nothing has changed', async () => {
    const { id, client_secret } = await merchant.createIntent();
    const { etag = '' } = (await get(client_secret)).headers;
    expect(etag).toMatch(/^"[\w-]{22}"$/);
    for (const ifNoneMatch of [etag, `W/${etag}`, `"other", ${etag}`, '*']) {
      const again = await get(client_secret, { 'if-none-match': ifNoneMatch });
      expect([again.status, again.body, again.headers.etag]).toEqual([304, '', etag]);
      expect(again.headers).not.toHaveProperty('content-length');
    }
    expect((await get(client_secret, { 'if-none-match': '"other"' })).status).toBe(200);

    const known = new Set([etag]);
    const changed = async () => {
      const { status, body, headers } = await get(client_secret, { 'if-none-match': [...known].join() });
      expect([status, known.has(headers.etag ?? '')]).toEqual([200, false]);
      known.add(headers.etag ?? '');
      return JSON.parse(body);
    };
    await service.query(`update merchants set name = 'Another name' where id = $1`, [service.merchant.id]);
    expect((await changed()).merchant_name).toBe('Another name');
    const { em } = service.database.orm;
    await setOrigins(em, service.merchant.merchantId, 'testnet', ['https://new.example']);
    expect((await changed()).allowed_origins).toEqual(['https://new.example']);
    await merchant.cancelIntent(id);
    expect((await changed()).status).toBe('canceled');
  });
});

describe('a page of any origin', () => {
  const origin = 'https://anything.example';
  const shared = {
    'access-control-allow-origin': '*',
    'access-control-expose-headers': 'ETag, Retry-After, X-Request-Id',
  };

  test('may call it, and may read every answer', async () => {
    const { client_secret } = await merchant.createIntent();
    const found = await get(client_secret, { origin });
    const known = await get(client_secret, { origin, 'if-none-match': '*' });
    const refused = await get('pi_nothing', { origin });
    const wrong = await httpRequest(`${service.publicUrl}/v1/checkout`, { headers: { origin } });
    expect([found, known, refused, wrong].map(({ status }) => status)).toEqual([200, 304, 401, 405]);
    for (const { headers } of [found, known, refused, wrong]) expect(headers).toMatchObject(shared);
  });

  test('may send a preflight request', async () => {
    const { status, body, headers } = await httpRequest(`${service.publicUrl}/v1/checkout`, {
      method: 'OPTIONS',
      headers: { origin, 'access-control-request-method': 'GET' },
    });
    expect([status, body]).toEqual([204, '']);
    expect(headers).toMatchObject({
      ...shared,
      'access-control-allow-headers': 'Authorization, If-None-Match',
      'access-control-max-age': '7200',
    });
  });

  test('may call nothing else', async () => {
    for (const method of ['GET', 'POST', 'OPTIONS']) {
      const { status, body, headers } = await httpRequest(`${service.publicUrl}/v1/payment_intents`, {
        method,
        headers: { origin },
      });
      expect([status, JSON.parse(body).error.code]).toEqual([403, 'browser_forbidden']);
      expect(headers).not.toHaveProperty('access-control-allow-origin');
    }
  });
});

describe('the rate limit', async () => {
  const limited = await useService({
    ROLES: 'api',
    RATE_LIMIT_CHECKOUT: '1',
    TRUSTED_PROXIES: '127.0.0.0/8',
  });
  const asMany = (count: number, secret: string, headers: Headers = {}) =>
    Promise.all(Array.from({ length: count }, () => get(secret, headers, limited)));
  const countOf = (answers: HttpAnswer[], status: number) =>
    answers.filter((answer) => answer.status === status).length;

  test('counts by client secret', async () => {
    const [busy, calm] = await Promise.all([1, 2].map(() => createMerchantCalls(limited).createIntent()));
    const answers = await asMany(10, busy.client_secret, { origin: 'https://shop.example' });
    expect(countOf(answers, 200)).toBe(2);
    expect(countOf(answers, 429)).toBe(8);
    expect(answers.at(-1)?.headers).toMatchObject({ 'retry-after': '1', 'access-control-allow-origin': '*' });
    expect(JSON.parse(answers.at(-1)?.body ?? '').error.message).toBe('Too many requests. Wait and retry.');
    expect(countOf(await asMany(1, calm.client_secret), 200)).toBe(1);
  });

  test('counts wrong secrets by the address from a trusted proxy; valid ones pass', async () => {
    const { client_secret } = await createMerchantCalls(limited).createIntent();
    const guesser = { 'x-forwarded-for': '203.0.113.7, 198.51.100.1' };
    const guesses = await asMany(10, 'pi_guess', guesser);
    expect(countOf(guesses, 401)).toBe(2);
    expect(countOf(guesses, 429)).toBe(8);
    // An address that the client itself put in front is ignored.
    expect(countOf(await asMany(1, 'pi_guess', { 'x-forwarded-for': '192.0.2.9, 198.51.100.1' }), 429)).toBe(
      1,
    );
    expect(countOf(await asMany(1, 'pi_guess', { 'x-forwarded-for': '198.51.100.2' }), 401)).toBe(1);
    expect(countOf(await asMany(1, client_secret, guesser), 200)).toBe(1);
  });
});

describe('the client address', () => {
  const trusted = ['10.0.0.0/8', 'fd00::/8'];

  test.each([
    ['a peer', [], '192.0.2.1', null, '192.0.2.1'],
    [
      'a peer that is not a trusted proxy, whatever its header',
      trusted,
      '192.0.2.1',
      '203.0.113.7',
      '192.0.2.1',
    ],
    ['behind a proxy', trusted, '10.0.0.1', '203.0.113.7', '203.0.113.7'],
    ['behind two proxies', trusted, '10.0.0.1', '203.0.113.7, 10.9.9.9', '203.0.113.7'],
    [
      'behind a proxy, with a forged first address',
      trusted,
      '10.0.0.1',
      '1.2.3.4, 203.0.113.7',
      '203.0.113.7',
    ],
    ['within the proxies', trusted, '10.0.0.1', '10.0.0.2', '10.0.0.2'],
    ['behind a proxy without the header', trusted, '10.0.0.1', null, '10.0.0.1'],
    ['behind a proxy with an invalid header', trusted, '10.0.0.1', 'unknown', '10.0.0.1'],
    ['IPv4 in IPv6', trusted, '::ffff:10.0.0.1', '::ffff:203.0.113.7', '203.0.113.7'],
    ['proxies as IPv4 in IPv6', ['::ffff:10.0.0.0/104'], '10.0.0.1', '203.0.113.7', '203.0.113.7'],
    ['behind a proxy that writes ports', trusted, '10.0.0.1', '203.0.113.7:51000', '203.0.113.7'],
    ['the same with IPv6', trusted, '10.0.0.1', '[2001:db8::1]:443', '2001:db8::/64'],
    ['IPv6 by its /64', trusted, 'fd00::1', '2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
    ['a closed connection', trusted, undefined, '203.0.113.7', 'unknown'],
  ] as const)('%s', (_, networks, peer, forwardedFor, expected) => {
    expect(createClientAddress(networks)(peer, forwardedFor)).toBe(expected);
  });
});

test('no log line has a client secret, and the line of a checkout has its intent', async () => {
  const { id, client_secret } = await merchant.createIntent();
  const { headers } = await get(client_secret);
  await get(`${client_secret}x`);
  const line = service.log.find(({ request_id }) => request_id === headers['x-request-id']);
  expect(line).toMatchObject({ rpc: 'GetCheckout', payment_intent: id, code: 'ok' });
  expect(JSON.stringify(service.log)).not.toMatch(/_secret_[\w-]{20}|mark-of/);
});
