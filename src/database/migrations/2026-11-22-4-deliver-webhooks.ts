/** Webhook endpoints, the generations of their secrets, and the queue of their deliveries. */
export default [
  `
      create table webhook_endpoints (
        id                  uuid           not null primary key,
        merchant_id         uuid           not null,
        mode                payment_mode   not null,
        url                 text           not null,
        event_types         text[]         not null,
        enabled             boolean        not null,
        disabled_reason     text,
        description         text,
        created_at          timestamptz(3) not null,
        deleted_at          timestamptz(3),
        failures            int            not null default 0,
        failing_since       timestamptz(3),
        idempotency_key     text,
        request_fingerprint bytea
      )`,
  'create index webhook_endpoints_merchant_index on webhook_endpoints (merchant_id, mode, id)',
  `
      create unique index webhook_endpoints_idempotency_key_unique
        on webhook_endpoints (merchant_id, mode, idempotency_key) where idempotency_key is not null`,
  `
      create table webhook_secrets (
        endpoint_id         uuid           not null,
        generation          int            not null,
        key_version         smallint       not null,
        created_at          timestamptz(3) not null,
        expires_at          timestamptz(3),
        idempotency_key     text,
        request_fingerprint bytea,
        primary key (endpoint_id, generation)
      )`,
  `
      create unique index webhook_secrets_idempotency_key_unique
        on webhook_secrets (endpoint_id, idempotency_key) where idempotency_key is not null`,
  "create type webhook_delivery_status as enum ('pending', 'delivered', 'failed')",
  `
      create table webhook_deliveries (
        merchant_id     uuid                    not null,
        event_id        uuid                    not null,
        endpoint_id     uuid                    not null,
        id              uuid                    not null,
        status          webhook_delivery_status not null,
        created_at      timestamptz(3)          not null,
        next_attempt_at timestamptz(3),
        scheduled       smallint                not null default 0,
        attempts        int                     not null default 0,
        primary key (merchant_id, event_id, endpoint_id)
      )`,
  `
      create index webhook_deliveries_endpoint_index
        on webhook_deliveries (merchant_id, endpoint_id, event_id)`,
  `
      create index webhook_deliveries_pending_index on webhook_deliveries (endpoint_id, next_attempt_at)
        where status = 'pending'`,
  `
      create table webhook_attempts (
        event_id    uuid           not null,
        endpoint_id uuid           not null,
        number      int            not null,
        at          timestamptz(3) not null,
        duration_ms int            not null,
        status_code smallint,
        error       text,
        response    bytea,
        primary key (event_id, endpoint_id, number)
      )`,
];
