import type { EntityManager } from '@mikro-orm/postgresql';
import { orUnavailable } from '../database/unavailable.ts';
import { ServiceError } from '../errors.ts';
import { PaymentIntentEntity, type PaymentIntentRow } from './payment-intent.ts';

export interface PaymentIntentStore {
  /**
   * Stores a new intent and answers it once it is durable. Where its idempotency key stands on an intent of
   * the same merchant and mode already, stores nothing and answers that intent, as `replayed`.
   *
   * Throws `idempotency_key_reused` where that intent was made by a different request, and `unavailable` where the
   * database cannot answer: then the intent may or may not be there, and a retry with the same key settles it.
   */
  create(intent: PaymentIntentRow): Promise<{ intent: PaymentIntentRow; replayed: boolean }>;
}

export function createPaymentIntentStore(em: EntityManager): PaymentIntentStore {
  return {
    create: (intent) =>
      orUnavailable(async () => {
        const inserted = await em
          .fork()
          .createQueryBuilder(PaymentIntentEntity)
          .insert(intent)
          .onConflict()
          .ignore()
          .returning('id')
          .execute('all');
        if (inserted.length === 1) return { intent, replayed: false };

        // A statement of its own: only a new snapshot sees the row that the insert ran into.
        const first = await em
          .fork({ disableTransactions: true })
          .findOneOrFail(
            PaymentIntentEntity,
            { merchantId: intent.merchantId, mode: intent.mode, idempotencyKey: intent.idempotencyKey },
            { disableIdentityMap: true },
          );
        if (!sameBytes(first.requestFingerprint, intent.requestFingerprint)) {
          throw new ServiceError('idempotency_key_reused');
        }
        return { intent: first, replayed: true };
      }),
  };
}

function sameBytes(a: Uint8Array | null | undefined, b: Uint8Array | null | undefined): boolean {
  return a != null && b != null && Buffer.compare(a, b) === 0;
}
