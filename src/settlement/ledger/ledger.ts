// Everything recorded about one chain. Every change names the lease under which its data was read: a watcher
// that has lost the lease cannot change anything.
//
// Everywhere the lock order is: lease, intents by id, refunds by id, authorizations and transfers, events.

import type { EntityManager } from '@mikro-orm/postgresql';
import { createPreparedStatements } from '../../database/prepared.ts';
import { createApplySteps } from '../../payment-intents/change-payment-intents.ts';
import { createRefunding } from '../../refunds/refunding.ts';
import { createAuthorizations } from './authorizations.ts';
import { createConfirming } from './confirming.ts';
import type { LedgerContext, LedgerOptions } from './context.ts';
import { createCursor } from './cursor.ts';
import { createExpireByChain } from './expire-by-chain.ts';
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
    return changes.length;
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
