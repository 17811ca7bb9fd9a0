import type { EntityManager } from '@mikro-orm/postgresql';
import { networks } from '../contract/chains.ts';
import { PaymentIntentEntity, type PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { formatIdentifier } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { type EndedPaymentIntent, endOf, storeEnds } from './end-payment-intents.ts';

/** Intents of one transaction: few enough that a create beside it hardly waits. */
const maxBatchSize = 250;

export interface Expiry {
  expired: number;
  /** How long ago the first of them should have expired; 0 if there was none. */
  lagMs: number;
  /** True if there are probably more. */
  hasMore: boolean;
}

/** Most intents that are passed over because their row cannot be read. */
const maxUnreadable = 10_000;

/**
 * Returns a function that expires some intents that were not paid in time, by the clock of this machine. Any number of
 * processes may call it at once: each takes others. A row that cannot be read, such as one of a newer version, is passed
 * over and reported to `onUnreadable` once, so that it does not hold up the others.
 */
export function createExpiry(
  em: EntityManager,
  onUnreadable: (id: string, reason: unknown) => void,
): () => Promise<Expiry> {
  const columns = entityColumns<PaymentIntentRow>(em, PaymentIntentEntity);
  const { transaction } = createPreparedStatements(em);
  const unreadable = new Set<string>();
  const lockOverdue = preparedStatement(
    'lock_overdue_payment_intents',
    `select ${columns.of('i')} from payment_intents i
      where i.network = $1 and i.status = 'requires_payment' and i.expires_at <= $2 and i.id <> all ($3::uuid[])
      order by i.expires_at limit ${maxBatchSize}
        for update skip locked`,
  );

  const readable = (row: PaymentIntentRow, at: Date): EndedPaymentIntent[] => {
    try {
      return [endOf(row, 'expired', at)];
    } catch (reason) {
      if (unreadable.size < maxUnreadable) unreadable.add(row.id);
      onUnreadable(formatIdentifier('pi', row.id), reason);
      return [];
    }
  };

  const expireOf = (network: number): Promise<Expiry> =>
    transaction(async (run) => {
      const at = new Date();
      const found = await run(lockOverdue, [network, at.toISOString(), [...unreadable]]);
      const rows = found.rows.map((row) => columns.read(row));
      const [first] = rows;
      if (first === undefined) return { expired: 0, lagMs: 0, hasMore: false };
      const ended = rows.flatMap((row) => readable(row, at));
      const expired = ended.length === 0 ? 0 : (await storeEnds(run, ended, 'expired', at)).size;
      return {
        expired,
        lagMs: at.getTime() - first.expiresAt.getTime(),
        hasMore: rows.length === maxBatchSize,
      };
    });

  return async () => {
    const all: Expiry = { expired: 0, lagMs: 0, hasMore: false };
    for (const { id } of networks) {
      const { expired, lagMs, hasMore } = await expireOf(id);
      all.expired += expired;
      all.lagMs = Math.max(all.lagMs, lagMs);
      all.hasMore ||= hasMore;
    }
    return all;
  };
}
