// Events as tests store and read them: the public door, gRPC by @grpc/grpc-js, and Connect's own three protocols.

import { create, fromBinary, type JsonObject, toBinary } from '@bufbuild/protobuf';
import { type CallOptions, ConnectError, createClient, type Transport } from '@connectrpc/connect';
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
  Http2SessionManager,
} from '@connectrpc/connect-node';
import grpc from '@grpc/grpc-js';
import {
  BadRequestSchema,
  ErrorInfoSchema,
  RequestInfoSchema,
} from '../../src/contract/gen/google/rpc/error_details_pb.ts';
import { type Event, EventSchema } from '../../src/contract/gen/payments/v1/event_pb.ts';
import {
  EventService,
  GetEventRequestSchema,
  type ListEventsRequest,
  ListEventsRequestSchema,
  ListEventsResponseSchema,
  WatchEventsRequestSchema,
  type WatchEventsResponse,
  WatchEventsResponseSchema,
} from '../../src/contract/gen/payments/v1/event_service_pb.ts';
import { createJsonCodec } from '../../src/contract/json/json-codec.ts';
import type { ModeName } from '../../src/contract/words.ts';
import { formatIdentifier, newUuid } from '../../src/database/identifiers.ts';
import { type Endpoints, errorDetailsOf, httpRequest } from './doors.ts';

export interface NewEvent {
  /** UUID. */
  merchantId: string;
  mode?: ModeName;
  type?: string;
  /** UUID. */
  paymentIntent?: string;
  sequence?: number;
  createdAtMs?: number;
  /** JSON. */
  data?: string;
}

type Query = (sql: string, values: unknown[]) => Promise<unknown>;

/** Stores events as the transaction of a change does: without a position. Returns their ids. */
export async function insertEvents(query: Query, events: readonly NewEvent[]): Promise<string[]> {
  const now = Date.now();
  // A millisecond apart, because ids of one millisecond are in no order.
  const rows = events.map(({ createdAtMs, paymentIntent = newUuid(), ...event }, i) => {
    const atMs = createdAtMs ?? now + i;
    return {
      ...event,
      id: newUuid(atMs),
      createdAt: new Date(atMs).toISOString(),
      paymentIntent,
      data: event.data ?? `{"payment_intent":{"id":"${formatIdentifier('pi', paymentIntent)}"}}`,
    };
  });
  await query(
    `insert into events (id, merchant_id, mode, type, created_at, payment_intent, sequence, data)
     select * from unnest($1::uuid[], $2::uuid[], $3::payment_mode[], $4::text[], $5::timestamptz[], $6::uuid[], $7::int[], $8::text[])`,
    [
      rows.map(({ id }) => id),
      rows.map(({ merchantId }) => merchantId),
      rows.map(({ mode = 'testnet' }) => mode),
      rows.map(({ type = 'payment_intent.canceled' }) => type),
      rows.map(({ createdAt }) => createdAt),
      rows.map(({ paymentIntent }) => paymentIntent),
      rows.map(({ sequence = 1 }) => sequence),
      rows.map(({ data }) => data),
    ],
  );
  return rows.map(({ id }) => formatIdentifier('evt', id));
}

/** A refusal, the same for every protocol. */
export interface EventRefusal {
  /** A code of the catalogue. */
  code: string;
  /** HTTP status, or gRPC code. */
  status: number;
  details: { field: string; message: string }[];
  requestId: string;
}

export interface EventAnswer extends Partial<EventRefusal> {
  /** `ok`, or a code of the catalogue. */
  code: string;
  /** In the public JSON. */
  event?: JsonObject;
  events?: JsonObject[];
  nextPageToken?: string;
  /** The public door's body. */
  text?: string;
}

export interface ListQuery {
  page_size?: number;
  page_token?: string;
  after?: string;
  type?: string;
  payment_intent?: string;
}

export interface EventDoor {
  name: string;
  get(id: string, apiKey: string): Promise<EventAnswer>;
  list(query: ListQuery, apiKey: string): Promise<EventAnswer>;
  close(): void;
}

const authorizationOf = (apiKey: string | undefined) =>
  apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` };

export function openEventDoors(endpoints: Endpoints): [EventDoor, EventDoor, EventDoor] {
  return [openPublicEvents(endpoints), openGrpcEvents(endpoints), openConnectEvents(endpoints)];
}

function openPublicEvents({ publicUrl }: Endpoints): EventDoor {
  const read = async (path: string, apiKey: string): Promise<EventAnswer> => {
    const { status, body } = await httpRequest(publicUrl + path, {
      method: 'GET',
      headers: authorizationOf(apiKey),
    });
    const json = JSON.parse(body);
    if (status !== 200) {
      const { code, details = [], request_id } = json.error;
      return { code, status, details, requestId: request_id };
    }
    if (json.events === undefined) return { code: 'ok', event: json, text: body };
    const { events, next_page_token } = json;
    return { code: 'ok', events, text: body, ...(next_page_token && { nextPageToken: next_page_token }) };
  };
  return {
    name: 'public',
    get: (id, apiKey) => read(`/v1/events/${id}`, apiKey),
    list: (query, apiKey) =>
      read(`/v1/events?${new URLSearchParams(query as Record<string, string>)}`, apiKey),
    close() {},
  };
}

const eventCodec = createJsonCodec(EventSchema);
const publicJsonOf = (event: Event): JsonObject => JSON.parse(eventCodec.encode(event));
const listRequestOf = (query: ListQuery): ListEventsRequest =>
  create(ListEventsRequestSchema, {
    pageSize: query.page_size ?? 0,
    pageToken: query.page_token ?? '',
    after: query.after ?? '',
    type: query.type ?? '',
    paymentIntent: query.payment_intent ?? '',
  });

function openGrpcEvents({ internalUrl }: Endpoints): EventDoor {
  const client = new grpc.Client(new URL(internalUrl).host, grpc.credentials.createInsecure());
  const call = <T>(
    method: string,
    bytes: Uint8Array,
    apiKey: string,
    read: (bytes: Buffer) => T,
  ): Promise<T | EventRefusal> =>
    new Promise((resolve) => {
      client.makeUnaryRequest(
        `/payments.v1.EventService/${method}`,
        (message: Buffer) => message,
        (message: Buffer) => message,
        Buffer.from(bytes),
        grpc.Metadata.fromHttp2Headers(authorizationOf(apiKey)),
        (error, response) => resolve(error ? refusalOf(error) : read(response as Buffer)),
      );
    });
  return {
    name: 'gRPC',
    get: (id, apiKey) =>
      call(
        'GetEvent',
        toBinary(GetEventRequestSchema, create(GetEventRequestSchema, { id })),
        apiKey,
        (bytes) => ({
          code: 'ok',
          event: publicJsonOf(fromBinary(EventSchema, bytes)),
        }),
      ),
    list: (query, apiKey) =>
      call('ListEvents', toBinary(ListEventsRequestSchema, listRequestOf(query)), apiKey, (bytes) => {
        const { events, nextPageToken } = fromBinary(ListEventsResponseSchema, bytes);
        return { code: 'ok', events: events.map(publicJsonOf), ...(nextPageToken && { nextPageToken }) };
      }),
    close: () => client.close(),
  };
}

function openConnectEvents({ internalUrl }: Endpoints): EventDoor {
  const sessionManager = new Http2SessionManager(internalUrl);
  const client = createClient(
    EventService,
    createConnectTransport({ baseUrl: internalUrl, httpVersion: '2', sessionManager }),
  );
  const optionsOf = (apiKey: string): CallOptions => ({ headers: authorizationOf(apiKey) });
  return {
    name: 'Connect',
    get: (id, apiKey) =>
      client
        .getEvent({ id }, optionsOf(apiKey))
        .then((event) => ({ code: 'ok', event: publicJsonOf(event) }), refusalOf),
    list: (query, apiKey) =>
      client.listEvents(listRequestOf(query), optionsOf(apiKey)).then(
        ({ events, nextPageToken }) => ({
          code: 'ok',
          events: events.map(publicJsonOf),
          ...(nextPageToken && { nextPageToken }),
        }),
        refusalOf,
      ),
    close: () => sessionManager.abort(),
  };
}

/** The refusal in an error of grpc-js or Connect. Its code is empty if the catalogue's details are missing. */
export function refusalOf(reason: unknown): EventRefusal {
  if (reason instanceof ConnectError) {
    const [info] = reason.findDetails(ErrorInfoSchema);
    const [request] = reason.findDetails(RequestInfoSchema);
    return {
      code: info?.domain === 'payments' ? info.reason.toLowerCase() : '',
      status: reason.code,
      details: reason
        .findDetails(BadRequestSchema)
        .flatMap(({ fieldViolations }) => fieldViolations)
        .map(({ field, description }) => ({ field, message: description })),
      requestId: request?.requestId ?? '',
    };
  }
  const error = reason as grpc.ServiceError;
  if (!(error.metadata instanceof grpc.Metadata)) throw reason;
  const { domain, reason: code, violations, requestId } = errorDetailsOf(error);
  return {
    code: domain === 'payments' ? (code ?? '').toLowerCase() : '',
    status: error.code,
    details: violations,
    requestId: requestId ?? '',
  };
}

/** Every way to open a stream of events. */
export const protocols = ['grpc-js', 'gRPC', 'gRPC-Web', 'Connect'] as const;
export type Protocol = (typeof protocols)[number];

export interface Watch {
  /** Resolves with the next message. Fails when the stream ends. */
  next(): Promise<WatchEventsResponse>;
  /** Resolves with the next message that has an event. */
  nextEvent(): Promise<WatchEventsResponse & { event: Event }>;
  /** Reads on to the end of the stream, and resolves with its refusal. */
  refusal(): Promise<EventRefusal>;
  /** Ends the stream, and leaves the connection open. */
  cancel(): void;
  /** Closes the connection. */
  disconnect(): void;
}

const opened = new Set<Watch>();

/** Opens a stream of events, on a connection of its own. */
export function openWatch(
  protocol: Protocol,
  { internalUrl }: Pick<Endpoints, 'internalUrl'>,
  apiKey: string,
  after = '',
): Watch {
  const { messages, cancel, disconnect } =
    protocol === 'grpc-js'
      ? watchByGrpcJs(internalUrl, apiKey, after)
      : watchByConnect(protocol, internalUrl, apiKey, after);
  const iterator = messages[Symbol.asyncIterator]();
  const watch: Watch = {
    async next() {
      const { value, done } = await iterator.next();
      if (done) throw new Error('the stream has ended without an error');
      return value;
    },
    async nextEvent() {
      for (;;) {
        const message = await watch.next();
        if (message.event !== undefined) return { ...message, event: message.event };
      }
    },
    async refusal() {
      try {
        for (;;) await watch.next();
      } catch (reason) {
        return refusalOf(reason);
      }
    },
    cancel,
    disconnect() {
      disconnect();
      opened.delete(watch);
    },
  };
  opened.add(watch);
  return watch;
}

/** Closes the connections of all streams. */
export function disconnectWatches(): void {
  for (const watch of opened) watch.disconnect();
}

function watchByGrpcJs(internalUrl: string, apiKey: string, after: string) {
  const client = new grpc.Client(new URL(internalUrl).host, grpc.credentials.createInsecure(), {
    'grpc.use_local_subchannel_pool': 1,
  });
  const call = client.makeServerStreamRequest(
    '/payments.v1.EventService/WatchEvents',
    (message: Uint8Array) => Buffer.from(message),
    (bytes: Buffer) => fromBinary(WatchEventsResponseSchema, bytes),
    toBinary(WatchEventsRequestSchema, create(WatchEventsRequestSchema, { after })),
    grpc.Metadata.fromHttp2Headers(authorizationOf(apiKey)),
  );
  // Also told to the iterator, if one is waiting.
  call.on('error', () => {});
  return {
    messages: call as AsyncIterable<WatchEventsResponse>,
    cancel: () => call.cancel(),
    disconnect: () => {
      call.cancel();
      client.close();
    },
  };
}

function watchByConnect(
  protocol: Exclude<Protocol, 'grpc-js'>,
  baseUrl: string,
  apiKey: string,
  after: string,
) {
  const sessionManager = new Http2SessionManager(baseUrl);
  const controller = new AbortController();
  const client = createClient(EventService, transportOf(protocol, baseUrl, sessionManager));
  return {
    messages: client.watchEvents({ after }, { headers: authorizationOf(apiKey), signal: controller.signal }),
    cancel: () => controller.abort(),
    disconnect: () => sessionManager.abort(),
  };
}

function transportOf(
  protocol: Exclude<Protocol, 'grpc-js'>,
  baseUrl: string,
  sessionManager: Http2SessionManager,
): Transport {
  switch (protocol) {
    case 'gRPC':
      return createGrpcTransport({ baseUrl, sessionManager });
    case 'gRPC-Web':
      return createGrpcWebTransport({ baseUrl, httpVersion: '2', sessionManager });
    case 'Connect':
      return createConnectTransport({ baseUrl, httpVersion: '2', sessionManager });
  }
}
