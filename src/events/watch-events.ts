import { create } from '@bufbuild/protobuf';
import { ConnectError } from '@connectrpc/connect';
import {
  type EventService,
  WatchEventsResponseSchema,
} from '../contract/gen/payments/v1/event_service_pb.ts';
import { parseIdentifier } from '../database/identifiers.ts';
import { ServiceError } from '../requests/errors.ts';
import type { MethodsOf } from '../requests/method.ts';
import { toEvent } from './event.ts';
import { cursorToken, type EventCursors, streamFilter } from './event-cursor.ts';
import type { EventFeed } from './event-feed.ts';
import type { EventReader } from './read-events.ts';

/** Events read at a time, each of at most about 20 KB. */
const pageSize = 20;
/** A message is sent at least this often, so that both sides know that the stream is alive. */
const defaultKeepAliveMs = 30_000;

/**
 * `WatchEvents`: events after `after`, then new ones. The next page is read only after the client has taken the last
 * one, so a slow client costs one page of memory.
 */
export function watchEvents(
  reader: EventReader,
  cursors: EventCursors,
  feed: EventFeed,
  { keepAliveMs = defaultKeepAliveMs }: { keepAliveMs?: number } = {},
): MethodsOf<typeof EventService>['watchEvents'] {
  return {
    ratePolicy: 'reads',
    async *run(request, identity, { context, signal }) {
      const filter = streamFilter(identity);
      const keyId = parseIdentifier('key', identity.keyTypeId) ?? '';
      const subscription = feed.subscribe({ ...identity, keyId });
      context.stayOpen?.();
      try {
        let cursor = await (request.after === ''
          ? cursors.last()
          : cursors.afterEventOrPosition(request.after, identity));
        const messageOf = (fields: object) =>
          create(WatchEventsResponseSchema, { ...fields, position: cursorToken(filter, cursor) });
        yield messageOf({});
        const assertOpen = () => {
          if (subscription.refusal !== undefined) throw subscription.refusal;
          if (signal.aborted) throw endOf(signal);
        };
        for (let sentAtMs = performance.now(); ; ) {
          assertOpen();
          const { rows, end, limits } = await reader.behind(identity, cursor, pageSize);
          await cursors.assertKept(cursor, identity, limits);
          for (const row of rows) {
            cursor = { epoch: end.epoch, position: BigInt(row.position ?? 0) };
            yield messageOf({ event: toEvent(row) });
            sentAtMs = performance.now();
            // Sending may have taken long.
            assertOpen();
          }
          if (rows.length === pageSize) continue;
          cursor = end;
          await subscription.wait(Math.max(0, sentAtMs + keepAliveMs - performance.now()), signal);
          if (performance.now() - sentAtMs < keepAliveMs) continue;
          yield messageOf({});
          sentAtMs = performance.now();
        }
      } finally {
        subscription.close();
      }
    },
  };
}

/** The error that ends the stream: the client has gone, or the service is stopping. */
function endOf({ reason }: AbortSignal): unknown {
  if (reason instanceof ConnectError) return reason;
  return new ServiceError('unavailable', {
    message: 'The service is restarting. Connect again with the position of the last message.',
  });
}
