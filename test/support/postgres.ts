import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import type { TestProject } from 'vitest/node';
import { pgConfigOf, type SocketLocation } from '../../src/config/database-location.ts';
import { migrate } from '../../src/database/orm.ts';
import { startEmbeddedPostgres } from '../../src/embedded/postgres.ts';

declare module 'vitest' {
  export interface ProvidedContext {
    postgres: SocketLocation;
    templateDatabase: string;
  }
}

const templateDatabase = 'migrated';

/** Starts one real PostgreSQL for the whole run, with a migrated database that the tests copy. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const folder = await mkdtemp(join(tmpdir(), 'pi-test-'));
  // For root, PostgreSQL runs as another user, which needs access.
  await chmod(folder, 0o711);
  const postgres = await startEmbeddedPostgres(join(folder, 'data'));
  const teardown = async () => {
    await postgres.stop();
    await rm(folder, { recursive: true, force: true });
  };
  try {
    const admin = new pg.Client(pgConfigOf(postgres.location));
    await admin.connect();
    await admin.query(`create database ${templateDatabase}`).finally(() => admin.end());
    await migrate({ ...postgres.location, database: templateDatabase });
  } catch (error) {
    await teardown();
    throw error;
  }
  project.provide('postgres', postgres.location);
  project.provide('templateDatabase', templateDatabase);
  return teardown;
}
