// Who watches a chain. Everything that changes what is known of it names the lease under which it was read: a watcher whose
// lease has gone to another one changes nothing any more.

import { type PreparedStatements, preparedStatement, type RunPrepared } from '../../database/prepared.ts';

/** How long a lease lasts: several polls. A watcher that waits longer for its node may lose it to another, which does no harm. */
const defaultLeaseMs = 6_000;

/** The lease has gone to another watcher, or the chain was reverted by it: begin again from the database. */
export class LeaseLost extends Error {
  constructor() {
    super('another process watches this chain now');
    this.name = 'LeaseLost';
  }
}

export interface Lease {
  /** Takes the lease for this holder. Returns its number, or undefined while another holder has it. */
  acquire(holder: string): Promise<bigint | undefined>;
  /** Keeps the lease, and notes the node's newest and newest final block. Throws LeaseLost. */
  keep(lease: bigint, seen: { head: number; finalized: number }): Promise<void>;
  /** Keeps the lease during work that takes long, if a third of it has passed. Throws LeaseLost. */
  renew(lease: bigint): Promise<void>;
  release(lease: bigint): Promise<void>;
  /** Does the work in one transaction that holds the lease. Throws LeaseLost. */
  holding<T>(lease: bigint, work: (inside: RunPrepared) => Promise<T>): Promise<T>;
}

/** Returns the lease of one chain. `inTrace` runs each transaction. */
export function createLease(
  { run, transaction }: PreparedStatements,
  chainId: number,
  inTrace: <T>(run: () => Promise<T>) => Promise<T>,
  leaseMs = defaultLeaseMs,
): Lease {
  let keptAtMs = 0;
  const hold = async (runs: RunPrepared, lease: bigint): Promise<void> => {
    const { rowCount } = await runs(holdLease, [chainId, String(lease), leaseMs]);
    if (rowCount !== 1) throw new LeaseLost();
    keptAtMs = performance.now();
  };
  return {
    async acquire(holder) {
      const { rows } = await run(takeLease, [chainId, holder, leaseMs]);
      return rows[0] && BigInt(rows[0].lease_number);
    },
    async keep(lease, seen) {
      const { rowCount } = await run(keepLease, [chainId, String(lease), leaseMs, seen.head, seen.finalized]);
      if (rowCount !== 1) throw new LeaseLost();
      keptAtMs = performance.now();
    },
    async renew(lease) {
      if (performance.now() - keptAtMs > leaseMs / 3) await hold(run, lease);
    },
    async release(lease) {
      await run(releaseLease, [chainId, String(lease)]);
    },
    holding: (lease, work) =>
      inTrace(() =>
        transaction(async (inside) => {
          await inside(limitLockWait, []);
          await hold(inside, lease);
          return work(inside);
        }),
      ),
  };
}

/**
 * Less than any statement may take (`DATABASE_TIMEOUT` is a second at least): who waits for a lock is told so, and is not taken
 * for a statement that cannot end. It is tried again.
 */
const limitLockWait = preparedStatement(
  'limit_lock_wait',
  "select set_config('lock_timeout', '800ms', true)",
);
const takeLease = preparedStatement(
  'take_chain_lease',
  `update watched_chains
      set lease_number = lease_number + 1, lease_holder = $2, lease_until = now() + $3 * interval '1 millisecond'
    where chain_id = $1 and (lease_until is null or lease_until < now())
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
