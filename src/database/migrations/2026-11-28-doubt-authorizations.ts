import { Migration } from '@mikro-orm/migrations';

/** Keeps which authorizations a transfer may have used whose receipt no node serves. */
export default class extends Migration {
  override up(): void {
    this.addSql('alter table authorizations add column is_doubtful boolean not null default false');
  }
}
