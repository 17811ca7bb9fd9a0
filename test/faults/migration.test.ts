import { Migration } from '@mikro-orm/migrations';
import { afterEach, expect, test } from 'vitest';
import { migrate, ourMigrations } from '../../src/database/orm.ts';
import { report, startLoad } from './support/load.ts';
import { endAll, startProcess, useCluster } from './support/process.ts';

const cluster = useCluster();

afterEach(endAll);

/** A migration of a future version: a column that this version does not know. */
class AddNote extends Migration {
  override up(): void {
    this.addSql('alter table payment_intents add column note text');
    this.addSql('create index payment_intents_note_index on payment_intents (note) where note is not null');
  }
}

test('during a migration under load, the process on the old schema keeps working, and a second migration is harmless', async () => {
  const service = await startProcess(cluster);
  const load = await startLoad(cluster, { services: [service], apiKey: cluster.apiKey, callers: 32 });
  await load.progress(300);
  const next = [...ourMigrations, { name: '2099-01-01-add-note', class: AddNote }];
  const ran = await Promise.all([migrate(cluster.location, next), migrate(cluster.location, next)]);
  expect(ran.flat()).toEqual(['2099-01-01-add-note']);
  await load.progress(300);
  const figures = await load.finish();
  expect(load.failures).toEqual(new Map());
  report(figures);

  // A process that starts now accepts the newer schema.
  const older = await startProcess(cluster);
  expect(await older.end('SIGTERM')).toEqual({ code: 0, signal: null });
});
