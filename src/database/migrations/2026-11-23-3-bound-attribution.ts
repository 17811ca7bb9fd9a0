/**
 * What a stranger sends to a wallet costs the same however many intents have the wallet, and whatever the planner has sampled:
 * the columns below count as distinct, so that it takes the index that begins with them. Intents that are partly paid are
 * found by what is missing; the index is built while creates wait, and holds few of them. Transfers can be detached.
 */
export default [
  'alter table payment_intents alter column expected_wallet set (n_distinct = -1)',
  'alter table transfers alter column transaction_hash set (n_distinct = -1)',
  'alter table transfers alter column payment_intent set (n_distinct = -1)',
  `
      create index payment_intents_missing_index on payment_intents
        (expected_wallet, merchant_id, (amount_units - amount_received_units), id)
        where status in ('requires_payment', 'expired', 'canceled') and amount_received_units > 0`,
  // What was set is in force from here on. An empty table stays unknown to the planner: of one that it knows to be empty it
  // reads every row for as long as a session keeps the plan.
  `
      do $$ begin
        if exists (select from payment_intents) then analyze payment_intents (expected_wallet); end if;
        if exists (select from transfers) then analyze transfers (transaction_hash, payment_intent); end if;
      end $$`,
  // Reads wait for what follows, which takes no time.
  'drop index payment_intents_partial_index',
  'alter index payment_intents_missing_index rename to payment_intents_partial_index',
  'alter table transfers add column is_detached boolean not null default false',
];
