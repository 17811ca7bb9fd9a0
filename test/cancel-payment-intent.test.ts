import { randomUUID } from 'node:crypto';
import type { OutgoingHttpHeaders } from 'node:http';
import grpc from '@grpc/grpc-js';
import { beforeAll, describe, expect, test } from 'vitest';
import { formatIdentifier, newUuid, parseIdentifier } from '../src/database/identifiers.ts';
import { createExpiry } from '../src/payment-intents/expire-payment-intents.ts';
import { type Door, doors, type Intent, type Request } from './support/call.ts';
import { eventsOf } from './support/event-rows.ts';
import { httpRequest, postJson } from './support/service.ts';
import { expectNoComplaints, useService } from './support/use-service.ts';

// Only the test itself expires intents.
const service = await useService({ ROLES: 'api' });
const { apiKey } = service.merchant.keys.testnet;

expectNoComplaints(service);

const okStatus = { json: 200, grpc: grpc.status.OK };
const get = (door: Door, id: string, key = apiKey) =>
  service.call('getPaymentIntent', { id }, { door, apiKey: key });
const cancel = (door: Door, id: string) => service.call('cancelPaymentIntent', { id }, { door });

async function createIntent(
  body: Request = { amount_units: 12_500_000 },
  { key = apiKey, idempotencyKey = randomUUID() } = {},
): Promise<Intent> {
  const answer = await service.call('createPaymentIntent', body, { apiKey: key, idempotencyKey });
  return answer.json;
}

const uuidOf = (id: string) => parseIdentifier('pi', id) as string;

const change = (id: string, assignments: string) =>
  service.query(`update payment_intents set ${assignments} where id = $1`, [uuidOf(id)]);

const cancelOverHttp = (id: string, headers: OutgoingHttpHeaders = {}, body?: string, query = '') =>
  httpRequest(
    `${service.publicUrl}/v1/payment_intents/${id}/cancel${query}`,
    { headers: { Authorization: `Bearer ${apiKey}`, ...headers } },
    body,
  );

describe.each(doors)('over %s', (door) => {
  test('an intent that requires payment is canceled', async () => {
    const created = await createIntent({
      amount_units: 5,
      chain: 'polygon',
      lane: 'manual',
      metadata: { order_id: 'order-1' },
    });
    const before = await get(door, created.id, apiKey);
    const startedAtMs = Date.now();
    const canceled = await cancel(door, created.id);
    expect([canceled.code, canceled.status]).toEqual(['ok', okStatus[door]]);
    const { canceled_at } = canceled.json;
    expect(canceled.json).toEqual({ ...before.json, status: 'canceled', canceled_at });
    expect(canceled.json.client_secret).toBe(created.client_secret);
    const canceledAtMs = new Date(canceled_at as string).getTime();
    expect(canceledAtMs).toBeGreaterThanOrEqual(startedAtMs);
    expect(canceledAtMs).toBeLessThanOrEqual(Date.now());
    for (const each of doors) expect((await get(each, created.id)).json).toEqual(canceled.json);
  });

  test('the event has the canceled intent, without its client secret', async () => {
    const { id } = await createIntent();
    const { client_secret, ...canceled } = (await cancel(door, id)).json;
    const [event, ...others] = await eventsOf(service, id);
    expect(others).toEqual([]);
    expect(event).toMatchObject({ type: 'payment_intent.canceled', sequence: 1 });
    expect(JSON.parse(event?.data ?? '')).toEqual({ payment_intent: canceled });
  });

  test('a second cancellation returns the same and records nothing', async () => {
    const { id } = await createIntent();
    const first = await cancel(door, id);
    for (const again of [...doors, door]) {
      const answer = await cancel(again, id);
      expect([answer.code, answer.json]).toEqual(['ok', first.json]);
    }
    expect(await eventsOf(service, id)).toHaveLength(1);
  });

  test('a partly paid intent gets the label underpaid after its other labels', async () => {
    const { id } = await createIntent();
    await change(
      id,
      `amount_received_units = 12499999, payments_count = 2, event_count = 4, labels = '{wrong_token}'`,
    );
    const canceled = await cancel(door, id);
    expect(canceled.json).toMatchObject({
      status: 'canceled',
      amount_received_units: 12_499_999,
      payments_count: 2,
      labels: ['wrong_token', 'underpaid'],
    });
    expect((await get(door, id, apiKey)).json).toEqual(canceled.json);
    const events = await eventsOf(service, id);
    expect(events.map(({ sequence }) => sequence)).toEqual([5]);
    expect(JSON.parse(events[0]?.data ?? '').payment_intent.labels).toEqual(['wrong_token', 'underpaid']);
  });

  test('an unpaid intent gets no label', async () => {
    const { id } = await createIntent();
    expect((await cancel(door, id)).json.labels).toBeUndefined();
  });

  test.each([
    ['processing', `amount_received_units = amount_units`, /is being paid/],
    ['succeeded', `amount_received_units = amount_units, succeeded_at = now()`, /has succeeded/],
    ['expired', `expired_at = now()`, /has expired already/],
  ])('an intent that is %s cannot be canceled', async (status, assignments, why) => {
    const { id } = await createIntent();
    await change(id, `status = '${status}', ${assignments}`);
    const before = await get(door, id, apiKey);
    const refused = await cancel(door, id);
    expect([refused.code, refused.status]).toEqual([
      'invalid_state',
      door === 'json' ? 409 : grpc.status.FAILED_PRECONDITION,
    ]);
    expect(refused.message).toMatch(why);
    expect(await get(door, id, apiKey)).toEqual(before);
    expect(await eventsOf(service, id)).toEqual([]);
  });

  test('anything but an intent of the merchant and mode of the key is not found, and unchanged', async () => {
    const other = await service.newMerchant();
    const ofOther = await createIntent(undefined, { key: other.keys.testnet.apiKey });
    const ofMainnet = await createIntent(undefined, { key: service.merchant.keys.mainnet.apiKey });
    const never = await cancel(door, formatIdentifier('pi', newUuid()));
    expect(never).toMatchObject({
      code: 'resource_missing',
      status: door === 'json' ? 404 : grpc.status.NOT_FOUND,
    });
    for (const id of [
      'pi_x',
      ofOther.id.toUpperCase(),
      ofOther.id.replace('pi_', 'evt_'),
      ofOther.id,
      ofMainnet.id,
    ]) {
      expect([id, await cancel(door, id)]).toEqual([id, never]);
    }
    expect((await get(door, ofOther.id, other.keys.testnet.apiKey)).json.status).toBe('requires_payment');
    expect((await get(door, ofMainnet.id, service.merchant.keys.mainnet.apiKey)).json.status).toBe(
      'requires_payment',
    );
  });

  test('a retry of the creation still returns the original answer', async () => {
    const idempotencyKey = randomUUID();
    const body = { amount_units: 7, metadata: { b: 1, a: 2 } };
    const created = await createIntent(body, { idempotencyKey });
    await cancel(door, created.id);
    for (const each of doors) {
      const replay = await service.call('createPaymentIntent', body, { door: each, idempotencyKey });
      expect(replay).toMatchObject({ code: 'ok', replayed: true });
      expect(replay.json).toEqual(created);
    }
    expect((await get(door, created.id, apiKey)).json.status).toBe('canceled');
  });
});

test('a retry of the creation after a cancellation has the same bytes', async () => {
  const body = '{"amount_units":1,"metadata":{"b":1.50,"a":"é"}}';
  const headers = { 'idempotency-key': 'order-1001' };
  const create = () => postJson(`${service.publicUrl}/v1/payment_intents`, apiKey, body, { headers });
  const first = await create();
  expect((await cancelOverHttp(JSON.parse(first.body).id)).status).toBe(200);
  const again = await create();
  expect([again.status, again.headers['idempotent-replayed'], again.body]).toEqual([201, 'true', first.body]);
  expect(again.body).toContain('"status":"requires_payment"');
});

describe('the request over HTTP', () => {
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
    ['no body, in chunks of text', { 'Content-Type': 'text/plain', 'Transfer-Encoding': 'chunked' }, ''],
    ['an empty object', { 'Content-Type': 'application/json' }, '{}'],
    ['an empty object with white space', { 'Content-Type': 'application/json' }, ' \n{ }\t'],
    ['null, which many clients write for no body,', { 'Content-Type': 'application/json' }, 'null'],
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
    ['false', 'false', [{ field: 'body', message: /must be an object/ }]],
  ])('%s in the body: the error names the field, and nothing is canceled', async (_, body, details) => {
    const { id } = await createIntent();
    const answer = await cancelOverHttp(id, { 'Content-Type': 'application/json' }, body);
    const { error } = JSON.parse(answer.body);
    expect([answer.status, error.code]).toEqual([400, 'invalid_body']);
    expect(error.details).toEqual(
      details.map(({ field, message }) => ({ field, message: expect.stringMatching(message) })),
    );
    expect((await get('json', id, apiKey)).json.status).toBe('requires_payment');
  });

  test('the id of the intent itself in the body is refused too', async () => {
    const { id } = await createIntent();
    const headers = { 'Content-Type': 'application/json' };
    const answer = await cancelOverHttp(id, headers, JSON.stringify({ id }));
    expect(JSON.parse(answer.body).error.details[0].field).toBe('id');
    expect((await get('json', id, apiKey)).json.status).toBe('requires_payment');
  });

  test.each([
    ['?id=pi_x', ['id']],
    ['?reason=x', ['reason']],
    ['?a&b=%zz', ['a', 'b']],
  ])('the query %s: the error names the field, and nothing is canceled', async (query, fields) => {
    const { id } = await createIntent();
    const answer = await cancelOverHttp(id, {}, undefined, query);
    const { error } = JSON.parse(answer.body);
    expect([answer.status, error.code]).toEqual([400, 'invalid_body']);
    expect(error.details.map(({ field }: { field: string }) => field)).toEqual(fields);
    expect((await get('json', id, apiKey)).json.status).toBe('requires_payment');
  });

  test.each<[string, OutgoingHttpHeaders, string, string]>([
    ['another media type', { 'Content-Type': 'text/plain' }, '{}', 'unsupported_media_type'],
    ['invalid JSON', { 'Content-Type': 'application/json' }, '{', 'invalid_body'],
    ['a browser', { Origin: 'https://shop.example' }, '', 'browser_forbidden'],
    ['no key', { Authorization: [] }, '', 'api_key_missing'],
  ])('%s is refused', async (_, headers, body, code) => {
    const { id } = await createIntent();
    const answer = await cancelOverHttp(id, headers, body);
    expect(JSON.parse(answer.body).error.code).toBe(code);
    expect((await get('json', id, apiKey)).json.status).toBe('requires_payment');
  });
});

test('over gRPC, a field that the contract does not have is refused', async () => {
  const { id } = await createIntent();
  for (const method of ['getPaymentIntent', 'cancelPaymentIntent'] as const) {
    const answer = await service.call(method, { id, unknown: 1 }, { door: 'grpc' });
    expect(answer).toMatchObject({ code: 'invalid_body', details: [{ field: 'field 99' }] });
  }
  expect((await get('json', id, apiKey)).json.status).toBe('requires_payment');
});

test('a hundred cancellations at once over both doors: one event, and the same answer for all', async () => {
  const { id } = await createIntent();
  const answers = await Promise.all(Array.from({ length: 100 }, (_, i) => cancel(doors[i % 2] as Door, id)));
  expect(answers.map(({ code }) => code)).toEqual(Array(100).fill('ok'));
  expect(answers.map(({ json }) => json)).toEqual(Array(100).fill(answers[0]?.json));
  expect(answers[0]?.json).toEqual((await get('json', id, apiKey)).json);
  expect((await eventsOf(service, id)).map(({ type, sequence }) => [type, sequence])).toEqual([
    ['payment_intent.canceled', 1],
  ]);
});

describe('while intents expire', () => {
  const rounds = 60;
  let ended: { answer: Awaited<ReturnType<typeof cancel>>; id: string }[];

  beforeAll(async () => {
    ended = [];
    const expire = createExpiry(service.database.orm.em, (_, reason) => {
      throw reason;
    });
    const intents = await Promise.all(Array.from({ length: rounds }, () => createIntent()));
    for (const { id } of intents) {
      await change(
        id,
        `created_at = created_at - interval '24 hours', expires_at = expires_at - interval '24 hours'`,
      );
    }
    // The expiry takes all intents, each cancellation takes one.
    const cancellations = intents.map(async ({ id }, i) => ({
      id,
      answer: await cancel(doors[i % 2] as Door, id),
    }));
    const [canceled] = await Promise.all([Promise.all(cancellations), expire()]);
    ended = canceled;
    await expire();
  });

  test('each intent either expires or is canceled, with one event', async () => {
    for (const { id, answer } of ended) {
      const { json } = await get('json', id, apiKey);
      const events = await eventsOf(service, id);
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
