// An epoch is the part of the event order that was written in one history of the database. A promoted standby
// or a restored backup begins another. Positions at the lost end of the old history are then assigned again,
// to other events. So a reader's position is valid only together with its epoch.

import { randomBytes } from 'node:crypto';
import type { EntityManager } from '@mikro-orm/postgresql';
import { createPreparedStatements, preparedStatement, type RunPrepared } from '../database/prepared.ts';

/** The id of the first epoch, which the migration inserts. */
export const firstEpoch = 0n;

/** SQL for the id of the current epoch. */
export const newestEpoch = '(select id from event_epochs order by number desc limit 1)';

/** SQL for an epoch's highest valid position: the last one, or where the next epoch begins; -1 if unknown. */
export const validUpTo = (epoch: string) =>
  `(select case when e.number is null then -1
           else least(p.last_position, (select min(l.begins_after) from event_epochs l where l.number > e.number))
           end
      from event_progress p left join event_epochs e on e.id = ${epoch})`;

/** Advisory lock of the transaction that assigns positions, in any process. The number is arbitrary. */
const lockId = 4_611_733_002_118_207n;

/**
 * Locks positions for this transaction. Begins an epoch if the database's history is not that of the newest
 * one, or if `isRestored`. Returns the last position before a new epoch. Also applies the transaction's
 * planner settings, to save a round trip.
 */
export async function lockPositions(run: RunPrepared, isRestored = false): Promise<string | undefined> {
  await run(lock, [String(lockId)]);
  // A later statement than the one that took the lock: it must see the epochs of earlier holders.
  const { rows } = await run(insertEpoch, [String(newEpochId()), isRestored]);
  return rows[0]?.begins_after;
}

/** Always begins an epoch: a restore from files cannot be detected. Returns the last position before it. */
export async function beginEpoch(em: EntityManager): Promise<bigint> {
  const { transaction } = createPreparedStatements(em);
  return BigInt((await transaction((run) => lockPositions(run, true))) as string);
}

/** Random, so that two restores of one backup get different ids. */
const newEpochId = () => randomBytes(8).readBigInt64BE();

/**
 * A session keeps a plan after the statistics have changed. With these settings, the statements of this
 * transaction find each row by an index, even with a plan made while the tables were empty.
 */
const lock = preparedStatement(
  'lock_event_positions',
  `select pg_advisory_xact_lock($1),
          set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
          set_config('enable_mergejoin', 'off', true)`,
);

/** Takes the timeline of the current WAL file: `pg_control_checkpoint()` shows it only after a checkpoint. */
const insertEpoch = preparedStatement(
  'begin_event_epoch',
  `insert into event_epochs (number, id, system_identifier, timeline, begins_after, begins_at)
   select newest.number + 1, $1, server.system_identifier, server.timeline, progress.last_position, now()
     from (select system_identifier, ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int as timeline
             from pg_control_system()) server,
          (select * from event_epochs order by number desc limit 1) newest,
          event_progress progress
    where $2 or newest.system_identifier <> server.system_identifier or newest.timeline <> server.timeline
   returning begins_after`,
);
