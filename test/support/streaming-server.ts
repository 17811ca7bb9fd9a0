// A server of event streams that sends what a test says, in a process that has no service.

import { once } from 'node:events';
import http2 from 'node:http2';
import type { AddressInfo } from 'node:net';
import { connectNodeAdapter } from '@connectrpc/connect-node';
import {
  EventService,
  type WatchEventsRequest,
  type WatchEventsResponse,
} from '../../src/contract/gen/payments/v1/event_service_pb.ts';

/** Streams what `watch` returns, which gets the stream's number, from 1. Records what it was asked for. */
export async function startStreamingServer(
  watch: (stream: number) => AsyncIterable<Pick<WatchEventsResponse, 'position'> & { event?: object }>,
) {
  const asked: string[] = [];
  const server = http2.createServer(
    connectNodeAdapter({
      routes: (router) =>
        router.service(EventService, {
          watchEvents({ after }: WatchEventsRequest) {
            asked.push(after);
            return watch(asked.length);
          },
        }),
    }),
  );
  const sessions = new Set<http2.ServerHttp2Session>();
  server.on('session', (session) => void sessions.add(session));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    asked,
    port,
    baseUrl: `http://127.0.0.1:${port}`,
    async close() {
      for (const session of sessions) session.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}
