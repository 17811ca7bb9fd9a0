// The methods that list, retrieve and watch events.

import { create } from '@bufbuild/protobuf';
import { ConnectError } from '@connectrpc/connect';
import { wantedEventType } from '../contract/event-types.ts';
import type { EventService, ListEventsRequest } from '../contract/gen/payments/v1/event_service_pb.ts';
import {
  ListEventsResponseSchema,
  WatchEventsResponseSchema,
} from '../contract/gen/payments/v1/event_service_pb.ts';
import type { EventRow } from '../database/entities/event.ts';
import { idViolations, parseIdentifier } from '../database/identifiers.ts';
import { ServiceError, violationsIn } from '../requests/errors.ts';
import type { MethodsOf } from '../requests/method.ts';
import { pageSizeOf, pageSizeViolations } from '../requests/page-token.ts';
import { chargedByRows, rowsOfText } from '../requests/row-cost.ts';
import { mapLargeInSlices } from '../scheduling/slices.ts';
import { toEvent, toJsonEvent } from './event.ts';
import type { EventFeed } from './event-feed.ts';
import {
  beforeAll,
  cursorOfToken,
  cursorToken,
  type EventCursors,
  type EventReader,
  streamFilter,
} from './read-events.ts';

/** `ListEvents`: oldest first, by position. */
export function listEvents(
  reader: EventReader,
  cursors: EventCursors,
): MethodsOf<typeof EventService>['listEvents'] {
  return {
    ratePolicy: 'reads',
    violations: violationsOf,
    async run(request, identity, { context }) {
      const { pageToken, after, type } = request;
      const paymentIntent = parseIdentifier('pi', request.paymentIntent);
      const refund = parseIdentifier('rf', request.refund);
      const token = ['events', identity.merchantId, identity.mode, type, request.paymentIntent];
      if (refund !== undefined) token.push(request.refund);
      const behind =
        pageToken !== ''
          ? cursorOfToken(pageToken, token)
          : after !== ''
            ? await cursors.afterEvent(after, identity)
            : beforeAll;
      const size = pageSizeOf(request.pageSize);
      const work = () => reader.page(identity, { type, paymentIntent, refund }, behind, size);
      const page = await chargedByRows(context, size, work, ({ rows }) =>
        rows.reduce((sum, row) => sum + rowsOf(row), 0),
      );
      if (after !== '') await cursors.assertKept(behind, identity, page.limits);
      if (pageToken !== '') await cursors.assertNotLost(behind, identity, page.limits);
      return create(ListEventsResponseSchema, {
        events: await mapLargeInSlices(page.rows, rowsOf, context.door === 'public' ? toJsonEvent : toEvent),
        nextPageToken: page.next === undefined ? '' : cursorToken(token, page.next),
      });
    },
  };
}

/** `GetEvent`. */
export function getEvent(reader: EventReader): MethodsOf<typeof EventService>['getEvent'] {
  return {
    ratePolicy: 'reads',
    async run(request, identity) {
      const uuid = parseIdentifier('evt', request.id);
      const row = uuid === undefined ? undefined : await reader.find(uuid, identity);
      if (row === undefined) throw new ServiceError('resource_missing');
      return toEvent(row);
    },
  };
}

/** The rows that an event counts as in the rate limit: one, or one for each 2 KiB of its data. */
const rowsOf = ({ data }: EventRow): number => Math.max(1, rowsOfText(data));

function violationsOf(request: ListEventsRequest) {
  const { type, after, pageToken, paymentIntent, refund } = request;
  const wanted = type === '' ? undefined : wantedEventType(type);
  return [
    ...pageSizeViolations(request.pageSize),
    ...violationsIn(['type', wanted && `must be ${wanted}`]),
    ...idViolations({ payment_intent: [paymentIntent, 'pi'], refund: [refund, 'rf'], after: [after, 'evt'] }),
    ...violationsIn(['after', after !== '' && pageToken !== '' && 'cannot be combined with page_token']),
  ];
}

/** Most events read at a time. Fewer if they are large: one with a hundred payments has 70 KB. */
const pageSize = 20;
const pageBytes = 64 * 1024;
/** A message is sent at least this often, so that both sides know that the stream is alive. */
const defaultKeepAliveMs = 30_000;

/**
 * `WatchEvents`: events after `after`, then new ones. The next page is read only after the client has taken
 * the last one, so a slow client costs one page of memory.
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
        let size = 1;
        for (let sentAtMs = performance.now(); ; ) {
          assertOpen();
          const { rows, end, limits } = await reader.behind(identity, cursor, size);
          const isFull = rows.length === size;
          const isLarge = rows.reduce((sum, { data }) => sum + data.length, 0) > pageBytes;
          size = isLarge ? Math.max(1, size >> 1) : Math.min(pageSize, isFull ? 2 * size : size);
          await cursors.assertKept(cursor, identity, limits);
          for (const row of rows) {
            cursor = { epoch: end.epoch, position: BigInt(row.position ?? 0) };
            yield messageOf({ event: toEvent(row) });
            sentAtMs = performance.now();
            // Sending may have taken a long time.
            assertOpen();
          }
          if (isFull) continue;
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
