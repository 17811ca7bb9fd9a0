// Creates events, and writes them in the transaction of the change that they report.

import { create, type MessageInitShape } from '@bufbuild/protobuf';
import type { EventType } from '../contract/event-types.ts';
import { EventDataSchema } from '../contract/gen/payments/v1/event_pb.ts';
import { createJsonCodec } from '../contract/json/json-codec.ts';
import type { EventRow } from './entities/event.ts';
import { newUuid } from './identifiers.ts';

const dataCodec = createJsonCodec(EventDataSchema);

/** What an event reports, the resources it is about, and its place among their events. */
interface Report
  extends Partial<Pick<EventRow, 'paymentIntent' | 'refund' | 'webhookEndpoint' | 'sequence'>> {
  type: EventType;
  data: MessageInitShape<typeof EventDataSchema>;
  traceparent?: string | null;
}

export function newEvent(
  { merchantId, mode }: Pick<EventRow, 'merchantId' | 'mode'>,
  at: Date,
  { data, sequence = 0, ...report }: Report,
) {
  const text = dataCodec.encode(create(EventDataSchema, data));
  // Lists by id have the events of one change in their order.
  const id = newUuid(at.getTime(), sequence);
  return { id, merchantId, mode, createdAt: at, ...report, sequence, data: text };
}

/** An INSERT of the events in a parameter made by `jsonOfRows`. `joined` may leave some of them out. */
export const insertEvents = (parameter: string, joined = '') => `
  insert into events (id, merchant_id, mode, type, created_at, payment_intent, refund, sequence, data, traceparent)
  select e.id, e."merchantId", e.mode, e.type, e."createdAt", e."paymentIntent", e.refund, e.sequence, e.data, e.traceparent
    from json_to_recordset(${parameter})
           as e (id uuid, "merchantId" uuid, mode payment_mode, type text, "createdAt" timestamptz, "paymentIntent" uuid,
                 refund uuid, sequence int, data text, traceparent text) ${joined}`;
