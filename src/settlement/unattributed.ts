import type { EntityManager } from '@mikro-orm/postgresql';
import { lowestUuid } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';

/** Older transfers are left out: some will never be attributed. */
const measuredDays = 7;

/**
 * Returns a function that counts the unattributed transfers, up to a thousand, and returns the age in milliseconds of
 * the oldest of the last seven days.
 */
export function createUnattributedMeasure(
  em: EntityManager,
): () => Promise<{ count: number; oldestMs: number }> {
  const { run } = createPreparedStatements(em);
  return async () => {
    const { rows } = await run(measure, [lowestUuid(Date.now() - measuredDays * 86_400_000)]);
    return { count: rows[0]?.count ?? 0, oldestMs: Number(rows[0]?.oldest_ms ?? 0) };
  };
}

/** The index begins with the merchant and the mode, so the oldest transfer is looked up for each. */
const measure = preparedStatement(
  'measure_unattributed_transfers',
  `with recursive owners as (
     (select merchant_id, mode from transfers where payment_intent is null and not is_refund order by merchant_id, mode limit 1)
     union all
     select next.merchant_id, next.mode
       from owners o
      cross join lateral (select t.merchant_id, t.mode from transfers t
                           where t.payment_intent is null and not t.is_refund and (t.merchant_id, t.mode) > (o.merchant_id, o.mode)
                           order by t.merchant_id, t.mode limit 1) next
   )
   select (select count(*)::int
             from (select from transfers where payment_intent is null and not is_refund and state <> 'reorged' limit 1000) as waiting) as count,
          greatest(0, extract(epoch from now() - min(oldest.created_at)) * 1000)::bigint as oldest_ms
     from owners o
    cross join lateral (select t.created_at from transfers t
                         where t.merchant_id = o.merchant_id and t.mode = o.mode and t.payment_intent is null
                           and not t.is_refund and t.state <> 'reorged' and t.id >= $1
                         order by t.id limit 1) oldest`,
);
