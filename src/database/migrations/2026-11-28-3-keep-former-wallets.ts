/** Keeps a merchant's former payout wallets, whatever release changes them: no refund goes to one. */
export default [
  `alter table payout_wallets add column former_addresses text[] not null default '{}'`,
  `
      create function payout_wallets_keep_former_fn() returns trigger as $$
      begin new.former_addresses := array_append(old.former_addresses, old.address); return new; end;
      $$ language plpgsql`,
  `
      create trigger keep_former before update of address on payout_wallets for each row
      when (old.address <> new.address) execute function payout_wallets_keep_former_fn()`,
];
