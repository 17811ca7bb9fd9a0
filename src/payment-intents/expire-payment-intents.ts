import type { EntityManager } from '@mikro-orm/postgresql';
import type { Logger } from 'pino';
import { networks } from '../contract/chains.ts';
import { PaymentIntentEntity, type PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { formatIdentifier } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement, type RunPrepared } from '../database/prepared.ts';
import { changeOf, endOf, type PaymentIntentChange, storeChanges } from './change-payment-intents.ts';
import { createTransfersReader } from './payments.ts';

/** Intents per transaction: few, so that concurrent creates hardly wait. */
const maxBatchSize = 250;

interface Expiry {
  expired: number;
  /** How late the first of them was; 0 if there was none. */
  lagMs: number;
  /** True if there are probably more. */
  hasMore: boolean;
}

/** For `onUnreadable`. */
export const logUnreadable = (logger: Logger) => (id: string, reason: unknown) =>
  logger.error({ err: reason, payment_intent: id }, 'cannot expire a payment intent: its row is unreadable');

/** Maximum unreadable intents that are skipped. */
const maxUnreadable = 10_000;

interface Overdue {
  /** The network's id in an intent's row. */
  network: number;
  /** The latest deadline, inclusive. */
  until: Date;
  /** Skips this chain if it is watched: its intents expire by the chain's clock. */
  unlessWatched?: number;
}

/**
 * Expires overdue intents in a transaction. Concurrent processes take different intents. An unreadable row,
 * such as one of a newer version, is skipped, so as not to delay others, and reported to `onUnreadable` once.
 */
export function createExpireSome(em: EntityManager, onUnreadable: (id: string, reason: unknown) => void) {
  const columns = entityColumns<PaymentIntentRow>(em, PaymentIntentEntity);
  const readPayments = createTransfersReader(em, 'payment_intent');
  const unreadable = new Set<string>();
  const lockOverdue = preparedStatement(
    'lock_overdue_payment_intents',
    `select ${columns.of('i')} from payment_intents i
      where i.network = $1 and i.status = 'requires_payment' and i.expires_at <= $2 and i.id <> all ($3::uuid[])
        and not exists (select from watched_chains c where c.chain_id = $4)
      order by i.expires_at limit ${maxBatchSize}
        for update skip locked`,
  );

  return async (run: RunPrepared, { network, until, unlessWatched }: Overdue): Promise<Expiry> => {
    const found = await run(lockOverdue, [
      network,
      until.toISOString(),
      [...unreadable],
      unlessWatched ?? null,
    ]);
    const rows = found.rows.map((row) => columns.read(row));
    const [first] = rows;
    if (first === undefined) return { expired: 0, lagMs: 0, hasMore: false };
    const at = new Date();
    const payments = await readPayments(run, rows);
    const knownBefore = unreadable.size;
    const changes = rows.flatMap((row): PaymentIntentChange[] => {
      try {
        return [changeOf(row, [endOf(row, 'expired', at)], payments.get(row.id) ?? [], at)];
      } catch (reason) {
        if (unreadable.size < maxUnreadable) unreadable.add(row.id);
        onUnreadable(formatIdentifier('pi', row.id), reason);
        return [];
      }
    });
    const expired = changes.length === 0 ? 0 : (await storeChanges(run, changes)).size;
    return {
      expired,
      lagMs: until.getTime() - first.expiresAt.getTime(),
      // Without progress, running again at once would not help.
      hasMore: rows.length === maxBatchSize && (expired > 0 || unreadable.size > knownBefore),
    };
  };
}

/** Returns a function that expires some intents by this machine's clock, on chains that are not watched. */
export function createExpiry(em: EntityManager, onUnreadable: (id: string, reason: unknown) => void) {
  const { transaction } = createPreparedStatements(em);
  const expireSome = createExpireSome(em, onUnreadable);
  return async () => {
    const all: Expiry = { expired: 0, lagMs: 0, hasMore: false };
    for (const { id, chainId } of networks) {
      const { expired, lagMs, hasMore } = await transaction((run) =>
        expireSome(run, { network: id, until: new Date(), unlessWatched: chainId }),
      );
      all.expired += expired;
      all.lagMs = Math.max(all.lagMs, lagMs);
      all.hasMore ||= hasMore;
    }
    return all;
  };
}
