import { create } from '@bufbuild/protobuf';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { Event, EventData } from '../contract/gen/payments/v1/event_pb.ts';
import { EventDataSchema, EventSchema } from '../contract/gen/payments/v1/event_pb.ts';
import { modeWords } from '../contract/gen/words.ts';
import { createJsonCodec, encodedAs } from '../contract/json/json-codec.ts';
import type { EventRow } from '../database/entities/event.ts';
import { formatIdentifier } from '../database/identifiers.ts';

const dataCodec = createJsonCodec(EventDataSchema);
const eventCodec = createJsonCodec(EventSchema);

type StoredEvent = Pick<EventRow, 'id' | 'type' | 'createdAt' | 'mode' | 'sequence' | 'data'>;

/**
 * Converts a row to the contract's event. In JSON its `data` is the stored text, unchanged. In protobuf it
 * has the fields that this version knows; others are dropped.
 */
export function toEvent(row: StoredEvent): Event {
  const { message = create(EventDataSchema) } = dataCodec.decode(JSON.parse(row.data));
  return eventWith(row, message);
}

/** Converts a row for JSON only. Does not parse the stored text: a long one takes a millisecond. */
export function toJsonEvent(row: EventRow): Event {
  return eventWith(row, create(EventDataSchema));
}

/** The event as JSON, the same as `GET /v1/events/{id}` returns. */
export function eventText(row: EventRow): string {
  return eventCodec.encode(toJsonEvent(row));
}

function eventWith(row: StoredEvent, data: EventData): Event {
  return create(EventSchema, {
    id: formatIdentifier('evt', row.id),
    type: row.type,
    createdAt: timestampFromDate(row.createdAt),
    mode: modeWords[row.mode],
    ...(row.sequence > 0 && { sequence: row.sequence }),
    data: encodedAs(data, row.data),
  });
}
