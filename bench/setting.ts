// The environment of every benchmark: an embedded PostgreSQL, a merchant with a key, and the processes.

import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { chmod, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import net from 'node:net';
import os from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import type { MikroORM } from '@mikro-orm/postgresql';
import pg from 'pg';
import { pgConfigOf, type SocketLocation } from '../src/config/database-location.ts';
import { parseKeyRing } from '../src/config/key-ring.ts';
import { parseIdentifier } from '../src/database/identifiers.ts';
import { createOrm, migrate } from '../src/database/orm.ts';
import { startEmbeddedPostgres } from '../src/embedded/postgres.ts';
import { createApiKey, createMerchant } from '../src/merchants/administration.ts';

export interface Setting {
  /** Empty at first and removed afterwards. */
  folder: string;
  postgres: SocketLocation;
}

/** A database with our schema, and a merchant in it. */
export interface PreparedDatabase {
  location: SocketLocation;
  orm: MikroORM;
  /** UUID. */
  merchantId: string;
  apiKey: string;
  /** The environment variables of our service for this database. */
  environment: Record<string, string>;
}

/** Time for the JIT compiler to optimise a server. Before, a create takes two to four times the CPU time. */
export const warmUpSeconds = 5;

/** Runs a benchmark on its own PostgreSQL with default settings: `fsync` and `synchronous_commit` on. */
export async function withSetting(benchmark: (setting: Setting) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(join(os.tmpdir(), 'pi-bench-'));
  await chmod(folder, 0o711);
  const postgres = await startEmbeddedPostgres(join(folder, 'data'));
  try {
    // PostgreSQL has a process group of its own: after Ctrl-C it would go on running.
    const interrupted = once(process, 'SIGINT').then(() => {
      throw new Error('interrupted');
    });
    await Promise.race([benchmark({ folder, postgres: postgres.location }), interrupted]);
  } finally {
    await postgres.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

export async function prepareDatabase(location: SocketLocation): Promise<PreparedDatabase> {
  await migrate(location);
  const pepper = `1:${randomBytes(32).toString('base64')}`;
  const orm = createOrm(location, 2);
  const wallet = `0x${'1'.repeat(40)}` as const;
  const merchant = await createMerchant(orm.em, 'Bench', 'testnet', { base: wallet, polygon: wallet });
  const { apiKey } = await createApiKey(orm.em, parseKeyRing(pepper), merchant, 'testnet', undefined);
  const { socketFolder, user, database } = location;
  return {
    location,
    orm,
    merchantId: parseIdentifier('mer', merchant) ?? '',
    apiKey,
    environment: {
      DATABASE_URL: `postgresql://${user}@localhost/${database}?host=${encodeURIComponent(socketFolder)}`,
      API_KEY_PEPPERS: pepper,
      CLIENT_SECRET_KEYS: pepper,
      WEBHOOK_SECRET_KEYS: pepper,
      HTTP_PORT: '0',
      GRPC_PORT: '0',
      METRICS_PORT: '0',
      RATE_LIMIT: '0',
    },
  };
}

/** Creates one more database on the same PostgreSQL, and prepares it. */
export async function prepareAnother(first: PreparedDatabase, name: string): Promise<PreparedDatabase> {
  await first.orm.em.execute(`create database ${name}`);
  return prepareDatabase({ ...first.location, database: name });
}

/** Creates the contenders' database, with its own schema and the same merchant. */
export async function prepareByHand(ours: PreparedDatabase): Promise<SocketLocation> {
  const location = { ...ours.location, database: 'by_hand' };
  await ours.orm.em.execute('create database by_hand');
  const client = new pg.Client(pgConfigOf(location));
  await client.connect();
  await client.query(await readFile(new URL('contenders/schema.sql', import.meta.url), 'utf8'));
  await client.query('insert into merchants values ($1, $2)', [ours.merchantId, 'Bench']);
  await client.end();
  return location;
}

/** The environment of a contender, which uses the database through `pg`. */
export function environmentByHand(
  { apiKey, merchantId }: PreparedDatabase,
  { socketFolder, user, database }: SocketLocation,
): Record<string, string> {
  return {
    PGHOST: socketFolder,
    PGUSER: user,
    PGDATABASE: database,
    API_KEY: apiKey,
    MERCHANT_ID: merchantId,
  };
}

export interface Running {
  port: number;
  /** Stops the process and waits until it has ended. */
  stop(): Promise<void>;
  /** Sends it a signal: `SIGSTOP` pauses it, `SIGCONT` resumes it. */
  send(signal: NodeJS.Signals): void;
  /** Processor time used, in seconds. */
  cpuSeconds(): Promise<number>;
  /** Resident memory in MB (10^6 bytes): now, and at its peak. */
  residentMb(): Promise<{ now: number; peak: number }>;
}

/** Starts our service as `npm start` does, with the door under test on its own port. */
export async function startOurs(
  environment: Record<string, string>,
  door: 'HTTP_PORT' | 'GRPC_PORT',
): Promise<Running> {
  const port = await freePort();
  return start(await ourCommand(), { ...environment, [door]: String(port) }, port);
}

/** Starts a contender or another program of ours, which reads its port from PORT. */
export async function startContender(program: string, environment: Record<string, string>): Promise<Running> {
  const port = await freePort();
  return start(`exec node ${program}`, { ...environment, PORT: String(port) }, port);
}

/** Starts another program of ours as `npm start` starts the service. */
export async function startWithOurFlags(
  program: string,
  environment: Record<string, string>,
): Promise<Running> {
  const port = await freePort();
  const command = (await ourCommand()).replace(/\S+$/, program);
  return start(command, { ...environment, PORT: String(port) }, port);
}

/** The command of `npm start`. */
async function ourCommand(): Promise<string> {
  const { scripts } = JSON.parse(await readFile('package.json', 'utf8')) as { scripts: { start: string } };
  return scripts.start;
}

/** Runs a shell command that ends in "exec", so that the process is the program itself. */
async function start(command: string, environment: Record<string, string>, port: number): Promise<Running> {
  const child = spawn('sh', ['-c', command], {
    env: { PATH: `${dirname(process.execPath)}:${process.env.PATH}`, ...environment },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  // A failed benchmark leaves nothing running.
  const kill = () => child.kill('SIGKILL');
  process.once('exit', kill);
  child.once('exit', () => process.off('exit', kill));
  await printsReady(child, command);
  const procFile = (name: string) => readFile(`/proc/${child.pid}/${name}`, 'utf8');
  return {
    port,
    async stop() {
      const exited = once(child, 'exit');
      child.kill('SIGTERM');
      await exited;
    },
    send: (signal) => child.kill(signal),
    cpuSeconds: async () => cpuSecondsOf(await procFile('stat')).own,
    residentMb: () => residentMbOf(child.pid as number),
  };
}

/** Resident memory of a process in MB (10^6 bytes): now, and at its peak. */
export async function residentMbOf(pid: number): Promise<{ now: number; peak: number }> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  const megabytes = (name: string) =>
    (Number(new RegExp(`${name}:\\s+(\\d+) kB`).exec(status)?.[1]) * 1024) / 1e6;
  return { now: megabytes('VmRSS'), peak: megabytes('VmHWM') };
}

/** Reads /proc/<pid>/stat: the processor time of a process, and that of its children that have ended. */
function cpuSecondsOf(stat: string): { own: number; children: number; parent: number } {
  // After the command's name: field 4 is the parent; 14 to 17 are utime, stime, cutime, cstime, in 1/100 s.
  const fields = stat
    .replace(/^.*\) /s, '')
    .split(' ')
    .map(Number);
  const [user = 0, system = 0, childUser = 0, childSystem = 0] = fields.slice(11, 15);
  return { own: (user + system) / 100, children: (childUser + childSystem) / 100, parent: fields[1] ?? 0 };
}

/** Processor time that all processes of the setting's PostgreSQL have used so far, in seconds. */
export async function postgresCpuSeconds({ folder }: Setting): Promise<number> {
  const [first = ''] = (await readFile(join(folder, 'data', 'postgres', 'postmaster.pid'), 'utf8')).split(
    '\n',
  );
  const postmaster = Number(first);
  let seconds = 0;
  for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
    // A process may end while the list is read.
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => undefined);
    if (stat === undefined) continue;
    const { own, children, parent } = cpuSecondsOf(stat);
    if (Number(pid) === postmaster) seconds += own + children;
    else if (parent === postmaster) seconds += own;
  }
  return seconds;
}

/** Processor time during `run`, in microseconds: of the server (`ownMicros`), and with PostgreSQL's (`cpuMicros`). */
export async function cpuMicrosOf<T>(
  setting: Setting,
  server: Running,
  run: () => Promise<T>,
): Promise<{ result: T; cpuMicros: number; ownMicros: number }> {
  const read = () => Promise.all([server.cpuSeconds(), postgresCpuSeconds(setting)]);
  const [own, postgres] = await read();
  const result = await run();
  const [ownAfter, postgresAfter] = await read();
  const ownMicros = (ownAfter - own) * 1e6;
  return { result, cpuMicros: ownMicros + (postgresAfter - postgres) * 1e6, ownMicros };
}

/** Resolves once the process prints a line with "ready". Its output is read and discarded. */
export async function printsReady(child: ChildProcess, name: string): Promise<void> {
  const output = child.stdout as NodeJS.ReadableStream;
  const lines = createInterface({ input: output });
  await new Promise<void>((resolve, reject) => {
    child.once('exit', (code) => reject(new Error(`${name} ended with ${code} before it was ready`)));
    lines.on('line', (line) => {
      if (line.includes('ready')) resolve();
    });
  });
  // Thousands of lines a second: splitting them would take time from the server.
  lines.close();
  output.resume();
}

/** Returns a port on which nothing listens. */
export async function freePort(): Promise<number> {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as net.AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const [lower, upper] = [sorted[(sorted.length - 1) >> 1], sorted[middle]];
  return ((lower ?? Number.NaN) + (upper ?? Number.NaN)) / 2;
}

/** The value that this fraction of the values, between 0 and 1, does not exceed. */
export function percentile(values: readonly number[], part: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? Number.NaN;
}

/** The ratios of the values at the same positions of two lists. */
export function ratiosOf(values: readonly number[], others: readonly number[]): number[] {
  return values.map((value, i) => value / (others[i] ?? Number.NaN));
}

/** The median of ratios, with the lowest and the highest: "**1.97** (1.68 to 2.13)". */
export function spread(ratios: readonly number[]): string {
  return `**${median(ratios).toFixed(2)}** (${Math.min(...ratios).toFixed(2)} to ${Math.max(...ratios).toFixed(2)})`;
}

/** Returns the items in order, or reversed in every second round, so that none always runs first or last. */
export function inTurn<T>(items: readonly T[], round: number): readonly T[] {
  return round % 2 === 0 ? items : items.toReversed();
}

/** The beginning of every report: "on 2026-01-31: 2 cores (AMD EPYC), Node.js v24.1.0". */
export function onThisMachine(): string {
  const cores = os.cpus();
  return `on ${new Date().toISOString().slice(0, 10)}: ${cores.length} cores (${cores[0]?.model.trim()}), Node.js ${process.version}`;
}

export function table(head: readonly string[], rows: readonly (readonly (string | number)[])[]): string {
  const line = (cells: readonly (string | number)[]) => `| ${cells.join(' | ')} |`;
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n');
}

/** Prints a report and writes it beside this file. */
export async function publish(name: string, text: string): Promise<void> {
  console.log(text);
  await writeFile(join(import.meta.dirname, name), text);
}
