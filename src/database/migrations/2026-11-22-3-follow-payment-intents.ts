/**
 * What happens to an intent after its creation, and the events that report it. The columns have constant
 * defaults, so no row is rewritten. Creates wait for the index: a second for a few million intents.
 *
 * Processes of the previous version may go on creating intents beside new ones.
 */
export default [
  `
      alter table payment_intents
        add column amount_received_units bigint not null default 0,
        add column payments_count        int    not null default 0,
        add column event_count           int    not null default 0,
        add column labels                text[],
        add column succeeded_at          timestamptz(3),
        add column canceled_at           timestamptz(3),
        add column expired_at            timestamptz(3)`,
  `
      create index payment_intents_open_index on payment_intents (network, expires_at)
        where status = 'requires_payment'`,
  `
      create table events (
        id               uuid           not null primary key,
        merchant_id      uuid           not null,
        mode             payment_mode   not null,
        type             text           not null,
        created_at       timestamptz(3) not null,
        payment_intent   uuid,
        webhook_endpoint uuid,
        sequence         int            not null,
        position         bigint,
        traceparent      text,
        data             text           not null
      )`,
  'create index events_merchant_index on events (merchant_id, mode, position) where position is not null',
  'create index events_unpositioned_index on events (sequence, id) where position is null',
  'create unique index events_position_unique on events (position) where position is not null',
  `
      create unique index events_payment_intent_unique on events (merchant_id, payment_intent, sequence)
        where payment_intent is not null`,
  `
      create table event_progress (
        id               smallint not null primary key,
        last_position    bigint   not null,
        removed_position bigint   not null,
        constraint event_progress_id_check check (id = 1)
      )`,
  'insert into event_progress values (1, 0, 0)',
  `
      create table removed_events (
        id          uuid           not null primary key,
        merchant_id uuid           not null,
        mode        payment_mode   not null,
        removed_at  timestamptz(3) not null
      )`,
  'create index removed_events_removed_at_index on removed_events (removed_at)',
];
