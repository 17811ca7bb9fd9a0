// Everything recorded about one chain. Every change names the lease under which its data was read: a watcher
// that has lost the lease cannot change anything.
//
// The lock order is: lease, intents by id, refunds by id, authorizations and transfers, events. `ConfirmRefund`
// locks transfers before its refund: it holds the lease's row and the intent.

import type { EntityManager } from '@mikro-orm/postgresql';
import { createPreparedStatements, preparedStatement } from '../../database/prepared.ts';
import { createApplySteps } from '../../payment-intents/change-payment-intents.ts';
import { createExpireSome, logUnreadable } from '../../payment-intents/expire-payment-intents.ts';
import { createRefunding } from '../../refunds/refunding.ts';
import { createAuthorizations } from './authorizations.ts';
import { createConfirming } from './confirming.ts';
import type { LedgerContext, LedgerOptions } from './context.ts';
import { createCursor } from './cursor.ts';
import { createLease } from './lease.ts';
import { createOwners } from './owners.ts';
import { Recording } from './recording.ts';
import { createReverting } from './reverting.ts';

export type Ledger = ReturnType<typeof createLedger>;

/** Returns the ledger of one chain. Any number of processes may have one: only the lease holder writes. */
export function createLedger(em: EntityManager, { onChanges, times, ...given }: LedgerOptions) {
  const { settings } = given;
  const statements = createPreparedStatements(em);
  const lease = createLease(statements, settings.chainId, times);
  const { holding, runLimited, ...ofLease } = lease;
  const commit: LedgerContext['commit'] = async (number, work) => {
    const changes = await holding(number, work);
    if (changes.length > 0) onChanges(changes);
    return changes.filter(({ mayBeLeftOut }) => mayBeLeftOut !== true).length;
  };
  const steps = createApplySteps(em);
  const refunding = createRefunding(em);
  const context: LedgerContext = { ...given, em, run: statements.run, lease, commit, steps, refunding };
  const { revertTo, revertTransfers, ...reverting } = createReverting(context);
  const { releaseAuthorizations, ...authorizations } = createAuthorizations(context);
  const recording = new Recording(context);

  // Following and verifying share the lease, so work of several transactions is serialised.
  let queue: Promise<unknown> = Promise.resolve();
  const serialised =
    <Args extends unknown[], T>(work: (...args: Args) => Promise<T>) =>
    (...args: Args): Promise<T> => {
      const turn = queue.then(() => work(...args));
      queue = turn.catch(() => {});
      return turn;
    };

  return {
    ...ofLease,
    ...createCursor(context),
    ...createOwners(runLimited, settings),
    ...authorizations,
    ...createConfirming(context),
    ...reverting,
    revertTo: serialised(revertTo),
    revertTransfers: serialised(revertTransfers),
    apply: serialised(recording.record.bind(recording)),
    // A reading may record anew what it has just reverted. In between, no intent must expire and no authorization
    // must be released.
    expireSome: serialised(createExpireByChain(context)),
    releaseAuthorizations: serialised(releaseAuthorizations),
  };
}

/** Expires some intents and refunds by the chain's clock. Does not call `onChanges`. Throws LeaseLost. */
function createExpireByChain({ em, lease: { holding }, refunding, settings, logger }: LedgerContext) {
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
