// Everything recorded about one chain. Every change names the lease under which its data was read: a watcher that has
// lost the lease cannot change anything.
//
// The lock order is the same everywhere: lease, intents by id, refunds by id, authorizations, transfers, events.

import type { EntityManager } from '@mikro-orm/postgresql';
import type { Logger } from 'pino';
import type { ChainSettings } from '../../contract/chains.ts';
import { createPreparedStatements, preparedStatement } from '../../database/prepared.ts';
import { createApplySteps } from '../../payment-intents/apply-steps.ts';
import { createExpireSome, type Expiry } from '../../payment-intents/expire-payment-intents.ts';
import { createRefunding, type Refunding } from '../../refunds/refunding.ts';
import { createAuthorizations } from './authorizations.ts';
import type { Change } from './change.ts';
import { createConfirming } from './confirming.ts';
import { createCursor } from './cursor.ts';
import { createLease, type Lease, type LeaseTimes } from './lease.ts';
import { createOwners } from './owners.ts';
import { Recording, type RecordingOptions } from './recording.ts';
import { createReverting } from './reverting.ts';

export type Ledger = ReturnType<typeof createLedger>;

interface LedgerOptions
  extends Pick<RecordingOptions, 'settings' | 'logger' | 'onSettled' | 'onFailed' | 'unattributedMinUnits'> {
  /** Called with the changes after each commit. */
  onChanges: (changes: readonly Change[]) => void;
  times?: LeaseTimes;
}

/** Returns the ledger of one chain. Any number may exist, in any number of processes: only the lease holder writes. */
export function createLedger(em: EntityManager, { onChanges, times = {}, ...given }: LedgerOptions) {
  const { settings } = given;
  const { chainId } = settings;
  const statements = createPreparedStatements(em);
  const { run } = statements;
  const { holding, runLimited, ...lease } = createLease(statements, chainId, times);
  const steps = createApplySteps(em);
  const refunding = createRefunding(em);
  const durable = (some: readonly Change[]): void => {
    if (some.length > 0) onChanges(some);
  };
  const reverting = createReverting(run, { holding }, steps, refunding, chainId, durable);
  const { revertTransfers } = reverting;
  const owners = createOwners(runLimited, settings);
  const recording = new Recording({
    ...given,
    em,
    run,
    lease: { holding, runLimited, renew: lease.renew },
    steps,
    refunding,
    revertTransfers,
    proveRefunds: owners.proveRefunds,
    durable,
  });

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
    ...lease,
    ...createCursor(run, { holding }, settings),
    ...owners,
    ...createAuthorizations(runLimited, { holding }, settings),
    ...createConfirming(run, { holding }, steps, refunding, chainId, durable),
    reverted: reverting.reverted,
    hasConfirmedAbove: reverting.hasConfirmedAbove,
    revertTo: serialised(reverting.revertTo),
    revertTransfers: serialised(revertTransfers),
    apply: serialised(recording.record.bind(recording)),
    expireSome: createExpireByChain(em, { holding }, refunding, settings, given.logger),
  };
}

/** Expires some intents and refunds by the chain's clock. `onChanges` is not called for them. Throws LeaseLost. */
function createExpireByChain(
  em: EntityManager,
  { holding }: Pick<Lease, 'holding'>,
  refunding: Refunding,
  { mode, chainId, networks }: ChainSettings,
  logger: Logger,
): (lease: bigint) => Promise<Expiry> {
  const expire = createExpireSome(em, (id, reason) =>
    logger.error(
      { err: reason, payment_intent: id },
      'cannot expire a payment intent: its row is unreadable',
    ),
  );
  return (lease) =>
    holding(lease, async (inside) => {
      const total: Expiry = { expired: 0, lagMs: 0, hasMore: false };
      for (const { id, confirmationsRequired } of networks) {
        const { rows } = await inside(findClock, [chainId, confirmationsRequired - 1, mode]);
        const [row] = rows;
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
 * The chain's clock: the time of the newest block with all confirmations. It is at most the time of every later block, so a
 * single wrong header cannot advance it. On mainnet it is at most a minute ahead of ours, whatever the reader says; developers
 * set the time of a local chain.
 */
const findClock = preparedStatement(
  'find_chain_clock',
  `select least(h.time, case when $3 = 'mainnet' then now() + interval '1 minute' end,
                (select min(l.time) from block_headers l where l.chain_id = $1 and l.number > h.number)) as time
     from watched_chains c
     join block_headers h on h.chain_id = c.chain_id and h.number <= c.cursor_number - $2
    where c.chain_id = $1 order by h.number desc limit 1`,
);
