/** Changes that every process must hear of at once, because it caches keys and wallets. */
const announcedChanges = {
  api_keys: 'update or delete',
  payout_wallets: 'insert or update or delete',
};

/** Merchants, their wallets and keys, and their payment intents. */
export default [
  `
      create table merchants (
        id         uuid           not null primary key,
        name       text           not null,
        created_at timestamptz(3) not null,
        constraint merchants_name_check check (char_length(name) >= 1 and char_length(name) <= 200)
      )`,
  `
      create table payout_wallets (
        merchant_id uuid           not null constraint payout_wallets_merchant_id_foreign references merchants (id),
        mode        text           not null,
        chain       text           not null,
        address     text           not null,
        updated_at  timestamptz(3) not null,
        primary key (merchant_id, mode, chain),
        constraint payout_wallets_mode_check check (mode in ('testnet', 'mainnet')),
        constraint payout_wallets_chain_check check (chain in ('base', 'polygon')),
        constraint payout_wallets_address_check check (address ~ '^0x[0-9a-fA-F]{40}$')
      )`,
  `
      create table api_keys (
        id             uuid           not null primary key,
        merchant_id    uuid           not null constraint api_keys_merchant_id_foreign references merchants (id),
        mode           text           not null,
        pepper_version smallint       not null,
        key_hash       bytea          not null constraint api_keys_key_hash_unique unique,
        hint           text           not null,
        created_at     timestamptz(3) not null,
        expires_at     timestamptz(3) null,
        revoked_at     timestamptz(3) null,
        constraint api_keys_mode_check check (mode in ('testnet', 'mainnet')),
        constraint api_keys_pepper_version_check check (pepper_version >= 1),
        constraint api_keys_key_hash_check check (octet_length(key_hash) = 32)
      )`,
  'create index api_keys_merchant_id_index on api_keys (merchant_id)',
  `
      create table payment_intents (
        id                     uuid           not null primary key,
        merchant_id            uuid           not null constraint payment_intents_merchant_id_foreign references merchants (id),
        mode                   text           not null,
        status                 text           not null,
        chain                  text           not null,
        chain_id               int            not null,
        confirmations_required smallint       not null,
        amount_units           bigint         not null,
        decimals               smallint       not null,
        token_symbol           text           not null,
        token_address          text           not null,
        expected_wallet        text           not null,
        lane                   text           not null,
        metadata               json           not null,
        expires_in_minutes     smallint       not null,
        created_at             timestamptz(3) not null,
        expires_at             timestamptz(3) not null,
        client_secret_version  smallint       not null,
        idempotency_key        text           null,
        request_fingerprint    bytea          null,
        constraint payment_intents_mode_check check (mode in ('testnet', 'mainnet')),
        constraint payment_intents_status_check check (status in ('requires_payment')),
        constraint payment_intents_chain_check check (chain in ('base', 'polygon')),
        constraint payment_intents_chain_facts_check check (
          (mode, chain, chain_id, token_address) in (
            ('mainnet', 'base',    8453,  '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913'),
            ('mainnet', 'polygon', 137,   '0x3c499c542cEF5E3811e1192ce70d8cC03d5c3359'),
            ('testnet', 'base',    84532, '0x036CbD53842c5426634e7929541eC2318f3dCF7e'),
            ('testnet', 'polygon', 80002, '0x41E94Eb019C0762f9Bfcf9Fb1E58725BfB0e7582')
          )
        ),
        constraint payment_intents_confirmations_required_check check (confirmations_required >= 1),
        constraint payment_intents_lane_check check (lane in ('sdk', 'manual')),
        constraint payment_intents_amount_units_check check (amount_units >= 1 and amount_units <= 9007199254740991),
        constraint payment_intents_token_check check (token_symbol = 'USDC' and decimals = 6),
        constraint payment_intents_expected_wallet_check check (expected_wallet ~ '^0x[0-9a-fA-F]{40}$'),
        constraint payment_intents_metadata_check check (json_typeof(metadata) = 'object'),
        constraint payment_intents_expires_in_minutes_check check (expires_in_minutes >= 5 and expires_in_minutes <= 60),
        constraint payment_intents_expires_at_check check (expires_at = created_at + make_interval(mins => expires_in_minutes)),
        constraint payment_intents_client_secret_version_check check (client_secret_version >= 1),
        constraint payment_intents_idempotency_check check ((idempotency_key is null) = (request_fingerprint is null)),
        constraint payment_intents_idempotency_key_check check (char_length(idempotency_key) >= 1 and char_length(idempotency_key) <= 255),
        constraint payment_intents_request_fingerprint_check check (octet_length(request_fingerprint) = 32)
      )`,
  `
      create unique index payment_intents_idempotency_key_unique
        on payment_intents (merchant_id, mode, idempotency_key)
        where idempotency_key is not null`,
  ...Object.entries(announcedChanges).flatMap(([table, events]) => [
    `
        create function ${table}_${table}_changed_fn() returns trigger as $$
        begin perform pg_notify('api_keys_changed', ''); return null; end;
        $$ language plpgsql`,
    `
        create trigger ${table}_changed after ${events} on ${table}
        for each statement execute function ${table}_${table}_changed_fn()`,
  ]),
];
