import { Migration } from '@mikro-orm/migrations';

/** Keeps what tells a key of the configuration from another with the same version. */
export default class extends Migration {
  override up(): void {
    this.addSql(`
      create table key_checks (
        name text not null,
        version smallint not null,
        value text not null,
        primary key (name, version)
      )`);
  }
}
