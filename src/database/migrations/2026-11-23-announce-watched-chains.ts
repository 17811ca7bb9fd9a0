import { Migration } from '@mikro-orm/migrations';

/** Every process hears at once that a chain is watched, or no longer is: it decides whether intents are created there. */
export default class extends Migration {
  override up(): void {
    this.addSql(`
      create function watched_chains_watched_chains_changed_fn() returns trigger as $$
      begin perform pg_notify('watched_chains_changed', ''); return null; end;
      $$ language plpgsql`);
    this.addSql(`
      create trigger watched_chains_changed after insert or delete on watched_chains
      for each statement execute function watched_chains_watched_chains_changed_fn()`);
  }
}
