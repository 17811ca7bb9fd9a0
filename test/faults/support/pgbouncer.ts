// The distribution's PgBouncer, in transaction mode.

import { chmod, chown, mkdtemp, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { choosePorts } from '../../support/listen.ts';
import { databaseAccount } from '../../support/own-postgres.ts';
import { startProgram } from '../../support/program.ts';
import { succeeds } from '../../support/succeeds.ts';

/** Debian installs it outside an ordinary user's PATH. */
const program = ['pgbouncer', '/usr/sbin/pgbouncer'].find((path) => succeeds(path, '--version'));
export const hasPgBouncer = program !== undefined;
if (!hasPgBouncer) console.log('skipped: PgBouncer is not installed (apt-get install pgbouncer)');

/** Starts one for the database `postgres` of this server (libpq settings). Its files are in `parent`. */
export async function startPgBouncer(parent: string, server: string, settings: readonly string[] = []) {
  const folder = await mkdtemp(join(parent, 'pgbouncer-'));
  const [port] = Object.values(await choosePorts());
  const file = join(folder, 'pgbouncer.ini');
  await writeFile(
    file,
    `[databases]
postgres = ${server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
${settings.join('\n')}
`,
  );
  await chmod(folder, 0o755);
  await chmod(file, 0o644);
  // PgBouncer does not run as root; the socket accepts the account that runs PostgreSQL.
  const account = databaseAccount();
  if (account) await chown(folder, account.uid, account.gid);
  const { child, until, end } = startProgram([program as string, file], account ?? {});
  await until(/process up/);
  return {
    port,
    pid: child.pid ?? 0,
    async stop() {
      child.kill('SIGCONT');
      await end('SIGTERM');
    },
  };
}
