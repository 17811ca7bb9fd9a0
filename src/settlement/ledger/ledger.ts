// Everything recorded about one chain. Every change names the lease under which its data was read: a watcher
// that has lost the lease cannot change anything.
//
// Everywhere the lock order is: lease, intents by id, refunds by id, authorizations and transfers, events.

import type { EntityManager } from '@mikro-orm/postgresql';
import { createPreparedStatements } from '../../database/prepared.ts';
import { createApplySteps } from '../../payment-intents/apply-steps.ts';
import { createRefunding } from '../../refunds/refunding.ts';
import { createAuthorizations } from './authorizations.ts';
import type { Change } from './change.ts';
import { createConfirming } from './confirming.ts';
import { createCursor } from './cursor.ts';
import { createExpireByChain } from './expire-by-chain.ts';
import { createLease, type LeaseTimes } from './lease.ts';
import { createOwners } from './owners.ts';
import { Recording, type RecordingOptions } from './recording.ts';
import { createReverting } from './reverting.ts';

export type Ledger = ReturnType<typeof createLedger>;

interface LedgerOptions
  extends Pick<RecordingOptions, 'settings' | 'logger' | 'onSettled' | 'onFailed' | 'unattributedMinUnits'> {
  /** Called with the changes after each commit, except those of an expiry. */
  onChanges: (changes: readonly Change[]) => void;
  times?: LeaseTimes;
}

/** Returns the ledger of one chain. Any number of processes may have one: only the lease holder writes. */
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
