import { preparedStatement } from '../../database/prepared.ts';
import { createExpireSome, logUnreadable } from '../../payment-intents/expire-payment-intents.ts';
import type { LedgerContext } from './context.ts';

/** Expires some intents and refunds by the chain's clock. Does not call `onChanges`. Throws LeaseLost. */
export function createExpireByChain({ em, lease: { holding }, refunding, settings, logger }: LedgerContext) {
  const { mode, chainId, networks } = settings;
  const expire = createExpireSome(em, logUnreadable(logger));
  return (lease: bigint, minDepthMs: number) =>
    holding(lease, async (inside) => {
      const total = { expired: 0, lagMs: 0, hasMore: false };
      for (const { id, confirmationsRequired } of networks) {
        const [row] = (await inside(findClock, [chainId, confirmationsRequired - 1, mode, minDepthMs])).rows;
        if (row === undefined) continue;
        // The deadline is inclusive: only a later block expires an intent.
        const until = new Date(new Date(row.time).getTime() - 1);
        const { expired, lagMs, hasMore } = await expire(inside, { network: id, until });
        total.expired += expired;
        total.lagMs = Math.max(total.lagMs, lagMs);
        const refunds = await refunding.expire(inside, id, until);
        total.expired += refunds.expired;
        total.hasMore ||= hasMore || refunds.hasMore;
      }
      return total;
    });
}

/**
 * The chain's clock: the time of the newest block with all confirmations, or, if earlier, `$4` ms before the
 * last block read. It is at most the time of every later block, so a single wrong header cannot advance it.
 * On mainnet it is at most a minute ahead of the database's. Developers set the time of a local chain.
 */
const findClock = preparedStatement(
  'find_chain_clock',
  `select least(h.time, c.cursor_time - $4 * interval '1 millisecond', case when $3 = 'mainnet' then now() + interval '1 minute' end,
                (select min(l.time) from block_headers l where l.chain_id = $1 and l.number > h.number)) as time
     from watched_chains c
     join block_headers h on h.chain_id = c.chain_id and h.number <= c.cursor_number - $2
    where c.chain_id = $1 order by h.number desc limit 1`,
);
