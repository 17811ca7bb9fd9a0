// Every protocol (gRPC plain or compressed, gRPC-Web, Connect, its JSON) accepts and refuses the same messages and
// treats deadlines the same.

import http2 from 'node:http2';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { describe, expect, test } from 'vitest';
import { PaymentIntentSchema } from '../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { CreatePaymentIntentRequestSchema } from '../src/contract/gen/payments/v1/payment_intent_service_pb.ts';
import { blockCreates } from './support/blocker.ts';
import { requestBytes } from './support/call.ts';
import { expectNoComplaints, useService } from './support/use-service.ts';

const service = await useService();

expectNoComplaints(service);

const asGrpc = { 'content-type': 'application/grpc', te: 'trailers' };

interface RawAnswer {
  headers: http2.IncomingHttpHeaders;
  trailers: http2.IncomingHttpHeaders;
  body: Buffer;
}

function send(headers: http2.OutgoingHttpHeaders, body: Uint8Array): Promise<RawAnswer> {
  const session = http2.connect(service.internalUrl);
  return new Promise((resolve, reject) => {
    session.on('error', reject);
    const stream = session.request(
      {
        ':method': 'POST',
        ':path': '/payments.v1.PaymentIntentService/CreatePaymentIntent',
        authorization: `Bearer ${service.merchant.keys.testnet.apiKey}`,
        ...headers,
      },
      { endStream: false },
    );
    const answer: RawAnswer = { headers: {}, trailers: {}, body: Buffer.alloc(0) };
    const chunks: Buffer[] = [];
    stream
      .on('response', (received) => {
        answer.headers = received;
      })
      .on('trailers', (received) => {
        answer.trailers = received;
      })
      .on('data', (chunk) => chunks.push(chunk))
      .on('error', reject)
      .on('close', () => {
        session.close();
        resolve({ ...answer, body: Buffer.concat(chunks) });
      });
    stream.end(body);
  });
}

const envelope = (bytes: Uint8Array, flags = 0) => {
  const head = Buffer.from([flags, 0, 0, 0, 0]);
  head.writeUInt32BE(bytes.length, 1);
  return Buffer.concat([head, bytes]);
};

/** All parts of an answer that may contain its error, as text. */
function textOf({ headers, trailers, body }: RawAnswer): string {
  const all: http2.IncomingHttpHeaders = { ...headers, ...trailers };
  const trailer = /grpc-status-details-bin: (\S+)/.exec(body.toString())?.[1];
  const status = Buffer.from(String(all['grpc-status-details-bin'] ?? trailer ?? ''), 'base64');
  const details = /"value":"([^"]+)"/.exec(body.toString())?.[1];
  return [body.toString(), status.toString(), Buffer.from(details ?? '', 'base64').toString()].join('\n');
}

type Way = (bytes: Uint8Array) => Promise<RawAnswer>;

const ways: [string, Way][] = [
  ['gRPC', (bytes) => send(asGrpc, envelope(bytes))],
  [
    'gRPC with gzip',
    (bytes) =>
      send(
        { 'content-type': 'application/grpc+proto', te: 'trailers', 'grpc-encoding': 'gzip' },
        envelope(gzipSync(bytes), 1),
      ),
  ],
  ['gRPC-Web', (bytes) => send({ 'content-type': 'application/grpc-web+proto' }, envelope(bytes))],
  ['Connect', (bytes) => send({ 'content-type': 'application/proto' }, bytes)],
  [
    'Connect with Brotli',
    (bytes) =>
      send({ 'content-type': 'application/proto', 'content-encoding': 'br' }, brotliCompressSync(bytes)),
  ],
];

const valid = requestBytes('createPaymentIntent', { amount_units: 1 });
const field = (number: number, wireType: number) => (number << 3) | wireType;
const delimited = (number: number, bytes: number[]) => [field(number, 2), bytes.length, ...bytes];
/** `metadata`: a Struct with one entry `a`, whose value is the given google.protobuf.Value bytes. */
const metadataWith = (value: number[], ofEntry: number[] = []) => [
  ...valid,
  ...delimited(6, delimited(1, [...delimited(1, [0x61]), ...delimited(2, value), ...ofEntry])),
];

describe.each(ways)('%s', (_, way) => {
  test('a valid message is accepted', async () => {
    const text = textOf(await way(Uint8Array.from(metadataWith([field(4, 0), 1]))));
    expect(text).toContain('_secret_');
  });

  test.each<[string, number[]]>([
    ['an amount as text', [field(1, 2), 1, 0x31]],
    ['an amount as eight bytes', [field(1, 1), 1, 0, 0, 0, 0, 0, 0, 0]],
    ['a wallet as a number', [...valid, field(3, 0), 1]],
    ['a value of no kind', metadataWith([])],
    ['an entry without a value', [...valid, ...delimited(6, delimited(1, delimited(1, [0x61])))]],
    ['an unknown field in a value', metadataWith([field(4, 0), 1, field(9, 0), 1])],
    ['an unknown field in an entry', metadataWith([field(4, 0), 1], [field(9, 0), 1])],
    ['an unknown field in a Struct', [...valid, ...delimited(6, [field(9, 0), 1])]],
    ['an unknown field in a list', metadataWith(delimited(6, [field(9, 0), 1]))],
    ['a value of no kind in a list', metadataWith(delimited(6, delimited(1, [])))],
  ])('%s is refused', async (_, bytes) => {
    expect(textOf(await way(Uint8Array.from(bytes)))).toContain('INVALID_BODY');
  });
});

test.each([
  ['gzip', gzipSync(Buffer.concat([valid, valid, valid]))],
  ['br', brotliCompressSync(Buffer.concat([valid, valid, valid]))],
])('a truncated message in %s is a client error', async (encoding, whole) => {
  for (let length = 1; length < whole.length; length++) {
    const cut = whole.subarray(0, length);
    const overGrpc = await send({ ...asGrpc, 'grpc-encoding': encoding }, envelope(cut, 1));
    expect(textOf(overGrpc)).toContain('INVALID_BODY');
    const overConnect = await send(
      { 'content-type': 'application/proto', 'content-encoding': encoding },
      cut,
    );
    expect(textOf(overConnect)).toContain('INVALID_BODY');
  }
});

describe('JSON over Connect', () => {
  const sendJson = (body: string | Uint8Array, key?: string) =>
    send(
      { 'content-type': 'application/json', ...(key === undefined ? {} : { 'idempotency-key': key }) },
      Buffer.from(body),
    );

  test.each<[string, string | Uint8Array, RegExp]>([
    ['invalid UTF-8', Buffer.from('{"amountUnits":1,"metadata":{"a":"\xff"}}', 'latin1'), /not UTF-8/],
    ['a byte order mark', '\ufeff{"amountUnits":1}', /not valid JSON/],
    ['a hexadecimal text', '{"amountUnits":"0x10"}', /amount_units must be an integer/],
    ['white space in a text', '{"amountUnits":"\\n5\\t"}', /amount_units must be an integer/],
    ['an empty text', '{"amountUnits":""}', /amount_units must be an integer/],
    ['a leading zero', '{"amountUnits":"05"}', /amount_units must be an integer/],
    ['an exponent in a text', '{"amountUnits":"1e3"}', /amount_units must be an integer/],
    [
      'a fraction that a double drops',
      '{"amountUnits":1.0000000000000000001}',
      /amount_units must be an integer/,
    ],
    ['a text for the minutes', '{"amountUnits":1,"expiresInMinutes":" 7"}', /expires_in_minutes must be/],
    [
      'a number that a double rounds',
      '{"amountUnits":1,"metadata":{"a":9007199254740993}}',
      /metadata contains the/,
    ],
    ['a duplicate name', '{"amountUnits":1,"amountUnits":2}', /A name stands twice/],
    ['a field under both of its names', '{"amountUnits":1,"amount_units":2}', /given twice/],
    ['an unknown field', '{"amountUnits":1,"walletAdress":"0x"}', /did you mean wallet_address/],
    [
      'nested too deep',
      `{"amountUnits":1,"metadata":${'['.repeat(17)}${']'.repeat(17)}}`,
      /nested deeper than 16/,
    ],
    ['garbage after it', '{"amountUnits":1}}', /not valid JSON/],
    [
      'an enum beyond its numbers',
      '{"amountUnits":1,"chain":1.0000000000000000001}',
      /chain must be \\?"CHAIN_BASE/,
    ],
    ['a word of the public JSON', '{"amountUnits":1,"chain":"base"}', /chain must be \\?"CHAIN_BASE\\?" or/],
    ['a number for a text', '{"amountUnits":1,"walletAddress":1}', /wallet_address must be a string/],
    ['a list for an object', '{"amountUnits":1,"metadata":[]}', /metadata must be an object/],
  ])('%s is refused', async (_, body, says) => {
    const answer = await sendJson(body);
    expect(answer.headers[':status']).toBe(400);
    expect(textOf(answer)).toMatch(/INVALID_BODY/);
    expect(textOf(answer)).toMatch(says);
  });

  test.each([
    ['{"amountUnits":5}'],
    ['{"amountUnits":"5"}'],
    ['{"amount_units":5.0}'],
    ['{"amountUnits":5e0,"chain":null}'],
    ['{"amountUnits":"5","chain":"CHAIN_BASE","lane":1}'],
  ])('%s is read as the same request', async (body) => {
    const answer = await sendJson(body, 'one-and-the-same');
    expect(JSON.parse(answer.body.toString())).toMatchObject({ amountUnits: '5', chain: 'CHAIN_BASE' });
  });

  test('a day or a word that the field does not have is refused by its name', async () => {
    const answer = await send(
      { ':path': '/payments.v1.PaymentIntentService/ListPaymentIntents', 'content-type': 'application/json' },
      Buffer.from('{"createdFrom":"2026-02-30T00:00:00Z"}'),
    );
    expect(textOf(answer)).toMatch(/created_from must be a date and time/);
    const path = '/payments.v1.WebhookEndpointService/RedeliverWebhookEndpoint';
    const body = Buffer.from('{"status":"WEBHOOK_DELIVERY_STATUS_DELIVERED"}');
    const other = await send({ ':path': path, 'content-type': 'application/json' }, body);
    expect(textOf(other)).toMatch(/status must be \\?"\w+_PENDING\\?" or \\?"\w+_FAILED/);
  });

  test('an amount beyond 2^53 is read exactly and refused for its size', async () => {
    const answer = await sendJson('{"amountUnits":9007199254740993}');
    expect(textOf(answer)).toMatch(/from 1 to 9007199254740991/);
    expect((await sendJson('{"amountUnits":"9007199254740991"}')).headers[':status']).toBe(200);
  });
});

test('a message in a query that is not base64 is refused like one in a body', async () => {
  const path = '/payments.v1.RefundService/GetRefund?connect=v1&encoding=proto&base64=1&message=!!!';
  const answer = await send({ ':method': 'GET', ':path': path }, Buffer.alloc(0));
  expect(answer.headers[':status']).toBe(400);
  expect(textOf(answer)).toContain('INVALID_BODY');
});

test('a replay of -0 returns the first answer, byte for byte', async () => {
  // protobuf-es writes the double unchanged.
  const request = toBinary(
    CreatePaymentIntentRequestSchema,
    create(CreatePaymentIntentRequestSchema, {
      amountUnits: 1n,
      metadata: { zero: -0, list: [-0, { a: -0 }] },
    }),
  );
  const call = () => send({ ...asGrpc, 'idempotency-key': 'zero' }, envelope(request));
  const [first, again] = [await call(), await call()];
  expect(again.headers['idempotent-replayed']).toBe('true');
  expect(again.body).toEqual(first.body);
  expect(Object.is(fromBinary(PaymentIntentSchema, first.body.subarray(5)).metadata?.zero, 0)).toBe(true);
});

describe('deadlines', () => {
  const rows = async () => {
    const [row] = await service.query<{ count: number }>('select count(*)::int from payment_intents');
    return row?.count ?? 0;
  };

  test.each<[string, http2.OutgoingHttpHeaders]>([
    ['Connect', { 'content-type': 'application/proto', 'connect-timeout-ms': '2147483648' }],
    ['Connect, the longest', { 'content-type': 'application/proto', 'connect-timeout-ms': '9999999999' }],
    ['gRPC', { ...asGrpc, 'grpc-timeout': '600H' }],
    ['gRPC, the longest', { ...asGrpc, 'grpc-timeout': '99999999H' }],
    ['gRPC-Web', { 'content-type': 'application/grpc-web+proto', 'grpc-timeout': '600H' }],
    ['gRPC through Connect', { ...asGrpc, 'grpc-timeout': '600H', 'grpc-encoding': 'gzip' }],
  ])('that exceed the longest timer are accepted: %s', async (_, headers) => {
    const isEnveloped = String(headers['content-type']).includes('grpc');
    expect(textOf(await send(headers, isEnveloped ? envelope(valid) : valid))).toContain('_secret_');
  });

  test.each<[string, http2.OutgoingHttpHeaders]>([
    ['Connect', { 'content-type': 'application/proto', 'connect-timeout-ms': '300' }],
    ['gRPC', { ...asGrpc, 'grpc-timeout': '300m' }],
    ['gRPC-Web', { 'content-type': 'application/grpc-web+proto', 'grpc-timeout': '300m' }],
  ])('that expire before the insert starts insert nothing: %s', async (_, headers) => {
    const isEnveloped = String(headers['content-type']).includes('grpc');
    const body = isEnveloped ? envelope(valid) : valid;
    const { 'connect-timeout-ms': _ms, 'grpc-timeout': _timeout, ...withoutDeadline } = headers;
    const before = await rows();
    const blocker = await blockCreates(service.location);
    const waiting = async () => {
      const [row] = await service.query<{ count: number }>(
        `select count(*)::int from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like 'insert%'`,
      );
      return row?.count;
    };
    // These two occupy both write slots; the next one waits.
    const first = send(withoutDeadline, body);
    await expect.poll(waiting, { interval: 10 }).toBe(1);
    const second = send(withoutDeadline, body);
    await expect.poll(waiting, { interval: 10 }).toBe(2);
    const late = await Promise.all(Array.from({ length: 5 }, () => send(headers, body)));
    for (const answer of late) {
      expect(`${textOf(answer)} ${answer.trailers['grpc-status'] ?? answer.headers['grpc-status']}`).toMatch(
        /deadline_exceeded|grpc-status: 4| 4$/,
      );
    }
    await blocker.release();
    for (const answer of await Promise.all([first, second])) expect(textOf(answer)).toContain('_secret_');
    // Queued after them.
    expect(textOf(await send(withoutDeadline, body))).toContain('_secret_');
    expect(await rows()).toBe(before + 3);
  });
});
