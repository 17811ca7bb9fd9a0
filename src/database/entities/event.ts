import { defineEntity, type InferEntity, p } from '@mikro-orm/core';
import { modeColumn } from './column-types.ts';

/** The channel on which PostgreSQL notifies every process that events have been positioned. */
export const eventsPositionedChannel = 'events_positioned';

/**
 * An event, written in the transaction of the change that it reports. Only `position` changes: a later
 * transaction sets it, see `events/position-events.ts`. Readers see only events with one.
 *
 * Indexes: `merchant`, for lists and streams; `turns`, events without a position, by merchant, in the order
 * they get one; `position`, new events for streams; `payment_intent` and `refund`, also for lists.
 */
export const EventEntity = defineEntity({
  name: 'Event',
  tableName: 'events',
  properties: {
    id: p.uuid().primary(),
    merchantId: p.uuid(),
    mode: modeColumn(),
    type: p.text(),
    createdAt: p.datetime(3),
    /** The intent that it is about, if any. */
    paymentIntent: p.uuid().nullable(),
    /** The refund that it is about, if any. */
    refund: p.uuid().nullable(),
    /** The webhook endpoint that it is about, and the only one that it is sent to. */
    webhookEndpoint: p.uuid().nullable(),
    /** Its place among the events of the intent or of the refund, from 1; 0 for other events. */
    sequence: p.integer(),
    /** Its place among all events of all merchants. */
    position: p.bigint().nullable(),
    /** W3C trace context of the change, for the spans of its deliveries. */
    traceparent: p.text().nullable(),
    /** The public JSON of the event's `data`, served as it is. */
    data: p.text(),
  },
});

export type EventRow = InferEntity<typeof EventEntity>;
