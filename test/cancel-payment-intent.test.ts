import { randomUUID } from 'node:crypto';
import type { OutgoingHttpHeaders } from 'node:http';
import { create } from '@bufbuild/protobuf';
import { WireType } from '@bufbuild/protobuf/wire';
import grpc from '@grpc/grpc-js';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { PaymentIntentService } from '../src/contract/gen/payments/v1/payment_intent_service_pb.ts';
import { formatIdentifier, newUuid, parseIdentifier } from '../src/database/identifiers.ts';
import { createExpiry } from '../src/payment-intents/expire-payment-intents.ts';
import { type CreateBody, type Door, httpRequest, type Intent } from './support/doors.ts';
import {
  grpcUnary,
  type IntentMethods,
  openGrpcClient,
  openIntentMethods,
  type PresentIntent,
} from './support/intent-methods.ts';
import { createTestMerchant, type TestService } from './support/service.ts';
import { useService } from './support/use-service.ts';

let service: TestService;
let doors: Door[];
let methods: IntentMethods[];
let apiKey: string;

useService(
  (started, opened) => {
    service = started;
    doors = opened;
    methods = openIntentMethods(started);
    apiKey = started.merchant.keys.testnet.apiKey;
  },
  // What expires here, the test itself expires.
  { ROLES: 'api' },
);

afterAll(() => {
  for (const each of methods) each.close();
});

afterEach(() => {
  expect(service.log.filter(({ level }) => level === 'error' || level === 'warn')).toEqual([]);
});

const [overHttp, overGrpc] = [0, 1].map((i) => () => methods[i] as IntentMethods) as [
  () => IntentMethods,
  () => IntentMethods,
];
const bothDoors = [
  ['HTTP', overHttp],
  ['gRPC', overGrpc],
] as const;

async function createIntent(
  body: CreateBody = { amount_units: 12_500_000 },
  { key = apiKey, idempotencyKey = randomUUID() } = {},
): Promise<Intent> {
  const answer = await (doors[0] as Door).create(body, { authorization: `Bearer ${key}`, idempotencyKey });
  return answer.intent as Intent;
}

const uuidOf = (id: string) => parseIdentifier('pi', id) as string;

const change = (id: string, assignments: string) =>
  service.query(`update payment_intents set ${assignments} where id = $1`, [uuidOf(id)]);

/** The events of an intent, in their order. */
const eventsOf = (id: string) =>
  service.query<{ type: string; sequence: number; data: string }>(
    'select type, sequence, data from events where payment_intent = $1 order by sequence',
    [uuidOf(id)],
  );

const cancelOverHttp = (id: string, headers: OutgoingHttpHeaders = {}, body?: string, query = '') =>
  httpRequest(
    `${service.publicUrl}/v1/payment_intents/${id}/cancel${query}`,
    { headers: { Authorization: `Bearer ${apiKey}`, ...headers } },
    body,
  );

describe.each(bothDoors)('over %s', (name, door) => {
  const okStatus = name === 'HTTP' ? 200 : grpc.status.OK;

  test('an intent that requires payment is canceled', async () => {
    const created = await createIntent({
      amount_units: 5,
      chain: 'polygon',
      lane: 'manual',
      metadata: { order_id: 'order-1' },
    });
    const before = await door().get(created.id, apiKey);
    const startedAtMs = Date.now();
    const canceled = await door().cancel(created.id, apiKey);
    expect([canceled.code, canceled.status]).toEqual(['ok', okStatus]);
    const { canceled_at } = canceled.json;
    expect(canceled.json).toEqual({ ...before.json, status: 'canceled', canceled_at });
    expect(canceled.json.client_secret).toBe(created.client_secret);
    const canceledAtMs = new Date(canceled_at as string).getTime();
    expect(canceledAtMs).toBeGreaterThanOrEqual(startedAtMs);
    expect(canceledAtMs).toBeLessThanOrEqual(Date.now());
    for (const each of methods) expect((await each.get(created.id, apiKey)).json).toEqual(canceled.json);
  });

  test('its event has the canceled intent, without its client secret', async () => {
    const { id } = await createIntent();
    const { client_secret, ...canceled } = (await door().cancel(id, apiKey)).json;
    const [event, ...others] = await eventsOf(id);
    expect(others).toEqual([]);
    expect(event).toMatchObject({ type: 'payment_intent.canceled', sequence: 1 });
    expect(JSON.parse(event?.data ?? '')).toEqual({ payment_intent: canceled });
  });

  test('a second cancellation returns the same and records nothing', async () => {
    const { id } = await createIntent();
    const first = await door().cancel(id, apiKey);
    for (const again of [...methods, door()]) {
      const answer = await again.cancel(id, apiKey);
      expect([answer.code, answer.json]).toEqual(['ok', first.json]);
    }
    expect(await eventsOf(id)).toHaveLength(1);
  });

  test('a partly paid intent gets the label underpaid after its other labels', async () => {
    const { id } = await createIntent();
    await change(
      id,
      `amount_received_units = 12499999, payments_count = 2, event_count = 4, labels = '{wrong_token}'`,
    );
    const canceled = await door().cancel(id, apiKey);
    expect(canceled.json).toMatchObject({
      status: 'canceled',
      amount_received_units: 12_499_999,
      payments_count: 2,
      labels: ['wrong_token', 'underpaid'],
    });
    expect((await door().get(id, apiKey)).json).toEqual(canceled.json);
    const events = await eventsOf(id);
    expect(events.map(({ sequence }) => sequence)).toEqual([5]);
    expect(JSON.parse(events[0]?.data ?? '').payment_intent.labels).toEqual(['wrong_token', 'underpaid']);
  });

  test('an unpaid intent gets no label', async () => {
    const { id } = await createIntent();
    expect((await door().cancel(id, apiKey)).json.labels).toBeUndefined();
  });

  test.each([
    ['processing', `amount_received_units = amount_units`, /is being paid/],
    ['succeeded', `amount_received_units = amount_units, succeeded_at = now()`, /has succeeded/],
    ['expired', `expired_at = now()`, /has expired already/],
  ])('an intent that is %s cannot be canceled', async (status, assignments, why) => {
    const { id } = await createIntent();
    await change(id, `status = '${status}', ${assignments}`);
    const before = await door().get(id, apiKey);
    const refused = await door().cancel(id, apiKey);
    expect([refused.code, refused.status]).toEqual([
      'invalid_state',
      name === 'HTTP' ? 409 : grpc.status.FAILED_PRECONDITION,
    ]);
    expect(refused.message).toMatch(why);
    expect(await door().get(id, apiKey)).toEqual(before);
    expect(await eventsOf(id)).toEqual([]);
  });

  test('an intent of another merchant or mode is not found, and not changed', async () => {
    const other = await createTestMerchant(service.database);
    const ofOther = await createIntent(undefined, { key: other.keys.testnet.apiKey });
    const ofMainnet = await createIntent(undefined, { key: service.merchant.keys.mainnet.apiKey });
    const never = await door().cancel(formatIdentifier('pi', newUuid()), apiKey);
    expect(never).toMatchObject({
      code: 'resource_missing',
      status: name === 'HTTP' ? 404 : grpc.status.NOT_FOUND,
    });
    for (const id of [
      'pi_x',
      ofOther.id.toUpperCase(),
      ofOther.id.replace('pi_', 'evt_'),
      ofOther.id,
      ofMainnet.id,
    ]) {
      expect([id, await door().cancel(id, apiKey)]).toEqual([id, never]);
    }
    expect((await door().get(ofOther.id, other.keys.testnet.apiKey)).json.status).toBe('requires_payment');
    expect((await door().get(ofMainnet.id, service.merchant.keys.mainnet.apiKey)).json.status).toBe(
      'requires_payment',
    );
  });

  test('a retry of the creation still returns the original answer', async () => {
    const idempotencyKey = randomUUID();
    const body = { amount_units: 7, metadata: { b: 1, a: 2 } };
    const options = { authorization: `Bearer ${apiKey}`, idempotencyKey };
    const created = await createIntent(body, { idempotencyKey });
    await door().cancel(created.id, apiKey);
    for (const each of doors) {
      const replay = await each.create(body, options);
      expect(replay).toMatchObject({ code: 'ok', replayed: true });
      expect(replay.intent).toEqual(created);
    }
    expect((await door().get(created.id, apiKey)).json.status).toBe('canceled');
  });
});

test('a retry of the creation after a cancellation has the same bytes', async () => {
  const create = () =>
    httpRequest(
      `${service.publicUrl}/v1/payment_intents`,
      {
        headers: {
          Authorization: `Bearer ${apiKey}`,
          'Content-Type': 'application/json',
          'Idempotency-Key': 'order-1001',
        },
      },
      '{"amount_units":1,"metadata":{"b":1.50,"a":"é"}}',
    );
  const first = await create();
  expect((await cancelOverHttp(JSON.parse(first.body).id)).status).toBe(200);
  const again = await create();
  expect([again.status, again.headers['idempotent-replayed'], again.body]).toEqual([201, 'true', first.body]);
  expect(again.body).toContain('"status":"requires_payment"');
});

describe('its request over HTTP', () => {
  test.each<[string, OutgoingHttpHeaders, string | undefined]>([
    ['no body', {}, undefined],
    ['no body, called JSON', { 'Content-Type': 'application/json' }, undefined],
    [
      'no body, called a form',
      { 'Content-Type': 'application/x-www-form-urlencoded', 'Content-Length': 0 },
      undefined,
    ],
    [
      'no body, called text',
      { 'Content-Type': 'text/plain; charset=latin1', 'Content-Length': 0 },
      undefined,
    ],
    ['no body, in chunks', { 'Content-Type': 'application/json', 'Transfer-Encoding': 'chunked' }, ''],
    ['an empty object', { 'Content-Type': 'application/json' }, '{}'],
    ['an empty object with white space', { 'Content-Type': 'application/json' }, ' \n{ }\t'],
  ])('%s is accepted', async (_, headers, body) => {
    const { id } = await createIntent();
    const answer = await cancelOverHttp(id, headers, body);
    expect([answer.status, JSON.parse(answer.body).status]).toEqual([200, 'canceled']);
  });

  test.each<[string, string, { field: string; message: RegExp }[]]>([
    ['an unknown field', '{"reason":"x"}', [{ field: 'reason', message: /is not a field here/ }]],
    ['an id', '{"id":"pi_x"}', [{ field: 'id', message: /is not a field here/ }]],
    [
      'an id that is null, and another field',
      '{"id":null,"x":1}',
      [
        { field: 'id', message: /is not a field here/ },
        { field: 'x', message: /is not a field here/ },
      ],
    ],
    ['a list', '[]', [{ field: 'body', message: /must be an object/ }]],
    ['null', 'null', [{ field: 'body', message: /must be an object/ }]],
  ])('%s in the body is refused by name, and cancels nothing', async (_, body, details) => {
    const { id } = await createIntent();
    const answer = await cancelOverHttp(id, { 'Content-Type': 'application/json' }, body);
    const { error } = JSON.parse(answer.body);
    expect([answer.status, error.code]).toEqual([400, 'invalid_body']);
    expect(error.details).toEqual(
      details.map(({ field, message }) => ({ field, message: expect.stringMatching(message) })),
    );
    expect((await overHttp().get(id, apiKey)).json.status).toBe('requires_payment');
  });

  test('the id of the intent itself in the body is refused too', async () => {
    const { id } = await createIntent();
    const headers = { 'Content-Type': 'application/json' };
    const answer = await cancelOverHttp(id, headers, JSON.stringify({ id }));
    expect(JSON.parse(answer.body).error.details[0].field).toBe('id');
    expect((await overHttp().get(id, apiKey)).json.status).toBe('requires_payment');
  });

  test.each([
    ['?id=pi_x', ['id']],
    ['?reason=x', ['reason']],
    ['?a&b=%zz', ['a', 'b']],
  ])('the query %s is refused by name, and cancels nothing', async (query, fields) => {
    const { id } = await createIntent();
    const answer = await cancelOverHttp(id, {}, undefined, query);
    const { error } = JSON.parse(answer.body);
    expect([answer.status, error.code]).toEqual([400, 'invalid_body']);
    expect(error.details.map(({ field }: { field: string }) => field)).toEqual(fields);
    expect((await overHttp().get(id, apiKey)).json.status).toBe('requires_payment');
  });

  test.each<[string, OutgoingHttpHeaders, string, string]>([
    ['another media type', { 'Content-Type': 'text/plain' }, '{}', 'unsupported_media_type'],
    ['no JSON', { 'Content-Type': 'application/json' }, '{', 'invalid_body'],
    ['a browser', { Origin: 'https://shop.example' }, '', 'browser_forbidden'],
    ['no key', { Authorization: [] }, '', 'api_key_missing'],
  ])('%s is refused', async (_, headers, body, code) => {
    const { id } = await createIntent();
    const answer = await cancelOverHttp(id, headers, body);
    expect(JSON.parse(answer.body).error.code).toBe(code);
    expect((await overHttp().get(id, apiKey)).json.status).toBe('requires_payment');
  });

  test.each(['GET', 'HEAD', 'PUT', 'PATCH', 'DELETE'])('%s is not allowed', async (method) => {
    const { status, headers } = await httpRequest(`${service.publicUrl}/v1/payment_intents/pi_x/cancel`, {
      method,
      headers: { Authorization: `Bearer ${apiKey}` },
    });
    expect([status, headers.allow]).toEqual([405, 'POST']);
  });
});

test('over gRPC, a field that the contract does not have is refused', async () => {
  const { id } = await createIntent();
  const { cancelPaymentIntent, getPaymentIntent } = PaymentIntentService.method;
  const client = openGrpcClient(service);
  for (const method of [getPaymentIntent, cancelPaymentIntent]) {
    const request = create(method.input, { id });
    request.$unknown = [{ no: 9, wireType: WireType.Varint, data: Uint8Array.of(1) }];
    const answer = await grpcUnary<PresentIntent>(client, method, request, apiKey);
    expect(answer).toMatchObject({ code: 'invalid_body', details: [{ field: 'field 9' }] });
  }
  client.close();
  expect((await overHttp().get(id, apiKey)).json.status).toBe('requires_payment');
});

test('a hundred cancellations at once over both doors: one event, and the same answer for all', async () => {
  const { id } = await createIntent();
  const answers = await Promise.all(
    Array.from({ length: 100 }, (_, i) => (methods[i % 2] as IntentMethods).cancel(id, apiKey)),
  );
  expect(answers.map(({ code }) => code)).toEqual(Array(100).fill('ok'));
  expect(answers.map(({ json }) => json)).toEqual(Array(100).fill(answers[0]?.json));
  expect(answers[0]?.json).toEqual((await overHttp().get(id, apiKey)).json);
  expect((await eventsOf(id)).map(({ type, sequence }) => [type, sequence])).toEqual([
    ['payment_intent.canceled', 1],
  ]);
});

describe('while intents expire', () => {
  const rounds = 60;
  let ended: { answer: Awaited<ReturnType<IntentMethods['cancel']>>; id: string }[];

  beforeAll(async () => {
    ended = [];
    const expire = createExpiry(service.database.orm.em, (_, reason) => {
      throw reason;
    });
    const intents = await Promise.all(Array.from({ length: rounds }, () => createIntent()));
    for (const { id } of intents) {
      await change(
        id,
        `created_at = created_at - interval '1 day', expires_at = expires_at - interval '1 day'`,
      );
    }
    // The expiry takes all of them, each cancellation one.
    const cancellations = intents.map(async ({ id }, i) => ({
      id,
      answer: await (methods[i % 2] as IntentMethods).cancel(id, apiKey),
    }));
    const [canceled] = await Promise.all([Promise.all(cancellations), expire()]);
    ended = canceled;
    await expire();
  });

  test('each intent either expires or is canceled, with one event', async () => {
    for (const { id, answer } of ended) {
      const { json } = await overHttp().get(id, apiKey);
      const events = await eventsOf(id);
      expect(events.map(({ type, sequence }) => [type, sequence])).toEqual([
        [`payment_intent.${json.status}`, 1],
      ]);
      const { client_secret, ...snapshot } = json;
      expect(JSON.parse(events[0]?.data ?? '').payment_intent).toEqual(snapshot);
      if (json.status === 'canceled') expect(answer.json).toEqual(json);
      else expect([json.status, answer.code]).toEqual(['expired', 'invalid_state']);
      expect([json.canceled_at, json.expired_at].filter((at) => at !== undefined)).toHaveLength(1);
    }
  });
});
