/**
 * Signed authorizations. Processes of the previous release do not recognise the transfers that use them:
 * configure a facilitator after they have ended.
 */
export default [
  "create type authorization_status as enum ('submitted', 'landed', 'released', 'failed')",
  `
      create table authorizations (
        id             uuid                 not null primary key,
        merchant_id    uuid                 not null,
        mode           payment_mode         not null,
        payment_intent uuid                 not null,
        network        smallint             not null,
        from_address   bytea                not null,
        nonce          bytea                not null,
        wallet         bytea                not null,
        amount_units   bigint               not null,
        valid_before   timestamptz(3)       not null,
        status         authorization_status not null,
        reported_hash   bytea,
        created_at     timestamptz(3)       not null
      )`,
  'create index authorizations_payment_intent_index on authorizations (payment_intent, id)',
  'create index authorizations_wallet_index on authorizations (from_address, wallet)',
  `
      create index authorizations_submitted_index on authorizations (network, valid_before)
        where status = 'submitted'`,
  `
      create unique index authorizations_nonce_unique on authorizations (from_address, nonce, merchant_id, mode)`,
  'alter table payment_intents add column authorizations_count int',
  'alter table transfers add column authorized_by uuid',
];
