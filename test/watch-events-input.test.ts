// Invalid requests of WatchEvents are refused with the catalogue's errors over each protocol.

import http2 from 'node:http2';
import { gzipSync } from 'node:zlib';
import { create, toBinary } from '@bufbuild/protobuf';
import type { ConnectError } from '@connectrpc/connect';
import { encodeEnvelope } from '@connectrpc/connect/protocol';
import { endStreamFlag, endStreamFromJson } from '@connectrpc/connect/protocol-connect';
import { findTrailerError } from '@connectrpc/connect/protocol-grpc';
import { trailerFlag, trailerParse } from '@connectrpc/connect/protocol-grpc-web';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { WatchEventsRequestSchema } from '../src/contract/gen/payments/v1/event_service_pb.ts';
import { formatIdentifier, newUuid } from '../src/database/identifiers.ts';
import { positionToken, streamFilter } from '../src/events/event-cursor.ts';
import { createPositioner } from '../src/events/position-events.ts';
import {
  disconnectWatches,
  insertEvents,
  openEventDoors,
  openWatch,
  protocols,
  refusalOf,
} from './support/events.ts';
import { createTestMerchant, startService, type TestMerchant, type TestService } from './support/service.ts';

let service: TestService;

beforeAll(async () => {
  service = await startService();
});

afterEach(disconnectWatches);
afterAll(() => service.close());

const keyOf = ({ keys }: TestMerchant) => keys.testnet.apiKey;

/** Stores an event and gives it its position. */
async function store(merchantId: string): Promise<string> {
  const [id = ''] = await insertEvents(service.query, [{ merchantId }]);
  await createPositioner(service.database.orm.em).positionAll();
  return id;
}

const invalid = (...fields: string[]) => ({
  code: 'invalid_body',
  status: 3,
  details: fields.map((field) => ({ field, message: expect.stringMatching(/\w/) })),
});

describe('where a stream cannot begin', () => {
  let stranger: TestMerchant;
  let mine: string;
  let others: string;
  let strangersPosition: string;
  let mainnetPosition: string;
  let pageToken: string;

  beforeAll(async () => {
    stranger = await createTestMerchant(service.database);
    mine = await store(service.merchant.id);
    await store(service.merchant.id);
    others = await store(stranger.id);
    const positionOf = async (apiKey: string) => (await openWatch('gRPC', service, apiKey).next()).position;
    strangersPosition = await positionOf(keyOf(stranger));
    mainnetPosition = await positionOf(service.merchant.keys.mainnet.apiKey);
    const doors = openEventDoors(service);
    pageToken = (await doors[0].list({ page_size: 1 }, keyOf(service.merchant))).nextPageToken ?? '';
    for (const door of doors) door.close();
    expect(pageToken).not.toBe('');
  });

  const filter = () =>
    streamFilter({ ...service.merchant, merchantId: service.merchant.id, mode: 'testnet' } as never);
  const missing = { code: 'resource_missing', status: 5, details: [] };
  const table: [string, () => string, object][] = [
    ['text that is not a position', () => 'nonsense', invalid('after')],
    ['a malformed id', () => `${mine}0`, invalid('after')],
    ['an id in capitals', () => `evt_${mine.slice(4).toUpperCase()}`, invalid('after')],
    ['the id of an intent', () => formatIdentifier('pi', newUuid()), invalid('after')],
    ['a position after all events', () => positionToken(filter(), 10n ** 15n), invalid('after')],
    ['a negative position', () => positionToken(filter(), -1n), { code: 'cursor_expired', status: 11 }],
    ['the position of another merchant', () => strangersPosition, invalid('after')],
    ['the position of the other mode', () => mainnetPosition, invalid('after')],
    ['the token of a list', () => pageToken, invalid('after')],
    ['an unknown event', () => formatIdentifier('evt', newUuid()), missing],
    ['an event of another merchant', () => others, missing],
  ];
  test.each(table)('%s', async (_, after, refusal) => {
    for (const protocol of protocols) {
      const refused = await openWatch(protocol, service, keyOf(service.merchant), after()).refusal();
      expect(refused, protocol).toMatchObject(refusal);
    }
  });

  test('an event of the other mode', async () => {
    for (const protocol of protocols) {
      const { apiKey } = service.merchant.keys.mainnet;
      expect(await openWatch(protocol, service, apiKey, mine).refusal(), protocol).toMatchObject(missing);
    }
  });

  test('an event of this merchant is accepted', async () => {
    for (const protocol of protocols) {
      const watch = openWatch(protocol, service, keyOf(service.merchant), mine);
      expect((await watch.next()).event, protocol).toBeUndefined();
    }
  });
});

interface WireProtocol {
  contentType: string;
  encodingHeader: string;
  /** The error in a complete answer. */
  errorOf(body: Buffer, trailers: Headers): ConnectError | undefined;
}

/** The payload of the last envelope if it has that flag. */
function lastEnvelope(body: Buffer, flag: number): Buffer | undefined {
  for (let at = 0; at + 5 <= body.length; ) {
    const end = at + 5 + body.readUInt32BE(at + 1);
    if (body[at] === flag) return body.subarray(at + 5, end);
    at = end;
  }
  return undefined;
}

const wireProtocols: Record<string, WireProtocol> = {
  gRPC: {
    contentType: 'application/grpc+proto',
    encodingHeader: 'grpc-encoding',
    errorOf: (_, trailers) => findTrailerError(trailers),
  },
  'gRPC-Web': {
    contentType: 'application/grpc-web+proto',
    encodingHeader: 'grpc-encoding',
    errorOf(body, trailers) {
      const frame = lastEnvelope(body, trailerFlag);
      return findTrailerError(frame === undefined ? trailers : trailerParse(frame));
    },
  },
  Connect: {
    contentType: 'application/connect+proto',
    encodingHeader: 'connect-content-encoding',
    errorOf: (body) => endStreamFromJson(lastEnvelope(body, endStreamFlag) ?? '').error,
  },
};

describe.each(Object.entries(wireProtocols))('over %s', (_, { contentType, encodingHeader, errorOf }) => {
  let session: http2.ClientHttp2Session;

  beforeAll(() => {
    session = http2.connect(service.internalUrl);
  });

  afterAll(() => session.close());

  /** Sends these bytes, or only headers that end the stream, and reads the whole answer. */
  async function call(body?: Uint8Array, headers: http2.OutgoingHttpHeaders = {}) {
    const stream = session.request(
      {
        ':method': 'POST',
        ':path': '/payments.v1.EventService/WatchEvents',
        'content-type': contentType,
        te: 'trailers',
        authorization: `Bearer ${keyOf(service.merchant)}`,
        ...headers,
      },
      { endStream: body === undefined },
    );
    const received = new Headers();
    const keep = (fields: http2.IncomingHttpHeaders) => {
      for (const [name, value] of Object.entries(fields)) {
        if (!name.startsWith(':')) received.set(name, String(value));
      }
    };
    let status: unknown;
    stream.on('response', (fields) => {
      status = fields[':status'];
      keep(fields);
    });
    stream.on('trailers', keep);
    if (body !== undefined) stream.end(body);
    const chunks: Buffer[] = [];
    for await (const chunk of stream) chunks.push(chunk);
    return { status, error: errorOf(Buffer.concat(chunks), received) };
  }

  const request = (after = '') =>
    toBinary(WatchEventsRequestSchema, create(WatchEventsRequestSchema, { after }));
  const refused = (code: string, status: number, details: object[] = []) => ({ code, status, details });

  const table: [string, () => [Uint8Array?, http2.OutgoingHttpHeaders?], object][] = [
    ['an unknown field', () => [encodeEnvelope(0, Uint8Array.of(0x10, 1))], invalid('field 2')],
    ['a malformed message', () => [encodeEnvelope(0, Uint8Array.of(0x0a, 0xff))], invalid()],
    // The number 0, which protobuf-es would read as an empty text.
    ['a field of another type', () => [encodeEnvelope(0, Uint8Array.of(0x08, 0))], invalid()],
    ['text that is not UTF-8', () => [encodeEnvelope(0, Uint8Array.of(0x0a, 1, 0xff))], invalid()],
    ['no message, ended by an empty frame', () => [new Uint8Array()], invalid()],
    ['no message, ended by the headers', () => [], invalid()],
    ['half a header of an envelope', () => [Uint8Array.of(0, 0)], invalid()],
    ['half an envelope', () => [encodeEnvelope(0, request('nonsense')).subarray(0, 7)], invalid()],
    [
      'two messages',
      () => [Buffer.concat([encodeEnvelope(0, request()), encodeEnvelope(0, request())])],
      invalid(),
    ],
    ['a flag that no protocol has', () => [encodeEnvelope(4, request())], invalid()],
    [
      'a header of an envelope after the message',
      () => [Buffer.concat([encodeEnvelope(0, request()), Uint8Array.of(0, 0, 0, 0, 9)])],
      invalid(),
    ],
    [
      'the frame after the message with which servers end',
      () => [
        Buffer.concat(
          [0, endStreamFlag, trailerFlag].map((flag) =>
            encodeEnvelope(flag, flag ? Uint8Array.of() : request()),
          ),
        ),
      ],
      invalid(),
    ],
    [
      'a message too large',
      () => [encodeEnvelope(0, request('x'.repeat(70_000)))],
      refused('body_too_large', 8),
    ],
    [
      'an unknown compression',
      () => [encodeEnvelope(1, request()), { [encodingHeader]: 'snappy' }],
      refused('unsupported_media_type', 12),
    ],
    [
      'a compressed field of another type',
      () => [encodeEnvelope(1, gzipSync(Uint8Array.of(0x08, 0))), { [encodingHeader]: 'gzip' }],
      invalid(),
    ],
    [
      'a message that is not compressed as it says',
      () => [encodeEnvelope(1, request('nonsense')), { [encodingHeader]: 'gzip' }],
      invalid(),
    ],
    [
      'no key',
      () => [encodeEnvelope(0, request()), { authorization: undefined }],
      refused('api_key_missing', 16),
    ],
    [
      'a wrong key',
      () => [encodeEnvelope(0, request()), { authorization: `Bearer sk_testnet_${'1'.repeat(43)}` }],
      refused('api_key_invalid', 16),
    ],
  ];
  test.each(table)('%s', async (_, input, refusal) => {
    const { status, error } = await call(...input());
    expect(status).toBe(200);
    const actual = refusalOf(error);
    expect(actual).toMatchObject(refusal);
    const logged = () => service.requestLines().filter((line) => line.request_id === actual.requestId);
    await vi.waitFor(() => expect(logged()).toHaveLength(1));
    expect(logged()).toMatchObject([{ rpc: 'WatchEvents', code: actual.code }]);
  });

  test('JSON with an unknown field', async () => {
    const json = Buffer.from('{"after":"","nope":1}');
    const { error } = await call(encodeEnvelope(0, json), {
      'content-type': contentType.replace('proto', 'json'),
    });
    expect(refusalOf(error)).toMatchObject(invalid('nope'));
  });
});
