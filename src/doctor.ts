// `admin doctor`: what an operator would check by hand when the service does not start, or starts and misbehaves.

import { X509Certificate } from 'node:crypto';
import { createServer } from 'node:net';
import { type Config, loadConfig, reachable, type SecretName } from './config.ts';
import { type Database, openDatabase } from './database/open-database.ts';
import { newUuid } from './identifiers.ts';
import { maxExpiryMinutes } from './payment-intents/payment-intent.ts';
import { StartupError } from './startup-error.ts';
import { readTls } from './tls.ts';

export interface Finding {
  check: string;
  ok: boolean;
  /** What was found; where it is not ok, what to do about it. */
  message: string;
}

/** The oldest PostgreSQL that the service is tested with, as `server_version_num` counts. */
const minPostgresVersion = 140_000;
/** An intent's times are this machine's: beyond that, payers would see the difference. */
const maxClockDifferenceMs = 2_000;
const minCertificateDays = 14;

/** Checks one thing after the other, and goes on after what failed wherever the rest can still be checked. */
export async function* diagnose(env: Readonly<Record<string, string | undefined>>): AsyncGenerator<Finding> {
  let config: Config;
  try {
    config = loadConfig(env);
  } catch (error) {
    yield { check: 'configuration', ok: false, message: (error as Error).message };
    return;
  }
  yield { check: 'configuration', ok: true, message: 'every variable is usable' };
  if (config.tls !== undefined) yield await attempt('TLS', () => checkCertificate(config));
  yield* checkDatabase(config);
  for (const [variable, port] of [
    ['HTTP_PORT', config.httpPort],
    ['GRPC_PORT', config.grpcPort],
    ['METRICS_PORT', config.metricsPort],
  ] as const) {
    yield await checkPort(config, variable, port);
  }
}

async function* checkDatabase(config: Config): AsyncGenerator<Finding> {
  let database: Database;
  try {
    database = await openDatabase({ ...config, databasePool: 2 });
  } catch (error) {
    yield { check: 'database', ok: false, message: messageOf(error) };
    return;
  }
  try {
    yield await attempt('database', () => checkServer(database));
    yield checkSchema(database);
    if (database.pending.length === 0) {
      yield await attempt('secrets', () => checkSecrets(database));
      yield await attempt('keys', () => checkKeyFormats(database));
    }
    yield await attempt('clock', () => checkClock(database));
  } finally {
    await database.close();
  }
}

async function checkServer(database: Database): Promise<Omit<Finding, 'check'>> {
  const startedAtMs = performance.now();
  const [server] = await database.orm.em.fork().execute<{ version: string; number: number; free: number }[]>(
    `select current_setting('server_version') as version, current_setting('server_version_num')::int as number,
              current_setting('max_connections')::int - (select count(*)::int from pg_stat_activity
                where backend_type = 'client backend') as free`,
  );
  const tookMs = Math.round(performance.now() - startedAtMs);
  if (server === undefined) throw new Error('PostgreSQL said nothing of itself');
  const found = `PostgreSQL ${server.version}${database.embedded ? ', embedded' : ''}, ${tookMs} ms away, ${server.free} connections free`;
  return server.number < minPostgresVersion
    ? { ok: false, message: `${found}: it has to be PostgreSQL 14 or newer` }
    : { ok: true, message: found };
}

function checkSchema({ pending }: Database): Finding {
  return pending.length === 0
    ? { check: 'schema', ok: true, message: 'up to date' }
    : {
        check: 'schema',
        ok: false,
        message: `lacks ${pending.join(', ')}: run "npm run -s admin -- migrate"`,
      };
}

/** Every version that some row was made with has to be in its ring: otherwise keys are refused, or retries fail. */
async function checkSecrets(database: Database): Promise<Omit<Finding, 'check'>> {
  const em = database.orm.em.fork();
  const used: Record<SecretName, { version: number }[]> = {
    API_KEY_PEPPERS: await em.execute(
      'select distinct pepper_version as version from api_keys where revoked_at is null and (expires_at is null or expires_at > now())',
    ),
    CLIENT_SECRET_KEYS: await em.execute(
      'select distinct client_secret_version as version from payment_intents where id > ?',
      // An id carries its time: those that may still be paid are found by the primary key.
      [newUuid(Date.now() - maxExpiryMinutes * 60_000)],
    ),
  };
  const missing = Object.entries(used).flatMap(([name, rows]) => {
    const { versions } = database.keyRing(name as SecretName);
    return rows
      .filter(({ version }) => !versions.includes(version))
      .map(({ version }) => `version ${version} of ${name}`);
  });
  return missing.length === 0
    ? { ok: true, message: 'hold every version that keys and open intents were made with' }
    : { ok: false, message: `lack ${missing.join(' and ')}: put it back behind the newest` };
}

/** Keys of the first release are valid, but anybody can make up keys that look like them: each costs a query. */
async function checkKeyFormats(database: Database): Promise<Omit<Finding, 'check'>> {
  const [row] = await database.orm.em.fork().execute<{ old: number }[]>(
    `select count(*)::int as old from api_keys
      where format = 'crc32' and revoked_at is null and (expires_at is null or expires_at > now())`,
  );
  const old = row?.old ?? 0;
  return {
    ok: true,
    message:
      old === 0
        ? 'all have keyed check characters'
        : `${old} of the first release (format crc32 in "key list"): they stay valid; rotate them when convenient`,
  };
}

async function checkClock(database: Database): Promise<Omit<Finding, 'check'>> {
  const before = Date.now();
  const [row] = await database.orm.em
    .fork()
    .execute<{ ms: string }[]>('select (extract(epoch from clock_timestamp()) * 1000)::bigint as ms');
  // The database answered somewhere between the two.
  const difference = Number(row?.ms) - (before + Date.now()) / 2;
  const found = `${Math.abs(Math.round(difference))} ms from the database's`;
  return Math.abs(difference) > maxClockDifferenceMs
    ? { ok: false, message: `${found}: let both machines follow a time server` }
    : { ok: true, message: found };
}

async function checkCertificate({ tls }: Config): Promise<Omit<Finding, 'check'>> {
  if (tls === undefined) throw new Error('there is no TLS to check');
  const { cert } = await readTls(tls);
  const { subject, validTo } = new X509Certificate(cert);
  const days = Math.floor((Date.parse(validTo) - Date.now()) / 86_400_000);
  const found = `${subject.replaceAll('\n', ', ')} ends ${days < 0 ? `${-days} days ago` : `in ${days} days`}`;
  return days < minCertificateDays
    ? { ok: false, message: `${found}: renew ${tls.certFile} and send the service SIGHUP` }
    : { ok: true, message: found };
}

async function checkPort({ host, metricsPort }: Config, variable: string, port: number): Promise<Finding> {
  const check = variable;
  if (port === 0) return { check, ok: true, message: '0: any free port' };
  const error = await tryToListen(host, port);
  if (error === undefined) return { check, ok: true, message: `port ${port} of ${host} is free` };
  if (error.code !== 'EADDRINUSE') {
    return { check, ok: false, message: `port ${port} of ${host} cannot be used: ${error.message}` };
  }
  // Taken by this service while it runs is as it should be.
  const alive = await fetch(`http://${reachable(host)}:${metricsPort}/healthz`, {
    signal: AbortSignal.timeout(2_000),
  })
    .then(async (answer) => ((await answer.json()) as { status?: unknown }).status === 'alive')
    .catch(() => false);
  return alive
    ? { check, ok: true, message: `port ${port} of ${host} is in use, and the service is running` }
    : {
        check,
        ok: false,
        message: `port ${port} of ${host} is taken by something else: stop that, or set ${variable} to another port`,
      };
}

function tryToListen(host: string, port: number): Promise<NodeJS.ErrnoException | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', resolve);
    server.listen(port, host, () => server.close(() => resolve(undefined)));
  });
}

async function attempt(check: string, look: () => Promise<Omit<Finding, 'check'>>): Promise<Finding> {
  try {
    return { check, ...(await look()) };
  } catch (error) {
    return { check, ok: false, message: messageOf(error) };
  }
}

function messageOf(error: unknown): string {
  if (error instanceof StartupError) return error.message;
  return error instanceof Error ? (error.message.split('\n', 1)[0] as string) : String(error);
}
