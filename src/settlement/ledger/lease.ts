// The lease of a chain: only its holder may write. Every change names the lease under which its data was
// read, so a watcher that has lost the lease cannot change anything.

import { newUuid } from '../../database/identifiers.ts';
import { type PreparedStatements, preparedStatement, type RunPrepared } from '../../database/prepared.ts';
import { traceTransaction } from '../../telemetry/spans.ts';

/** Several polling intervals. A watcher that waits longer may lose the lease, which is harmless. */
const defaultLeaseMs = 6_000;

/** Another watcher has the lease or has reverted the chain, or it is unwatched: reload the state from the database. */
export class LeaseLost extends Error {
  constructor() {
    super('another process watches this chain now, or none does');
    this.name = 'LeaseLost';
  }
}

/**
 * Returns the lease of one chain. The database ends a statement after a quarter of the lease, and before this
 * process gives it up (`databaseTimeoutMs`): a statement that continued in the database would keep its locks.
 */
export function createLease(
  { run, transaction }: PreparedStatements,
  chainId: number,
  {
    leaseMs = defaultLeaseMs,
    databaseTimeoutMs = Number.POSITIVE_INFINITY,
  }: { leaseMs?: number | undefined; databaseTimeoutMs?: number | undefined } = {},
) {
  const holder = newUuid();
  let keptAtMs = 0;
  const statementMs = Math.round(Math.min(leaseMs / 4, databaseTimeoutMs * 0.8));
  const lockMs = Math.min(Math.round(statementMs / 2), maxLockWaitMs);
  const limits = `set local lock_timeout = ${lockMs}; set local statement_timeout = ${statementMs}`;
  const limited = <T>(work: (inside: RunPrepared) => Promise<T>) => transaction(work, limits);
  const runLimited: RunPrepared = (statement, values) => limited((inside) => inside(statement, values));
  const hold = async (runs: RunPrepared, lease: bigint, statement = holdLease, seen: number[] = []) => {
    const { rowCount } = await runs(statement, [chainId, String(lease), leaseMs, ...seen]);
    if (rowCount !== 1) throw new LeaseLost();
  };
  /** Notes that the lease was kept, once that has committed: a transaction that rolls back has not renewed it. */
  const kept = async <T>(work: Promise<T>): Promise<T> => {
    const beganAtMs = performance.now();
    const result = await work;
    keptAtMs = Math.max(keptAtMs, beganAtMs);
    return result;
  };
  return {
    /** Acquires the lease. Returns its number, or undefined while another holder has it. */
    async acquire(): Promise<bigint | undefined> {
      const { rows } = await kept(runLimited(takeLease, [chainId, holder, leaseMs]));
      return rows[0] && BigInt(rows[0].lease_number);
    },
    /** Renews the lease and stores the node's newest and newest final block. Throws LeaseLost. */
    keep: (lease: bigint, { head, finalized }: { head: number; finalized: number }): Promise<void> =>
      kept(hold(runLimited, lease, keepLease, [head, finalized])),
    /** True if the lease ended so long ago that any other watcher must have taken it. */
    isOver: () => performance.now() - keptAtMs > 10 * leaseMs,
    /** Renews the lease during long work, if a third of it has passed. Throws LeaseLost. */
    async renew(lease: bigint): Promise<void> {
      if (performance.now() - keptAtMs > leaseMs / 3) await kept(hold(run, lease));
    },
    async release(lease: bigint): Promise<void> {
      await run(releaseLease, [chainId, String(lease)]);
    },
    /** Runs a statement within the time that a watcher's statements may take. */
    runLimited,
    /** Runs the work in a transaction that checks the lease. Throws LeaseLost. */
    holding: <T>(lease: bigint, work: (inside: RunPrepared) => Promise<T>): Promise<T> =>
      traceTransaction(() =>
        kept(
          limited(async (inside) => {
            await hold(inside, lease);
            return work(inside);
          }),
        ),
      ),
  };
}

/** Ends a wait for a lock before the statement's time is over, with an error of its own, which is retried. */
const maxLockWaitMs = 800;
/** A lease that ends far in the future was taken before the clock stepped back. */
const takeLease = preparedStatement(
  'take_chain_lease',
  `update watched_chains
      set lease_number = lease_number + 1, lease_holder = $2, lease_until = now() + $3 * interval '1 millisecond'
    where chain_id = $1
      and (lease_until is null or lease_holder = $2 or lease_until < now()
           or lease_until > now() + $3 * interval '10 milliseconds')
   returning lease_number`,
);
const holdLease = preparedStatement(
  'hold_chain_lease',
  `update watched_chains set lease_until = now() + $3 * interval '1 millisecond'
    where chain_id = $1 and lease_number = $2`,
);
const keepLease = preparedStatement(
  'keep_chain_lease',
  `update watched_chains
      set lease_until = now() + $3 * interval '1 millisecond', head_number = $4, finalized_number = $5, seen_at = now()
    where chain_id = $1 and lease_number = $2`,
);
const releaseLease = preparedStatement(
  'release_chain_lease',
  'update watched_chains set lease_until = null, lease_holder = null where chain_id = $1 and lease_number = $2',
);
