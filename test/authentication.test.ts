import { createHmac, randomBytes } from 'node:crypto';
import http from 'node:http';
import http2 from 'node:http2';
import { setTimeout } from 'node:timers/promises';
import grpc from '@grpc/grpc-js';
import { describe, expect, onTestFinished, test } from 'vitest';
import { parseKeyRing } from '../src/config/key-ring.ts';
import {
  createApiKey,
  findApiKey,
  listApiKeys,
  revokeApiKey,
  rotateApiKey,
  setWallets,
} from '../src/merchants/administration.ts';
import { apiKeyFormatOf, apiKeyHint, createApiKeys, generateSecret } from '../src/merchants/api-keys.ts';
import { newRequestContext } from '../src/requests/request-context.ts';
import { sessionsWaiting } from './support/blocker.ts';
import { doors } from './support/call.ts';
import { newCrc32Key, withCrc32 } from './support/crc32-key.ts';
import { connectRaw, encodeHeaders } from './support/http2-frames.ts';
import { metric } from './support/metrics.ts';
import { openClient } from './support/open-client.ts';
import { httpRequest, postJson } from './support/service.ts';
import { useService } from './support/use-service.ts';

const service = await useService();

const body = { amount_units: 1 };
const peppers = () => service.database.keyRing('API_KEY_PEPPERS');
const em = () => service.database.orm.em;
const newKey = (expiresAt?: Date) =>
  createApiKey(em(), peppers(), service.merchant.merchantId, 'testnet', expiresAt);

describe.each(doors)('over %s', (door) => {
  const create = (authorization: string | undefined) =>
    service.call('createPaymentIntent', body, {
      door,
      ...(authorization === undefined ? { apiKey: null } : { authorization }),
    });

  test.each<[string, string | undefined, string]>([
    ['no header', undefined, 'api_key_missing'],
    ['an empty header', '', 'api_key_missing'],
    ['another scheme', 'Basic dXNlcjpwYXNz', 'api_key_missing'],
    ['a scheme that begins like Bearer', 'Bearerer x', 'api_key_missing'],
    ['the scheme alone', 'Bearer', 'api_key_missing'],
    ['a malformed key', 'Bearer x', 'api_key_invalid'],
    ['an unknown key of the first release', `Bearer ${newCrc32Key('testnet')}`, 'api_key_invalid'],
    ['a key of 300 characters', `Bearer ${'k'.repeat(300)}`, 'api_key_invalid'],
  ])('%s is refused', async (_, authorization, code) => {
    const answer = await create(authorization);
    expect(answer).toMatchObject({
      code,
      status: door === 'json' ? 401 : grpc.status.UNAUTHENTICATED,
      details: [],
    });
  });

  test.each([
    ['Basic dXNlcjpwYXNz', /has the scheme Basic\. Send your secret key .* Bearer/],
    ['token x', /has the scheme Token/],
    ['ApiKey x', /has the scheme ApiKey/],
    // The first word may be the key itself, so the message does not repeat it.
    [
      `sk_testnet_${'1'.repeat(49)}`,
      /^The Authorization header has no scheme\. Put Bearer and a space before/,
    ],
    ['Nonsense x', /^No API key was given/],
  ])('%s: the message names the problem', async (authorization, message) => {
    const answer = await create(authorization);
    expect(answer).toMatchObject({ code: 'api_key_missing', message: expect.stringMatching(message) });
    expect(answer.message).not.toMatch(/sk_|dXNl/);
  });

  test('an unknown key with valid check characters is refused', async () => {
    expect((await create(`Bearer ${generateSecret('sk_testnet_', peppers())}`)).code).toBe('api_key_invalid');
  });

  test('the scheme is case-insensitive and may be followed by several spaces', async () => {
    const { apiKey } = service.merchant.keys.testnet;
    for (const authorization of [`bearer ${apiKey}`, `BEARER ${apiKey}`, `Bearer   ${apiKey}`]) {
      expect((await create(authorization)).code).toBe('ok');
    }
  });

  test('the key decides the mode', async () => {
    for (const mode of ['testnet', 'mainnet'] as const) {
      const answer = await create(`Bearer ${service.merchant.keys[mode].apiKey}`);
      expect(answer.json.mode).toBe(mode);
    }
  });

  test('a cached key is refused as soon as it expires', async () => {
    const expiresAt = Date.now() + 1_500;
    const { apiKey } = await newKey(new Date(expiresAt));
    expect((await create(`Bearer ${apiKey}`)).code).toBe('ok');
    // Far less than the ten seconds that a lookup is cached.
    await setTimeout(expiresAt - Date.now());
    expect((await create(`Bearer ${apiKey}`)).code).toBe('api_key_invalid');
  });

  test('a cached key is refused as soon as it is revoked', async () => {
    const { apiKey, keyId } = await newKey();
    expect((await create(`Bearer ${apiKey}`)).code).toBe('ok');
    await revokeApiKey(em(), keyId);
    await service.keyChangesHeard();
    expect((await create(`Bearer ${apiKey}`)).code).toBe('api_key_invalid');
  });

  test('after a rotation both keys work, until the overlap ends', async () => {
    const old = await newKey();
    const successor = await rotateApiKey(em(), peppers(), old.keyId, 3_600_000, undefined);
    expect((await create(`Bearer ${old.apiKey}`)).code).toBe('ok');
    expect((await create(`Bearer ${successor.apiKey}`)).code).toBe('ok');
    await rotateApiKey(em(), peppers(), old.keyId, 0, undefined);
    await service.keyChangesHeard();
    expect((await create(`Bearer ${old.apiKey}`)).code).toBe('api_key_invalid');
    expect((await create(`Bearer ${successor.apiKey}`)).code).toBe('ok');
  });

  test('a rotation never lengthens the life of the old key, and needs one that is valid', async () => {
    const { keyId } = await newKey();
    const rotate = (overlapMs: number) => rotateApiKey(em(), peppers(), keyId, overlapMs, undefined);
    const expiry = async () => (await findApiKey(em(), keyId)).expiresAt?.getTime();
    await rotate(60_000);
    const first = await expiry();
    await rotate(3_600_000);
    expect(await expiry()).toBe(first);
    await rotate(0);
    await expect(rotate(60_000)).rejects.toThrow('has expired: create a new key instead');
    await revokeApiKey(em(), keyId);
    await expect(rotate(60_000)).rejects.toThrow('is revoked: create a new key instead');
  });

  test('a new payout wallet is used at once', async () => {
    const merchant = await service.newMerchant();
    const authorization = `Bearer ${merchant.keys.testnet.apiKey}`;
    expect((await create(authorization)).json.expected_wallet).toBe(merchant.wallets.testnet.base);
    await setWallets(em(), merchant.merchantId, 'testnet', { base: `0x${'5'.repeat(40)}` });
    await service.keyChangesHeard();
    expect((await create(authorization)).json.expected_wallet).toBe(`0x${'5'.repeat(40)}`);
  });
});

test('a wallet that is set again has been the wallet since it was set first', async () => {
  const { id, merchantId, wallets } = await service.newMerchant();
  const since = () =>
    service.query(
      "select chain, updated_at from payout_wallets where merchant_id = $1 and mode = 'testnet' order by chain",
      [id],
    );
  const before = await since();
  await setWallets(em(), merchantId, 'testnet', wallets.testnet);
  expect(await since()).toEqual(before);
  await setWallets(em(), merchantId, 'testnet', { base: `0x${'5'.repeat(40)}` });
  const [base, polygon] = await since();
  expect(base).not.toEqual(before[0]);
  expect(polygon).toEqual(before[1]);
});

test('two Authorization headers are refused over every protocol', async () => {
  const { apiKey } = service.merchant.keys.testnet;
  const answer = await httpRequest(
    `${service.publicUrl}/v1/payment_intents`,
    {
      headers: [
        'Authorization',
        `Bearer ${apiKey}`,
        'Authorization',
        `Bearer ${apiKey}`,
        'Content-Type',
        'application/json',
        'Host',
        'x',
      ] as never,
    },
    JSON.stringify(body),
  );
  expect([answer.status, JSON.parse(answer.body).error.code]).toEqual([401, 'api_key_invalid']);

  for (const type of ['grpc', 'grpc-web', 'proto']) {
    // No client library sends two, so the frames are written by hand.
    const client = await connectRaw(service.server.ports.grpc);
    const line = service.nextLogLine();
    const headers = [
      [':method', 'POST'],
      [':scheme', 'http'],
      [':authority', 'x'],
      [':path', '/payments.v1.PaymentIntentService/CreatePaymentIntent'],
      ['content-type', `application/${type}`],
      ['authorization', `Bearer ${apiKey}`],
      ['authorization', `Bearer ${apiKey}`],
    ] as const;
    client.socket.write(encodeHeaders(1, headers));
    expect(await line, type).toMatchObject({ door: 'internal', code: 'api_key_invalid' });
    client.socket.destroy();
  }
});

test.each(doors)('a client over %s that leaves during its key lookup is logged as canceled', async (door) => {
  const { apiKey } = await newKey();
  const headers = { 'content-type': `application/${door}`, authorization: `Bearer ${apiKey}` };
  const path = '/payments.v1.PaymentIntentService/CreatePaymentIntent';
  const session = http2.connect(service.internalUrl);
  const blocker = await openClient(service.location);
  await blocker.query('begin; lock table api_keys in access exclusive mode');
  const request =
    door === 'json'
      ? http.request(`${service.publicUrl}/v1/payment_intents`, { method: 'POST', headers })
      : session.request({ ':method': 'POST', ':path': path, ...headers });
  request.on('error', () => {}).write('{');
  await sessionsWaiting(service, 1);
  const line = service.nextLogLine();
  request.destroy(new Error('gone'));
  await new Promise((resolve) => session.ping(resolve));
  await blocker.end();
  expect(await line).toMatchObject({ code: 'canceled' });
  session.destroy();
});

test('a client whose HTTP/2 session ends during its key lookup is logged as canceled', async () => {
  const { apiKey } = await newKey();
  const session = http2.connect(service.internalUrl);
  const blocker = await openClient(service.location);
  await blocker.query('begin; lock table api_keys in access exclusive mode');
  const path = '/payments.v1.PaymentIntentService/CreatePaymentIntent';
  const headers = { 'content-type': 'application/grpc', authorization: `Bearer ${apiKey}` };
  session.request({ ':method': 'POST', ':path': path, ...headers }).on('error', () => {});
  await sessionsWaiting(service, 1);
  const line = service.nextLogLine();
  const connections = () => metric(service, 'payment_intents_open_connections{port="internal"}');
  const before = (await connections()) ?? 0;
  session.destroy();
  await expect.poll(connections).toBeLessThan(before);
  await blocker.end();
  expect(await line).toMatchObject({ code: 'canceled' });
});

test('malformed, unknown, revoked and expired keys get the same answer, byte for byte', async () => {
  const revoked = await newKey();
  await revokeApiKey(em(), revoked.keyId);
  const expired = await newKey(new Date(Date.now() - 1));
  const answers = await Promise.all(
    [
      'x',
      newCrc32Key('testnet'),
      generateSecret('sk_testnet_', peppers()),
      revoked.apiKey,
      expired.apiKey,
    ].map(async (key) => {
      const answer = await postJson(`${service.publicUrl}/v1/payment_intents`, key, JSON.stringify(body));
      const { date, 'x-request-id': requestId, ...rest } = answer.headers;
      return JSON.stringify([answer.status, rest, answer.body.replace(String(requestId), '')]);
    }),
  );
  expect(new Set(answers).size).toBe(1);
  expect(answers[0]).toContain('"www-authenticate":"Bearer error=\\"invalid_token\\""');
});

test('an unauthenticated request is answered before its body is sent', async () => {
  for (const expectContinue of [false, true]) {
    let continued = false;
    const status = await new Promise((resolve, reject) => {
      const request = http.request(`${service.publicUrl}/v1/payment_intents`, {
        method: 'POST',
        headers: {
          'Content-Type': 'application/json',
          'Content-Length': 1_000_000,
          ...(expectContinue ? { Expect: '100-continue' } : {}),
        },
      });
      request.on('continue', () => {
        continued = true;
      });
      request.on('response', (response) => {
        resolve(response.statusCode);
        request.destroy();
      });
      request.on('error', reject);
      request.flushHeaders();
    });
    expect(status).toBe(401);
    expect(continued).toBe(false);
  }
});

test('an authenticated client that sends Expect gets 100 Continue', async () => {
  const answer = await new Promise<{ status: number | undefined; continued: boolean }>((resolve, reject) => {
    let continued = false;
    const request = http.request(`${service.publicUrl}/v1/payment_intents`, {
      method: 'POST',
      headers: {
        Authorization: `Bearer ${service.merchant.keys.testnet.apiKey}`,
        'Content-Type': 'application/json',
        Expect: '100-continue',
      },
    });
    request.on('continue', () => {
      continued = true;
      request.end(JSON.stringify(body));
    });
    request.on('response', (response) => {
      response.resume();
      resolve({ status: response.statusCode, continued });
    });
    request.on('error', reject);
    request.flushHeaders();
  });
  expect(answer).toEqual({ status: 201, continued: true });
});

describe('the format of a key', () => {
  const formatOf = (text: string, ring = peppers()) => apiKeyFormatOf(text, ring);

  test('has a prefix, 43 characters, and 6 characters of a keyed check', () => {
    for (const mode of ['testnet', 'mainnet'] as const) {
      const key = generateSecret(`sk_${mode}_`, peppers());
      expect(key).toMatch(new RegExp(`^sk_${mode}_[0-9A-Za-z]{49}$`));
      expect(formatOf(key)).toBe('keyed');
      expect(apiKeyHint(key)).toBe(`sk_${mode}_…${key.slice(-4)}`);
    }
    // The same, computed from the contract's description.
    const zeros = parseKeyRing(`1:${Buffer.alloc(32).toString('base64')}`);
    const body = `sk_testnet_${'0'.repeat(43)}`;
    const digest = createHmac('sha256', Buffer.alloc(32)).update(`api-key-check:${body}`).digest();
    const check = inBase62(BigInt(`0x${digest.subarray(0, 6).toString('hex')}`));
    expect(formatOf(body + check, zeros)).toBe('keyed');
  });

  test('keys of the first release end in a CRC-32', () => {
    const known = `sk_testnet_${'0'.repeat(43)}`;
    expect(formatOf(known + crc32InBase62(known))).toBe('crc32');
    expect(formatOf(withCrc32(known))).toBe('crc32');
  });

  test('the check is valid with any pepper of the ring, and no other', () => {
    const [old, fresh] = [randomBytes(32).toString('base64'), randomBytes(32).toString('base64')];
    const key = generateSecret('sk_testnet_', parseKeyRing(`1:${old}`));
    expect(formatOf(key, parseKeyRing(`2:${fresh},1:${old}`))).toBe('keyed');
    expect(formatOf(key, parseKeyRing(`2:${fresh}`))).toBeUndefined();
  });

  test('changing any single character makes a key invalid', () => {
    const key = generateSecret('sk_testnet_', peppers());
    for (let i = 0; i < key.length; i++) {
      for (const other of ['0', 'a', 'Z', '_', ' ', 'é']) {
        if (other === key[i]) continue;
        expect(formatOf(key.slice(0, i) + other + key.slice(i + 1))).toBeUndefined();
      }
    }
    for (const near of [
      key.slice(1),
      key.slice(0, -1),
      `${key}0`,
      ` ${key}`,
      `${key}\n`,
      key.toUpperCase(),
    ]) {
      expect(formatOf(near)).toBeUndefined();
    }
  });
});

/** CRC-32 (IEEE 802.3) bit by bit, in base62 with digits first. Does not use the service's code. */
function crc32InBase62(text: string): string {
  let crc = 0xffffffff;
  for (const byte of Buffer.from(text)) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return inBase62(BigInt((crc ^ 0xffffffff) >>> 0));
}

/** The lowest six base62 digits. */
function inBase62(value: bigint): string {
  let rest = value;
  let digits = '';
  for (let i = 0; i < 6; i++) {
    digits = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'[Number(rest % 62n)] + digits;
    rest /= 62n;
  }
  return digits;
}

test('after the peppers are rotated, existing keys work and new ones use the newest pepper', async () => {
  const [older, newer] = ['1', '2'].map((version) => `${version}:${randomBytes(32).toString('base64')}`);
  const before = parseKeyRing(older as string);
  const after = parseKeyRing(`${newer},${older}`);
  const { apiKey: oldKey } = await createApiKey(
    em(),
    before,
    service.merchant.merchantId,
    'testnet',
    undefined,
  );
  const { apiKey: newKey } = await createApiKey(
    em(),
    after,
    service.merchant.merchantId,
    'mainnet',
    undefined,
  );
  expect(await createApiKeys(em(), before).identify(newKey)).toBeUndefined();
  const keys = createApiKeys(em(), after);
  expect(await keys.identify(oldKey)).toMatchObject({ merchantId: service.merchant.id, mode: 'testnet' });
  expect(await keys.identify(newKey)).toMatchObject({ merchantId: service.merchant.id, mode: 'mainnet' });
  expect(await createApiKeys(em(), parseKeyRing(newer as string)).identify(oldKey)).toBeUndefined();
});

/** Stores a key as the first release did, and returns it. */
async function storeCrc32Key(): Promise<string> {
  const apiKey = newCrc32Key('testnet');
  const ring = peppers();
  await service.query(
    `insert into api_keys (id, merchant_id, mode, pepper_version, key_hash, hint, created_at)
     values (gen_random_uuid(), $1, 'testnet', $2, $3, $4, now())`,
    [
      service.merchant.id,
      ring.newestVersion,
      Buffer.from(ring.hmac(ring.newestVersion, apiKey, 'hex'), 'hex'),
      apiKeyHint(apiKey),
    ],
  );
  return apiKey;
}

test('a key of the first release stays valid on both doors, and its format is shown', async () => {
  const apiKey = await storeCrc32Key();
  for (const door of doors) {
    expect((await service.call('createPaymentIntent', body, { door, apiKey })).code).toBe('ok');
  }
  const keys = await listApiKeys(em(), service.merchant.merchantId);
  expect(keys.filter(({ format }) => format === 'crc32').map(({ hint }) => hint)).toEqual([
    apiKeyHint(apiKey),
  ]);
});

test('a made-up key costs no query, unless it has the format of the first release', async () => {
  let lookups = 0;
  const keys = createApiKeys(em(), peppers(), { onLookup: () => lookups++ });
  let issued = 0;
  const request = { ...newRequestContext('public'), onIssuedKey: () => void issued++ };
  const madeUp = generateSecret('sk_testnet_', parseKeyRing(`1:${randomBytes(32).toString('base64')}`));
  expect(await keys.identify(madeUp, request)).toBeUndefined();
  expect(lookups).toBe(0);
  expect(await keys.identify(newCrc32Key('testnet'), request)).toBeUndefined();
  expect([lookups, issued]).toEqual([1, 0]);
  // Only the service can have made this one: it is trusted while it is looked up.
  expect(await keys.identify(generateSecret('sk_testnet_', peppers()), request)).toBeUndefined();
  expect([lookups, issued]).toEqual([2, 1]);
});

test('unknown keys of the first release are looked up by one query at a time', async () => {
  const known = await storeCrc32Key();
  const keys = createApiKeys(em(), peppers());
  const blocker = await openClient(service.location);
  await blocker.query('begin; lock table api_keys in access exclusive mode');
  const asked = Array.from({ length: 2_000 }, () => keys.identify(newCrc32Key('testnet')));
  const wanted = keys.identify(known);
  const own = keys.identify(service.merchant.keys.testnet.apiKey);
  // One query for the old format, and one for the new format, which does not wait for the first.
  await sessionsWaiting(service, 2);
  await blocker.query('commit');
  expect(new Set(await Promise.all(asked))).toEqual(new Set([undefined]));
  expect(await wanted).toMatchObject({ merchantId: service.merchant.id });
  expect(await own).toMatchObject({ merchantId: service.merchant.id });
  await blocker.end();
});

test('lookups beyond the limit are refused as unavailable, and unknown keys do not evict known ones', async () => {
  let asked = 0;
  const keys = createApiKeys(em(), peppers(), { onLookup: (remembered) => remembered || asked++ });
  const { apiKey } = service.merchant.keys.testnet;
  expect(await keys.identify(apiKey)).toMatchObject({ mode: 'testnet' });
  const outcomes = await Promise.allSettled(
    Array.from({ length: 12_000 }, () => keys.identify(newCrc32Key('testnet'))),
  );
  const refused = outcomes.filter(({ status }) => status === 'rejected');
  expect(refused.length).toBeGreaterThan(6_000);
  for (const { reason } of refused as PromiseRejectedResult[]) {
    expect(reason).toMatchObject({ code: 'unavailable' });
  }
  for (let i = 0; i < 4; i++) {
    await Promise.all(Array.from({ length: 3_000 }, () => keys.identify(newCrc32Key('testnet'))));
  }
  asked = 0;
  expect(await keys.identify(apiKey)).toMatchObject({ mode: 'testnet' });
  expect(asked).toBe(0);
});

test('a lookup that raced with a change is not cached', async () => {
  const { apiKey, keyId } = await newKey();
  const keys = createApiKeys(em(), peppers());
  // The query ran before the revocation, and its result arrived after the notification: it must not be cached.
  const asked = keys.identify(apiKey);
  keys.forget();
  expect(await asked).toMatchObject({ mode: 'testnet' });
  await revokeApiKey(em(), keyId);
  expect(await keys.identify(apiKey)).toBeUndefined();
});

test('a request after a key change does not share a lookup from before the change', async () => {
  const keys = createApiKeys(em(), peppers());
  const blocker = await openClient(service.location);
  onTestFinished(() => blocker.end());
  await blocker.query('begin; lock table api_keys in access exclusive mode');
  for (const lookups of [1, 2]) {
    keys.forget();
    void keys.identify(service.merchant.keys.testnet.apiKey);
    await sessionsWaiting(service, lookups);
  }
});

test('no database column and no log line contains a key', async () => {
  const { apiKey } = service.merchant.keys.testnet;
  const rows = await service.query(`select k::text as row from api_keys k`);
  const secretPart = apiKey.slice('sk_testnet_'.length, -4);
  expect(rows.length).toBeGreaterThan(2);
  expect(JSON.stringify(rows)).not.toContain(secretPart);
  expect(JSON.stringify(service.log)).not.toContain(secretPart);
});

test('a key in X-Api-Key is refused, and the message names the right header', async () => {
  const headers = { 'x-api-key': service.merchant.keys.testnet.apiKey };
  const { status, body: text } = await httpRequest(`${service.publicUrl}/v1/payment_intents`, {
    method: 'GET',
    headers,
  });
  expect([status, JSON.parse(text).error]).toMatchObject([
    401,
    {
      code: 'api_key_missing',
      message:
        'The key is not read from the header X-Api-Key. Send it in the Authorization header with the scheme Bearer.',
    },
  ]);
});
