import { expect } from 'vitest';
import type { DatabaseLocation } from '../../src/config/database-location.ts';
import { openClient } from './open-client.ts';
import type { TestService } from './service.ts';

/** Resolves when exactly this many sessions of the service's database wait for a lock. */
export async function sessionsWaiting({ query }: TestService, count: number): Promise<void> {
  const waiting = `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
  await expect.poll(() => query(waiting), { interval: 10 }).toHaveLength(count);
}

export interface Blocker {
  /** Ends the connections of inserts that wait for the lock, once there is one. Returns their number. */
  cutWaitingInserts(): Promise<number>;
  /** Releases the lock. */
  release(): Promise<void>;
}

/** Takes a lock that every insert of an intent waits for. */
export async function blockCreates(location: DatabaseLocation): Promise<Blocker> {
  const client = await openClient(location);
  await client.query('begin; lock table payment_intents in exclusive mode');
  return {
    async cutWaitingInserts() {
      for (;;) {
        // A transaction sees the sessions as they were when it first looked.
        await client.query('select pg_stat_clear_snapshot()');
        const { rows } = await client.query(
          `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like 'insert%'`,
        );
        if (rows.length > 0) return rows.length;
      }
    },
    async release() {
      await client.query('rollback');
      await client.end();
    },
  };
}
