import { defineEntity, type InferEntity, p } from '@mikro-orm/core';
import { modeNames } from '../../contract/words.ts';
import { modeType } from './network.ts';

/** The channel on which PostgreSQL notifies every process that events have got their position. */
export const eventsPositionedChannel = 'events_positioned';

/**
 * An event, written in the transaction of the change that it reports. Only `position` ever changes: a later
 * transaction sets it, see `events/position-events.ts`. Readers see only events with a position.
 */
export const EventEntity = defineEntity({
  name: 'Event',
  tableName: 'events',
  properties: {
    id: p.uuid().primary(),
    merchantId: p.uuid(),
    mode: p.enum(modeNames).nativeEnumName(modeType),
    type: p.text(),
    createdAt: p.datetime(3).columnType('timestamptz(3)'),
    /** The intent that it is about, if it is about one. */
    paymentIntent: p.uuid().nullable(),
    /** The refund that it is about, if it is about one. */
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
  indexes: [
    // Of a merchant in one mode, for lists and streams.
    {
      name: 'events_merchant_index',
      properties: ['merchantId', 'mode', 'position'],
      where: { position: { $ne: null } },
    },
    // Events without a position by merchant, in the order in which they get one.
    {
      name: 'events_turns_index',
      properties: ['merchantId', 'sequence', 'id'],
      where: { position: null },
    },
  ],
  uniques: [
    // New events for the streams of this process.
    { name: 'events_position_unique', properties: ['position'], where: { position: { $ne: null } } },
    // An intent's sequence numbers are unique. Also used to list an intent's events.
    {
      name: 'events_payment_intent_unique',
      properties: ['merchantId', 'paymentIntent', 'sequence'],
      where: { paymentIntent: { $ne: null } },
    },
    {
      name: 'events_refund_unique',
      properties: ['merchantId', 'refund', 'sequence'],
      where: { refund: { $ne: null } },
    },
  ],
});

export type EventRow = InferEntity<typeof EventEntity>;

/** A single row: the last assigned position, and the highest removed one. */
export const EventProgressEntity = defineEntity({
  name: 'EventProgress',
  tableName: 'event_progress',
  properties: {
    /** Always 1. */
    id: p.smallint().primary().autoincrement(false),
    lastPosition: p.bigint(),
    /** The highest position of an event that was removed, or 0. */
    removedPosition: p.bigint(),
  },
  checks: [{ name: 'event_progress_id_check', expression: 'id = 1' }],
});

/** An epoch of positions: see `events/event-epochs.ts`. */
export const EventEpochEntity = defineEntity({
  name: 'EventEpoch',
  tableName: 'event_epochs',
  properties: {
    /** Its place among the epochs of this database, from 1. */
    number: p.integer().primary().autoincrement(false),
    /** Random, so that it differs between two restores of one backup; 0 for the first. */
    id: p.bigint(),
    /** Of the history that the epoch belongs to. */
    systemIdentifier: p.bigint(),
    timeline: p.integer(),
    /** The last position before it. */
    beginsAfter: p.bigint(),
    beginsAt: p.datetime(3).columnType('timestamptz(3)'),
  },
  uniques: [{ name: 'event_epochs_id_unique', properties: ['id'] }],
});

/** The id of an event removed by retention, kept so that a reader that continues after it gets `cursor_expired`. */
export const RemovedEventEntity = defineEntity({
  name: 'RemovedEvent',
  tableName: 'removed_events',
  properties: {
    id: p.uuid().primary(),
    merchantId: p.uuid(),
    mode: p.enum(modeNames).nativeEnumName(modeType),
    removedAt: p.datetime(3).columnType('timestamptz(3)'),
  },
  indexes: [{ name: 'removed_events_removed_at_index', properties: ['removedAt'] }],
});
