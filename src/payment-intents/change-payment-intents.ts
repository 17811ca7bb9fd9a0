import { create } from '@bufbuild/protobuf';
import type { EventType } from '../contract/event-types.ts';
import { EventDataSchema } from '../contract/gen/payments/v1/event_pb.ts';
import type { Payment } from '../contract/gen/payments/v1/payment_pb.ts';
import { createJsonCodec } from '../contract/json/json-codec.ts';
import type { PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { newUuid } from '../database/identifiers.ts';
import { preparedStatement, type RunPrepared } from '../database/prepared.ts';
import { presentPaymentIntent } from './payment-intent.ts';

const dataCodec = createJsonCodec(EventDataSchema);

/** The fields that a change may set. All others are fixed at creation. */
export type ChangeableFields = Partial<
  Pick<
    PaymentIntentRow,
    'status' | 'amountReceivedUnits' | 'paymentsCount' | 'labels' | 'succeededAt' | 'canceledAt' | 'expiredAt'
  >
>;

/** One step of a change, and the event that reports it. */
export interface ChangeStep {
  type: EventType;
  fields: ChangeableFields;
}

/** An intent after a change, and the events of the change. */
export interface PaymentIntentChange {
  row: PaymentIntentRow;
  /** The row's event count before the change. */
  eventCountBefore: number;
  /** In order; `data` is JSON. */
  events: readonly { type: EventType; sequence: number; data: string }[];
  at: Date;
  /** The trace of the request that made the change. */
  traceparent: string | null;
}

/**
 * Returns the intent after these steps, with an event for each. Throws if only a newer version knows a value of the row.
 */
export function changeOf(
  before: PaymentIntentRow,
  steps: readonly ChangeStep[],
  payments: readonly Payment[],
  at: Date,
  traceparent: string | null = null,
): PaymentIntentChange {
  let row = before;
  const events = steps.map(({ type, fields }) => {
    row = { ...row, ...fields, eventCount: row.eventCount + 1 };
    const paymentIntent = presentPaymentIntent(row, payments);
    return {
      type,
      sequence: row.eventCount,
      data: dataCodec.encode(create(EventDataSchema, { paymentIntent })),
    };
  });
  return { row, eventCountBefore: before.eventCount, events, at, traceparent };
}

/** The step that ends an intent unpaid. */
export function endOf(row: PaymentIntentRow, end: 'expired' | 'canceled', at: Date): ChangeStep {
  const received = BigInt(row.amountReceivedUnits);
  const isUnderpaid = received > 0n && received < BigInt(row.amountUnits);
  return {
    type: `payment_intent.${end}`,
    fields: {
      status: end,
      labels: withLabels(row.labels, isUnderpaid ? ['underpaid'] : []),
      ...(end === 'canceled' ? { canceledAt: at } : { expiredAt: at }),
    },
  };
}

/** The labels without duplicates, in order of appearance; null if there are none. */
export function withLabels(
  labels: readonly string[] | null | undefined,
  more: readonly string[],
): string[] | null {
  const all = [...new Set([...(labels ?? []), ...more])];
  return all.length > 0 ? all : null;
}

/**
 * Stores changes of intents and their events in one statement, atomically. An intent is changed only if its event
 * count is still the one that was read; every change increments it. Rows are locked in id order to prevent deadlocks.
 * Returns the ids of the changed intents.
 */
export async function storeChanges(
  run: RunPrepared,
  changes: readonly PaymentIntentChange[],
): Promise<Set<string>> {
  const rows = changes.map(({ row }) => row);
  const events = changes.flatMap(({ row, events, at, traceparent }) =>
    events.map((event) => ({ ...event, row, at, traceparent })),
  );
  const result = await run(changeStatement, [
    rows.map(({ id }) => id),
    rows.map(({ merchantId }) => merchantId),
    changes.map(({ eventCountBefore }) => eventCountBefore),
    rows.map(({ eventCount }) => eventCount),
    rows.map(({ status }) => status),
    rows.map(({ amountReceivedUnits }) => String(amountReceivedUnits)),
    rows.map(({ paymentsCount }) => paymentsCount),
    rows.map(({ labels }) => labels?.join(' ') ?? null),
    rows.map(({ succeededAt }) => succeededAt?.toISOString() ?? null),
    rows.map(({ canceledAt }) => canceledAt?.toISOString() ?? null),
    rows.map(({ expiredAt }) => expiredAt?.toISOString() ?? null),
    events.map(({ row }) => row.id),
    events.map(({ row }) => row.mode),
    events.map(({ at }) => newUuid(at.getTime())),
    events.map(({ type }) => type),
    events.map(({ sequence }) => sequence),
    events.map(({ data }) => data),
    events.map(({ traceparent }) => traceparent),
    events.map(({ at }) => at.toISOString()),
    rows.map(({ authorizationsCount }) => authorizationsCount ?? null),
  ]);
  return new Set(result.rows.map(({ payment_intent }) => payment_intent));
}

const changeStatement = preparedStatement(
  'change_payment_intents',
  `with next as (
     select * from unnest($1::uuid[], $2::uuid[], $3::int[], $4::int[], $5::payment_intent_status[], $6::bigint[], $7::int[],
                          $8::text[], $9::timestamptz[], $10::timestamptz[], $11::timestamptz[], $20::int[])
       as n (id, merchant_id, event_count_before, event_count, status, amount_received_units, payments_count, labels,
             succeeded_at, canceled_at, expired_at, authorizations_count)
   ), locked as materialized (
     select i.id from (select id from next order by id) n
      cross join lateral (select i.id from payment_intents i where i.id = n.id limit 1 for update) i
   ), changed as (
     update payment_intents i
        set status = n.status, amount_received_units = n.amount_received_units, payments_count = n.payments_count,
            event_count = n.event_count, labels = string_to_array(n.labels, ' '), succeeded_at = n.succeeded_at,
            canceled_at = n.canceled_at, expired_at = n.expired_at
       from next n join locked using (id)
      where i.id = n.id and i.merchant_id = n.merchant_id and i.event_count = n.event_count_before
        -- Nothing that a payer has signed meanwhile is canceled.
        and (n.status <> 'canceled' or i.authorizations_count is not distinct from n.authorizations_count)
     returning i.id, i.merchant_id
   )
   insert into events (id, merchant_id, mode, type, created_at, payment_intent, sequence, data, traceparent)
   select e.id, c.merchant_id, e.mode, e.type, e.at, e.payment_intent, e.sequence, e.data, e.traceparent
     from unnest($12::uuid[], $13::payment_mode[], $14::uuid[], $15::text[], $16::int[], $17::text[], $18::text[],
                 $19::timestamptz[])
            as e (payment_intent, mode, id, type, sequence, data, traceparent, at)
     join changed c on c.id = e.payment_intent
   returning payment_intent`,
);
