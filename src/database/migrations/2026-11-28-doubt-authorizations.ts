import { Migration } from '@mikro-orm/migrations';

/**
 * Keeps which authorizations a transfer may have used whose receipt no node serves. Processes of the release before do not know
 * of it: a trigger keeps them from releasing one.
 */
export default class extends Migration {
  override up(): void {
    this.addSql('alter table authorizations add column is_doubtful boolean not null default false');
    this.addSql(`
      create function authorizations_keep_doubtful_fn() returns trigger as $$
      begin new.status := old.status; return new; end;
      $$ language plpgsql`);
    this.addSql(`
      create trigger keep_doubtful before update of status on authorizations for each row
      when (new.status = 'released' and new.is_doubtful) execute function authorizations_keep_doubtful_fn()`);
  }
}
