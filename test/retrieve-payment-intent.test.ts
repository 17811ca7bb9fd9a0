import { randomBytes, randomUUID } from 'node:crypto';
import type { OutgoingHttpHeaders } from 'node:http';
import grpc from '@grpc/grpc-js';
import { beforeAll, describe, expect, test } from 'vitest';
import { PaymentIntentSchema } from '../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { formatIdentifier, newUuid, parseIdentifier } from '../src/database/identifiers.ts';
import { sessionsWaiting } from './support/blocker.ts';
import {
  type Door,
  doors,
  everyDoor,
  type Intent,
  openGrpcClient,
  type Request,
  refusalOf,
} from './support/call.ts';
import { openClient } from './support/open-client.ts';
import { httpRequest, type TestMerchant } from './support/service.ts';
import { insertTransfers, type Rows } from './support/transfer-rows.ts';
import { expectNoComplaints, useService } from './support/use-service.ts';

const service = await useService();
const get = (door: Door, id: string, key = apiKey) =>
  service.call('getPaymentIntent', { id }, { door, apiKey: key });
const apiKey = service.merchant.keys.testnet.apiKey;

expectNoComplaints(service);

const path = '/v1/payment_intents';

async function createIntent(body: Request = { amount_units: 12_500_000 }, key = apiKey): Promise<Intent> {
  const answer = await service.call('createPaymentIntent', body, { apiKey: key });
  return answer.json;
}

const send = (target: string, headers: OutgoingHttpHeaders = {}, method = 'GET', body?: string) =>
  httpRequest(
    service.publicUrl + target,
    { method, headers: { Authorization: `Bearer ${apiKey}`, ...headers } },
    body,
  );

const errorOf = (body: string) => JSON.parse(body).error;

test('an intent is missing for everybody else, even if its owner asks at the same moment', async () => {
  const { id } = await createIntent();
  const { keys } = await service.newMerchant();
  const asked = [apiKey, keys.testnet.apiKey, service.merchant.keys.mainnet.apiKey];
  const answers = await Promise.all(Array.from({ length: 60 }, (_, i) => get('json', id, asked[i % 3])));
  const codes = Map.groupBy(answers, ({ code }) => code);
  expect([...codes].map(([code, { length }]) => [code, length])).toEqual([
    ['ok', 20],
    ['resource_missing', 40],
  ]);
  expect(answers.every(({ code }, i) => (code === 'ok') === (i % 3 === 0))).toBe(true);
});

/** States of an intent: the columns of its row, and the fields that show them. */
const lives: [name: string, row: Record<string, unknown>, fields: Partial<Intent>][] = [
  ['requires payment', {}, { status: 'requires_payment', amount_received_units: 0, payments_count: 0 }],
  [
    'is partially paid',
    { amount_received_units: 2_500_000, payments_count: 1, event_count: 1 },
    { status: 'requires_payment', amount_received_units: 2_500_000, payments_count: 1 },
  ],
  [
    'is processing',
    { status: 'processing', amount_received_units: 12_500_000, payments_count: 2, event_count: 2 },
    { status: 'processing', amount_received_units: 12_500_000, payments_count: 2 },
  ],
  [
    'has succeeded',
    {
      status: 'succeeded',
      amount_received_units: '9007199254740991',
      payments_count: 250,
      event_count: 3,
      labels: ['overpaid', 'wrong_token'],
      succeeded_at: '2026-11-21T12:04:02.007Z',
    },
    {
      status: 'succeeded',
      amount_received_units: 9007199254740991,
      payments_count: 250,
      labels: ['overpaid', 'wrong_token'],
      succeeded_at: '2026-11-21T12:04:02.007Z',
    },
  ],
  [
    'has expired',
    {
      status: 'expired',
      amount_received_units: 1,
      payments_count: 3,
      event_count: 2,
      labels: ['underpaid', 'late', 'found_late'],
      expired_at: '2026-11-21T12:30:16.100Z',
    },
    {
      status: 'expired',
      amount_received_units: 1,
      payments_count: 3,
      labels: ['underpaid', 'late', 'found_late'],
      expired_at: '2026-11-21T12:30:16.100Z',
    },
  ],
  [
    'was canceled',
    { status: 'canceled', event_count: 1, labels: ['after_cancel'], canceled_at: '2026-11-21T12:04:02.000Z' },
    {
      status: 'canceled',
      amount_received_units: 0,
      payments_count: 0,
      labels: ['after_cancel'],
      canceled_at: '2026-11-21T12:04:02.000Z',
    },
  ],
];

/** Creates an intent and sets these columns of its row. Returns what a retrieval has to return. */
async function liveThrough(row: Record<string, unknown>, fields: Partial<Intent>) {
  const created = await createIntent({
    amount_units: 12_500_000,
    chain: 'polygon',
    expires_in_minutes: 45,
    lane: 'manual',
    metadata: { order_id: 'order-1001', nested: [1, null, { a: 'b' }], status: 'CHAIN_BASE' },
  });
  const columns = Object.keys(row);
  if (columns.length > 0) {
    await service.query(
      `update payment_intents set ${columns.map((column, i) => `${column} = $${i + 2}`).join(', ')} where id = $1`,
      [parseIdentifier('pi', created.id), ...Object.values(row)],
    );
  }
  const createdAt = new Date(new Date(created.expires_at).getTime() - 45 * 60_000).toISOString();
  return { ...created, created_at: createdAt, amount_refunded_units: 0, ...fields };
}

describe.each(lives)('an intent that %s', (_, row, fields) => {
  test.each(everyDoor)('is returned over %s with all its fields, and no unset ones', async (door) => {
    const expected = await liveThrough(row, fields);
    const answer = await get(door, expected.id);
    expect(answer).toMatchObject({ code: 'ok', status: door === 'json' ? 200 : grpc.status.OK });
    expect(answer.json).toEqual(expected);
  });
});

test('its JSON has the fields in the order of the contract', async () => {
  const [, row = {}, fields = {}] = lives.find(([name]) => name === 'has expired') ?? [];
  const { id } = await liveThrough(row, fields);
  const { headers, body } = await send(`${path}/${id}`);
  expect(headers).toMatchObject({ 'content-type': 'application/json', 'cache-control': 'no-store' });
  const names = PaymentIntentSchema.fields.map(({ name }) => name);
  const absent = ['payments', 'succeeded_at', 'canceled_at'];
  expect(Object.keys(JSON.parse(body))).toEqual(names.filter((name) => !absent.includes(name)));
});

test('the client secret is the one that creation returned', async () => {
  const created = await createIntent();
  for (const door of doors) {
    expect((await get(door, created.id, apiKey)).json.client_secret).toBe(created.client_secret);
  }
});

test('hundreds of concurrent retrievals each return their own intent', async () => {
  const created = await Promise.all(
    Array.from({ length: 40 }, (_, i) => createIntent({ amount_units: i + 1 })),
  );
  const calls = Array.from({ length: 400 }, (_, i) => ({
    intent: created[i % created.length] as Intent,
    door: doors[i % 2] as Door,
    isMissing: i % 7 === 0,
  }));
  const answers = await Promise.all(
    calls.map(({ intent, door, isMissing }) =>
      get(door, isMissing ? formatIdentifier('pi', newUuid()) : intent.id, apiKey),
    ),
  );
  answers.forEach((answer, i) => {
    const { intent, isMissing } = calls[i] as (typeof calls)[number];
    if (isMissing) expect(answer.code).toBe('resource_missing');
    else expect(answer.json).toMatchObject({ id: intent.id, amount_units: intent.amount_units });
  });
});

describe('an intent of another merchant or mode is not found', () => {
  let other: TestMerchant;
  /** Names and ids. No id may be found with the key of the tests. */
  let ids: [string, string][];

  beforeAll(async () => {
    other = await service.newMerchant();
    const mine = await createIntent();
    ids = [
      ['malformed', 'pi_x'],
      ['a prefix alone', 'pi_'],
      ['no prefix', mine.id.slice(3)],
      ['in capital letters', mine.id.toUpperCase()],
      ['one character short', mine.id.slice(0, -1)],
      ['one character more', `${mine.id}0`],
      ['beyond a UUID', `pi_8${mine.id.slice(4)}`],
      ['a UUID', parseIdentifier('pi', mine.id) as string],
      ['its client secret', mine.client_secret],
      ['with a trailing space', `${mine.id} `],
      ['with a line break', `${mine.id}\n`],
      ['with a NUL', `${mine.id}\0`],
      ['with a slash', `${mine.id}/`],
      ['SQL', `${mine.id}' or true --`],
      ['very long', 'pi_'.padEnd(5_000, '0')],
      ['of another kind', service.merchant.merchantId],
      ['with the prefix of another kind', mine.id.replace('pi_', 'evt_')],
      ['one that never existed', formatIdentifier('pi', newUuid())],
      ['all zeros', `pi_${'0'.repeat(26)}`],
      ["another merchant's", (await createIntent(undefined, other.keys.testnet.apiKey)).id],
      ["the other mode's", (await createIntent(undefined, service.merchant.keys.mainnet.apiKey)).id],
    ];
  });

  test('over HTTP, with the same bytes but for the request id', async () => {
    const answers = await Promise.all(
      ids.map(async ([name, id]) => {
        const { status, headers, body } = await send(`${path}/${encodeURIComponent(id)}`);
        const requestId = String(headers['x-request-id']);
        expect([name, errorOf(body).request_id]).toEqual([name, requestId]);
        const { 'x-request-id': _, date: __, ...rest } = headers;
        return { status, headers: rest, body: body.replace(requestId, '') };
      }),
    );
    expect(answers[0]).toMatchObject({ status: 404, body: expect.stringContaining('"resource_missing"') });
    answers.forEach((answer, i) => {
      expect([ids[i]?.[0], answer]).toEqual([ids[i]?.[0], answers[0]]);
    });
  });

  test('over gRPC, with the same trailers but for the request id', async () => {
    const client = openGrpcClient(service);
    const answers = await Promise.all(
      // HTTP has no path for an empty id.
      [['empty', ''] as const, ...ids].map(async ([name, id]) => {
        const error = await refusedGet(client, id);
        const { requestId, code } = refusalOf(error);
        expect([name, code]).toEqual([name, 'resource_missing']);
        const details = (error.metadata.get('grpc-status-details-bin')[0] as Buffer).toString('latin1');
        expect(details).toContain(requestId);
        return { code: error.code, text: error.details, details: details.replace(requestId, '') };
      }),
    );
    client.close();
    expect(answers[0]?.code).toBe(grpc.status.NOT_FOUND);
    answers.forEach((answer, i) => {
      expect([i, answer]).toEqual([i, answers[0]]);
    });
  });

  test('each intent is found with its own key', async () => {
    const ofOther = ids.at(-2)?.[1] as string;
    const ofMainnet = ids.at(-1)?.[1] as string;
    for (const door of doors) {
      expect((await get(door, ofOther, other.keys.testnet.apiKey)).json.id).toBe(ofOther);
      expect((await get(door, ofMainnet, service.merchant.keys.mainnet.apiKey)).json.id).toBe(ofMainnet);
      // One at a time, because a single retrieval uses another statement than concurrent ones.
      for (const [id, key] of [
        [ofOther, other.keys.mainnet.apiKey],
        [ofOther, apiKey],
        [ofMainnet, apiKey],
        [ofMainnet, other.keys.mainnet.apiKey],
      ] as const) {
        expect((await get(door, id, key)).code).toBe('resource_missing');
      }
    }
  });
});

function refusedGet(client: grpc.Client, id: string): Promise<grpc.ServiceError> {
  const metadata = new grpc.Metadata();
  metadata.set('authorization', `Bearer ${apiKey}`);
  // `id` is field 1, a string.
  const length = Buffer.byteLength(id);
  const varint = length < 128 ? [length] : [(length & 0x7f) | 0x80, length >> 7];
  const request = id === '' ? Buffer.alloc(0) : Buffer.concat([Buffer.of(0x0a, ...varint), Buffer.from(id)]);
  return new Promise((resolve, reject) => {
    client.makeUnaryRequest(
      '/payments.v1.PaymentIntentService/GetPaymentIntent',
      (message: Buffer) => message,
      (message: Buffer) => message,
      request,
      metadata,
      (error) => (error ? resolve(error) : reject(new Error(`${JSON.stringify(id)} was found`))),
    );
  });
}

describe('over HTTP', async () => {
  const { id } = await createIntent();

  test('the id in the path may be percent-encoded', async () => {
    const encoded = [...id].map((c) => `%${c.charCodeAt(0).toString(16)}`).join('');
    for (const form of [encoded, encoded.toUpperCase(), id.replace('_', '%5f')]) {
      const { status, body } = await send(`${path}/${form}`);
      expect([status, JSON.parse(body).id]).toEqual([200, id]);
    }
  });

  test.each<[string, OutgoingHttpHeaders]>([
    ['of known length', { 'Content-Length': '2' }],
    ['in chunks', { 'Transfer-Encoding': 'chunked' }],
  ])('a body %s is refused', async (_, headers) => {
    const { status, body } = await send(`${path}/${id}`, headers, 'GET', '{}');
    expect([status, errorOf(body).code]).toEqual([400, 'invalid_body']);
    expect(errorOf(body).message).toBe('GET has no body here. Send the fields in the query.');
  });

  test.each<[string, OutgoingHttpHeaders]>([
    ['of length 0', { 'Content-Length': '0' }],
    ['without chunks', { 'Transfer-Encoding': 'chunked' }],
  ])('a body %s is ignored', async (_, headers) => {
    expect((await send(`${path}/${id}`, headers)).status).toBe(200);
  });

  test.each([
    ['expand=payments', ['expand']],
    ['id=pi_x', ['id']],
    ['id=', ['id']],
    ['a&b=1&c=', ['a', 'b', 'c']],
    ['%69d=1', ['id']],
    ['%zz', ['%zz']],
    ['=', ['""']],
  ])('the query ?%s is refused by name', async (query, fields) => {
    const { status, body } = await send(`${path}/${id}?${query}`);
    const { code, details } = errorOf(body);
    expect([status, code]).toEqual([400, 'invalid_body']);
    expect(details).toEqual(
      fields.map((field) => ({ field, message: 'is not a field here; there are none' })),
    );
  });

  test('an empty query is ignored', async () => {
    expect((await send(`${path}/${id}?`)).status).toBe(200);
  });

  test.each([`${path}//`, `${path}/%zz`])('%s is not found', async (nowhere) => {
    const { status, body } = await send(nowhere);
    expect([status, errorOf(body).code]).toEqual([404, 'not_found']);
  });

  test('a browser is refused, even with a valid key', async () => {
    const { status, body, headers } = await send(`${path}/${id}`, { Origin: 'https://shop.example' });
    expect([status, errorOf(body).code]).toEqual([403, 'browser_forbidden']);
    expect(headers['access-control-allow-origin']).toBeUndefined();
  });

  test.each<[string, OutgoingHttpHeaders, string]>([
    ['no key', { Authorization: [] }, 'api_key_missing'],
    ['a wrong key', { Authorization: `Bearer sk_testnet_${'x'.repeat(43)}` }, 'api_key_invalid'],
  ])('%s is refused before the id is read', async (_, headers, code) => {
    for (const target of [id, 'pi_x']) {
      const answer = await send(`${path}/${target}`, headers);
      expect([answer.status, errorOf(answer.body).code]).toEqual([401, code]);
    }
  });
});

describe('an intent whose client secret key has left CLIENT_SECRET_KEYS', async () => {
  const ring = () => randomBytes(32).toString('base64');
  const [oldKey, newKey] = [ring(), ring()];
  const idempotencyKey = randomUUID();
  const rotated = await useService({}, { secrets: { CLIENT_SECRET_KEYS: `3:${newKey},2:${oldKey}` } });

  test('gets a secret of the newest key version, in retrieval and in a replay of its creation', async () => {
    const replay = (door: Door) =>
      rotated.call('createPaymentIntent', { amount_units: 1 }, { door, idempotencyKey });
    const { id, client_secret: newest } = (await replay('json')).json;
    const secretsNow = async () => {
      const retrieved = await Promise.all(
        doors.map((door) => rotated.call('getPaymentIntent', { id }, { door })),
      );
      const replayed = await Promise.all(doors.map(replay));
      expect(replayed.map((answer) => answer.replayed)).toEqual([true, true]);
      return [
        ...retrieved.map(({ json }) => json.client_secret),
        ...replayed.map(({ json }) => json.client_secret),
      ];
    };
    const setVersion = (version: number) =>
      rotated.query('update payment_intents set client_secret_version = $1', [version]);

    await setVersion(1);
    expect(await secretsNow()).toEqual(Array(4).fill(newest));

    // With a version that is still in the ring, the secret stays the same.
    await setVersion(2);
    const older = await secretsNow();
    expect(new Set(older).size).toBe(1);
    expect(older[0]).toMatch(new RegExp(`^${id}_secret_`));
    expect(older[0]).not.toBe(newest);

    await setVersion(3);
    expect(await secretsNow()).toEqual(Array(4).fill(newest));
  });
});

test.each<[string, (created: Intent) => Promise<unknown>]>([
  ['retrieved', async ({ id }) => (await get('json', id)).json],
  ['listed', async () => (await service.call('listPaymentIntents', {})).json.payment_intents?.[0]],
  [
    'opened in a checkout',
    async ({ client_secret: apiKey = '' }) => (await service.call('getCheckout', {}, { apiKey })).json,
  ],
])('an intent that is paid while it is %s has the sum of its payments', async (_, read) => {
  const created = await createIntent({ amount_units: 2 });
  const pay = async (rows: Rows, count: number) => {
    await insertTransfers(rows, service.merchant, [{ paymentIntent: created.id, amountUnits: 1 }]);
    await rows.query(
      `update payment_intents set amount_received_units = $2::int, payments_count = $2, event_count = $2 where id = $1`,
      [parseIdentifier('pi', created.id), count],
    );
  };
  await pay(service, 1);
  const blocker = await openClient(service.location);
  // The payments are read after the intent, and wait.
  await blocker.query('begin; lock table transfers in access exclusive mode');
  const answer = read(created);
  await sessionsWaiting(service, 1);
  await pay({ query: (...of) => blocker.query(...of) }, 2);
  await blocker.query('commit');
  await blocker.end();
  expect(await answer).toMatchObject({
    amount_received_units: 2,
    payments_count: 2,
    payments: [{ amount_units: 1 }, { amount_units: 1 }],
  });
});
