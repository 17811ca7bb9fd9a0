/** Tells every process at once whether a chain is watched, and so whether to create intents there. */
export default [
  `
      create function watched_chains_watched_chains_changed_fn() returns trigger as $$
      begin perform pg_notify('watched_chains_changed', ''); return null; end;
      $$ language plpgsql`,
  `
      create trigger watched_chains_changed after insert or delete on watched_chains
      for each statement execute function watched_chains_watched_chains_changed_fn()`,
];
