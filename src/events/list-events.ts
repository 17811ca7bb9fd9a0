import { create } from '@bufbuild/protobuf';
import type { FieldViolation } from '../contract/error-catalogue.ts';
import { wantedEventType } from '../contract/event-types.ts';
import {
  type ListEventsRequest,
  type ListEventsResponse,
  ListEventsResponseSchema,
} from '../contract/gen/payments/v1/event_service_pb.ts';
import { parseIdentifier } from '../database/identifiers.ts';
import { orUnavailable } from '../database/unavailable.ts';
import { refuseInvalid } from '../requests/errors.ts';
import { unknownFieldViolations } from '../requests/fields.ts';
import type { Method } from '../requests/method.ts';
import { pageSizeOf, pageSizeViolations } from '../requests/page-token.ts';
import { toEvent } from './event.ts';
import { type EventCursors, positionOfToken, positionToken } from './event-cursor.ts';
import type { EventReader } from './read-events.ts';

/** `ListEvents`: oldest first, by position. */
export function listEvents(
  reader: EventReader,
  cursors: EventCursors,
): Method<ListEventsRequest, ListEventsResponse> {
  return {
    ratePolicy: 'reads',
    violations: (request) => violationsOf(request),
    async run(request, identity) {
      refuseInvalid(violationsOf(request));
      const { pageToken, after, type } = request;
      const paymentIntent = parseIdentifier('pi', request.paymentIntent);
      const token = ['events', identity.merchantId, identity.mode, type, request.paymentIntent];
      return orUnavailable(async () => {
        const behind =
          pageToken !== ''
            ? positionOfToken(pageToken, token)
            : after !== ''
              ? await cursors.afterEvent(after, identity)
              : 0n;
        const page = await reader.page(
          identity,
          { type, paymentIntent },
          behind,
          pageSizeOf(request.pageSize),
        );
        if (after !== '') await cursors.assertKept(behind);
        return create(ListEventsResponseSchema, {
          events: page.rows.map(toEvent),
          nextPageToken: page.next === undefined ? '' : positionToken(token, page.next),
        });
      });
    },
  };
}

function violationsOf(request: ListEventsRequest): FieldViolation[] {
  const violations = [...unknownFieldViolations(request), ...pageSizeViolations(request.pageSize)];
  const { type, after, pageToken, paymentIntent } = request;
  const wantedType = type === '' ? undefined : wantedEventType(type);
  if (wantedType !== undefined) violations.push({ field: 'type', message: `must be ${wantedType}` });
  if (paymentIntent !== '' && parseIdentifier('pi', paymentIntent) === undefined) {
    violations.push({ field: 'payment_intent', message: 'must be the id of a payment intent' });
  }
  if (after !== '' && parseIdentifier('evt', after) === undefined) {
    violations.push({ field: 'after', message: 'must be the id of an event' });
  }
  if (after !== '' && pageToken !== '') {
    violations.push({ field: 'after', message: 'cannot be combined with page_token' });
  }
  return violations;
}
