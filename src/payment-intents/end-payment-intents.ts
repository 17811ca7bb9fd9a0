import { create } from '@bufbuild/protobuf';
import { EventDataSchema } from '../contract/gen/payments/v1/event_pb.ts';
import { createJsonCodec } from '../contract/json/json-codec.ts';
import type { PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { newUuid } from '../database/identifiers.ts';
import { preparedStatement, type RunPrepared } from '../database/prepared.ts';
import { presentPaymentIntent } from './payment-intent.ts';

const dataCodec = createJsonCodec(EventDataSchema);

/** How an intent ends unpaid. */
export type End = 'expired' | 'canceled';

/** An intent as it is after its end, and the data of the event that reports it. */
export interface EndedPaymentIntent {
  row: PaymentIntentRow;
  /** JSON. */
  data: string;
  /** Of the request that ended it. */
  traceparent: string | null;
}

/** Returns the intent as it will be. Throws if the row has a value that only a newer version knows. */
export function endOf(
  row: PaymentIntentRow,
  end: End,
  at: Date,
  traceparent: string | null = null,
): EndedPaymentIntent {
  const received = BigInt(row.amountReceivedUnits);
  const isUnderpaid = received > 0n && received < BigInt(row.amountUnits);
  const labels = [...(row.labels ?? []), ...(isUnderpaid ? ['underpaid'] : [])];
  const ended: PaymentIntentRow = {
    ...row,
    status: end,
    eventCount: row.eventCount + 1,
    labels: labels.length > 0 ? labels : null,
    ...(end === 'canceled' ? { canceledAt: at } : { expiredAt: at }),
  };
  const paymentIntent = presentPaymentIntent(ended);
  return { row: ended, data: dataCodec.encode(create(EventDataSchema, { paymentIntent })), traceparent };
}

/**
 * Stores the end of intents and their events in one statement: both are durable, or neither. An intent is ended only if
 * its row is still as it was read, which its count of events tells; every change of a row raises that count. Returns the
 * ids of those that were ended.
 *
 * With several rows, run it in the transaction that has locked them: the statement locks in no order of its own.
 */
export async function storeEnds(
  run: RunPrepared,
  ended: readonly EndedPaymentIntent[],
  end: End,
  at: Date,
): Promise<Set<string>> {
  const rows = ended.map(({ row }) => row);
  const result = await run(endStatement[end], [
    rows.map(({ id }) => id),
    rows.map(({ merchantId }) => merchantId),
    rows.map(({ mode }) => mode),
    rows.map(({ eventCount }) => eventCount),
    rows.map(({ labels }) => labels?.join(' ') ?? null),
    rows.map(() => newUuid(at.getTime())),
    ended.map(({ data }) => data),
    ended.map(({ traceparent }) => traceparent),
    at.toISOString(),
  ]);
  return new Set(result.rows.map(({ payment_intent }) => payment_intent));
}

const statementFor = (end: End) =>
  preparedStatement(
    `${end}_payment_intents`,
    `with ended as (
       select * from unnest($1::uuid[], $2::uuid[], $3::payment_mode[], $4::int[], $5::text[], $6::uuid[], $7::text[], $8::text[])
         as e (id, merchant_id, mode, event_count, labels, event_id, data, traceparent)
     ), changed as (
       update payment_intents i
          set status = '${end}', ${end}_at = $9, event_count = ended.event_count, labels = string_to_array(ended.labels, ' ')
         from ended
        where i.id = ended.id and i.merchant_id = ended.merchant_id
          and i.event_count = ended.event_count - 1 and i.status = 'requires_payment'
       returning i.id
     )
     insert into events (id, merchant_id, mode, type, created_at, payment_intent, sequence, data, traceparent)
     select event_id, merchant_id, mode, 'payment_intent.${end}', $9, id, event_count, data, traceparent
       from ended join changed using (id)
     returning payment_intent`,
  );

const endStatement: Record<End, ReturnType<typeof preparedStatement>> = {
  expired: statementFor('expired'),
  canceled: statementFor('canceled'),
};
