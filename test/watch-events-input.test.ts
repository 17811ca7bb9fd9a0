// Invalid requests of WatchEvents are refused with the catalogue's errors over each protocol.

import http2 from 'node:http2';
import { create, toBinary } from '@bufbuild/protobuf';
import type { ConnectError } from '@connectrpc/connect';
import { encodeEnvelope } from '@connectrpc/connect/protocol';
import { endStreamFlag, endStreamFromJson } from '@connectrpc/connect/protocol-connect';
import { findTrailerError } from '@connectrpc/connect/protocol-grpc';
import { trailerFlag, trailerParse } from '@connectrpc/connect/protocol-grpc-web';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { WatchEventsRequestSchema } from '../src/contract/gen/payments/v1/event_service_pb.ts';
import { formatIdentifier, newUuid } from '../src/database/identifiers.ts';
import { createPositioner } from '../src/events/position-events.ts';
import { cursorToken, streamFilter } from '../src/events/read-events.ts';
import { refusalOf } from './support/call.ts';
import { insertEventRows } from './support/event-rows.ts';
import { disconnectWatches, openWatch, protocols } from './support/event-streams.ts';
import { useService } from './support/use-service.ts';

const service = await useService();
const { apiKey } = service.merchant.keys.testnet;

afterEach(disconnectWatches);

const invalid = (...fields: string[]) => ({
  code: 'invalid_body',
  status: 3,
  details: fields.map((field) => ({ field, message: expect.stringMatching(/\w/) })),
});

describe('a stream is refused after', () => {
  const expired = { code: 'cursor_expired', status: 11 };
  const missing = { code: 'resource_missing', status: 5, details: [] };
  const positions: Record<string, string> = {};

  beforeAll(async () => {
    const stranger = await service.newMerchant();
    const [mine = '', others = ''] = await insertEventRows(service.query, [
      { merchantId: service.merchant.id },
      { merchantId: stranger.id },
      { merchantId: service.merchant.id },
    ]);
    await createPositioner(service.database.orm.em).positionAll();
    const filter = streamFilter({
      ...service.merchant,
      merchantId: service.merchant.id,
      mode: 'testnet',
    } as never);
    const positionOf = async (apiKey: string) => (await openWatch('gRPC', service, apiKey).next()).position;
    Object.assign(positions, {
      'text that is not a position': 'nonsense',
      'a malformed id': `${mine}0`,
      'an id in capitals': `evt_${mine.slice(4).toUpperCase()}`,
      'the id of an intent': formatIdentifier('pi', newUuid()),
      'a position after all events': cursorToken(filter, { epoch: 0n, position: 10n ** 15n }),
      'a position of an epoch that this database never had': cursorToken(filter, { epoch: 7n, position: 1n }),
      'a negative position': cursorToken(filter, { epoch: 0n, position: -1n }),
      'the position of another merchant': await positionOf(stranger.keys.testnet.apiKey),
      'the position of the other mode': await positionOf(service.merchant.keys.mainnet.apiKey),
      'the token of a list': (await service.call('listEvents', { page_size: 1 })).json.next_page_token,
      'an unknown event': formatIdentifier('evt', newUuid()),
      'an event of another merchant': others,
      'an event of this merchant': mine,
    });
  });

  test.each<[string, object, ('testnet' | 'mainnet')?]>([
    ['text that is not a position', invalid('after')],
    ['a malformed id', invalid('after')],
    ['an id in capitals', invalid('after')],
    ['the id of an intent', invalid('after')],
    ['a position after all events', expired],
    ['a position of an epoch that this database never had', expired],
    ['a negative position', expired],
    ['the position of another merchant', invalid('after')],
    ['the position of the other mode', invalid('after')],
    ['the token of a list', invalid('after')],
    ['an unknown event', missing],
    ['an event of another merchant', missing],
    // Requested with a key of the other mode.
    ['an event of this merchant', missing, 'mainnet'],
  ])('%s', async (name, refusal, mode = 'testnet') => {
    const after = positions[name];
    expect(after).toBeDefined();
    for (const protocol of protocols) {
      const { apiKey } = service.merchant.keys[mode];
      expect(await openWatch(protocol, service, apiKey, after).refusal(), protocol).toMatchObject(refusal);
    }
  });
});

/** The payload of the last envelope if it has that flag. */
function lastEnvelope(body: Buffer, flag: number): Buffer | undefined {
  for (let at = 0; at + 5 <= body.length; ) {
    const end = at + 5 + body.readUInt32BE(at + 1);
    if (body[at] === flag) return body.subarray(at + 5, end);
    at = end;
  }
  return undefined;
}

/** Content type, name of the encoding header, and how to read the error from a complete answer. */
const wireProtocols: [string, string, (body: Buffer, trailers: Headers) => ConnectError | undefined][] = [
  ['application/grpc+proto', 'grpc-encoding', (_, trailers) => findTrailerError(trailers)],
  [
    'application/grpc-web+proto',
    'grpc-encoding',
    (body, trailers) => {
      const frame = lastEnvelope(body, trailerFlag);
      return findTrailerError(frame === undefined ? trailers : trailerParse(frame));
    },
  ],
  [
    'application/connect+proto',
    'connect-content-encoding',
    (body) => endStreamFromJson(lastEnvelope(body, endStreamFlag) ?? '').error,
  ],
];

describe.each(wireProtocols)('a request of %s is refused with', (contentType, encodingHeader, errorOf) => {
  let session: http2.ClientHttp2Session;
  beforeAll(() => {
    session = http2.connect(service.internalUrl);
  });
  afterAll(() => session.close());

  /** Sends these bytes, or only headers that end the stream, and reads the whole answer. */
  async function call(body?: Uint8Array, headers: http2.OutgoingHttpHeaders = {}) {
    const authorization = `Bearer ${apiKey}`;
    const all = { 'content-type': contentType, authorization, ...headers };
    const stream = session.request(
      { ':method': 'POST', ':path': '/payments.v1.EventService/WatchEvents', te: 'trailers', ...all },
      { endStream: body === undefined },
    );
    const received = new Headers();
    let status: unknown;
    const keep = (fields: http2.IncomingHttpHeaders) => {
      status ??= fields[':status'];
      for (const [name, value] of Object.entries(fields)) {
        if (!name.startsWith(':')) received.set(name, String(value));
      }
    };
    stream.on('response', keep).on('trailers', keep);
    if (body !== undefined) stream.end(body);
    const chunks: Buffer[] = [];
    for await (const chunk of stream) chunks.push(chunk);
    return { status, error: errorOf(Buffer.concat(chunks), received) };
  }

  const request = (after = '') =>
    toBinary(WatchEventsRequestSchema, create(WatchEventsRequestSchema, { after }));
  const whole = encodeEnvelope(0, request());
  const refused = (code: string, status: number) => ({ code, status, details: [] });
  /** The frames with which a server ends a stream. */
  const endFrames = [endStreamFlag, trailerFlag].map((flag) => encodeEnvelope(flag, Uint8Array.of()));

  test.each<[string, object, Uint8Array?, http2.OutgoingHttpHeaders?]>([
    ['an unknown field', invalid('field 2'), encodeEnvelope(0, Uint8Array.of(0x10, 1))],
    ['a malformed message', invalid(), encodeEnvelope(0, Uint8Array.of(0x0a, 0xff))],
    ['text that is not UTF-8', invalid(), encodeEnvelope(0, Uint8Array.of(0x0a, 1, 0xff))],
    ['no message, ended by an empty frame', invalid(), new Uint8Array()],
    ['no message, ended by the headers', invalid()],
    ['half a header of an envelope', invalid(), Uint8Array.of(0, 0)],
    ['half an envelope', invalid(), encodeEnvelope(0, request('nonsense')).subarray(0, 7)],
    ['two messages', invalid(), Buffer.concat([whole, whole])],
    ['a flag that no protocol has', invalid(), encodeEnvelope(4, request())],
    ['a header after the message', invalid(), Buffer.concat([whole, Uint8Array.of(0, 0, 0, 0, 9)])],
    ['the frame with which servers end', invalid(), Buffer.concat([whole, ...endFrames])],
    ['a message too large', refused('body_too_large', 8), encodeEnvelope(0, request('x'.repeat(70_000)))],
    [
      'an unknown compression',
      refused('unsupported_media_type', 12),
      encodeEnvelope(1, request()),
      { [encodingHeader]: 'snappy' },
    ],
    [
      'a message that is flagged as compressed and is not',
      invalid(),
      encodeEnvelope(1, request('nonsense')),
      { [encodingHeader]: 'gzip' },
    ],
    [
      'JSON with an unknown field',
      invalid('nope'),
      encodeEnvelope(0, Buffer.from('{"after":"","nope":1}')),
      { 'content-type': contentType.replace('proto', 'json') },
    ],
    ['no key', refused('api_key_missing', 16), whole, { authorization: undefined }],
    [
      'a wrong key',
      refused('api_key_invalid', 16),
      whole,
      { authorization: `Bearer sk_testnet_${'1'.repeat(43)}` },
    ],
  ])('%s', async (_, refusal, body, headers) => {
    const { status, error } = await call(body, headers);
    expect(status).toBe(200);
    const actual = refusalOf(error);
    expect(actual).toMatchObject(refusal);
    const logged = () => service.requestLines().filter((line) => line.request_id === actual.requestId);
    await expect.poll(logged).toHaveLength(1);
    expect(logged()).toMatchObject([{ rpc: 'WatchEvents', code: actual.code }]);
  });
});
