import type { EntityManager } from '@mikro-orm/postgresql';
import { networks } from '../contract/chains.ts';
import { PaymentIntentEntity, type PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { formatIdentifier } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement, type RunPrepared } from '../database/prepared.ts';
import { changeOf, endOf, type PaymentIntentChange, storeChanges } from './change-payment-intents.ts';
import { createPaymentsReader } from './payments.ts';

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

/** Expires intents of a network, inside a transaction. */
export type ExpireSome = (
  run: RunPrepared,
  overdue: {
    /** The reference of the network in an intent's row. */
    network: number;
    /** Those that had to be paid before this moment, or at it. */
    until: Date;
    /** Nothing expires if this chain is watched: it has a clock of its own. */
    unlessWatched?: number;
  },
) => Promise<Expiry>;

/**
 * Expires intents that were not paid in time. Any number of processes may do so at once: each takes others. A row that
 * cannot be read, such as one of a newer version, is passed over and reported to `onUnreadable` once, so that it does not
 * hold up the others.
 */
export function createExpireSome(
  em: EntityManager,
  onUnreadable: (id: string, reason: unknown) => void,
): ExpireSome {
  const columns = entityColumns<PaymentIntentRow>(em, PaymentIntentEntity);
  const readPayments = createPaymentsReader(em);
  const unreadable = new Set<string>();
  const lockOverdue = preparedStatement(
    'lock_overdue_payment_intents',
    `select ${columns.of('i')} from payment_intents i
      where i.network = $1 and i.status = 'requires_payment' and i.expires_at <= $2 and i.id <> all ($3::uuid[])
        and not exists (select from watched_chains c where c.chain_id = $4)
      order by i.expires_at limit ${maxBatchSize}
        for update skip locked`,
  );

  return async (run, { network, until, unlessWatched }) => {
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
      hasMore: rows.length === maxBatchSize,
    };
  };
}

/** Returns a function that expires some intents by the clock of this machine, on the chains that are not watched. */
export function createExpiry(
  em: EntityManager,
  onUnreadable: (id: string, reason: unknown) => void,
): () => Promise<Expiry> {
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
