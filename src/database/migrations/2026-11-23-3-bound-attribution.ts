/**
 * Anybody's transfer costs the same, however many intents have the wallet, and whatever the planner has
 * sampled: the columns below count as distinct, so it takes the index that begins with them. Partly paid
 * intents are found by the missing amount: creates wait for the small index. Transfers can be detached.
 */
export default [
  'alter table payment_intents alter column expected_wallet set (n_distinct = -1)',
  'alter table transfers alter column transaction_hash set (n_distinct = -1)',
  'alter table transfers alter column payment_intent set (n_distinct = -1)',
  `
      create index payment_intents_missing_index on payment_intents
        (expected_wallet, merchant_id, (amount_units - amount_received_units), id)
        where status in ('requires_payment', 'expired', 'canceled') and amount_received_units > 0`,
  // This puts the settings above in force. An empty table is skipped: if the planner knows that a table is
  // empty, it reads every row for as long as a session keeps the plan.
  `
      do $$ begin
        if exists (select from payment_intents) then analyze payment_intents (expected_wallet); end if;
        if exists (select from transfers) then analyze transfers (transaction_hash, payment_intent); end if;
      end $$`,
  // Reads wait for the statements below, which take no time.
  'drop index payment_intents_partial_index',
  'alter index payment_intents_missing_index rename to payment_intents_partial_index',
  'alter table transfers add column is_detached boolean not null default false',
];
