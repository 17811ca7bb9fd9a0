import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, chown, mkdtemp, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterEach, expect, test } from 'vitest';
import { type Door, doors } from '../support/call.ts';
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

/** Debian installs it outside an ordinary user's PATH. */
const pgbouncer = ['pgbouncer', '/usr/sbin/pgbouncer'].find((program) => succeeds(program, '--version'));
if (pgbouncer === undefined) console.log('skipped: PgBouncer is not installed (apt-get install pgbouncer)');

/** Runs PgBouncer in transaction mode in front of the cluster until `use` ends. */
async function behindPgBouncer(use: (url: string, pid: number) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(join(cluster.folder, 'pgbouncer-'));
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
  await chmod(folder, 0o755);
  await chmod(file, 0o644);
  // PgBouncer does not run as root; the socket accepts the account that runs PostgreSQL.
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
    await use(`postgresql://${cluster.location.user}@127.0.0.1:${port}/postgres`, child.pid ?? 0);
  } finally {
    const exited = once(child, 'exit');
    child.kill('SIGCONT');
    child.kill('SIGTERM');
    await exited;
  }
}

test.skipIf(pgbouncer === undefined)('creates work behind PgBouncer in transaction mode', () =>
  behindPgBouncer(async (url) => {
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
  }),
);

test.skipIf(pgbouncer === undefined)(
  'started ten times: sessions keep prepared statements of the previous process, and no create fails',
  () =>
    behindPgBouncer(async (url) => {
      for (let i = 0; i < 10; i++) {
        const service = await startProcess(cluster, await choosePorts(), { DATABASE_URL: url });
        const answers = await Promise.all(
          Array.from({ length: 64 }, (_, n) =>
            service.call('createPaymentIntent', { amount_units: 1 }, { door: doors[n % 2] as Door }),
          ),
        );
        expect(Object.keys(Object.groupBy(answers, ({ code }) => code))).toEqual(['ok']);
        expect(service.log.filter(({ level }) => level === 'error')).toEqual([]);
        await service.end('SIGTERM');
      }
    }),
);
