// Changes of intents that the chain makes: lock, judge, store, tell.

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

/** A change of an intent that is durable, or another event. */
export interface Change {
  merchantId: string;
  event: EventType;
  /** Without one: transfers are unattributed. */
  paymentIntent?: { id: string; status: StatusName; labels: readonly string[] };
  /** The largest of the transfers that are unattributed, and how many there are. */
  transfer?: { id: string; transactionHash: string; amountUnits: bigint; count: number };
}

export interface IntentChanges {
  /** Locks intents in the order of their ids. */
  lock(inside: RunPrepared, ids: Iterable<string>): Promise<Map<string, PaymentIntentRow>>;
  /** Stores the steps of locked intents, with their payments as they are now. */
  store(
    inside: RunPrepared,
    steps: ReadonlyMap<PaymentIntentRow, readonly ChangeStep[]>,
    at: Date,
  ): Promise<Change[]>;
}

/** `traceparent` returns the trace in which events are recorded. */
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
      // The count of a row that is read is still the one before: the new payments are looked for too.
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
