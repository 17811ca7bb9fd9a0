// Measures transfers and refunds for the metrics.

import { isRightToken, networks } from '../contract/chains.ts';
import { type RefundStatusName, refundStatusNames } from '../contract/words.ts';
import { lowestUuid } from '../database/identifiers.ts';
import { preparedStatement, type RunPrepared } from '../database/prepared.ts';

const dayMs = 86_400_000;
/** Older transfers are not reported as the oldest unattributed one: some will never be attributed. */
const unattributedDays = 7;

/** Today's (UTC) confirmed payments that count, by chain and token, in its smallest unit. Reads all of it. */
export async function measureReceived(run: RunPrepared) {
  const { rows } = await run(sumReceived, [lowestUuid(Math.floor(Date.now() / dayMs) * dayMs)]);
  return networks.map((network) => {
    const { mode, chain, chainId, tokenSymbol: token } = network;
    const sum = rows.find((row) => row.chain_id === chainId && isRightToken(network, row.token));
    return { mode, chain, token, units: Number(sum?.units ?? 0) };
  });
}

/** Counts unattributed transfers, up to 1,000. `oldestMs`: age of last week's oldest not marked as done. */
export async function measureUnattributed(run: RunPrepared): Promise<{ count: number; oldestMs: number }> {
  const { rows } = await run(findUnattributed, [lowestUuid(Date.now() - unattributedDays * dayMs)]);
  return { count: rows[0]?.count ?? 0, oldestMs: Number(rows[0]?.oldest_ms ?? 0) };
}

/** An id begins with its time, so the primary key finds the transfers of the day. */
const sumReceived = preparedStatement(
  'measure_received',
  `select chain_id, '0x' || encode(token_address, 'hex') as token, sum(amount_units) as units from transfers
    where id >= $1 and payment_intent is not null and counts and state = 'confirmed' group by 1, 2`,
);

/** The item of a transfer `t` in `resolved_attention`. It is another one once somebody has detached the transfer. */
export const unattributedItem = `'unattributed:' || t.id || ':' || case when t.is_detached then 'detached' else '' end`;

/** The index begins with the merchant and the mode, so the oldest transfer is looked up for each. */
const findUnattributed = preparedStatement(
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
                           and not exists (select from resolved_attention s
                                            where s.merchant_id = t.merchant_id and s.mode = t.mode
                                              and s.item = ${unattributedItem})
                         order by t.id limit 1) oldest`,
);

/**
 * Counts the refunds that are open or ended within the last 30 days, up to 100,000. `oldestMs`: the age of
 * the oldest that waits for its transfer; 0 if there is none.
 */
export async function measureRefunds(run: RunPrepared) {
  const { rows } = await run(countRefunds, [networks.map(({ id }) => id)]);
  const counts = Object.fromEntries(refundStatusNames.map((status) => [status, 0]));
  for (const { status, count } of rows) counts[status] = count;
  const waiting = rows.find(({ status }) => status === 'requires_transfer');
  return {
    counts: counts as Readonly<Record<RefundStatusName, number>>,
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
