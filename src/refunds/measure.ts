import { networks } from '../contract/chains.ts';
import { type RefundStatusName, refundStatusNames } from '../contract/words.ts';
import { preparedStatement, type RunPrepared } from '../database/prepared.ts';

interface RefundMeasure {
  /** Refunds that are open, or ended within the last 30 days; of more than 100,000 some. */
  counts: Readonly<Record<RefundStatusName, number>>;
  /** Age of the oldest that waits for its transfer, in milliseconds; 0 if there is none. */
  oldestMs: number;
}

/** Counts the refunds whose transfers are watched for. */
export async function measureRefunds(run: RunPrepared): Promise<RefundMeasure> {
  const { rows } = await run(countRefunds, [networks.map(({ id }) => id)]);
  const counts = Object.fromEntries(refundStatusNames.map((status) => [status, 0]));
  for (const { status, count } of rows) counts[status] = count;
  const waiting = rows.find(({ status }) => status === 'requires_transfer');
  return {
    counts: counts as RefundMeasure['counts'],
    oldestMs: waiting === undefined ? 0 : Math.max(0, Date.now() - new Date(waiting.oldest).getTime()),
  };
}

const countRefunds = preparedStatement(
  'measure_refunds',
  `select status, count(*)::int as count, min(created_at) as oldest
     from (select r.status, r.created_at from unnest($1::int[]) as n (id)
            cross join lateral (select * from refunds r where r.network = n.id and r.watched_until > now() limit 100000) r
            limit 100000) r
    group by status`,
);
