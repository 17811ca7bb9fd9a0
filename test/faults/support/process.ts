// The processes that a fault test may kill: the service and its PostgreSQL, with a merchant.

import { execFile, spawn } from 'node:child_process';
import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import type { MikroORM } from '@mikro-orm/postgresql';
import type pg from 'pg';
import { afterAll, beforeAll, expect, inject } from 'vitest';
import type { SecretName } from '../../../src/config/config.ts';
import type { DatabaseLocation, SocketLocation } from '../../../src/config/database-location.ts';
import { parseKeyRing } from '../../../src/config/key-ring.ts';
import { createOrm, migrate, type ourMigrations } from '../../../src/database/orm.ts';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../../src/embedded/postgres.ts';
import { createApiKey, createMerchant, revokeApiKey } from '../../../src/merchants/administration.ts';
import { type Call, type Endpoints, openCalls } from '../../support/call.ts';
import { findLeaks } from '../../support/leaks.ts';
import { choosePorts } from '../../support/listen.ts';
import { openClient } from '../../support/open-client.ts';
import { freezeServer } from '../../support/own-postgres.ts';
import { databaseUrl, newSecrets } from '../../support/test-environment.ts';

export interface ServiceProcess extends Endpoints {
  /** Uses the cluster's key unless another is given. */
  call: Call;
  pid: number;
  operationsUrl: string;
  /** Lines of the log so far, parsed. */
  log: Record<string, unknown>[];
  /** Sends a signal and resolves with the exit status of the process. */
  end(signal: NodeJS.Signals): Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
  kill(signal: NodeJS.Signals): void;
  residentMb(): Promise<number>;
  /** The peak resident memory since the start. */
  peakResidentMb(): Promise<number>;
  /** Stops reading its standard output, like a stuck journal, or continues. */
  readLog(isRead: boolean): void;
}

const running = new Set<ServiceProcess>();
const allLines: Record<string, unknown>[] = [];

/** The log of all processes of this test file. */
export function logLines(): readonly Record<string, unknown>[] {
  return allLines;
}

/** Kills processes that a test has left running. */
export async function endAll(): Promise<void> {
  await Promise.all([...running].map((service) => service.end('SIGKILL')));
}

/**
 * Starts the service as `npm start` does, on its own ports unless `env` sets them. Resolves when it is ready.
 * `folder` has the code of another release, to run that instead of this one.
 */
export async function startProcess(
  cluster: Pick<Cluster, 'url' | 'secrets' | 'apiKey'>,
  env: Record<string, string> = {},
  { openFiles = 'unlimited', folder = '.' }: { openFiles?: string; folder?: string } = {},
): Promise<ServiceProcess> {
  const settings = { ...(await choosePorts()), ...env };
  const manifest = await readFile(join(folder, 'package.json'), 'utf8');
  const { scripts } = JSON.parse(manifest) as { scripts: { start: string } };
  // The script ends in "exec", so the process is the service itself.
  const command = openFiles === 'unlimited' ? scripts.start : `ulimit -n ${openFiles} && ${scripts.start}`;
  const child = spawn('sh', ['-c', command], {
    cwd: folder,
    env: {
      PATH: `${dirname(process.execPath)}:${process.env.PATH}`,
      DATABASE_URL: cluster.url,
      ...cluster.secrets,
      RATE_LIMIT: '0',
      DRAIN_DELAY: '0',
      ...settings,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const urls = {
    publicUrl: `http://127.0.0.1:${settings.HTTP_PORT}`,
    internalUrl: `http://127.0.0.1:${settings.GRPC_PORT}`,
  };
  const { call, close } = openCalls(urls, cluster.apiKey);
  const exited = new Promise<{ code: number | null; signal: NodeJS.Signals | null }>((resolve) => {
    child.once('exit', (code, signal) => {
      running.delete(service);
      close();
      resolve({ code, signal });
    });
  });
  const log: Record<string, unknown>[] = [];
  const lines = createInterface({ input: child.stdout });
  const memoryMb = async (name: 'VmRSS' | 'VmHWM') => {
    const status = await readFile(`/proc/${child.pid}/status`, 'utf8');
    return (Number(new RegExp(`${name}:\\s+(\\d+) kB`).exec(status)?.[1]) * 1024) / 1e6;
  };
  const service: ServiceProcess = {
    ...urls,
    call,
    pid: child.pid ?? 0,
    operationsUrl: `http://127.0.0.1:${settings.METRICS_PORT}`,
    log,
    end(signal) {
      child.kill(signal);
      return exited;
    },
    kill: (signal) => void child.kill(signal),
    residentMb: () => memoryMb('VmRSS'),
    peakResidentMb: () => memoryMb('VmHWM'),
    readLog(isRead) {
      if (isRead) lines.resume();
      else lines.pause();
    },
  };
  running.add(service);
  let complaints = '';
  child.stderr.on('data', (chunk) => {
    complaints += chunk;
  });
  await new Promise<void>((resolve, reject) => {
    void exited.then(({ code }) => reject(new Error(`the service ended with ${code}: ${complaints}`)));
    lines.on('line', (line) => {
      // A kill can leave an incomplete line.
      if (!line.startsWith('{') || !line.endsWith('}')) return;
      const entry = JSON.parse(line);
      log.push(entry);
      allLines.push(entry);
      if (entry.message === 'ready') resolve();
    });
  });
  return service;
}

/** Waits until `GET /readyz` returns the status. Resolves with the time that took; throws after a timeout. */
export async function untilReadyz(
  service: Pick<ServiceProcess, 'operationsUrl'>,
  status: 200 | 503,
  timeoutMs: number,
): Promise<number> {
  const startedAtMs = performance.now();
  for (;;) {
    const answer = await fetch(`${service.operationsUrl}/readyz`).catch(() => undefined);
    await answer?.text();
    const tookMs = performance.now() - startedAtMs;
    if (answer?.status === status) return tookMs;
    if (tookMs > timeoutMs)
      throw new Error(`/readyz is ${answer?.status} after ${timeoutMs} ms, not ${status}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

export interface Cluster {
  folder: string;
  location: SocketLocation;
  /** The cluster's own `DATABASE_URL`. */
  url: string;
  /** The path of its socket. */
  socket: string;
  secrets: Record<SecretName, string>;
  merchantId: string;
  apiKey: string;
  keyId: string;
  /** Creates a merchant in another database, with the same secrets. Returns the merchant's key. */
  newKeyIn(location: DatabaseLocation): Promise<string>;
  newKey(): Promise<{ keyId: string; apiKey: string }>;
  revoke(keyId: string): Promise<void>;
  query<T extends pg.QueryResultRow>(sql: string, values?: unknown[]): Promise<T[]>;
  /** An immediate shutdown: no checkpoint, sessions are cut. Resolves when the server has ended. */
  stopImmediately(): Promise<void>;
  start(): Promise<void>;
  /** Freezes the server and the processes of its sessions. Nothing is closed. */
  hang(): Promise<void>;
  /** Lets them continue. */
  goOn(): void;
}

/** Provides one cluster for the tests of a file, with the newest schema unless told otherwise. */
export function useCluster(migrations?: typeof ourMigrations): Cluster {
  const cluster = {} as Cluster;
  let dispose: () => Promise<void>;
  beforeAll(async () => {
    const opened = await openCluster(migrations);
    dispose = opened.dispose;
    Object.assign(cluster, opened.cluster);
  });
  afterAll(() => dispose());
  return cluster;
}

/** Runs a statement on the first host of the location, on a connection of its own. */
export async function queryOnce<T extends pg.QueryResultRow>(
  location: DatabaseLocation,
  sql: string,
  values?: unknown[],
): Promise<T[]> {
  const client = await openClient(location);
  const result = await client.query<T>(sql, values).finally(() => client.end());
  return result.rows;
}

type WithMerchant = Pick<
  Cluster,
  'secrets' | 'merchantId' | 'apiKey' | 'keyId' | 'newKey' | 'newKeyIn' | 'revoke'
>;

/** Creates a merchant with a key in a migrated database. */
export async function withMerchant(location: DatabaseLocation): Promise<WithMerchant> {
  const secrets = newSecrets();
  const wallet = `0x${'1'.repeat(40)}` as const;
  const withOrm = async <T>(work: (orm: MikroORM) => Promise<T>, at = location) => {
    const orm = createOrm(at, 1);
    return work(orm).finally(() => orm.close());
  };
  const newMerchant = ({ em }: MikroORM, name: string) =>
    createMerchant(em, name, 'testnet', { base: wallet, polygon: wallet });
  const keyOf = ({ em }: MikroORM, merchant: string) =>
    createApiKey(em, parseKeyRing(secrets.API_KEY_PEPPERS), merchant, 'testnet', undefined);
  const merchantId = await withOrm((orm) => newMerchant(orm, 'Faults'));
  const newKey = () => withOrm((orm) => keyOf(orm, merchantId));
  return {
    secrets,
    ...(await newKey()),
    merchantId,
    newKey,
    newKeyIn: (other) =>
      withOrm(async (orm) => (await keyOf(orm, await newMerchant(orm, 'Elsewhere'))).apiKey, other),
    revoke: (keyId) => withOrm(async (orm) => void (await revokeApiKey(orm.em, keyId))),
  };
}

async function openCluster(
  migrations: typeof ourMigrations | undefined,
): Promise<{ cluster: Cluster; dispose: () => Promise<void> }> {
  const folder = await mkdtemp(join(tmpdir(), 'pi-fault-'));
  // For root, PostgreSQL runs as another user, which needs access.
  await chmod(folder, 0o711);
  const dataDir = join(folder, 'data');
  if (migrations === undefined) await promisify(execFile)('cp', ['-Rp', inject('migratedData'), dataDir]);
  let postgres: EmbeddedPostgres = await startEmbeddedPostgres(dataDir);
  const { location } = postgres;
  if (migrations !== undefined) await migrate(location, migrations);

  const serverPid = async () =>
    Number((await readFile(join(location.socketFolder, 'postmaster.pid'), 'utf8')).split('\n')[0]);
  let stopped: number[] = [];

  const cluster: Cluster = {
    folder,
    location,
    url: databaseUrl(location),
    socket: join(location.socketFolder, '.s.PGSQL.5432'),
    ...(await withMerchant(location)),
    query: (sql, values) => queryOnce(location, sql, values),
    async stopImmediately() {
      process.kill(await serverPid(), 'SIGQUIT');
      await postgres.ended;
    },
    async start() {
      postgres = await startEmbeddedPostgres(dataDir);
    },
    async hang() {
      stopped = await freezeServer(await serverPid());
    },
    goOn() {
      for (const pid of stopped) process.kill(pid, 'SIGCONT');
      stopped = [];
    },
  };
  const dispose = async () => {
    const secrets = Object.values(cluster.secrets).map((ring) => ring.replace('1:', ''));
    const leaks = await findLeaks(logLines(), (sql) => cluster.query(sql), secrets);
    await postgres.stop();
    await rm(folder, { recursive: true, force: true });
    expect(leaks).toEqual([]);
  };
  return { cluster, dispose };
}
