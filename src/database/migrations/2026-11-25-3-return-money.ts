/**
 * Refunds, their transfers in the table of all transfers, and their events. Building the indexes reads the
 * tables of transfers and events once, and blocks them meanwhile.
 *
 * Processes of the previous release do not recognise a refund's transfer: end them before the first refund.
 */
export default [
  "create type refund_status as enum ('requires_transfer', 'processing', 'succeeded', 'canceled', 'expired')",
  `
      create table refunds (
        id                  uuid           not null primary key,
        merchant_id         uuid           not null,
        mode                payment_mode   not null,
        payment_intent      uuid           not null,
        network             smallint       not null,
        amount_units        bigint         not null,
        destination         bytea          not null,
        wallet              bytea          not null,
        status              refund_status  not null,
        reason              text,
        metadata            json           not null,
        created_at          timestamptz(3) not null,
        expires_at          timestamptz(3) not null,
        succeeded_at        timestamptz(3),
        canceled_at         timestamptz(3),
        expired_at          timestamptz(3),
        watched_until       timestamptz(3) not null,
        event_count         int            not null default 0,
        labels              text[],
        idempotency_key     text,
        request_fingerprint bytea
      )`,
  // As for intents: the planner takes the index that begins with the column even if it has sampled few rows.
  'alter table refunds alter column destination set (n_distinct = -1)',
  'create index refunds_merchant_index on refunds (merchant_id, mode, id)',
  'create index refunds_payment_intent_index on refunds (payment_intent, id)',
  'create index refunds_amount_index on refunds (destination, network, amount_units, watched_until)',
  'create index refunds_wallet_index on refunds (destination, network, wallet, watched_until)',
  `
      create index refunds_equal_index on refunds
        ((destination || wallet || int8send(amount_units)), network, watched_until)`,
  'alter index refunds_equal_index alter column 1 set statistics 0',
  'create index refunds_watched_index on refunds (network, watched_until)',
  "create index refunds_open_index on refunds (network, expires_at) where status = 'requires_transfer'",
  `
      create unique index refunds_idempotency_key_unique on refunds (merchant_id, mode, idempotency_key)
        where idempotency_key is not null`,
  'alter table payment_intents add column amount_refunded_units bigint',
  'alter table transfers add column is_refund boolean not null default false',
  'alter table transfers add column refund uuid',
  `
      create index transfers_refund_index on transfers (refund, block_number, log_index) where refund is not null`,
  'alter table transfers add constraint transfers_refund_check check (not is_refund or payment_intent is null)',
  `
      create index transfers_to_attribute_index on transfers (merchant_id, mode, id)
        where payment_intent is null and not is_refund`,
  'drop index transfers_unattributed_index',
  'alter index transfers_to_attribute_index rename to transfers_unattributed_index',
  // For exports of a range of time.
  'create index transfers_time_index on transfers (merchant_id, mode, block_time, id)',
  'alter table events add column refund uuid',
  `
      create unique index events_refund_unique on events (merchant_id, refund, sequence) where refund is not null`,
];
