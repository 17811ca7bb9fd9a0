/**
 * Watched chains, their headers, and the transfers seen on them. Creates wait while the indexes on intents
 * are built: a few seconds for a few million intents.
 *
 * Processes of the previous version may go on beside new ones. They expire intents by the clock, even those
 * of a watched chain: start the first watcher after they have ended.
 */
export default [
  `
      create table watched_chains (
        chain_id         int            not null primary key,
        mode             payment_mode   not null,
        chain            text           not null,
        genesis_hash     bytea          not null,
        cursor_number    bigint         not null,
        cursor_hash      bytea          not null,
        cursor_time      timestamptz(3) not null,
        second_number    bigint         not null,
        head_number      bigint         not null,
        finalized_number bigint         not null,
        seen_at          timestamptz(3) not null,
        lease_number     bigint         not null,
        lease_holder     uuid,
        lease_until      timestamptz(3),
        created_at       timestamptz(3) not null
      )`,
  `
      create table block_headers (
        chain_id      int            not null,
        number        bigint         not null,
        hash          bytea          not null,
        time          timestamptz(3) not null,
        is_doubtful   boolean        not null default false,
        is_checkpoint boolean        not null default false,
        primary key (chain_id, number)
      )`,
  'create index block_headers_doubtful_index on block_headers (chain_id, number) where is_doubtful',
  "create type transfer_state as enum ('pending', 'confirmed', 'reorged')",
  `
      create table transfers (
        id                 uuid           not null primary key,
        merchant_id        uuid           not null,
        mode               payment_mode   not null,
        chain_id           int            not null,
        transaction_hash   bytea          not null,
        log_index          int            not null,
        block_number       bigint         not null,
        block_hash         bytea          not null,
        block_time         timestamptz(3) not null,
        from_address       bytea          not null,
        to_address         bytea          not null,
        token_address      bytea          not null,
        amount_units       bigint         not null,
        ordinal            int            not null,
        state              transfer_state not null,
        payment_intent     uuid,
        attributed_by_hand boolean        not null default false,
        counts             boolean        not null default false,
        labels             text[],
        created_at         timestamptz(3) not null
      )`,
  `
      create index transfers_payment_intent_index on transfers (payment_intent, block_number, log_index)
        where payment_intent is not null`,
  'create index transfers_merchant_index on transfers (merchant_id, mode, id)',
  `
      create index transfers_unattributed_index on transfers (merchant_id, mode, id) where payment_intent is null`,
  "create index transfers_pending_index on transfers (chain_id, block_number) where state = 'pending'",
  'create index transfers_block_index on transfers (chain_id, block_number)',
  `
      create unique index transfers_identity_unique on transfers
        (transaction_hash, merchant_id, chain_id, token_address, from_address, to_address, amount_units, ordinal)`,
  `
      create index payment_intents_wallet_index on payment_intents (expected_wallet, merchant_id, amount_units, id)`,
  `
      create index payment_intents_partial_index on payment_intents (expected_wallet, merchant_id)
        where status in ('requires_payment', 'expired', 'canceled') and amount_received_units > 0`,
  'create index payout_wallets_address_index on payout_wallets (address)',
];
