/**
 * Positions of events belong to an epoch: see `events/event-epochs.ts`. The first epoch has all earlier
 * positions. Its id is 0, which is implied in positions that readers got without an epoch.
 *
 * Processes of the previous release assign positions without looking for a new history. If a standby is
 * promoted while they run, the epoch begins with the next positions that a process of this release assigns.
 */
export default [
  `
      create table event_epochs (
        number int not null,
        id bigint not null,
        system_identifier bigint not null,
        timeline int not null,
        begins_after bigint not null,
        begins_at timestamptz(3) not null,
        primary key (number)
      )`,
  'alter table event_epochs add constraint event_epochs_id_unique unique (id)',
  `
      insert into event_epochs (number, id, system_identifier, timeline, begins_after, begins_at)
      select 1, 0, system_identifier, ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int, 0, now()
        from pg_control_system()`,
];
