import { once } from 'node:events';
import http2 from 'node:http2';
import { setTimeout } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import grpc from '@grpc/grpc-js';
import { afterAll, describe, expect, test } from 'vitest';
import { EventService } from '../src/contract/gen/payments/v1/event_service_pb.ts';
import { PaymentIntentService } from '../src/contract/gen/payments/v1/payment_intent_service_pb.ts';
import { TransferService } from '../src/contract/gen/payments/v1/transfer_service_pb.ts';
import { WebhookEndpointService } from '../src/contract/gen/payments/v1/webhook_endpoint_service_pb.ts';
import { answerOf, grpcCall, openGrpcClient, refusalOf, requestBytes } from './support/call.ts';
import { connectRaw, encodeFrame, encodeHeaders, frameTypes } from './support/http2-frames.ts';
import { openClient } from './support/open-client.ts';
import { startService } from './support/service.ts';
import { expectNoComplaints, useService } from './support/use-service.ts';

const service = await useService();
const client = openGrpcClient(service);

afterAll(() => client.close());

expectNoComplaints(service);

const path = '/payments.v1.PaymentIntentService/CreatePaymentIntent';
const valid = requestBytes('createPaymentIntent', { amount_units: 1 });
const field = (number: number, wireType: number) => (number << 3) | wireType;

function metadata(extra: Record<string, string> = {}): grpc.Metadata {
  const result = new grpc.Metadata();
  result.set('authorization', `Bearer ${service.merchant.keys.testnet.apiKey}`);
  for (const [name, value] of Object.entries(extra)) result.set(name, value);
  return result;
}

const services = [PaymentIntentService, EventService, WebhookEndpointService, TransferService];

describe.each(services.flatMap(({ methods }) => methods))(
  '$parent.name.$name',
  ({ name, parent, methodKind }) => {
    test('refuses a field that it does not know', async () => {
      const path = `/${parent.typeName}/${name}`;
      const request = Buffer.from([field(15, 0), 1]);
      const identity = (value: Buffer) => value;
      const reason = await new Promise<grpc.ServiceError | null>((resolve) => {
        if (methodKind === 'unary')
          client.makeUnaryRequest(path, identity, identity, request, metadata(), resolve);
        else {
          client
            .makeServerStreamRequest(path, identity, identity, request, metadata())
            .on('data', () => {})
            .on('error', (error) => resolve(error as grpc.ServiceError))
            .on('end', () => resolve(null));
        }
      });
      expect(reason?.code).toBe(grpc.status.INVALID_ARGUMENT);
      expect(refusalOf(reason).details).toContainEqual({
        field: 'field 15',
        message: expect.stringContaining('is not a field of this request'),
      });
    });
  },
);

/** Plain calls are handled by our own code, compressed ones by Connect. The answers must be the same. */
const paths = [
  ['our own handler', {}],
  ['Connect', { 'grpc.default_compression_algorithm': grpc.compressionAlgorithms.gzip }],
] as const;

describe.each(paths)('through %s', (way, channelOptions) => {
  const address = `127.0.0.1:${service.server.ports.grpc}`;
  const client = new grpc.Client(address, grpc.credentials.createInsecure(), channelOptions);

  afterAll(() => client.close());

  test('a valid message gets the same answer either way', async () => {
    const plain = new grpc.Client(
      `127.0.0.1:${service.server.ports.grpc}`,
      grpc.credentials.createInsecure(),
    );
    const headers = metadata({ 'idempotency-key': `alike-${way.replaceAll(' ', '-')}` });
    const [first, second] = [
      answerOf(await grpcCall(plain, valid, headers)),
      answerOf(await grpcCall(client, valid, headers)),
    ];
    plain.close();
    expect(first).toMatchObject({ code: 'ok', replayed: false });
    expect(first.requestId).toMatch(/^req_/);
    expect(second).toEqual({ ...first, replayed: true });
    expect(second.requestId).not.toBe(first.requestId);
  });

  describe('a message that is not a CreatePaymentIntentRequest', () => {
    test.each<[string, number[]]>([
      ['a truncated varint', [field(1, 0), 0xff]],
      ['a varint of eleven bytes', [field(1, 0), ...Array(10).fill(0xff), 0x01]],
      ['a length beyond the end', [field(3, 2), 0x7f, 0x30]],
      ['field number zero', [0x00, 0x01]],
      ['a wire type that does not exist', [field(1, 7), 0x01]],
      ['an unmatched end of group', [field(1, 4)]],
      ['text that is not UTF-8', [field(3, 2), 2, 0xc3, 0x28]],
      ['garbage after the message', [...valid, 0xff]],
      ['garbage', [...Buffer.from('{"amount_units":1}')]],
    ])('%s', async (_, bytes) => {
      const answer = answerOf(await grpcCall(client, Uint8Array.from(bytes), metadata()));
      expect(answer).toMatchObject({ code: 'invalid_body', status: grpc.status.INVALID_ARGUMENT });
      expect(answer.requestId).toMatch(/^req_/);
    });

    test('metadata nested a thousand deep', async () => {
      let value = Buffer.from([field(4, 0), 1]);
      const wrap = (tag: number, inner: Buffer) => {
        const length: number[] = [];
        for (let rest = inner.length; ; rest >>>= 7) {
          length.push(rest > 127 ? (rest & 127) | 128 : rest);
          if (rest <= 127) break;
        }
        return Buffer.concat([Buffer.from([field(tag, 2), ...length]), inner]);
      };
      for (let i = 0; i < 1000; i++) value = wrap(6, wrap(1, value));
      const metadataField = wrap(6, wrap(1, Buffer.concat([wrap(1, Buffer.from('k')), wrap(2, value)])));
      const bytes = Buffer.concat([valid, metadataField]);
      expect(answerOf(await grpcCall(client, bytes, metadata())).code).toBe('invalid_body');
    });

    test('a field that does not exist is refused, not dropped', async () => {
      const bytes = Uint8Array.from([...valid, field(15, 0), 1]);
      expect(answerOf(await grpcCall(client, bytes, metadata()))).toMatchObject({
        code: 'invalid_body',
        details: [{ field: 'field 15', message: expect.stringMatching(/not a field/) }],
      });
    });

    test.each([
      ['NaN', Number.NaN],
      ['Infinity', Number.POSITIVE_INFINITY],
      ['-Infinity', Number.NEGATIVE_INFINITY],
    ])('%s in metadata', async (_, number) => {
      const double = Buffer.alloc(8);
      double.writeDoubleLE(number);
      const value = Buffer.concat([Buffer.from([field(2, 1)]), double]);
      const entry = Buffer.from([field(1, 2), 1, 0x6b, field(2, 2), value.length, ...value]);
      const struct = Buffer.from([field(1, 2), entry.length, ...entry]);
      const bytes = Buffer.from([...valid, field(6, 2), struct.length, ...struct]);
      expect(answerOf(await grpcCall(client, bytes, metadata()))).toMatchObject({
        code: 'invalid_body',
        details: [{ field: 'metadata', message: expect.stringMatching(/NaN/) }],
      });
    });
  });

  test('the text of a refusal arrives as it is written', async () => {
    const bytes = requestBytes('createPaymentIntent', { amount_units: 1, wallet_address: 'me' });
    expect(answerOf(await grpcCall(client, bytes, metadata())).message).toBe(
      'Invalid request: wallet_address must be an address: 0x followed by 40 hexadecimal digits.',
    );
    const stream = client.makeServerStreamRequest(
      '/payments.v1.EventService/WatchEvents',
      (message: Buffer) => message,
      (message: Buffer) => message,
      Buffer.from([field(1, 2), 1, 0x78]),
      metadata(),
    );
    const [error] = await once(stream.resume(), 'error').catch((reason) => [reason]);
    expect(error.details).toBe(
      'Invalid request: after must be the id of an event, or the position of a message of your stream.',
    );
  });

  test('a message over 64 KiB', async () => {
    const bytes = requestBytes('createPaymentIntent', {
      amount_units: 1,
      metadata: { a: 'x'.repeat(70_000) },
    });
    expect(answerOf(await grpcCall(client, bytes, metadata()))).toMatchObject({
      code: 'body_too_large',
      status: grpc.status.RESOURCE_EXHAUSTED,
    });
  });

  test.each([
    ['empty', ''],
    ['300 characters', 'k'.repeat(300)],
    ['a space inside', 'a b'],
  ])('an idempotency key: %s', async (_, key) => {
    const answer = answerOf(await grpcCall(client, valid, metadata({ 'idempotency-key': key })));
    expect(answer).toMatchObject({ code: 'idempotency_key_invalid', status: grpc.status.INVALID_ARGUMENT });
  });

  test('the deadline of a call is kept while the database is blocked', async () => {
    const blocker = await openClient(service.location);
    await blocker.query('begin; lock table payment_intents');
    const logged = service.nextLogLine();
    const answer = answerOf(await grpcCall(client, valid, metadata(), { deadline: Date.now() + 200 }));
    const line = await logged;
    await blocker.query('rollback');
    await blocker.end();
    expect(answer.status).toBe(grpc.status.DEADLINE_EXCEEDED);
    expect(line.code).toMatch(/deadline_exceeded|canceled/);
  });
});

// Connect's protobuf-es checks only a field's number. This is the one difference between the two.
test.each<[string, number[]]>([
  ['an amount as a group', [field(1, 3), 11]],
  ['an amount as eight bytes', [field(1, 1), 1, 0, 0, 0, 0, 0, 0, 0]],
  ['an amount as text', [field(1, 2), 1, 0x31]],
  ['a wallet as a number', [...valid, field(3, 0), 1]],
  ['metadata as a number', [...valid, field(6, 0), 1]],
  ['a key of metadata as a number', [...valid, field(6, 2), 4, field(1, 2), 2, field(1, 0), 1]],
  [
    'a number of metadata as a varint',
    [...valid, field(6, 2), 6, field(1, 2), 4, field(2, 2), 2, field(2, 0), 1],
  ],
])('%s is refused', async (_, bytes) => {
  expect(answerOf(await grpcCall(client, Uint8Array.from(bytes), metadata()))).toMatchObject({
    code: 'invalid_body',
    status: grpc.status.INVALID_ARGUMENT,
  });
});

test('a call that was refused before it was sent completely does not delay shutdown', async () => {
  const own = await startService({ DRAIN_TIMEOUT: '20' });
  const ownClient = openGrpcClient(own);
  const oversized = requestBytes('createPaymentIntent', {
    amount_units: 1,
    metadata: { a: 'x'.repeat(200_000) },
  });
  const withKey = new grpc.Metadata();
  withKey.set('authorization', `Bearer ${own.merchant.keys.testnet.apiKey}`);
  expect(answerOf(await grpcCall(ownClient, oversized, withKey)).code).toBe('body_too_large');
  ownClient.close();
  const closed = own.close().then(() => 'closed');
  expect(await Promise.race([closed, setTimeout(10_000, 'still draining')])).toBe('closed');
});

test('an invalid timeout is refused in one frame, which lets clients and proxies retry', async () => {
  const { headers, trailers } = await http2Request(
    { 'content-type': 'application/grpc', te: 'trailers', 'grpc-timeout': 'soon' },
    envelope(valid),
  );
  expect([headers['grpc-status'], trailers]).toEqual([String(grpc.status.INVALID_ARGUMENT), {}]);
});

test('an unknown method and an unknown service are unimplemented', async () => {
  for (const unknown of ['/payments.v1.PaymentIntentService/Nothing', '/nothing/Nothing', '/']) {
    const error = await new Promise<grpc.ServiceError>((resolve) => {
      client.makeUnaryRequest(
        unknown,
        (b: Buffer) => b,
        (b: Buffer) => b,
        Buffer.from(valid),
        metadata(),
        (e) => resolve(e as grpc.ServiceError),
      );
    });
    expect(error.code).toBe(grpc.status.UNIMPLEMENTED);
    expect(refusalOf(error).code).toBe('not_found');
  }
});

/** Sends one HTTP/2 request with a raw body. Without one its headers end the stream; an empty one is an empty frame. */
function http2Request(
  headers: http2.OutgoingHttpHeaders,
  body?: Uint8Array,
  shared?: http2.ClientHttp2Session,
): Promise<{ headers: http2.IncomingHttpHeaders; trailers: http2.IncomingHttpHeaders; body: Buffer }> {
  const session = shared ?? http2.connect(service.internalUrl);
  return new Promise((resolve, reject) => {
    session.on('error', reject);
    const stream = session.request(
      {
        ':method': 'POST',
        ':path': path,
        authorization: `Bearer ${service.merchant.keys.testnet.apiKey}`,
        ...headers,
      },
      { endStream: body === undefined },
    );
    let response: http2.IncomingHttpHeaders = {};
    let trailers: http2.IncomingHttpHeaders = {};
    const chunks: Buffer[] = [];
    stream.on('response', (received) => {
      response = received;
    });
    stream.on('trailers', (received) => {
      trailers = received;
    });
    stream.on('data', (chunk) => chunks.push(chunk));
    stream.on('error', reject);
    stream.on('close', () => {
      if (shared === undefined) session.close();
      resolve({ headers: response, trailers, body: Buffer.concat(chunks) });
    });
    if (body !== undefined) stream.end(body);
  });
}

const envelope = (bytes: Uint8Array, flags = 0, length = bytes.length) => {
  const head = Buffer.alloc(5);
  head.writeUInt8(flags);
  head.writeUInt32BE(length, 1);
  return Buffer.concat([head, bytes]);
};

const asJson = { 'content-type': 'application/grpc+json' };

describe('gRPC frames', () => {
  test.each<[string, Uint8Array | undefined, Record<string, string>, string]>([
    ['no message, ended by an empty frame', new Uint8Array(), {}, 'INVALID_BODY'],
    ['no message, ended by the headers', undefined, {}, 'INVALID_BODY'],
    ['two messages', Buffer.concat([envelope(valid), envelope(valid)]), {}, 'INVALID_BODY'],
    ['a flag that does not exist', envelope(valid, 4), {}, 'INVALID_BODY'],
    ['the same in JSON', envelope(Buffer.from('{"amountUnits":"1"}'), 4), asJson, 'INVALID_BODY'],
    ['a prefix after the message', Buffer.concat([envelope(valid), Buffer.alloc(5, 1)]), {}, 'INVALID_BODY'],
    ['a wrong length: too long', envelope(valid, 0, valid.length + 10), {}, 'INVALID_BODY'],
    ['a wrong length: 4 GiB', envelope(valid, 0, 0xffffffff), {}, 'BODY_TOO_LARGE'],
    ['half a message', envelope(valid).subarray(0, 6), {}, 'INVALID_BODY'],
    ['half a frame header', Uint8Array.from([0, 0, 0]), {}, 'INVALID_BODY'],
    ['flagged as compressed without an encoding', envelope(gzipSync(valid), 1), {}, 'INVALID_BODY'],
    ['an unknown compression', envelope(valid, 1), { 'grpc-encoding': 'zstd' }, 'UNSUPPORTED_MEDIA_TYPE'],
    ['invalid compressed data', envelope(valid, 1), { 'grpc-encoding': 'gzip' }, 'INVALID_BODY'],
    [
      'a bomb: 10 MiB in a few bytes',
      envelope(gzipSync(Buffer.alloc(10 * 1024 * 1024)), 1),
      { 'grpc-encoding': 'gzip' },
      'BODY_TOO_LARGE',
    ],
  ])('%s', async (_, body, headers, reason) => {
    const answer = await http2Request(
      { 'content-type': 'application/grpc', te: 'trailers', ...headers },
      body,
    );
    const all = { ...answer.headers, ...answer.trailers };
    const details = Buffer.from(String(all['grpc-status-details-bin']), 'base64');
    const error = { metadata: new grpc.Metadata() } as grpc.ServiceError;
    error.metadata.set('grpc-status-details-bin', details);
    expect(refusalOf(error)).toMatchObject({ code: reason.toLowerCase(), requestId: all['x-request-id'] });
  });

  test('an announced gzip message is accepted', async () => {
    const body = envelope(gzipSync(valid), 1);
    const { trailers } = await http2Request(
      { 'content-type': 'application/grpc', te: 'trailers', 'grpc-encoding': 'gzip' },
      body,
    );
    expect(trailers['grpc-status']).toBe('0');
  });
});

/** A create whose message has not been written yet. */
function openCreate() {
  const session = http2.connect(service.internalUrl);
  const stream = session.request({
    ':method': 'POST',
    ':path': path,
    'content-type': 'application/grpc',
    te: 'trailers',
    authorization: `Bearer ${service.merchant.keys.testnet.apiKey}`,
  });
  const refusal = once(stream, 'response');
  stream.resume();
  return { session, stream, refusal };
}

test.each([
  ['two messages', Buffer.concat([envelope(valid), envelope(valid)])],
  ['a byte after the message', Buffer.concat([envelope(valid), Uint8Array.of(0)])],
])('%s are refused before the call ends', async (_, bytes) => {
  const { session, stream, refusal } = openCreate();
  stream.write(bytes);
  expect((await refusal)[0]['grpc-status']).toBe(String(grpc.status.INVALID_ARGUMENT));
  session.destroy();
});

/** More than start in one turn of the event loop: calls that wait have ended before they are read. */
test.each(['application/grpc', 'application/grpc-web', 'application/proto'])(
  'fifty calls of %s at once without a message are all refused',
  { timeout: 10_000 },
  async (contentType) => {
    const session = http2.connect(service.internalUrl);
    const answers = await Promise.all(
      Array.from({ length: 50 }, () =>
        http2Request({ 'content-type': contentType, te: 'trailers' }, new Uint8Array(), session),
      ),
    );
    session.close();
    for (const { headers, trailers, body } of answers) {
      const inBody = /grpc-status: (\d+)/.exec(body.toString())?.[1];
      const status = headers['grpc-status'] ?? trailers['grpc-status'] ?? inBody ?? headers[':status'];
      expect(String(status)).toBe(contentType === 'application/proto' ? '400' : '3');
    }
  },
);

test('a message with a content type in capitals is checked as strictly', async () => {
  const body = envelope(Uint8Array.from([field(1, 3), 11]));
  const { headers, trailers } = await http2Request(
    { 'content-type': 'APPLICATION/GRPC', te: 'trailers' },
    body,
  );
  expect({ ...headers, ...trailers }['grpc-status']).toBe(String(grpc.status.INVALID_ARGUMENT));
});

describe.each(['Check', 'Watch'])('grpc.health.v1.Health/%s refuses in the same way', (name) => {
  test.each<[string, Uint8Array | undefined]>([
    ['no message', undefined],
    ['two messages', Buffer.concat([envelope(Uint8Array.of()), envelope(Uint8Array.of())])],
    ['half a message', envelope(Uint8Array.of(), 0, 5)],
    ['garbage', envelope(Uint8Array.of(0xff))],
    ['a flag that does not exist', envelope(Uint8Array.of(), 4)],
    ['flagged as compressed without an encoding', envelope(Uint8Array.of(1), 1)],
  ])('%s', async (_, body) => {
    const health = { ':path': `/grpc.health.v1.Health/${name}` };
    const { headers, trailers } = await http2Request(
      { ...health, 'content-type': 'application/grpc', te: 'trailers' },
      body,
    );
    expect({ ...headers, ...trailers }['grpc-status']).toBe(String(grpc.status.INVALID_ARGUMENT));
    const web = await http2Request({ ...health, 'content-type': 'application/grpc-web' }, body);
    expect(web.body.toString()).toMatch(/grpc-status: 3\r\n/);
  });
});

test.each(['[', 'x:99999'])('a call to the authority %s is answered', async (authority) => {
  const health = { ':path': '/grpc.health.v1.Health/Check', ':authority': authority, te: 'trailers' };
  const { trailers } = await http2Request(
    { ...health, 'content-type': 'application/grpc' },
    envelope(Uint8Array.of()),
  );
  expect(trailers['grpc-status']).toBe('0');
});

test('a message that arrives byte by byte is read', async () => {
  const { session, stream } = openCreate();
  const trailers = once(stream, 'trailers');
  // Each byte is sent before the next one is written, so each is a separate frame.
  for (const byte of envelope(valid)) await new Promise((sent) => stream.write(Uint8Array.of(byte), sent));
  stream.end();
  expect((await trailers)[0]['grpc-status']).toBe('0');
  session.close();
});

describe('the same refusals over gRPC-Web and Connect', () => {
  test.each<[string, Uint8Array | undefined]>([
    ['no message, ended by an empty frame', new Uint8Array()],
    ['no message, ended by the headers', undefined],
    ['half a message', envelope(valid).subarray(0, 6)],
    ['two messages', Buffer.concat([envelope(valid), envelope(valid)])],
    ['a flag that does not exist', envelope(valid, 4)],
    ['a prefix after the message', Buffer.concat([envelope(valid), Uint8Array.of(0, 0, 0, 0, 9)])],
    [
      'after the message, the frame with which servers end a stream',
      Buffer.concat([envelope(valid), envelope(valid, 0x80)]),
    ],
  ])('%s', async (_, body) => {
    const web = await http2Request({ 'content-type': 'application/grpc-web+proto' }, body);
    expect(web.body.toString()).toMatch(/grpc-status: 3\r\n/);
    // In Connect, the message of a unary call has no prefix, and an empty body is a message without fields.
    const connect = await http2Request({ 'content-type': 'application/proto' }, body);
    expect(connect.headers[':status']).toBe(400);
    expect(JSON.parse(connect.body.toString()).code).toBe('invalid_argument');
  });

  test.each<[string, Uint8Array, string]>([
    ['garbage', Buffer.from([0xff]), 'INVALID_BODY'],
    ['a broken rule', requestBytes('createPaymentIntent', { amount_units: 0 }), 'INVALID_BODY'],
    [
      'a message over 64 KiB',
      requestBytes('createPaymentIntent', { amount_units: 1, metadata: { a: 'x'.repeat(70_000) } }),
      'BODY_TOO_LARGE',
    ],
  ])('%s', async (_, bytes, reason) => {
    const web = await http2Request({ 'content-type': 'application/grpc-web+proto' }, envelope(bytes));
    expect(web.body[0]).toBe(0x80);
    const trailer = web.body.subarray(5).toString();
    const details = Buffer.from(/grpc-status-details-bin: (\S+)/.exec(trailer)?.[1] ?? '', 'base64');
    expect(details.includes(reason)).toBe(true);
    expect(details.includes(String(web.headers['x-request-id']))).toBe(true);

    const connect = await http2Request({ 'content-type': 'application/proto' }, bytes);
    const error = JSON.parse(connect.body.toString());
    expect(error.details.map(({ type }: { type: string }) => type)).toContain('google.rpc.RequestInfo');
    expect(Buffer.from(error.details[0].value, 'base64').toString()).toContain(reason);
  });

  test.each([
    '{',
    '{"amount_units":"x"}',
    '{"unknown":1}',
    '{"chain":"base"}',
    '[]',
    'null',
    '{"metadata":{"a":"\\u0000"},"amount_units":1}',
  ])('Connect with JSON: %s', async (body) => {
    const answer = await http2Request({ 'content-type': 'application/json' }, Buffer.from(body));
    expect(answer.headers[':status']).toBe(400);
    const error = JSON.parse(answer.body.toString());
    expect(error.code).toBe('invalid_argument');
    expect(Buffer.from(error.details[0].value, 'base64').toString()).toContain('INVALID_BODY');
  });
});

test.each([
  ['GET', 'application/grpc', 405, 'METHOD_NOT_ALLOWED'],
  ['PUT', 'application/grpc', 405, 'METHOD_NOT_ALLOWED'],
  ['OPTIONS', 'application/json', 405, 'METHOD_NOT_ALLOWED'],
  ['POST', 'text/plain', 415, 'UNSUPPORTED_MEDIA_TYPE'],
  ['POST', 'application/grpc+thrift', 415, 'UNSUPPORTED_MEDIA_TYPE'],
])('%s with %s', async (method, contentType, status, reason) => {
  const body = method === 'POST' ? valid : undefined;
  const answer = await http2Request({ ':method': method, 'content-type': contentType }, body);
  expect(answer.headers[':status']).toBe(status);
  const { code, details } = JSON.parse(answer.body.toString());
  expect(code).toBe('unimplemented');
  expect(Buffer.from(details[0].value, 'base64').toString()).toContain(reason);
});

describe('one connection', () => {
  const headers = (contentLength: string) =>
    Object.entries({
      ':method': 'POST',
      ':scheme': 'http',
      ':path': path,
      ':authority': 'localhost',
      'content-type': 'application/grpc',
      te: 'trailers',
      authorization: `Bearer ${service.merchant.keys.testnet.apiKey}`,
      'content-length': contentLength,
    });
  const endStream = 1;

  test.each(['3', '70'])('a wrong content-length (%s) ends only its own stream', async (contentLength) => {
    const connection = await connectRaw(service.server.ports.grpc);
    for (const [stream, length] of [
      [1, contentLength],
      [3, '7'],
    ] as const) {
      connection.socket.write(encodeHeaders(stream, headers(length)));
      connection.socket.write(encodeFrame(frameTypes.data, endStream, stream, envelope(valid)));
    }
    await connection.frame(({ type, stream }) => type === frameTypes.rstStream && stream === 1);
    // The answer ends with trailers.
    await connection.frame(
      ({ type, stream, flags }) => type === frameTypes.headers && stream === 3 && (flags & endStream) === 1,
    );
    expect(connection.socket.destroyed).toBe(false);
    connection.socket.destroy();
  });

  test('is closed by a connection error', async () => {
    const connection = await connectRaw(service.server.ports.grpc);
    // Client streams have odd numbers.
    connection.socket.write(encodeHeaders(2, headers('7')));
    await connection.frame(({ type }) => type === frameTypes.goaway);
    await connection.closed;
  });
});

test('an endless message without a key is not read to its end', async () => {
  const session = http2.connect(service.internalUrl);
  const headers = { ':method': 'POST', 'content-type': 'application/grpc-web+proto' };
  const stream = session.request({ ...headers, ':path': '/grpc.health.v1.Health/Check' });
  const closed = once(stream.on('error', () => {}).resume(), 'close');
  const piece = Buffer.alloc(65_536);
  let sentBytes = 0;
  while (!stream.closed && sentBytes < 10_000_000) {
    sentBytes += piece.length;
    if (!stream.write(piece)) await Promise.race([once(stream, 'drain').catch(() => {}), closed]);
  }
  session.destroy();
  expect(sentBytes).toBeLessThan(10_000_000);
});
