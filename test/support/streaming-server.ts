// A server of event streams that sends what a test tells it to, without a service.

import http2 from 'node:http2';
import { connectNodeAdapter } from '@connectrpc/connect-node';
import {
  EventService,
  type WatchEventsRequest,
  type WatchEventsResponse,
} from '../../src/contract/gen/payments/v1/event_service_pb.ts';
import { listen } from './listen.ts';

/** Streams what `watch` returns, which is called with the stream's number, from 1. Records the requests. */
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
  return { asked, ...(await listen(server)) };
}
