import { Migration } from '@mikro-orm/migrations';

/** What was reverted is looked for again. Few transfers are. */
export default class extends Migration {
  override up(): void {
    this.addSql(`
      create index transfers_reorged_index on transfers (chain_id, created_at) where state = 'reorged'`);
  }
}
