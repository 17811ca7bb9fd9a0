// Messages are signed according to Standard Webhooks, and its packages for JavaScript and Python verify them.

import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { Webhook } from 'standardwebhooks';
import { afterAll, describe, expect, test, vi } from 'vitest';
import { loadConfig } from '../src/config/config.ts';
import { type KeyRing, parseKeyRing } from '../src/config/key-ring.ts';
import { StartupError } from '../src/config/startup-error.ts';
import { formatIdentifier, newUuid, parseIdentifier } from '../src/database/identifiers.ts';
import { assertKeys } from '../src/processes/key-checks.ts';
import { startServer } from '../src/processes/serve.ts';
import { createLogger } from '../src/telemetry/logging.ts';
import { createEndpoint, rotateSecret } from '../src/webhooks/endpoints.ts';
import { signedHeaders } from '../src/webhooks/signature.ts';
import { insertEventRows } from './support/event-rows.ts';
import { findLeaks } from './support/leaks.ts';
import { type Received, startReceiver } from './support/receiver.ts';
import { httpRequest } from './support/service.ts';
import { succeeds } from './support/succeeds.ts';
import { useService } from './support/use-service.ts';
import { createWebhookWorker, type WebhookWorker } from './support/webhook-worker.ts';

const [first, second] = [
  `1:${randomBytes(32).toString('base64')}`,
  `2:${randomBytes(32).toString('base64')}`,
];

// Without the role that delivers webhooks: workers of the test deliver.
const service = await useService({ ROLES: 'api' }, { secrets: { WEBHOOK_SECRET_KEYS: first } });

const receiver = await startReceiver();
const workerWith = (keys: KeyRing) => createWebhookWorker(service.database.orm.em, keys);
const worker = workerWith(parseKeyRing(first));
const apiKey = service.merchant.keys.testnet.apiKey;

afterAll(async () => {
  await worker.close();
  await receiver.close();
});

async function newEndpoint(): Promise<{ id: string; secret: string }> {
  const { code, json } = await service.call(
    'createWebhookEndpoint',
    { url: `${receiver.url}/${newUuid()}` },
    { apiKey },
  );
  expect(code).toBe('ok');
  return json;
}

/** Sends a ping to the endpoint with this worker, and returns what arrived. */
async function deliver(id: string, by: WebhookWorker = worker): Promise<Received> {
  const { code, json } = await service.call('pingWebhookEndpoint', { id }, { apiKey });
  expect(code).toBe('ok');
  await by.deliverAll();
  const received = receiver.requests.filter(({ headers }) => headers['webhook-id'] === json.id);
  expect(received.length).toBe(1);
  return received[0] as Received;
}

const verifies = (secret: string, { headers, body }: Received): boolean => {
  try {
    new Webhook(secret).verify(body, headers);
    return true;
  } catch {
    return false;
  }
};

const signaturesOf = ({ headers }: Received) => headers['webhook-signature']?.split(' ') ?? [];

test('the standardwebhooks package verifies messages, and refuses any change', async () => {
  const { id, secret } = await newEndpoint();
  const other = await newEndpoint();
  // Messages are signed with the time of the database.
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 600_000 });
  const received = await deliver(id).finally(() => vi.useRealTimers());
  const { headers, body } = received;
  expect(new Webhook(secret).verify(body, headers)).toMatchObject({
    id: headers['webhook-id'],
    type: 'webhook_endpoint.ping',
  });
  expect(signaturesOf(received)).toEqual([expect.stringMatching(/^v1,[A-Za-z0-9+/]{43}=$/)]);
  expect(headers).toMatchObject({
    accept: '*/*',
    'content-type': 'application/json; charset=utf-8',
    'user-agent': expect.stringMatching(/^payment-intent-service\/\d/),
    'webhook-id': expect.stringMatching(/^evt_/),
    'webhook-timestamp': expect.stringMatching(/^\d{10}$/),
  });
  expect(Math.abs(Date.now() / 1000 - Number(headers['webhook-timestamp']))).toBeLessThan(60);

  expect(verifies(secret, { ...received, body: body.replace('enabled":true', 'enabled":false') })).toBe(
    false,
  );
  expect(verifies(secret, { ...received, body: `${body} ` })).toBe(false);
  expect(verifies(other.secret, received)).toBe(false);
  for (const changed of [
    { 'webhook-id': 'evt_01m7z1n4qpf2k8c3v7w5x9y0za' },
    { 'webhook-timestamp': String(Number(headers['webhook-timestamp']) - 1) },
    { 'webhook-signature': 'v1,' },
  ]) {
    expect(verifies(secret, { ...received, headers: { ...headers, ...changed } })).toBe(false);
  }
});

test('an old message is refused even with a valid signature', () => {
  const keys = parseKeyRing(first);
  const endpointId = newUuid();
  const generation = { generation: 1, keyVersion: 1 };
  const secret = keys.hmac(1, `webhook:${formatIdentifier('we', endpointId)}:1`, 'base64');
  const sentAt = (at: Date) => {
    const headers = signedHeaders(keys, endpointId, [generation], { id: 'evt_1', body: '{}', at });
    return () => new Webhook(secret).verify('{}', headers);
  };
  expect(sentAt(new Date())()).toEqual({});
  expect(sentAt(new Date(Date.now() - 6 * 60_000))).toThrow(/too old/);
});

test('the example of Standard Webhooks gets its published signature', () => {
  // From the README and the tests of https://github.com/standard-webhooks/standard-webhooks.
  const secret = 'MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
  const keys: KeyRing = { newestVersion: 1, versions: [1], hmac: () => secret };
  const message = {
    id: 'msg_p5jXN8AQM9LWM0D4loKWxJek',
    at: new Date(1_614_265_330_999),
    body: '{"test": 2432232314}',
  };
  expect(signedHeaders(keys, newUuid(), [{ generation: 1, keyVersion: 1 }], message)).toEqual({
    'webhook-id': message.id,
    'webhook-timestamp': '1614265330',
    'webhook-signature': 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
  });
});

test('the body is byte for byte what GET /v1/events/{id} returns', async () => {
  const { id } = await newEndpoint();
  const ping = await deliver(id);
  // The intent is as it was stored, even if this version would write it differently.
  const [eventId = ''] = await insertEventRows(service.query, [
    { merchantId: service.merchant.id, sequence: 7 },
  ]);
  const data =
    '{"payment_intent":{"id":"pi_1",  "metadata":{"title":"Größe “M” \u{1F600}"},"later_field":[1.50]}}';
  await service.query('update events set data = $1 where id = $2', [data, parseIdentifier('evt', eventId)]);
  await worker.deliverAll();
  const canceled = receiver.requests.find(({ headers }) => headers['webhook-id'] === eventId) as Received;
  expect(canceled.body).toContain(data);
  expect(JSON.parse(canceled.body)).toMatchObject({ id: eventId, sequence: 7, mode: 'testnet' });
  for (const { headers, body } of [ping, canceled]) {
    const answer = await httpRequest(`${service.publicUrl}/v1/events/${headers['webhook-id']}`, {
      method: 'GET',
      headers: { authorization: `Bearer ${apiKey}` },
    });
    expect(answer.status).toBe(200);
    expect(body).toBe(answer.body);
  }
});

describe('a rotation', () => {
  test('during the overlap both secrets verify, after it only the new one', async () => {
    const { id, secret: old } = await newEndpoint();
    const { json } = await service.call(
      'rotateWebhookSecret',
      { id, overlap_hours: 1 },
      { door: 'grpc', apiKey },
    );
    expect(json.secret).not.toBe(old);
    const during = await deliver(id);
    expect([verifies(old, during), verifies(json.secret, during)]).toEqual([true, true]);
    expect(signaturesOf(during).length).toBe(2);
    const [row] = await service.query<{ minutes: number }>(
      `select extract(epoch from expires_at - now())::float / 60 as minutes from webhook_secrets
        where endpoint_id = $1 and generation = 1`,
      [parseIdentifier('we', id)],
    );
    expect(row?.minutes).toBeGreaterThan(59);
    expect(row?.minutes).toBeLessThanOrEqual(60);

    await service.query(
      `update webhook_secrets set expires_at = now() - interval '1 second' where endpoint_id = $1 and generation = 1`,
      [parseIdentifier('we', id)],
    );
    const after = await deliver(id);
    expect([verifies(old, after), verifies(json.secret, after)]).toEqual([false, true]);
    expect(signaturesOf(after).length).toBe(1);
  });

  test('without an overlap the old secret no longer signs', async () => {
    const { id, secret: old } = await newEndpoint();
    const { json } = await service.call('rotateWebhookSecret', { id, overlap_hours: 0 }, { apiKey });
    const received = await deliver(id);
    expect([verifies(old, received), verifies(json.secret, received)]).toEqual([false, true]);
  });

  test('the newest secret and at most the five before it sign, each until its own overlap ends', async () => {
    const { id, secret } = await newEndpoint();
    const secrets = [secret];
    for (const hours of [168, 168, 2, 168, 168, 168, 168]) {
      const { json } = await service.call('rotateWebhookSecret', { id, overlap_hours: hours }, { apiKey });
      secrets.push(json.secret);
    }
    expect(new Set(secrets).size).toBe(8);
    const received = await deliver(id);
    expect(signaturesOf(received).length).toBe(6);
    // Oldest first.
    expect(secrets.map((one) => verifies(one, received))).toEqual([
      ...[false, false],
      ...[true, true, true, true, true, true],
    ]);
    // The third one was replaced with an overlap of two hours, which a later rotation has not extended.
    await service.query(
      `update webhook_secrets set expires_at = expires_at - interval '3 hours' where endpoint_id = $1`,
      [parseIdentifier('we', id)],
    );
    const later = await deliver(id);
    expect(secrets.map((one) => verifies(one, later))).toEqual([
      ...[false, false, false],
      ...[true, true, true, true, true],
    ]);
  });
});

test('secrets stay the same in every process, whichever key version is the newest', async () => {
  const { em } = service.database.orm;
  const owner = { merchantId: service.merchant.id, mode: 'testnet' as const };
  const settings = {
    url: receiver.url,
    eventTypes: ['webhook_endpoint.ping'],
    enabled: true,
    description: '',
  };
  const rings = [first, `${first},${second}`, `${second},${first}`].map(parseKeyRing);
  const [old, before, after] = rings as [KeyRing, KeyRing, KeyRing];
  const create = (keys: KeyRing, key: string) => createEndpoint(em, keys, owner, settings, key);

  const made = await create(old, 'made by the old ring');
  const madeLater = await create(after, 'made by the new ring');
  for (const keys of [before, after]) {
    expect(await create(keys, 'made by the old ring')).toMatchObject({ secret: made.secret, replayed: true });
    expect(await create(keys, 'made by the new ring')).toMatchObject({
      secret: madeLater.secret,
      replayed: true,
    });
  }
  const rotated = await rotateSecret(em, after, owner, made.endpoint.id, 1, 'rotated');
  expect(await rotateSecret(em, before, owner, made.endpoint.id, 1, 'rotated')).toMatchObject({
    secret: rotated.secret,
    replayed: true,
  });
  const versions = await service.query(
    'select generation, key_version from webhook_secrets where endpoint_id = any ($1) order by created_at',
    [[made.endpoint.id, madeLater.endpoint.id]],
  );
  expect(versions).toEqual([
    { generation: 1, key_version: 1 },
    { generation: 1, key_version: 2 },
    { generation: 2, key_version: 2 },
  ]);

  for (const keys of [before, after]) {
    const other = workerWith(keys);
    const received = await deliver(formatIdentifier('we', made.endpoint.id), other);
    expect([verifies(made.secret, received), verifies(rotated.secret, received)]).toEqual([true, true]);
    expect(
      verifies(madeLater.secret, await deliver(formatIdentifier('we', madeLater.endpoint.id), other)),
    ).toBe(true);
    await other.close();
  }

  // A process without a version that is in use could not make all signatures that merchants expect.
  const start = (keys: KeyRing) =>
    startServer(
      loadConfig({ HTTP_PORT: '0', GRPC_PORT: '0', METRICS_PORT: '0', CONSOLE_PORT: '0', ROLES: 'api' }),
      {
        ...service.database,
        keyRing: (name) => (name === 'WEBHOOK_SECRET_KEYS' ? keys : service.database.keyRing(name)),
      },
      createLogger('silent', { write() {} }),
    );
  await expect(start(old)).rejects.toThrow(StartupError);
  await expect(start(old)).rejects.toThrow(/lack version 2 of WEBHOOK_SECRET_KEYS/);
  await expect(start(parseKeyRing(second))).rejects.toThrow(/lack version 1 of WEBHOOK_SECRET_KEYS/);
  await (await start(before)).close();
  // Deleted endpoints need no key.
  await service.query(
    'update webhook_endpoints set enabled = false, deleted_at = now() where id = any ($1)',
    [[made.endpoint.id, madeLater.endpoint.id]],
  );
  await (await start(old)).close();

  const another = parseKeyRing(first.replace(/.....$/, 'AAAA='));
  await expect(start(another)).rejects.toThrow(/version 1 of WEBHOOK_SECRET_KEYS is not the key/);
  // A secret that the admin tool made with a key that no server has would be valid nowhere.
  const newest = parseKeyRing(`3:${randomBytes(32).toString('base64')},${first}`);
  const check = assertKeys({ ...service.database, keyRing: () => newest }, ['WEBHOOK_SECRET_KEYS']);
  await expect(check).rejects.toThrow(/no server was started with version 3 of WEBHOOK_SECRET_KEYS/);
  await (await start(newest)).close();
  await assertKeys({ ...service.database, keyRing: () => newest }, ['WEBHOOK_SECRET_KEYS']);
});

test('a secret is neither in the database nor in the log', async () => {
  const { id, secret } = await newEndpoint();
  const { json } = await service.call('rotateWebhookSecret', { id }, { door: 'grpc', apiKey });
  await deliver(id);
  const query = (sql: string) => service.query(sql);
  const bare = [secret, json.secret].map((one: string) => one.slice('whsec_'.length));
  const inHex = bare.map((one) => Buffer.from(one, 'base64').toString('hex'));
  expect(await findLeaks([...service.log, ...worker.log], query, [...bare, ...inHex])).toEqual([]);
  // The check itself does find leaks.
  expect(await findLeaks([{ message: `a ${secret} b` }], async () => [])).toHaveLength(1);
  expect(await findLeaks([{ message: bare[0] }], async () => [], bare)).toHaveLength(1);
});

const canRunPython = succeeds('/usr/bin/python3', '-c', 'import standardwebhooks');
if (!canRunPython) console.log('skipped: pip install standardwebhooks, for /usr/bin/python3');

test.skipIf(!canRunPython)('the Python package verifies messages, too', async () => {
  const { id, secret } = await newEndpoint();
  const { headers, body } = await deliver(id);
  const verify = `
import json, sys
from standardwebhooks.webhooks import Webhook
message = json.load(sys.stdin)
print(json.dumps(Webhook(message["secret"]).verify(message["body"], message["headers"])))`;
  const run = (message: object) =>
    spawnSync('/usr/bin/python3', ['-c', verify], { input: JSON.stringify(message), encoding: 'utf8' });
  expect(JSON.parse(run({ secret, headers, body }).stdout)).toEqual(JSON.parse(body));
  expect(run({ secret, headers, body: `${body} ` }).stderr).toMatch(/WebhookVerificationError/);
});
