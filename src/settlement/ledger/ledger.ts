// What is known of one chain, in the database. Everything that changes it names the lease under which it was read from
// the chain: a watcher whose lease has gone to another one changes nothing any more.
//
// Order of locks, here as everywhere: the lease, intents by id, transfers, events.

import type { EntityManager } from '@mikro-orm/postgresql';
import type { Hash } from 'viem';
import type { ChainSettings } from '../../contract/chains.ts';
import { createPreparedStatements } from '../../database/prepared.ts';
import type { Expiry } from '../../payment-intents/expire-payment-intents.ts';
import type { Tracing } from '../../requests/tracing.ts';
import { type Confirming, createConfirming } from './confirming.ts';
import { type Cursor, createCursor } from './cursor.ts';
import { createExpireByChain } from './expire-by-chain.ts';
import { type Change, createIntentChanges } from './intent-changes.ts';
import { createLease, type Lease } from './lease.ts';
import { createOwners, type Owners } from './owners.ts';
import { createRecording, type RecordBlock } from './recording.ts';
import { createReverting, type Reverting } from './reverting.ts';

export interface Ledger extends Omit<Lease, 'holding'>, Cursor, Owners, Confirming, Reverting {
  apply: RecordBlock;
  /** Expires some intents by the chain's clock, without a word to `onChanges`. Throws LeaseLost. */
  expireSome(lease: bigint): Promise<Expiry>;
}

export interface LedgerOptions {
  settings: ChainSettings;
  /** Called with what has become durable at once. */
  onChanges: (changes: readonly Change[]) => void;
  onUnreadable: (id: string, reason: unknown) => void;
  /** Called with an error that a single transfer caused alone, which stays unattributed, or what was asked for it. */
  onFailedAlone: (reason: unknown, transfer?: { hash: Hash; logIndex: number }) => void;
  /** Transfers of less that are nobody's payment are not recorded. In the smallest units. */
  unattributedMinUnits: bigint;
  /** The trace in which transactions are, and the events they record. */
  tracing?: Pick<Tracing, 'transaction' | 'chainTraceparent'>;
  /** How long a lease lasts. */
  leaseMs?: number;
}

const untraced: NonNullable<LedgerOptions['tracing']> = {
  transaction: (run) => run(),
  chainTraceparent: () => null,
};

/** Returns what is known of one chain. Several may exist at once, in any number of processes: the lease decides. */
export function createLedger(
  em: EntityManager,
  {
    settings,
    onChanges,
    onUnreadable,
    onFailedAlone,
    unattributedMinUnits,
    tracing = untraced,
    leaseMs,
  }: LedgerOptions,
): Ledger {
  const { chainId } = settings;
  const statements = createPreparedStatements(em);
  const { run } = statements;
  const { holding, ...lease } = createLease(statements, chainId, tracing.transaction, leaseMs);
  const changes = createIntentChanges(em, tracing.chainTraceparent);
  const durable = (some: readonly Change[]): void => {
    if (some.length > 0) onChanges(some);
  };
  const reverting = createReverting(run, { holding }, changes, chainId, durable);
  const { revertTransfers } = reverting;
  const record = createRecording({
    em,
    run,
    lease: { holding },
    changes,
    revertTransfers,
    settings,
    unattributedMinUnits,
    traceparent: tracing.chainTraceparent,
    durable,
    onFailedAlone,
  });

  // What takes several transactions is done by one at a time: both readings of a watcher have the same lease.
  let inHand: Promise<unknown> = Promise.resolve();
  const inTurn =
    <Args extends unknown[], T>(work: (...args: Args) => Promise<T>) =>
    (...args: Args): Promise<T> => {
      const turn = inHand.then(() => work(...args));
      inHand = turn.catch(() => {});
      return turn;
    };

  return {
    ...lease,
    ...createCursor(run, { holding }, settings),
    ...createOwners(run, settings),
    ...createConfirming(em, run, { holding }, changes, chainId, durable),
    reverted: reverting.reverted,
    beginAnew: inTurn(reverting.beginAnew),
    revertTo: inTurn(reverting.revertTo),
    revertTransfers: inTurn(revertTransfers),
    apply: inTurn(record),
    expireSome: createExpireByChain(em, { holding }, settings, onUnreadable),
  };
}
