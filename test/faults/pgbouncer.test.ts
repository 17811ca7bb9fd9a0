import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, chown, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterEach, expect, test } from 'vitest';
import { succeeds } from '../support/succeeds.ts';
import { type Cluster, useCluster } from './support/cluster.ts';
import { databaseAccount } from './support/database-account.ts';
import { report, startLoad } from './support/load.ts';
import { choosePorts, endAll, startProcess } from './support/process.ts';

let cluster: Cluster;

useCluster((opened) => {
  cluster = opened;
});

afterEach(endAll);

/** Debian keeps it out of an ordinary user's path. */
const pgbouncer = ['pgbouncer', '/usr/sbin/pgbouncer'].find((program) => succeeds(program, '--version'));
if (pgbouncer === undefined) console.log('skipped: PgBouncer is not installed (apt-get install pgbouncer)');

test.skipIf(pgbouncer === undefined)('behind PgBouncer in transaction mode', async () => {
  const folder = join(cluster.folder, 'pgbouncer');
  await mkdir(folder);
  const [port] = Object.values(await choosePorts());
  const file = join(folder, 'pgbouncer.ini');
  await writeFile(
    file,
    `[databases]
postgres = host=${cluster.location.socketFolder} dbname=postgres user=${cluster.location.user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
`,
  );
  await chmod(file, 0o644);
  // PgBouncer does not run as root; the socket lets in who runs PostgreSQL.
  const account = databaseAccount();
  if (account) await chown(folder, account.uid, account.gid);
  const child = spawn(pgbouncer as string, [file], { ...account, stdio: ['ignore', 'ignore', 'pipe'] });
  await new Promise<void>((resolve, reject) => {
    child.once('exit', (code) => reject(new Error(`pgbouncer ended with ${code}`)));
    createInterface({ input: child.stderr }).on('line', (line) => {
      if (line.includes('process up')) resolve();
    });
  });
  try {
    const url = `postgresql://${cluster.location.user}@127.0.0.1:${port}/postgres`;
    const service = await startProcess(cluster, await choosePorts(), { DATABASE_URL: url });
    const load = await startLoad(cluster, {
      services: [service],
      apiKey: cluster.apiKey,
      callers: 32,
      callersPerKey: 2,
    });
    await load.progress(6_000);
    const figures = await load.finish();
    expect(load.failures).toEqual(new Map());
    expect(service.log.filter(({ level }) => level === 'error')).toEqual([]);
    report(figures);
    await service.end('SIGTERM');
  } finally {
    const exited = once(child, 'exit');
    child.kill('SIGTERM');
    await exited;
  }
});
