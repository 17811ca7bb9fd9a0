import type { EntityManager } from '@mikro-orm/postgresql';
import { RefundEntity, type RefundRow } from '../database/entities/refund.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { preparedStatement, type RunPrepared } from '../database/prepared.ts';
import { createApplyRefunds } from './apply-refunds.ts';

const maxBatchSize = 100;

/**
 * Returns a function that expires some refunds of a network that were not sent by then, by the chain's clock, in the
 * caller's transaction.
 */
export function createExpireRefunds(
  em: EntityManager,
): (inside: RunPrepared, network: number, until: Date) => Promise<{ expired: number; hasMore: boolean }> {
  const columns = entityColumns<RefundRow>(em, RefundEntity);
  const { apply } = createApplyRefunds(em);
  const lockOverdue = preparedStatement(
    'lock_overdue_refunds',
    `select ${columns.of('r')} from refunds r
      where r.network = $1 and r.status = 'requires_transfer' and r.expires_at <= $2
      order by r.expires_at limit ${maxBatchSize}
        for update skip locked`,
  );
  return async (inside, network, until) => {
    const { rows } = await inside(lockOverdue, [network, until.toISOString()]);
    const at = new Date();
    const step = { type: 'expired' as const, fields: { status: 'expired' as const, expiredAt: at } };
    await apply(inside, new Map(rows.map((row) => [columns.read(row), [step]])), at);
    return { expired: rows.length, hasMore: rows.length === maxBatchSize };
  };
}
