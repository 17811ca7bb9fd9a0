// Backup and restore with PostgreSQL's own tools, as docs/operations.md has it. They have to be as new as the server,
// and the embedded one comes without them: here Debian's server and Debian's tools are used together.

import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, chown, mkdir, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { afterEach, expect, test } from 'vitest';
import { migrate } from '../../src/database/orm.ts';
import { openDoors } from '../support/doors.ts';
import { type Cluster, useCluster } from './support/cluster.ts';
import { databaseAccount } from './support/database-account.ts';
import { choosePorts, endAll, startProcess } from './support/process.ts';

const run = promisify(execFile);

const versions = await readdir('/usr/lib/postgresql').catch(() => []);
const newest = versions.sort((a, b) => Number(b) - Number(a))[0];
const bin = newest && `/usr/lib/postgresql/${newest}/bin`;
if (bin === undefined) console.log('skipped: no PostgreSQL is installed (apt-get install postgresql)');

let cluster: Cluster;

// Its merchant and secrets; its database moves to Debian's server.
useCluster((opened) => {
  cluster = opened;
});

afterEach(endAll);

test.skipIf(bin === undefined)(
  'a restored backup knows the same keys, and answers the same intents',
  async () => {
    const folder = await mkdtemp(join(tmpdir(), 'pi-backup-'));
    await chmod(folder, 0o755);
    const account = databaseAccount();
    const data = join(folder, 'data');
    await mkdir(data);
    if (account) await chown(data, account.uid, account.gid);
    await run(join(bin as string, 'initdb'), ['-D', data, '-U', 'payments', '-A', 'trust'], {
      ...account,
      cwd: data,
    });
    const [port = ''] = Object.values(await choosePorts());
    const server = spawn(
      join(bin as string, 'postgres'),
      ['-D', data, '-k', data, '-p', port, '-h', '127.0.0.1'],
      { ...account, cwd: data, stdio: ['ignore', 'ignore', 'pipe'] },
    );
    try {
      await new Promise<void>((resolve, reject) => {
        server.once('exit', (code) => reject(new Error(`postgres ended with ${code}`)));
        createInterface({ input: server.stderr }).on('line', (line) => {
          if (line.includes('ready to accept connections')) resolve();
        });
      });
      const url = (database: string) => `postgresql://payments@127.0.0.1:${port}/${database}`;
      await migrate({ url: url('postgres') });
      const key = await cluster.newKeyIn({ url: url('postgres') });
      const options = { authorization: `Bearer ${key}`, idempotencyKey: 'order-1' };
      const body = { amount_units: 5, metadata: { order: 'ключ 😀', n: [0.1, 1e-300] } };

      const original = await startProcess(cluster, await choosePorts(), { DATABASE_URL: url('postgres') });
      const [door] = openDoors(original);
      const first = await door.create(body, options);
      expect(first.code).toBe('ok');
      door.close();
      await original.end('SIGTERM');

      const dump = join(folder, 'payments.dump');
      const tool = (name: string, ...args: string[]) => run(join(bin as string, name), args);
      await tool('pg_dump', '--format=custom', `--file=${dump}`, url('postgres'));
      await tool('createdb', `--maintenance-db=${url('postgres')}`, 'restored');
      await tool('pg_restore', `--dbname=${url('restored')}`, '--no-owner', dump);

      const restored = await startProcess(cluster, await choosePorts(), { DATABASE_URL: url('restored') });
      const [again] = openDoors(restored);
      expect(await again.create(body, options)).toMatchObject({
        code: 'ok',
        replayed: true,
        intent: first.intent,
      });
      again.close();
      await restored.end('SIGTERM');
    } finally {
      const exited = once(server, 'exit');
      server.kill('SIGINT');
      await exited;
      await rm(folder, { recursive: true, force: true });
    }
  },
);
