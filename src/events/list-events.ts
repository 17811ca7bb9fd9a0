import { create } from '@bufbuild/protobuf';
import type { FieldViolation } from '../contract/error-catalogue.ts';
import { wantedEventType } from '../contract/event-types.ts';
import {
  type EventService,
  type ListEventsRequest,
  ListEventsResponseSchema,
} from '../contract/gen/payments/v1/event_service_pb.ts';
import type { EventRow } from '../database/entities/event.ts';
import { idViolations, parseIdentifier } from '../database/identifiers.ts';
import { ServiceError } from '../requests/errors.ts';
import type { MethodsOf } from '../requests/method.ts';
import { pageSizeOf, pageSizeViolations } from '../requests/page-token.ts';
import { chargedByRows, rowsOfText } from '../requests/row-cost.ts';
import { mapLargeInSlices } from '../scheduling/slices.ts';
import { toEvent, toJsonEvent } from './event.ts';
import { beforeAll, cursorOfToken, cursorToken, type EventCursors } from './event-cursor.ts';
import type { EventReader } from './read-events.ts';

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
      const page = await chargedByRows(
        context,
        size,
        () => reader.page(identity, { type, paymentIntent, refund }, behind, size),
        ({ rows }) => rows.reduce((sum, row) => sum + rowsOf(row), 0),
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
function rowsOf({ data }: EventRow): number {
  return Math.max(1, rowsOfText(data));
}

function violationsOf(request: ListEventsRequest): FieldViolation[] {
  const { type, after, pageToken, paymentIntent, refund } = request;
  const violations = pageSizeViolations(request.pageSize);
  const wantedType = type === '' ? undefined : wantedEventType(type);
  if (wantedType !== undefined) violations.push({ field: 'type', message: `must be ${wantedType}` });
  violations.push(
    ...idViolations({ payment_intent: [paymentIntent, 'pi'], refund: [refund, 'rf'], after: [after, 'evt'] }),
  );
  if (after !== '' && pageToken !== '') {
    violations.push({ field: 'after', message: 'cannot be combined with page_token' });
  }
  return violations;
}
