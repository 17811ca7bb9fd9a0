import { randomBytes } from 'node:crypto';
import type { OutgoingHttpHeaders } from 'node:http';
import { create } from '@bufbuild/protobuf';
import { WireType } from '@bufbuild/protobuf/wire';
import grpc from '@grpc/grpc-js';
import { beforeAll, describe, expect, test } from 'vitest';
import { networkFor } from '../src/contract/chains.ts';
import {
  type ListPaymentIntentsRequest,
  ListPaymentIntentsRequestSchema,
} from '../src/contract/gen/payments/v1/payment_intent_service_pb.ts';
import { type Door, doors, type Intent, pagesOf, type Request } from './support/call.ts';
import { insertIntents, insertOf } from './support/intent-rows.ts';
import { openClient } from './support/open-client.ts';
import { httpRequest, keyOf, startService, type TestMerchant } from './support/service.ts';
import { expectNoComplaints, useService } from './support/use-service.ts';

// Without expiry, so that overdue rows stay as they are.
const service = await useService({ ROLES: 'api' });

expectNoComplaints(service);

const list = (door: Door, query: Request, apiKey: string) =>
  service.call('listPaymentIntents', query, { door, apiKey });
const listAll = (door: Door, query: Request, apiKey: string) =>
  pagesOf(service.call, 'listPaymentIntents', query, { door, apiKey });

const { newMerchant } = service;

async function createIntent(
  apiKey: string,
  body: Request = { amount_units: 1 },
  idempotencyKey?: string,
): Promise<Intent> {
  const answer = await service.call('createPaymentIntent', body, {
    apiKey,
    ...(idempotencyKey !== undefined && { idempotencyKey }),
  });
  return answer.json;
}

const idsOf = (intents: readonly { id: string }[]) => intents.map(({ id }) => id);
const newestFirst = (ids: readonly string[]) => [...ids].sort().reverse();

const get = (apiKey: string, query: string, more: OutgoingHttpHeaders = {}, body?: string) => {
  const headers = { Authorization: `Bearer ${apiKey}`, ...more };
  return httpRequest(`${service.publicUrl}/v1/payment_intents${query}`, { method: 'GET', headers }, body);
};

const year = 365 * 86_400_000;

describe('a page', async () => {
  const merchant = await newMerchant();
  const created: Intent[] = [];
  for (let i = 0; i < 25; i++) created.push(await createIntent(keyOf(merchant), { amount_units: i + 1 }));
  const ids = newestFirst(idsOf(created));

  test.each(doors)('over %s has 20 intents, newest first, and leads to the next', async (door) => {
    const first = await list(door, {}, keyOf(merchant));
    expect(idsOf(first.json.payment_intents)).toEqual(ids.slice(0, 20));
    const second = await list(door, { page_token: first.json.next_page_token as string }, keyOf(merchant));
    expect(idsOf(second.json.payment_intents)).toEqual(ids.slice(20));
    expect(Object.keys(second.json)).toEqual(['payment_intents']);
  });

  test.each(doors)('over %s has each intent as retrieved, without its client secret', async (door) => {
    const [page] = await listAll(door, { page_size: 3 }, keyOf(merchant));
    for (const listed of page as Intent[]) {
      const { client_secret, ...retrieved } = (
        await service.call('getPaymentIntent', { id: listed.id }, { door, apiKey: keyOf(merchant) })
      ).json;
      expect(client_secret).toContain('_secret_');
      expect(listed).toEqual(retrieved);
    }
  });

  test('has no client secret anywhere', async () => {
    const { body } = await get(keyOf(merchant), '?page_size=100');
    expect(JSON.parse(body).payment_intents).toHaveLength(25);
    expect(body).not.toContain('secret');
    const answer = await list('grpc', {}, keyOf(merchant));
    expect(JSON.stringify(answer)).not.toContain('secret');
    expect(answer.json.payment_intents).toHaveLength(20);
  });

  test.each(doors)('over %s has as many as page_size says, the last one being full too', async (door) => {
    for (const [size, lengths] of [
      [1, Array(25).fill(1)],
      [5, [5, 5, 5, 5, 5]],
      [24, [24, 1]],
      [25, [25]],
      [26, [25]],
      [100, [25]],
    ] as const) {
      const pages = await listAll(door, { page_size: size }, keyOf(merchant));
      expect([size, pages.map((page) => page.length)]).toEqual([size, lengths]);
      expect(idsOf(pages.flat())).toEqual(ids);
    }
  });

  test('may have another size than the one before', async () => {
    const first = await list('json', { page_size: 2 }, keyOf(merchant));
    const token = first.json.next_page_token as string;
    const second = await list('grpc', { page_size: 100, page_token: token }, keyOf(merchant));
    expect(idsOf(second.json.payment_intents)).toEqual(ids.slice(2));
  });

  test('is the same each time it is asked for, with a token that HTTP and gRPC share', async () => {
    const first = await list('grpc', { page_size: 4 }, keyOf(merchant));
    const token = first.json.next_page_token as string;
    const answers = await Promise.all(
      [...doors, ...doors].map((door) => list(door, { page_size: 4, page_token: token }, keyOf(merchant))),
    );
    for (const { json } of answers) expect(json).toEqual(answers[0]?.json);
    expect(idsOf(answers[0]?.json.payment_intents ?? [])).toEqual(ids.slice(4, 8));
  });
});

test('a list without intents is an empty list', async () => {
  const merchant = await newMerchant();
  expect((await get(keyOf(merchant), '')).body).toBe('{"payment_intents":[]}');
  await createIntent(keyOf(merchant));
  const none = await get(keyOf(merchant), '?status=succeeded');
  expect([none.status, none.body]).toEqual([200, '{"payment_intents":[]}']);
  expect(none.headers).toMatchObject({ 'content-type': 'application/json', 'cache-control': 'no-store' });
  const { code, json } = await list('grpc', { status: 'succeeded' }, keyOf(merchant));
  expect([code, json]).toEqual(['ok', { payment_intents: [] }]);
});

describe('a query', async () => {
  const merchant = await newMerchant();
  const intent = await createIntent(keyOf(merchant), undefined, 'a+b');
  await createIntent(keyOf(merchant), undefined, 'a&b=c%20%');

  const notEmpty = 'must not be empty: leave it out instead';
  const notAPageSize = 'must be an integer from 1 to 100';
  const notAStatus = 'must be "requires_payment" or "processing" or "succeeded" or "expired" or "canceled"';
  const notAMoment = 'must be a date and time as in RFC 3339, such as 2026-11-21T12:00:00Z';
  const notAKey = 'must be 1 to 255 visible ASCII characters';
  const noYear = 'must be a date and time of the years 1 to 9999, such as 2026-11-21T12:00:00Z';
  const ofTheYears = /years 1 to 9999, such as 2026-/;
  const notAToken = 'is not a token that this list returned';
  const fields =
    'page_size, page_token, status, chain, lane, idempotency_key, created_from, created_before, label, ' +
    'expected_wallet, succeeded_from, succeeded_before, metadata_key, metadata_value';
  const moment = '2026-01-01T00:00:00';

  test.each<[query: string, ...faults: [field: string, message: string][]]>([
    ['limit=1', ['limit', `is not a field here (did you mean page_size?); the fields are ${fields}`]],
    ['page_sise=1', ['page_sise', `is not a field here (did you mean page_size?); the fields are ${fields}`]],
    ['Status=expired', ['Status', `is not a field here (did you mean status?); the fields are ${fields}`]],
    ['payment_intents=x', ['payment_intents', `is not a field here; the fields are ${fields}`]],
    [
      '&',
      ['""', `is not a field here; the fields are ${fields}`],
      ['""', `is not a field here; the fields are ${fields}`],
    ],
    ['page_size=1&', ['""', `is not a field here; the fields are ${fields}`]],
    ['%zz=1', ['%zz=1', `is not a field here; the fields are ${fields}`]],
    ['page_size', ['page_size', notEmpty]],
    ['page_size=', ['page_size', notEmpty]],
    ['page_size=0', ['page_size', notAPageSize]],
    ['page_size=-1', ['page_size', notAPageSize]],
    ['page_size=01', ['page_size', notAPageSize]],
    ['page_size=+1', ['page_size', notAPageSize]],
    ['page_size=%2B1', ['page_size', notAPageSize]],
    ['page_size=1.0', ['page_size', notAPageSize]],
    ['page_size=1e1', ['page_size', notAPageSize]],
    ['page_size=0x10', ['page_size', notAPageSize]],
    ['page_size=ten', ['page_size', notAPageSize]],
    ['page_size=%201', ['page_size', notAPageSize]],
    ['page_size=1%00', ['page_size', notAPageSize]],
    ['page_size=%D9%A1', ['page_size', notAPageSize]],
    ['page_size=9007199254740993', ['page_size', notAPageSize]],
    ['page_size=101', ['page_size', notAPageSize]],
    ['page_size=4294967297', ['page_size', notAPageSize]],
    ['page_size=1&page_size=1', ['page_size', 'must be given once']],
    ['page_size=1&%70age_size=2', ['page_size', 'must be given once']],
    ['status', ['status', notEmpty]],
    ['status=', ['status', notEmpty]],
    ['status=refunded', ['status', notAStatus]],
    ['status=EXPIRED', ['status', notAStatus]],
    ['status=PAYMENT_INTENT_STATUS_EXPIRED', ['status', notAStatus]],
    ['status=unspecified', ['status', notAStatus]],
    ['status=4', ['status', notAStatus]],
    ['status=null', ['status', notAStatus]],
    ['status=expired+', ['status', notAStatus]],
    ['status=expired%20', ['status', notAStatus]],
    ['status=expired,canceled', ['status', notAStatus]],
    ['status=expired&status=canceled', ['status', 'must be given once']],
    ['status=&status=expired', ['status', notEmpty], ['status', 'must be given once']],
    ['status=%C3%28', ['status', 'must be percent-encoded UTF-8']],
    ['status=%', ['status', 'must be percent-encoded UTF-8']],
    ['status=%ED%A0%80', ['status', 'must be percent-encoded UTF-8']],
    ['chain=solana', ['chain', 'must be "base" or "polygon"']],
    ['chain=Base', ['chain', 'must be "base" or "polygon"']],
    ['chain=84532', ['chain', 'must be "base" or "polygon"']],
    ['lane=express', ['lane', 'must be "sdk" or "manual"']],
    ['label=overpayed', ['label', expect.stringMatching(/^must be "underpaid" or "overpaid" or /)]],
    ['idempotency_key=', ['idempotency_key', notEmpty]],
    ['idempotency_key=a%20b', ['idempotency_key', notAKey]],
    ['idempotency_key=%C3%A9', ['idempotency_key', notAKey]],
    ['idempotency_key=a%00', ['idempotency_key', notAKey]],
    [`idempotency_key=${'k'.repeat(256)}`, ['idempotency_key', notAKey]],
    ['created_from=', ['created_from', notEmpty]],
    ['created_from=yesterday', ['created_from', notAMoment]],
    ['created_from=1767225600', ['created_from', notAMoment]],
    ['created_from=2026-01-01', ['created_from', notAMoment]],
    [`created_from=${moment}`, ['created_from', notAMoment]],
    ['created_from=2026-01-01%2000:00:00Z', ['created_from', notAMoment]],
    ['created_from=2026-01-01T00:00Z', ['created_from', notAMoment]],
    ['created_from=2026-02-30T00:00:00Z', ['created_from', notAMoment]],
    ['created_from=2025-02-29T00:00:00Z', ['created_from', notAMoment]],
    ['created_from=2026-04-31T00:00:00Z', ['created_from', notAMoment]],
    ['created_from=2026-13-01T00:00:00Z', ['created_from', notAMoment]],
    ['created_from=2026-00-01T00:00:00Z', ['created_from', notAMoment]],
    ['created_from=2026-01-01T24:00:00Z', ['created_from', notAMoment]],
    ['created_from=2026-01-01T00:60:00Z', ['created_from', notAMoment]],
    ['created_from=2026-01-01T00:00:60Z', ['created_from', notAMoment]],
    [`created_from=${moment}.Z`, ['created_from', notAMoment]],
    [`created_from=${moment}.0123456789Z`, ['created_from', notAMoment]],
    [`created_from=${moment}+02`, ['created_from', notAMoment]],
    [`created_from=${moment}+24:00`, ['created_from', notAMoment]],
    [`created_from=${moment}%2002:00`, ['created_from', notAMoment]],
    ['created_from=%2B010000-01-01T00:00:00Z', ['created_from', notAMoment]],
    ['created_from=0000-01-01T00:00:00Z', ['created_from', noYear]],
    ['created_before=x', ['created_before', notAMoment]],
    ['created_before=0000-12-31T23:59:59.999Z', ['created_before', noYear]],
    ['page_token=', ['page_token', notEmpty]],
    ['page_token=x', ['page_token', notAToken]],
    [
      'limit=1&status=x&page_size=0&page_token=&lane=sdk&chain=a&created_from=b',
      ['limit', `is not a field here (did you mean page_size?); the fields are ${fields}`],
      ['page_size', notAPageSize],
      ['page_token', notEmpty],
      ['status', notAStatus],
      ['chain', 'must be "base" or "polygon"'],
      ['created_from', notAMoment],
    ],
    // Rules of the fields come together with faults of shape.
    [
      'page_size=101&idempotency_key=a%20b&chain=x',
      ['chain', 'must be "base" or "polygon"'],
      ['page_size', notAPageSize],
      ['idempotency_key', notAKey],
    ],
  ])('?%s is refused, and the error names the field', async (query, ...faults) => {
    const { status, body } = await get(keyOf(merchant), `?${query}`);
    const { error } = JSON.parse(body);
    expect([status, error.code]).toEqual([400, 'invalid_body']);
    expect(error.message).not.toMatch(/body/i);
    const byName = (a: { field: string }, b: { field: string }) => (a.field < b.field ? -1 : 1);
    expect(error.details.toSorted(byName)).toEqual(
      faults.map(([field, message]) => ({ field, message })).toSorted(byName),
    );
  });

  test.each([
    ['', 2],
    ['?', 2],
    ['?page_size=1', 1],
    ['?page_size=100', 2],
    ['?%70age_size=%31', 1],
    ['?status=requires%5Fpayment', 2],
    ['?idempotency_key=a+b', 1],
    ['?idempotency_key=a%2Bb', 1],
    ['?idempotency_key=a%26b%3Dc%2520%25', 1],
    ['?idempotency_key=a%26b=c%2520%25', 1],
    ['?idempotency_key=A%2Bb', 0],
    ['?idempotency_key=a%25', 0],
    ['?created_from=2026-01-01T00:00:00+02:00', 2],
    ['?created_from=2026-01-01T00:00:00%2B02:00', 2],
    ['?created_from=2026-01-01t00:00:00z', 2],
    ['?created_from=2024-02-29T23:59:59.123456789-23:59', 2],
    ['?created_from=0001-01-01T00:00:00Z&created_before=9999-12-31T23:59:59.999999999Z', 2],
    ['?created_before=0001-01-01T00:00:00Z', 0],
    ['?created_before=1969-12-31T23:59:59.999Z', 0],
    ['?created_from=9999-12-31T23:59:59.999999999Z', 0],
  ])('%s lists %i', async (query, count) => {
    const { status, body } = await get(keyOf(merchant), query);
    expect([status, JSON.parse(body).payment_intents?.length]).toEqual([200, count]);
  });

  test('does not read a plus sign as a space', async () => {
    const { body } = await get(keyOf(merchant), '?idempotency_key=a+b');
    expect(idsOf(JSON.parse(body).payment_intents)).toEqual([intent.id]);
  });

  test('is refused with a body, and from a browser', async () => {
    const withBody = await get(keyOf(merchant), '', { 'Content-Length': 2 }, '{}');
    expect([withBody.status, JSON.parse(withBody.body).error.code]).toEqual([400, 'invalid_body']);
    const fromBrowser = await get(keyOf(merchant), '', { Origin: 'https://shop.example' });
    expect([fromBrowser.status, JSON.parse(fromBrowser.body).error.code]).toEqual([403, 'browser_forbidden']);
  });

  test.each<[string, Partial<ListPaymentIntentsRequest>, field: string, message: RegExp]>([
    ['page_size -1', { pageSize: -1 }, 'page_size', /from 1 to 100/],
    ['page_size 101', { pageSize: 101 }, 'page_size', /from 1 to 100/],
    ['page_size -2^31', { pageSize: -(2 ** 31) }, 'page_size', /from 1 to 100/],
    ['an unknown status', { status: 99 as never }, 'status', /"requires_payment" or/],
    ['a negative status', { status: -1 as never }, 'status', /"requires_payment" or/],
    ['an unknown chain', { chain: 3 as never }, 'chain', /"base" or "polygon"/],
    ['an unknown lane', { lane: 3 as never }, 'lane', /"sdk" or "manual"/],
    ['negative nanos', { createdFrom: timestamp(0n, -1) }, 'created_from', ofTheYears],
    ['nanos of a whole second', { createdFrom: timestamp(0n, 1e9) }, 'created_from', ofTheYears],
    ['the year 0', { createdBefore: timestamp(-62135596801n, 0) }, 'created_before', ofTheYears],
    ['the year 10000', { createdBefore: timestamp(253402300800n, 0) }, 'created_before', ofTheYears],
    ['the maximum seconds', { createdFrom: timestamp(2n ** 63n - 1n, 0) }, 'created_from', ofTheYears],
    ['the minimum seconds', { createdFrom: timestamp(-(2n ** 63n), 0) }, 'created_from', ofTheYears],
    ['a key with a space', { idempotencyKey: 'a b' }, 'idempotency_key', /visible ASCII/],
    ['a key of 256 characters', { idempotencyKey: 'k'.repeat(256) }, 'idempotency_key', /visible ASCII/],
    ['a made-up token', { pageToken: 'AAAA' }, 'page_token', /is not a token that this list returned/],
    [
      'a field of a newer contract',
      { $unknown: [{ no: 99, wireType: WireType.Varint, data: Uint8Array.of(1) }] },
      'field 99',
      /is not a field of this request/,
    ],
  ])('over gRPC, %s is refused, and the error names the field', async (_, change, field, message) => {
    const request = Object.assign(create(ListPaymentIntentsRequestSchema), change);
    const answer = await list('grpc', request, keyOf(merchant));
    expect(answer).toMatchObject({ code: 'invalid_body', status: grpc.status.INVALID_ARGUMENT });
    expect(answer.details).toEqual([{ field, message: expect.stringMatching(message) }]);
  });

  test('over gRPC, unset fields do not filter', async () => {
    const request = create(ListPaymentIntentsRequestSchema, {
      pageSize: 0,
      pageToken: '',
      idempotencyKey: '',
      status: 0,
      chain: 0,
      lane: 0,
    });
    const answer = await list('grpc', request, keyOf(merchant));
    expect(answer.json.payment_intents).toHaveLength(2);
  });
});

function timestamp(seconds: bigint, nanos: number) {
  return { $typeName: 'google.protobuf.Timestamp', seconds, nanos } as const;
}

describe('filters', () => {
  const statuses = ['requires_payment', 'processing', 'succeeded', 'expired', 'canceled'];
  const chains = ['base', 'polygon'] as const;
  const lanes = ['sdk', 'manual'];
  const firstAtMs = Date.parse('2026-03-01T12:00:00.000Z');
  let merchant: TestMerchant;
  let all: Intent[];

  beforeAll(async () => {
    merchant = await newMerchant();
    const word = (words: readonly string[], divisor: number) =>
      `(array['${words.join("','")}'])[n / ${divisor} % ${words.length} + 1]`;
    await insertIntents(service, {
      merchantId: merchant.id,
      count: 60,
      firstAtMs,
      columns: {
        status: word(statuses, 1),
        lane: word(lanes, 5),
        network: `(array[${chains.map((chain) => networkFor('testnet', chain).id).join(',')}])[n / 10 % 2 + 1]`,
      },
    });
    all = (await listAll('json', { page_size: 100 }, keyOf(merchant))).flat();
  });

  test('of each kind, alone and combined, select the matching intents', async () => {
    expect(all).toHaveLength(60);
    const between = new Date(firstAtMs + 20).toISOString();
    const before = new Date(firstAtMs + 45).toISOString();
    const options: Record<string, (string | undefined)[]> = {
      status: [undefined, ...statuses],
      chain: [undefined, ...chains],
      lane: [undefined, ...lanes],
      created_from: [undefined, between],
      created_before: [undefined, before],
    };
    let queries: Request[] = [{}];
    for (const [name, values] of Object.entries(options)) {
      queries = queries.flatMap((query) =>
        values.map((value) => (value === undefined ? query : { ...query, [name]: value })),
      );
    }
    expect(queries).toHaveLength(216);
    let i = 0;
    for (const query of queries) {
      const { created_from = '', created_before = '~', ...words } = query as Record<string, string>;
      const expected = all.filter(
        (intent) =>
          Object.entries(words).every(([name, word]) => intent[name as keyof Intent] === word) &&
          intent.created_at >= created_from &&
          intent.created_at < created_before,
      );
      const pages = await listAll(doors[i++ % 2] as Door, { ...query, page_size: 7 }, keyOf(merchant));
      expect([query, idsOf(pages.flat())]).toEqual([query, idsOf(expected)]);
      expect(pages.slice(0, -1).every((page) => page.length === 7)).toBe(true);
    }
  });

  test.each(doors)('over %s that exclude each other give an empty page', async (door) => {
    const at = new Date(firstAtMs + 20).toISOString();
    for (const query of [
      { created_from: at, created_before: at },
      { created_from: at, created_before: new Date(firstAtMs).toISOString() },
    ]) {
      expect((await list(door, query, keyOf(merchant))).json).toEqual({ payment_intents: [] });
    }
  });

  test('by status use the current status', async () => {
    const own = await newMerchant();
    const { id } = await createIntent(keyOf(own));
    const listed = async (status: string) => idsOf((await listAll('grpc', { status }, keyOf(own))).flat());
    expect(await listed('requires_payment')).toEqual([id]);
    await service.call('cancelPaymentIntent', { id }, { apiKey: keyOf(own) });
    expect([await listed('requires_payment'), await listed('canceled')]).toEqual([[], [id]]);
  });
});

describe('created_from and created_before', () => {
  const atMs = Date.parse('2026-05-05T05:05:05.005Z');
  let merchant: TestMerchant;
  let [before, at, after] = ['', '', ''];

  beforeAll(async () => {
    merchant = await newMerchant();
    await insertIntents(service, { merchantId: merchant.id, count: 3, firstAtMs: atMs - 1 });
    // The highest and the lowest possible ids of their milliseconds.
    const bounds = [
      [atMs - 1, '7fff-bfff-ffffffffffff'],
      [atMs, '7000-8000-000000000000'],
      [atMs, '7fff-bfff-ffffffffffff'],
      [atMs + 1, '7000-8000-000000000000'],
    ] as const;
    for (const [ms, rest] of bounds) {
      const hex = ms.toString(16).padStart(12, '0');
      await insertIntents(service, {
        merchantId: merchant.id,
        count: 1,
        firstAtMs: ms,
        columns: { id: `'${hex.slice(0, 8)}-${hex.slice(8)}-${rest}'::uuid` },
      });
    }
    [before, at, after] = [-1, 0, 1].map((ms) => new Date(atMs + ms).toISOString()) as [
      string,
      string,
      string,
    ];
  });

  test.each(doors)('over %s: from is inclusive, before exclusive, to the millisecond', async (door) => {
    const beyond = new Date(atMs + 2).toISOString();
    const justAfter = (moment: string) => moment.replace('Z', '0001Z');
    const cases: [Request, string[]][] = [
      [{ created_from: before }, [after, after, at, at, at, before, before]],
      [{ created_from: at }, [after, after, at, at, at]],
      [{ created_from: after }, [after, after]],
      [{ created_from: beyond }, []],
      [{ created_before: before }, []],
      [{ created_before: at }, [before, before]],
      [{ created_before: after }, [at, at, at, before, before]],
      [{ created_before: beyond }, [after, after, at, at, at, before, before]],
      [{ created_from: at, created_before: after }, [at, at, at]],
      [{ created_from: before, created_before: at }, [before, before]],
      // A bound between two milliseconds.
      [{ created_from: justAfter(before) }, [after, after, at, at, at]],
      [{ created_from: justAfter(at) }, [after, after]],
      [{ created_before: justAfter(before) }, [before, before]],
      [{ created_before: justAfter(at) }, [at, at, at, before, before]],
      [{ created_from: justAfter(before), created_before: justAfter(at) }, [at, at, at]],
    ];
    for (const [query, moments] of cases) {
      const intents = (await listAll(door, { ...query, page_size: 2 }, keyOf(merchant))).flat();
      expect([query, intents.map(({ created_at }) => created_at)]).toEqual([query, moments]);
    }
  });

  test('a bound may be written in any time zone', async () => {
    for (const created_from of ['2026-05-05T07:05:05.005+02:00', '2026-05-04T17:20:05.005-11:45']) {
      const [intents] = await listAll('json', { created_from, created_before: after }, keyOf(merchant));
      expect(intents?.map(({ created_at }) => created_at)).toEqual([at, at, at]);
    }
  });
});

describe('idempotency_key', () => {
  test.each(doors)('over %s finds the intent of order-1001', async (door) => {
    const merchant = await newMerchant();
    const other = await newMerchant();
    const [intent] = await Promise.all([
      createIntent(keyOf(merchant), { amount_units: 1001 }, 'order-1001'),
      createIntent(keyOf(merchant), { amount_units: 1 }, 'order-1001/2'),
      createIntent(keyOf(merchant), { amount_units: 2 }, 'ORDER-1001'),
      createIntent(keyOf(merchant, 'mainnet'), { amount_units: 3 }, 'order-1001'),
      createIntent(keyOf(other), { amount_units: 4 }, 'order-1001'),
      createIntent(keyOf(merchant), { amount_units: 5 }),
    ]);
    const find = async (query: Request, apiKey = keyOf(merchant)) =>
      (await list(door, { idempotency_key: 'order-1001', ...query }, apiKey)).json;
    const found = await find({});
    expect(found).toEqual({
      payment_intents: [expect.objectContaining({ id: intent.id, amount_units: 1001 })],
    });
    expect(await find({ page_size: 1 })).toEqual(found);
    expect(await find({ status: 'requires_payment', chain: 'base', lane: 'sdk' })).toEqual(found);
    const createdAt = found.payment_intents[0]?.created_at as string;
    expect(await find({ created_from: createdAt })).toEqual(found);
    for (const query of [
      { status: 'expired' },
      { chain: 'polygon' },
      { lane: 'manual' },
      { created_before: createdAt },
      { idempotency_key: 'order-1002' },
    ]) {
      expect([query, await find(query)]).toEqual([query, { payment_intents: [] }]);
    }
    expect((await find({}, keyOf(other))).payment_intents[0]?.amount_units).toBe(4);
    expect((await find({}, keyOf(merchant, 'mainnet'))).payment_intents[0]?.amount_units).toBe(3);
  });
});

describe('merchants and modes', () => {
  test.each(doors)('over %s, a list has only intents of the merchant and mode of the key', async (door) => {
    const [a, b] = [await newMerchant(), await newMerchant()];
    const scopes = [a, b].flatMap((merchant) =>
      (['testnet', 'mainnet'] as const).map((mode) => ({ apiKey: keyOf(merchant, mode), mode })),
    );
    const created = new Map<string, string[]>(scopes.map(({ apiKey }) => [apiKey, []]));
    // In turns, so that the intents of one lie between those of the others.
    for (let round = 0; round < 5; round++) {
      for (const { apiKey } of scopes) created.get(apiKey)?.push((await createIntent(apiKey)).id);
    }
    for (const { apiKey, mode } of scopes) {
      for (const query of [{}, { status: 'requires_payment' }, { created_from: '2026-01-01T00:00:00Z' }]) {
        const intents = (await listAll(door, { ...query, page_size: 2 }, apiKey)).flat();
        expect(idsOf(intents)).toEqual(newestFirst(created.get(apiKey) ?? []));
        expect(new Set(intents.map((intent) => intent.mode))).toEqual(new Set([mode]));
      }
    }
  });
});

test('pages requested at the same time equal pages requested one by one', async () => {
  const merchants = [await newMerchant(), await newMerchant(), await newMerchant()];
  const asked: (readonly [apiKey: string, query: Request])[] = [];
  for (const [i, merchant] of merchants.entries()) {
    for (const mode of ['testnet', 'mainnet'] as const) {
      // The first merchant has none in mainnet.
      for (let n = 0; n < (mode === 'testnet' ? 4 : 2 * i); n++) await createIntent(keyOf(merchant, mode));
      const first = await list('json', { page_size: 2 }, keyOf(merchant, mode));
      const { next_page_token } = first.json;
      const pages = next_page_token === undefined ? [{}] : [{}, { page_token: next_page_token }];
      for (const page of pages) {
        for (const page_size of [2, 3, 20, 100]) asked.push([keyOf(merchant, mode), { ...page, page_size }]);
      }
    }
  }
  const alone = [];
  for (const [apiKey, query] of asked) alone.push((await list('json', query, apiKey)).json);
  expect(new Set(alone.map((page) => JSON.stringify(page))).size).toBeGreaterThan(15);

  // Each twice, over both doors.
  const together = await Promise.all(
    doors.flatMap((door) => [...asked, ...asked].map(([apiKey, query]) => list(door, query, apiKey))),
  );
  expect(together.map(({ json }) => json)).toEqual([...alone, ...alone, ...alone, ...alone]);
});

describe('a page token', () => {
  let merchant: TestMerchant;
  let other: TestMerchant;
  let token: string;
  const query = { page_size: 2, status: 'requires_payment' };

  beforeAll(async () => {
    [merchant, other] = [await newMerchant(), await newMerchant()];
    for (const apiKey of [keyOf(merchant), keyOf(merchant, 'mainnet'), keyOf(other)]) {
      await Promise.all(Array.from({ length: 3 }, () => createIntent(apiKey)));
    }
    token = (await list('json', query, keyOf(merchant))).json.next_page_token as string;
  });

  const others = 'was issued for other filters: send those of the page before';
  const nobodys = 'is not a token that this list returned';

  test.each(doors)('over %s is valid only for its own list', async (door) => {
    const refused = async (change: Request, apiKey = keyOf(merchant)) => {
      const { status: _status, ...withoutStatus } = query;
      const base = 'status' in change && change.status === '' ? withoutStatus : query;
      const { status, ...rest } = change;
      const asked = {
        ...base,
        page_token: token,
        ...rest,
        ...(status !== undefined && status !== '' && { status }),
      };
      const answer = await list(door, asked, apiKey);
      expect([change, answer.code]).toEqual([change, 'invalid_body']);
      return answer.details;
    };
    expect((await list(door, { ...query, page_token: token }, keyOf(merchant))).code).toBe('ok');
    for (const change of [
      { status: 'expired' },
      { status: '' },
      { chain: 'base' },
      { lane: 'sdk' },
      { idempotency_key: 'order-1001' },
      { created_from: '2026-01-01T00:00:00Z' },
      { created_before: '2126-01-01T00:00:00Z' },
    ]) {
      expect(await refused(change)).toEqual([{ field: 'page_token', message: others }]);
    }
    for (const apiKey of [keyOf(merchant, 'mainnet'), keyOf(other)]) {
      expect(await refused({}, apiKey)).toEqual([{ field: 'page_token', message: others }]);
    }
  });

  test.each(doors)('over %s is refused unless it was issued', async (door) => {
    const bytes = Buffer.from(token, 'base64url');
    const changed = (at: number) => {
      const copy = Buffer.from(bytes);
      copy[at] = (copy[at] as number) ^ 1;
      return copy.toString('base64url');
    };
    const cases: [string, string][] = [
      ['x', nobodys],
      [token.slice(0, -1), nobodys],
      [`${token}A`, nobodys],
      [`${token}=`, nobodys],
      [`${token} `, nobodys],
      [` ${token}`, nobodys],
      [Buffer.from(bytes).toString('base64'), /[+/]/.test(bytes.toString('base64')) ? nobodys : ''],
      [bytes.subarray(0, -1).toString('base64url'), nobodys],
      [Buffer.concat([bytes, Buffer.of(0)]).toString('base64url'), nobodys],
      [randomBytes(12).toString('base64url'), nobodys],
      [changed(0), nobodys],
      [changed(1), others],
      [changed(6), others],
      ['pi_01m7yzn0mtexwagr0spq4wg7vz', nobodys],
      ['A'.repeat(8_000), nobodys],
    ];
    for (const [page_token, message] of cases) {
      if (message === '') continue;
      const answer = await list(door, { ...query, page_token }, keyOf(merchant));
      expect([page_token, answer.code, answer.details]).toEqual([
        page_token,
        'invalid_body',
        [{ field: 'page_token', message }],
      ]);
    }
  });
});

describe('while others create', () => {
  /** Creates intents until `stop`. `created` returns how many there are so far. */
  function keepCreating(apiKey: string) {
    let isStopped = false;
    let created = 0;
    const workers = Array.from({ length: 8 }, async (_, i) => {
      while (!isStopped) {
        const answer = await service.call(
          'createPaymentIntent',
          { amount_units: 1, ...(i % 3 === 0 && { lane: 'manual' }) },
          { door: doors[i % 2] as Door, apiKey },
        );
        expect(answer.code).toBe('ok');
        created++;
      }
    });
    return {
      created: () => created,
      async stop() {
        isStopped = true;
        await Promise.all(workers);
      },
    };
  }

  test.each<[string, Request]>([
    ['all', {}],
    ['one lane', { lane: 'sdk' }],
  ])('pages of %s neither skip nor repeat an intent', async (_, filter) => {
    const merchant = await newMerchant();
    const apiKey = keyOf(merchant);
    const nowMs = Date.now();
    await insertIntents(service, { merchantId: merchant.id, count: 100, firstAtMs: nowMs - 600_000 });
    const there = idsOf((await listAll('json', { ...filter, page_size: 100 }, apiKey)).flat());
    expect(there).toHaveLength(100);

    // A transaction that began before and commits in the middle of the list: its rows lie between the others.
    const late = await openClient(service.location);
    await late.query('begin');
    await late.query(...insertOf({ merchantId: merchant.id, count: 100, firstAtMs: nowMs - 600_000 }));

    const creating = keepCreating(apiKey);
    const seen: string[] = [];
    let token: string | undefined;
    let pages = 0;
    try {
      do {
        const page = await list(
          doors[pages % 2] as Door,
          { ...filter, page_size: 3, ...(token && { page_token: token }) },
          apiKey,
        );
        expect(page.code).toBe('ok');
        expect(page.json.payment_intents.length).toBeLessThanOrEqual(3);
        seen.push(...idsOf(page.json.payment_intents));
        token = page.json.next_page_token;
        pages++;
        if (pages === 17) {
          await late.query('commit');
          await late.end();
        }
      } while (token !== undefined);
    } finally {
      await creating.stop();
    }

    expect(creating.created()).toBeGreaterThan(30);
    expect(new Set(seen).size).toBe(seen.length);
    expect(seen).toEqual(newestFirst(seen));
    const all = new Set(seen);
    expect(there.filter((id) => !all.has(id))).toEqual([]);
    // Of the late rows, those beyond the position of the list appear.
    expect(seen.length).toBeGreaterThan(100);
  });

  test('pages of a filter that searches 10,000 intents skip none either', async () => {
    const merchant = await newMerchant();
    const apiKey = keyOf(merchant);
    // The matches lie on both sides of the point where the search of a page ends.
    await insertIntents(service, {
      merchantId: merchant.id,
      count: 12_000,
      firstAtMs: Date.now() - year,
      columns: { lane: `case when n between 1900 and 2100 then 'manual' else 'sdk' end`, network: '4' },
    });
    const filter = { lane: 'manual', chain: 'polygon', page_size: 100 };
    const there = (await listAll('json', filter, apiKey)).flat();
    expect(there).toHaveLength(201);
    const creating = keepCreating(apiKey);
    try {
      for (let round = 0; round < 10; round++) {
        const intents = (await listAll(doors[round % 2] as Door, filter, apiKey)).flat();
        expect(idsOf(intents)).toEqual(idsOf(there));
      }
    } finally {
      await creating.stop();
    }
    expect(creating.created()).toBeGreaterThan(10);
  });
});

describe('a sparse filter', () => {
  let merchant: TestMerchant;
  /** Numbers of the rows that match: few, some side by side, at the ends and where pages end. */
  const matching = [0, 1, 2, 4_999, 9_999, 10_000, 10_001, 14_998, 14_999, 15_000, 24_997, 24_998, 24_999];
  const count = 25_000;
  const firstAtMs = Date.now() - year;

  beforeAll(async () => {
    merchant = await newMerchant();
    await insertIntents(service, {
      merchantId: merchant.id,
      count,
      firstAtMs,
      columns: { status: `case when n in (${matching.join(',')}) then 'succeeded' else 'expired' end` },
    });
  });

  test.each(doors)('over %s is listed to its end, without duplicates', async (door) => {
    for (const page_size of [1, 2, 100]) {
      const pages = await listAll(door, { status: 'succeeded', page_size }, keyOf(merchant));
      const numbers = pages.flat().map(({ amount_units }) => Number(amount_units) - 1_000_000);
      expect(numbers).toEqual(matching.toReversed());
      expect(pages.every((page) => page.length <= page_size)).toBe(true);
    }
  });

  test.each(doors)('over %s that matches nothing has empty pages, and ends', async (door) => {
    const pages = await listAll(door, { status: 'processing' }, keyOf(merchant));
    expect(pages).toEqual([[], [], []]);
  });

  test('reads each row that it searches once', async () => {
    // The keys are then read from their index alone.
    await service.query('vacuum payment_intents');
    const reading = await startService({ ROLES: 'api', DATABASE_POOL: '1' }, { beside: service });
    const rowsRead = async () => {
      await reading.served.em.execute('select pg_stat_force_next_flush()');
      const [row] = await service.query<{ n: number }>(
        `select (seq_tup_read + coalesce(idx_tup_fetch, 0))::int as n from pg_stat_user_tables where relname = 'payment_intents'`,
      );
      return row?.n ?? 0;
    };
    const listOnce = async () => {
      const before = await rowsRead();
      const options = { apiKey: keyOf(merchant) };
      const { json } = await reading.call('listPaymentIntents', { lane: 'manual' }, options);
      expect(json.payment_intents).toEqual([]);
      return (await rowsRead()) - before;
    };
    // Another session may report its earlier reads meanwhile, so the smallest count is used.
    const read = Math.min(await listOnce(), await listOnce(), await listOnce());
    await reading.close();
    expect(read).toBeGreaterThanOrEqual(10_000);
    expect(read).toBeLessThan(10_100);
  });

  test('with bounds of time searches only between them', async () => {
    const [first] = await listAll(
      'json',
      { status: 'succeeded', created_before: new Date(firstAtMs + 5_000).toISOString() },
      keyOf(merchant),
    );
    expect(first?.at(-1)?.amount_units).toBe(1_000_000);
  });

  test.each([9_999, 10_000, 10_001])('of %i intents ends', async (rows) => {
    const own = await newMerchant();
    await insertIntents(service, {
      merchantId: own.id,
      count: rows,
      firstAtMs: Date.now() - year,
      columns: { lane: `case when n = 0 then 'manual' else 'sdk' end` },
    });
    const pages = await listAll('json', { lane: 'manual' }, keyOf(own));
    expect(pages.flat().map(({ amount_units }) => amount_units)).toEqual([1_000_000]);
    expect(pages.length).toBeLessThanOrEqual(2);
  });

  test('that matches everything has full pages', async () => {
    const { json } = await list('json', { status: 'expired', page_size: 100 }, keyOf(merchant));
    expect(json.payment_intents).toHaveLength(100);
    expect(json.next_page_token).toBeDefined();
  });
});
