import { execFile } from 'node:child_process';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { TestProject } from 'vitest/node';
import type { SocketLocation } from '../../src/config/database-location.ts';
import { migrate } from '../../src/database/orm.ts';
import { startEmbeddedPostgres } from '../../src/embedded/postgres.ts';
import { openClient } from './open-client.ts';
import { grantServiceRights } from './service-rights.ts';

declare module 'vitest' {
  export interface ProvidedContext {
    postgres: SocketLocation;
    templateDatabase: string;
    /** The data folder of a stopped PostgreSQL with a migrated database, to be copied. */
    migratedData: string;
  }
}

const templateDatabase = 'migrated';

/** Starts one real PostgreSQL for the whole run, with a migrated database that the tests copy. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const folder = await mkdtemp(join(tmpdir(), 'pi-test-'));
  // For root, PostgreSQL runs as another user, which needs access.
  await chmod(folder, 0o711);
  const data = join(folder, 'data');
  const migratedData = join(folder, 'migrated');
  let postgres = await startEmbeddedPostgres(data);
  const teardown = async () => {
    await postgres.stop();
    await rm(folder, { recursive: true, force: true });
  };
  try {
    await migrate(postgres.location);
    const admin = await openClient({ ...postgres.location, database: 'template1' });
    // The superuser that own-postgres.ts expects.
    await admin.query('create role postgres superuser login');
    // Each of the files that run at once has a few services.
    await admin.query('alter system set max_connections = 400');
    await admin.query(`create database ${templateDatabase} template postgres`);
    await admin.query('create database empty').finally(() => admin.end());
    const template = await openClient({ ...postgres.location, database: templateDatabase });
    // As in docs/operations.md, so that the services of tests have only these rights.
    const reads =
      'grant select on all tables in schema public to serving; revoke select on networks from serving';
    await template
      .query(
        `create role serving login; grant pg_read_all_stats to serving; ${reads}; ${grantServiceRights('serving')}`,
      )
      .finally(() => template.end());
    await postgres.stop();
    await promisify(execFile)('cp', ['-Rp', data, migratedData]);
    postgres = await startEmbeddedPostgres(data);
  } catch (error) {
    await teardown();
    throw error;
  }
  project.provide('postgres', postgres.location);
  project.provide('templateDatabase', templateDatabase);
  project.provide('migratedData', migratedData);
  return teardown;
}
