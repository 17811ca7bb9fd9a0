import { Migration } from '@mikro-orm/migrations';

/**
 * Until a vacuum, every search for what is overdue, to be confirmed or to be delivered steps over the entries of all rows that
 * have ended since: by default, up to a fifth of the table.
 */
export default class extends Migration {
  override up(): void {
    for (const table of ['payment_intents', 'transfers', 'webhook_deliveries']) {
      this.addSql(
        `alter table ${table} set (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 50)`,
      );
    }
  }
}
