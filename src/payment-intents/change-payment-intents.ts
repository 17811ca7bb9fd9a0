// Changes intents: locks them, applies steps, and stores the result with its events.

import type { EntityManager } from '@mikro-orm/postgresql';
import type { EventType } from '../contract/event-types.ts';
import type { Payment } from '../contract/gen/payments/v1/payment_pb.ts';
import type { StatusName } from '../contract/words.ts';
import { PaymentIntentEntity, type PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { insertEvents, newEvent } from '../database/new-events.ts';
import { jsonOfRows, preparedStatement, type RunPrepared } from '../database/prepared.ts';
import { mapInSlices } from '../scheduling/slices.ts';
import { chainTraceparent } from '../telemetry/spans.ts';
import { presentPaymentIntent } from './payment-intent.ts';
import { createTransfersReader } from './payments.ts';

/** A durable change of an intent, with one of its events. */
export interface IntentChange {
  merchantId: string;
  event: EventType;
  /** `newLabels`: those of the labels that it did not have before the change. */
  paymentIntent: { id: string; status: StatusName; labels: readonly string[]; newLabels: readonly string[] };
}

export type ApplySteps = ReturnType<typeof createApplySteps>;

/** Returns a function that locks an intent by its UUID, if it belongs to the merchant and mode. */
export function createIntentLock(em: EntityManager) {
  const intents = entityColumns<PaymentIntentRow>(em, PaymentIntentEntity);
  const lockIntent = preparedStatement(
    'lock_payment_intent',
    `select ${intents.of('i')} from payment_intents i
      where i.id = $1 and i.merchant_id = $2 and i.mode = $3 for update`,
  );
  return async (
    inside: RunPrepared,
    id: string | null | undefined,
    { merchantId, mode }: Pick<PaymentIntentRow, 'merchantId' | 'mode'>,
  ): Promise<PaymentIntentRow | undefined> => {
    const [found] = id == null ? [] : (await inside(lockIntent, [id, merchantId, mode])).rows;
    return found && intents.read(found);
  };
}

export function createApplySteps(em: EntityManager) {
  const intents = entityColumns<PaymentIntentRow>(em, PaymentIntentEntity);
  const readPayments = createTransfersReader(em, 'payment_intent');
  const lockIntents = preparedStatement(
    'lock_payment_intents',
    `select ${intents.of('i')} from payment_intents i
      where i.id = any ($1::uuid[] || array(select r.payment_intent from refunds r where r.id = any ($2::uuid[])))
      order by i.id for update`,
  );
  return {
    /** Locks intents, and the intents of refunds, in id order to prevent deadlocks. */
    async lock(
      inside: RunPrepared,
      ids: Iterable<string>,
      refundIds: readonly string[] = [],
    ): Promise<Map<string, PaymentIntentRow>> {
      const wanted = [...new Set(ids)];
      if (wanted.length + refundIds.length === 0) return new Map();
      const { rows } = await inside(lockIntents, [wanted, refundIds]);
      return new Map(rows.map((row) => [row.id as string, intents.read(row)]));
    },
    /**
     * Stores the steps of locked intents, and their events with the current payments. Without `traceparent`,
     * the trace is that of the watcher's work.
     */
    async apply(
      inside: RunPrepared,
      steps: ReadonlyMap<PaymentIntentRow, readonly ChangeStep[]>,
      at: Date,
      traceparent: string | null = chainTraceparent(),
    ): Promise<IntentChange[]> {
      const changing = [...steps].filter(([, own]) => own.length > 0);
      if (changing.length === 0) return [];
      // Without their counts, which the steps may change: the payments of all are read.
      const owners = changing.map(([{ id, merchantId, network }]) => ({ id, merchantId, network }));
      const payments = await readPayments(inside, owners);
      const changes = await mapInSlices(changing, ([row, own]) =>
        changeOf(row, own, payments.get(row.id) ?? [], at, traceparent),
      );
      const stored = await storeChanges(inside, changes);
      if (stored.size !== changes.length) throw new Error('an intent was changed while it was locked');
      return changes.flatMap(({ before, row: { id, merchantId, status, labels: all }, events }) => {
        const labels = all ?? [];
        const newLabels = labels.filter((label) => !before.labels?.includes(label));
        return events.map(({ type: event }) => ({
          merchantId,
          event,
          paymentIntent: { id, status, labels, newLabels },
        }));
      });
    },
  };
}

/** Locks a chain against reverts and confirmations. Overlapping shared locks would starve the watcher. */
export const holdChain = preparedStatement(
  'hold_chain',
  'select from watched_chains where chain_id = $1 for no key update',
);

/** The fields that a change may set. All others are fixed at creation. */
type ChangeableFields = Partial<
  Pick<
    PaymentIntentRow,
    'status' | 'amountReceivedUnits' | 'paymentsCount' | 'labels' | 'succeededAt' | 'canceledAt' | 'expiredAt'
  >
>;

/** One step of a change, and the event that reports it. */
export type ChangeStep = { type: EventType; fields: ChangeableFields };

export type PaymentIntentChange = ReturnType<typeof changeOf>;

/**
 * Returns the intent after these steps, with an event for each, in order. `traceparent` is the trace of the
 * request that makes the change. Throws if a value of the row is of a newer version.
 */
export function changeOf(
  before: PaymentIntentRow,
  steps: readonly ChangeStep[],
  payments: readonly Payment[],
  at: Date,
  traceparent: string | null = null,
) {
  let row = before;
  const events = steps.map(({ type, fields }) => {
    row = { ...row, ...fields, eventCount: row.eventCount + 1 };
    const data = { paymentIntent: presentPaymentIntent(row, payments) };
    return newEvent(row, at, { type, data, paymentIntent: row.id, sequence: row.eventCount, traceparent });
  });
  return { before, row, events };
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
export function withLabels(labels: readonly string[] | null | undefined, more: readonly string[]) {
  const all = [...new Set([...(labels ?? []), ...more])];
  return all.length > 0 ? all : null;
}

/**
 * Stores changes of intents and their events in one statement, atomically. An intent is changed only if its
 * event count is still the one that was read; every change increments it. Rows are locked in id order to
 * prevent deadlocks. Returns the ids of the changed intents.
 */
export async function storeChanges(
  run: RunPrepared,
  changes: readonly PaymentIntentChange[],
): Promise<Set<string>> {
  // The metadata never changes.
  const rows = changes.map(({ row: { metadata, ...row }, before }) => ({
    ...row,
    eventCountBefore: before.eventCount,
  }));
  const events = changes.flatMap((change) => change.events);
  const result = await run(changeStatement, [jsonOfRows(rows), jsonOfRows(events)]);
  return new Set(result.rows.map(({ payment_intent }) => payment_intent));
}

const changeStatement = preparedStatement(
  'change_payment_intents',
  `with next as (
     select * from json_to_recordset($1)
       as n (id uuid, "merchantId" uuid, "eventCountBefore" int, "eventCount" int, status payment_intent_status,
             "amountReceivedUnits" bigint, "paymentsCount" int, labels text[], "succeededAt" timestamptz,
             "canceledAt" timestamptz, "expiredAt" timestamptz, "authorizationsCount" int, "amountRefundedUnits" bigint)
   ), locked as materialized (
     select i.place, n.*
       from (select * from next order by id) n
      cross join lateral (
        select i.ctid as place, i.merchant_id, i.event_count, i.authorizations_count, i.amount_refunded_units
          from payment_intents i where i.id = n.id limit 1 for update
      ) i
      where i.merchant_id = n."merchantId" and i.event_count = n."eventCountBefore"
        -- Neither a signature nor a refund changes the event count. A cancel has to know both: nothing that is
        -- signed is canceled, and its event has the newest sum of refunds.
        and (n.status <> 'canceled'
             or (i.authorizations_count is not distinct from n."authorizationsCount"
                 and coalesce(i.amount_refunded_units, 0) = coalesce(n."amountRefundedUnits", 0)))
   ), changed as (
     update payment_intents i
        set status = n.status, amount_received_units = n."amountReceivedUnits", payments_count = n."paymentsCount",
            event_count = n."eventCount", labels = n.labels, succeeded_at = n."succeededAt",
            canceled_at = n."canceledAt", expired_at = n."expiredAt"
       from locked n where i.ctid = n.place
     returning i.id
   ) ${insertEvents('$2', 'join changed c on c.id = e."paymentIntent"')}
   returning payment_intent`,
);
