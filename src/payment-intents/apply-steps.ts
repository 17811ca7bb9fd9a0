// Changes intents: locks them, applies steps, and stores the result with its events.

import type { EntityManager } from '@mikro-orm/postgresql';
import type { EventType } from '../contract/event-types.ts';
import type { StatusName } from '../contract/words.ts';
import { PaymentIntentEntity, type PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { preparedStatement, type RunPrepared } from '../database/prepared.ts';
import { mapInSlices } from '../scheduling/slices.ts';
import { chainTraceparent } from '../telemetry/spans.ts';
import { type ChangeStep, changeOf, storeChanges } from './change-payment-intents.ts';
import { createTransfersReader } from './payments.ts';

/** A durable change of an intent, with one of its events. */
export interface IntentChange {
  merchantId: string;
  event: EventType;
  paymentIntent: { id: string; status: StatusName; labels: readonly string[] };
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
      // With the new count: the payments of an intent are read only if its count is above 0.
      const payments = await readPayments(
        inside,
        changing.map(([row, own]) => ({
          ...row,
          paymentsCount:
            own.findLast(({ fields }) => fields.paymentsCount !== undefined)?.fields.paymentsCount ??
            row.paymentsCount,
        })),
      );
      const changes = await mapInSlices(changing, ([row, own]) =>
        changeOf(row, own, payments.get(row.id) ?? [], at, traceparent),
      );
      const stored = await storeChanges(inside, changes);
      if (stored.size !== changes.length) throw new Error('an intent was changed while it was locked');
      return changes.flatMap(({ row, events }) =>
        events.map(({ type }) => ({
          merchantId: row.merchantId,
          event: type,
          paymentIntent: { id: row.id, status: row.status, labels: row.labels ?? [] },
        })),
      );
    },
  };
}

/** Locks a chain against reverts and confirmations. Overlapping shared locks would starve the watcher. */
export const holdChain = preparedStatement(
  'hold_chain',
  'select from watched_chains where chain_id = $1 for no key update',
);
