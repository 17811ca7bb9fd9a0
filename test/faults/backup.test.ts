// Backup and restore with PostgreSQL's own tools, as in docs/operations.md. The tools must be as new as the server, and
// the embedded PostgreSQL has none, so this test uses Debian's server and tools.

import { execFile } from 'node:child_process';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, expect, test } from 'vitest';
import { migrate } from '../../src/database/orm.ts';
import { asSuperuser, documentedCommands } from '../support/documentation.ts';
import { startOwnPostgres } from '../support/own-postgres.ts';
import { endAll, startProcess, useCluster } from './support/process.ts';

const run = promisify(execFile);

const versions = await readdir('/usr/lib/postgresql').catch(() => []);
const newest = versions.sort((a, b) => Number(b) - Number(a))[0];
const bin = newest && `/usr/lib/postgresql/${newest}/bin`;
if (bin === undefined) console.log('skipped: no PostgreSQL is installed (apt-get install postgresql)');

// Provides the merchant and the secrets; the database moves to Debian's server.
const cluster = useCluster();

afterEach(endAll);

test.skipIf(bin === undefined)(
  'a restored backup accepts the same keys and returns the same intents',
  async () => {
    const postgres = await startOwnPostgres({
      bin: bin as string,
      hba: ['local all postgres trust', 'local all all scram-sha-256'],
    });
    const folder = await mkdtemp(join(tmpdir(), 'pi-backup-'));
    try {
      // With a "/" in a parameter, as for a connection through a socket.
      const url = (database: string) =>
        `postgresql://payments:PASSWORD@localhost:${postgres.port}/${database}?host=${postgres.folder}`;
      const env = { ...process.env, PATH: `${bin}:${process.env.PATH}`, DATABASE_URL: url('payments') };
      const documented = async (heading: string) => {
        const commands = (await documentedCommands(heading)).replace(
          'postgresql://payments:PASSWORD@db.internal:5432/restored',
          `'${url('restored')}'`,
        );
        await run('sh', ['-c', asSuperuser(postgres) + commands], { env, cwd: folder });
      };
      await documented('From nothing');
      await migrate({ url: url('payments') });
      const key = await cluster.newKeyIn({ url: url('payments') });
      const options = { authorization: `Bearer ${key}`, idempotencyKey: 'order-1' };
      const body = { amount_units: 5, metadata: { order: 'ключ 😀', n: [0.1, 1e-300] } };

      const original = await startProcess(cluster, { DATABASE_URL: url('payments') });
      const first = await original.call('createPaymentIntent', body, options);
      expect(first.code).toBe('ok');
      await original.end('SIGTERM');

      await documented('Backup and restore');

      const restored = await startProcess(cluster, { DATABASE_URL: url('restored') });
      expect(await restored.call('createPaymentIntent', body, options)).toMatchObject({
        code: 'ok',
        replayed: true,
        json: first.json,
      });
      await restored.end('SIGTERM');
    } finally {
      await postgres.stop();
      await rm(folder, { recursive: true, force: true });
    }
  },
);
