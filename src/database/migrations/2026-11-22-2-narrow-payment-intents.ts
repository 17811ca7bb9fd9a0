/** Rows that intents refer to without a foreign key. */
const kept = {
  networks: {
    name: 'networks_immutable',
    events: 'update or delete',
    message: 'networks is append-only: a change is a new row',
  },
  merchants: {
    name: 'merchants_kept',
    events: 'delete',
    message: 'merchants are not deleted: payment intents refer to them',
  },
};

/**
 * Intents refer to a row of `networks` instead of repeating chain, token and confirmations, and lose the
 * rules that halved the rate of inserts. One ALTER TABLE rewrites the table once and keeps its grants. If the
 * values of a row are not those of a network, the migration fails and changes nothing.
 *
 * Processes of the previous version cannot write to this table: stop them first.
 */
export default [
  "create type payment_mode as enum ('testnet', 'mainnet')",
  "create type payment_intent_status as enum ('requires_payment', 'processing', 'succeeded', 'expired', 'canceled')",
  "create type payment_lane as enum ('sdk', 'manual')",
  `
      create table networks (
        id                     smallint     not null primary key,
        mode                   payment_mode not null,
        chain                  text         not null,
        chain_id               int          not null,
        token_symbol           text         not null,
        token_address          bytea        not null,
        decimals               smallint     not null,
        confirmations_required smallint     not null
      )`,
  `
      insert into networks values
        (1, 'mainnet', 'base',    8453,  'USDC', '\\x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913', 6, 10),
        (2, 'mainnet', 'polygon', 137,   'USDC', '\\x3c499c542cEF5E3811e1192ce70d8cC03d5c3359', 6, 12),
        (3, 'testnet', 'base',    84532, 'USDC', '\\x036CbD53842c5426634e7929541eC2318f3dCF7e', 6, 10),
        (4, 'testnet', 'polygon', 80002, 'USDC', '\\x41E94Eb019C0762f9Bfcf9Fb1E58725BfB0e7582', 6, 12)`,
  `
      alter table payment_intents
        drop constraint payment_intents_merchant_id_foreign,
        drop constraint payment_intents_mode_check,
        drop constraint payment_intents_status_check,
        drop constraint payment_intents_chain_check,
        drop constraint payment_intents_chain_facts_check,
        drop constraint payment_intents_confirmations_required_check,
        drop constraint payment_intents_lane_check,
        drop constraint payment_intents_token_check,
        drop constraint payment_intents_expected_wallet_check,
        drop constraint payment_intents_metadata_check,
        drop constraint payment_intents_expires_in_minutes_check,
        drop constraint payment_intents_expires_at_check,
        drop constraint payment_intents_client_secret_version_check,
        drop constraint payment_intents_idempotency_check,
        drop constraint payment_intents_idempotency_key_check,
        drop constraint payment_intents_request_fingerprint_check`,
  // This reads the old values. By the constraint dropped above, mode and chain imply chain id and token.
  `
      alter table payment_intents
        alter column mode type payment_mode using mode::payment_mode,
        alter column status type payment_intent_status using status::payment_intent_status,
        alter column lane type payment_lane using lane::payment_lane,
        alter column expected_wallet type bytea using decode(substr(expected_wallet, 3), 'hex'),
        alter column chain type smallint using case
          when mode = 'mainnet' and chain = 'base' and confirmations_required = 10 then 1
          when mode = 'mainnet' and chain = 'polygon' and confirmations_required = 12 then 2
          when mode = 'testnet' and chain = 'base' and confirmations_required = 10 then 3
          when mode = 'testnet' and chain = 'polygon' and confirmations_required = 12 then 4
        end,
        drop column chain_id,
        drop column decimals,
        drop column token_symbol,
        drop column token_address,
        drop column expires_in_minutes`,
  'alter table payment_intents rename column chain to network',
  'alter table payment_intents drop column confirmations_required',
  'create index payment_intents_merchant_index on payment_intents (merchant_id, mode, id)',
  ...Object.entries(kept).flatMap(([table, { name, events, message }]) => [
    `
        create function ${table}_${name}_fn() returns trigger as $$
        begin raise exception '${message}'; end;
        $$ language plpgsql`,
    `
        create trigger ${name} before ${events} on ${table}
        for each statement execute function ${table}_${name}_fn()`,
    `
        create trigger ${name}_truncate before truncate on ${table}
        for each statement execute function ${table}_${name}_fn()`,
  ]),
];
