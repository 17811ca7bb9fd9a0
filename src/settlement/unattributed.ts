import type { EntityManager } from '@mikro-orm/postgresql';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';

/**
 * Returns a function that tells how many transfers wait to be attributed, counted up to a thousand, and how old the oldest
 * is in milliseconds.
 */
export function createUnattributedMeasure(
  em: EntityManager,
): () => Promise<{ count: number; oldestMs: number }> {
  const { run } = createPreparedStatements(em);
  return async () => {
    const { rows } = await run(measure, []);
    return { count: rows[0]?.count ?? 0, oldestMs: Number(rows[0]?.oldest_ms ?? 0) };
  };
}

const measure = preparedStatement(
  'measure_unattributed_transfers',
  `select count(*)::int as count, greatest(0, extract(epoch from now() - min(created_at)) * 1000)::bigint as oldest_ms
     from (select created_at from transfers where payment_intent is null and state <> 'reorged' limit 1000) as oldest`,
);
