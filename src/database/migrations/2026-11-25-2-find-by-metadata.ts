/** Finds intents by their metadata. Earlier ones are entered in the background, some 2,200 a second. */
export default [
  `
      create table payment_intent_metadata (
        merchant_id    uuid         not null,
        mode           payment_mode not null,
        digest         bytea        not null,
        payment_intent uuid         not null,
        primary key (merchant_id, mode, digest, payment_intent)
      )`,
  `
      create table metadata_progress (
        id       smallint not null primary key,
        position uuid     not null,
        snapshot text     not null
      )`,
  'alter table metadata_progress add constraint metadata_progress_id_check check (id = 1)',
  `
      insert into metadata_progress (id, position, snapshot)
      values (1, '00000000-0000-0000-0000-000000000000', pg_current_snapshot()::text)`,
];
