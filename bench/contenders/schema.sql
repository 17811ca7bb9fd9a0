-- The contenders' own tables, as usually written by hand: a foreign key, two checks, an index for listing.
-- Ids are UUIDv7, so the list goes down them.

create table merchants (
  id   uuid primary key,
  name text not null
);

create table payment_intents (
  id                     uuid primary key,
  merchant_id            uuid        not null references merchants (id),
  mode                   text        not null,
  status                 text        not null check (status in ('requires_payment', 'processing', 'succeeded', 'expired', 'canceled')),
  chain                  text        not null,
  chain_id               int         not null,
  confirmations_required smallint    not null,
  amount_units           bigint      not null check (amount_units > 0),
  decimals               smallint    not null,
  token_symbol           text        not null,
  token_address          text        not null,
  expected_wallet        text        not null,
  lane                   text        not null,
  metadata               jsonb       not null,
  expires_in_minutes     smallint    not null,
  created_at             timestamptz not null,
  expires_at             timestamptz not null,
  client_secret_version  smallint    not null,
  idempotency_key        text,
  amount_received_units  bigint      not null default 0,
  payments_count         int         not null default 0,
  amount_refunded_units  bigint      not null default 0,
  labels                 text[],
  succeeded_at           timestamptz,
  canceled_at            timestamptz,
  expired_at             timestamptz,
  unique (merchant_id, mode, idempotency_key)
);

create index on payment_intents (merchant_id, mode, id);

create table events (
  id             uuid primary key,
  merchant_id    uuid        not null references merchants (id),
  mode           text        not null,
  type           text        not null,
  payment_intent uuid        not null references payment_intents (id),
  created_at     timestamptz not null,
  position       bigint      not null generated always as identity,
  data           jsonb       not null
);

create index on events (merchant_id, mode, position);
