// Locks, changes and stores intents, and records their events.

import type { EntityManager } from '@mikro-orm/postgresql';
import type { EventType } from '../../contract/event-types.ts';
import type { StatusName } from '../../contract/words.ts';
import { PaymentIntentEntity, type PaymentIntentRow } from '../../database/entities/payment-intent.ts';
import { entityColumns } from '../../database/entity-columns.ts';
import { preparedStatement, type RunPrepared } from '../../database/prepared.ts';
import { type ChangeStep, changeOf, storeChanges } from '../../payment-intents/change-payment-intents.ts';
import { createPaymentsReader } from '../../payment-intents/payments.ts';
import type { Tracing } from '../../requests/tracing.ts';
import { mapInSlices } from '../../scheduling/slices.ts';

/** A committed change of an intent, or of unattributed transfers. */
export interface Change {
  merchantId: string;
  event: EventType;
  /** Undefined for unattributed transfers. */
  paymentIntent?: { id: string; status: StatusName; labels: readonly string[] };
  /** The largest of the unattributed transfers, and their number. */
  transfer?: { id: string; transactionHash: string; amountUnits: bigint; count: number };
}

export interface IntentChanges {
  /** Locks intents in id order to prevent deadlocks. */
  lock(inside: RunPrepared, ids: Iterable<string>): Promise<Map<string, PaymentIntentRow>>;
  /** Stores the steps of locked intents, with their current payments. */
  store(
    inside: RunPrepared,
    steps: ReadonlyMap<PaymentIntentRow, readonly ChangeStep[]>,
    at: Date,
  ): Promise<Change[]>;
}

/** `traceparent` returns the trace that events are recorded in. */
export function createIntentChanges(
  em: EntityManager,
  traceparent: Tracing['chainTraceparent'],
): IntentChanges {
  const intents = entityColumns<PaymentIntentRow>(em, PaymentIntentEntity);
  const readPayments = createPaymentsReader(em);
  const lockIntents = preparedStatement(
    'lock_payment_intents',
    `select ${intents.of('i')} from payment_intents i where i.id = any ($1::uuid[]) order by i.id for update`,
  );
  return {
    async lock(inside, ids) {
      const wanted = [...new Set(ids)].sort();
      if (wanted.length === 0) return new Map();
      const { rows } = await inside(lockIntents, [wanted]);
      return new Map(rows.map((row) => [row.id as string, intents.read(row)]));
    },
    async store(inside, steps, at) {
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
        changeOf(row, own, payments.get(row.id) ?? [], at, traceparent()),
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
