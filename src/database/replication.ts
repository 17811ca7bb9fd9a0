// What the database is at the moment: primary or standby, in which history, and which standbys have its commits.

import type { EntityManager } from '@mikro-orm/postgresql';
import type { Replication } from '../telemetry/metrics.ts';

/** `pg_stat_replication` shows others' rows to this role and its members. */
export const replicationRole = 'pg_read_all_stats';

export async function readReplication(em: EntityManager): Promise<Replication> {
  const [row] = await em.fork().execute<
    {
      is_primary: boolean;
      timeline: number | null;
      epoch: number;
      waits_for: string;
      archive_fails: boolean;
      is_visible: boolean;
      synchronous: number;
      all: number;
      lag_seconds: number;
    }[]
  >(
    `select not pg_is_in_recovery() as is_primary,
            case when not pg_is_in_recovery()
                 then ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int end as timeline,
            (select max(number) from event_epochs) as epoch,
            current_setting('synchronous_standby_names') as waits_for,
            (select coalesce(last_failed_time > last_archived_time, last_failed_time is not null)
               from pg_stat_archiver) as archive_fails,
            pg_has_role('${replicationRole}', 'usage') as is_visible,
            standbys.*
       from (select count(*) filter (where sync_state in ('sync', 'quorum'))::int as synchronous,
                    count(*)::int as "all",
                    coalesce(max(extract(epoch from replay_lag)), 0)::float as lag_seconds
               from pg_stat_replication where state = 'streaming') standbys`,
  );
  if (row === undefined) throw new Error('PostgreSQL returned nothing about replication');
  const { synchronous, all, lag_seconds: lagSeconds } = row;
  return {
    isPrimary: row.is_primary,
    timeline: row.timeline ?? undefined,
    epoch: row.epoch,
    waitsFor: row.waits_for,
    archiveFails: row.archive_fails,
    standbys: row.is_visible ? { synchronous, all, lagSeconds } : undefined,
  };
}
