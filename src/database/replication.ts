// The state of the database: whether it is the primary, its timeline, its standbys and its clock.

import type { EntityManager } from '@mikro-orm/postgresql';
import type { Replication } from '../telemetry/metrics.ts';

/** Only members of this role see all rows of `pg_stat_replication`. */
export const replicationRole = 'pg_read_all_stats';

/**
 * With so many finished files of the log waiting, the archiver hangs: a command that never ends reports no failure.
 * This is seen only if a file was archived since the server has its statistics.
 */
const maxUnarchived = 16;

export async function readReplication(em: EntityManager): Promise<Replication> {
  const [row] = await em.fork().execute<[Replication]>(
    `select not pg_is_in_recovery() as "isPrimary",
            current_setting('transaction_read_only') = 'off' as "acceptsWrites",
            case when not pg_is_in_recovery()
                 then ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int end as timeline,
            (select max(number) from event_epochs) as epoch,
            current_setting('synchronous_standby_names') as "waitsFor",
            current_setting('archive_mode') <> 'off' and (
              select coalesce(last_failed_time > last_archived_time, last_failed_time is not null)
                     or coalesce(last_archived_wal ~ '^[0-9A-F]{24}$' and substr(last_archived_wal, 9) < written.oldest, false)
                from pg_stat_archiver, (
                  select case when not pg_is_in_recovery() then substr(pg_walfile_name('0/0'::pg_lsn + greatest(
                    pg_current_wal_lsn() - '0/0' - ${maxUnarchived} * pg_size_bytes(current_setting('wal_segment_size')), 1)), 9)
                  end collate "C" as oldest) written) as "archiveFails",
            case when pg_has_role('${replicationRole}', 'usage') then (
              select json_build_object(
                       'synchronous', count(*) filter (where sync_state in ('sync', 'quorum')),
                       'all', count(*),
                       'lagSeconds', coalesce(max(extract(epoch from replay_lag)), 0))
                from pg_stat_replication where state = 'streaming') end as standbys`,
  );
  return row;
}

/** At least how far this machine's clock is ahead of the database's; negative if it is behind. */
export async function readClockAheadMs(em: EntityManager): Promise<number> {
  const beganAtMs = Date.now();
  const [{ ms }] = await em
    .fork()
    .execute<[{ ms: number }]>('select (extract(epoch from clock_timestamp()) * 1000)::float8 as ms');
  // The database's clock was read between `beganAtMs` and now.
  return Math.max(beganAtMs - ms, Math.min(Date.now() - ms, 0));
}
