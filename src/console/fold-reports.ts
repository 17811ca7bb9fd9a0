import type { EntityManager } from '@mikro-orm/postgresql';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';

const maxFolded = 5_000;

/**
 * Returns a function that adds some changes of figures to their hours. Resolves with true if there are probably more. Any
 * number of processes may run it: each takes other changes. Sums are the same before and after.
 */
export function createReportFolding(em: EntityManager): () => Promise<boolean> {
  const { run } = createPreparedStatements(em);
  return async () => (await run(fold, [maxFolded])).rows[0]?.folded >= maxFolded;
}

/** Hours are updated in one order, to prevent deadlocks. */
const fold = preparedStatement(
  'fold_report_changes',
  `with folded as (
     delete from report_changes
      where id in (select id from report_changes limit $1 for update skip locked)
     returning merchant_id, mode, hour, chain_id, kind, count, units
   ), added as (
     insert into report_hours as h (merchant_id, mode, hour, chain_id, kind, count, units)
     select merchant_id, mode, hour, chain_id, kind, sum(count), sum(units) from folded
      group by merchant_id, mode, hour, chain_id, kind order by merchant_id, mode, hour, chain_id, kind
     on conflict (merchant_id, mode, hour, chain_id, kind)
     do update set count = h.count + excluded.count, units = h.units + excluded.units
   )
   select count(*)::int as folded from folded`,
);
