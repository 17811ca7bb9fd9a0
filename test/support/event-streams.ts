// Reads streams of events with @grpc/grpc-js, and with the three protocols of Connect.

import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { createClient, type Transport } from '@connectrpc/connect';
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
  Http2SessionManager,
} from '@connectrpc/connect-node';
import grpc from '@grpc/grpc-js';
import type { Event } from '../../src/contract/gen/payments/v1/event_pb.ts';
import {
  EventService,
  WatchEventsRequestSchema,
  type WatchEventsResponse,
  WatchEventsResponseSchema,
} from '../../src/contract/gen/payments/v1/event_service_pb.ts';
import { type Answer, type Endpoints, refusalOf } from './call.ts';

const authorizationOf = (apiKey: string) => ({ authorization: `Bearer ${apiKey}` });

/** Every way to open a stream of events. */
export const protocols = ['grpc-js', 'gRPC', 'gRPC-Web', 'Connect'] as const;
export type Protocol = (typeof protocols)[number];

export interface Watch {
  /** Resolves with the next message. Fails when the stream ends. */
  next(): Promise<WatchEventsResponse>;
  /** Resolves with the next message that has an event. */
  nextEvent(): Promise<WatchEventsResponse & { event: Event }>;
  /** Reads to the end of the stream and resolves with its refusal. Clients lose it if nothing reads when the stream ends. */
  refusal(): Promise<Answer<never>>;
  /** Ends the stream, and leaves the connection open. */
  cancel(): void;
  /** Closes the connection. */
  disconnect(): void;
}

const opened = new Set<Watch>();

/** Opens a stream of events on its own connection. */
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
  // A waiting iterator gets the error, too.
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
