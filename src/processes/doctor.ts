// `admin doctor`: checks to run when the service does not start or misbehaves.

import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { access, constants, statfs } from 'node:fs/promises';
import { createServer } from 'node:net';
import { dirname, resolve } from 'node:path';
import { createFacilitator } from '../authorizations/facilitator.ts';
import type { ChainFacilitator, Config } from '../config/config.ts';
import { loadConfig, misspeltVariables, reachable, readTls } from '../config/config.ts';
import { urlsOf } from '../config/database-location.ts';
import { StartupError } from '../config/startup-error.ts';
import { blocksIn, type ChainSettings, chainNamed, chains } from '../contract/chains.ts';
import { faultOf, remedyFor } from '../database/remedies.ts';
import { readClockAheadMs, readReplication, replicationRole } from '../database/replication.ts';
import { assertWritable, findMissingRights, minFreeMb, probeDisk } from '../database/writability.ts';
import { findEmbeddedPostgres } from '../embedded/postgres.ts';
import { findBrokenRules } from '../payment-intents/intent-rules.ts';
import { findUnwatchedMainnet } from '../payment-intents/watched-chains.ts';
import { assertKeys, assertVersions } from './key-checks.ts';
import { type Database, openDatabase, openEmbedded } from './open-database.ts';

interface Finding {
  check: string;
  ok: boolean;
  /** The finding and, if it is not ok, the remedy. */
  message: string;
}

/** The oldest tested version of PostgreSQL, as `server_version_num`. */
const minPostgresVersion = 140_000;
/** An intent's times come from this machine's clock. Payers would notice a larger difference. */
const maxClockDifferenceMs = 2_000;
const minCertificateDays = 14;
/** A chain's blocks are at most two seconds apart, a local chain's at most a minute. */
const maxBlockAgeMs = 120_000;
/** As the alerts PaymentIntentsNotVerified, PaymentIntentsChainClock and PaymentIntentsChainBehind. */
const maxUnverifiedMs = 900_000;
const maxClockSkewMs = 30_000;
const maxBehindMs = 120_000;
/** The number of intents verified unless all are requested. Takes a few tenths of a second. */
const newestIntents = 100_000;

/** Runs the checks in order. After a failure, all checks that are still possible run. */
export async function* diagnose(
  env: Readonly<Record<string, string | undefined>>,
  { allIntents = false }: { allIntents?: boolean } = {},
): AsyncGenerator<Finding> {
  let config: Config;
  try {
    config = loadConfig(env);
  } catch (error) {
    yield { check: 'configuration', ok: false, message: (error as Error).message };
    return;
  }
  const misspelt = misspeltVariables(env).map(({ problem }) => problem);
  yield {
    check: 'configuration',
    ok: misspelt.length === 0,
    message: misspelt.join('; ') || 'every variable is usable',
  };
  const { host, console, tls } = config;
  if (tls !== undefined) yield await attempt('TLS', () => checkCertificate(tls));
  for (const { facilitator, ...settings } of config.chainNodes) {
    if (facilitator) yield await attempt('facilitator', () => checkFacilitator(settings, facilitator));
  }
  const databaseConfig: Config = { ...config, databasePool: 2 };
  // Reading every intent can take a long time.
  if (allIntents)
    databaseConfig.databaseTimeouts = { ...config.databaseTimeouts, statementTimeoutMs: 3_600_000 };
  const intents = allIntents ? 'all' : newestIntents;
  if (config.databaseUrl === undefined) yield* checkEmbedded(databaseConfig, intents);
  else yield* checkDatabase(() => openDatabase(databaseConfig), intents);
  const ports: [variable: string, port: number, host: string][] = [
    ['HTTP_PORT', config.httpPort, host],
    ['GRPC_PORT', config.grpcPort, host],
    ['METRICS_PORT', config.metricsPort, host],
  ];
  if (console) ports.push(['CONSOLE_PORT', console.port, console.host]);
  for (const [variable, ...place] of ports) {
    yield await attempt(variable, () => checkPort(config, variable, ...place));
  }
}

/** Checks the embedded database only if it is running: a check must not create or start it. */
async function* checkEmbedded(config: Config, intents: number | 'all'): AsyncGenerator<Finding> {
  yield await attempt('data folder', () => checkDataFolder(config));
  const postgres = await findEmbeddedPostgres(config.dataDir);
  if (typeof postgres === 'object') {
    yield* checkDatabase(() => openEmbedded(config, postgres, false), intents);
    return;
  }
  const message =
    postgres === 'not made'
      ? `embedded, not created yet: the first "npm start" creates it in ${config.dataDir}`
      : `embedded, in ${config.dataDir}, not running: "npm start" starts it; its contents were not checked`;
  yield { check: 'database', ok: true, message };
}

async function checkFacilitator(settings: ChainSettings, facilitator: ChainFacilitator): Promise<string> {
  const name = `${settings.mode} ${settings.chain}: ${new URL(facilitator.url).host}`;
  const problem = await createFacilitator(facilitator).problemWith(settings);
  if (problem === undefined) return `${name} takes x402 version 2 with the scheme exact`;
  throw new StartupError(`${name} ${problem}; payers cannot pay by a signature`);
}

async function checkDataFolder({ dataDir }: Config): Promise<string> {
  // A folder that does not exist yet will be created in its nearest existing parent.
  let folder = resolve(dataDir);
  while (!existsSync(folder)) folder = dirname(folder);
  const { bavail, bsize } = await statfs(folder);
  const freeMb = Math.floor((bavail * bsize) / 1e6);
  const found = `${freeMb} MB free for ${dataDir}`;
  if (freeMb < minFreeMb) throw new StartupError(`${found}: make room, or set DATA_DIR to another disk`);
  await access(folder, constants.R_OK | constants.W_OK | constants.X_OK);
  return found;
}

async function* checkDatabase(
  open: () => Promise<Database>,
  intents: number | 'all',
): AsyncGenerator<Finding> {
  let database: Database;
  try {
    database = await open();
  } catch (error) {
    yield { check: 'database', ok: false, message: messageOf(error) };
    return;
  }
  try {
    yield await attempt('database', () => checkServer(database));
    yield await attempt('schema', () => checkSchema(database));
    if (database.pending.length === 0) yield await attempt('rights', () => checkRights(database));
    yield await attempt('disk', () => checkDisk(database));
    if (database.pending.length === 0) {
      yield await attempt('secrets', () => checkSecrets(database));
      yield await attempt('keys', () => checkKeyFormats(database));
      yield await attempt('replication', () => checkReplication(database));
      yield await attempt('intents', () => checkIntents(database, intents));
      yield await attempt('chains', () => checkChains(database));
    }
    yield await attempt('clock', () => checkClock(database));
  } finally {
    await database.close();
  }
}

async function checkRights({ orm }: Database): Promise<string> {
  const missing = await findMissingRights(orm.em);
  if (missing !== undefined) throw new StartupError(missing);
  await assertWritable(orm.em);
  return 'the role may read and write what the service needs';
}

async function checkDisk({ orm }: Database): Promise<string> {
  return (await probeDisk(orm.em))
    ? `${minFreeMb} MB can be written`
    : 'not checked: the role may not create temporary tables. Grant it temporary on the database';
}

async function checkServer(database: Database): Promise<string> {
  const startedAtMs = performance.now();
  const [server] = await database.orm.em
    .fork()
    .execute<{ version: string; number: number; fsync: string; free: number }[]>(
      `select current_setting('server_version') as version, current_setting('server_version_num')::int as number,
              current_setting('fsync') as fsync,
              least(
                current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
                  - coalesce(current_setting('reserved_connections', true)::int, 0) - count(*),
                nullif(rolconnlimit, -1) - count(*) filter (where usename = session_user),
                nullif(datconnlimit, -1) - count(*) filter (where a.datname = current_database()))::int as free
         from pg_roles r join pg_database d on rolname = session_user and d.datname = current_database()
         left join pg_stat_activity a on coalesce(backend_type, 'client backend') = 'client backend' and datid is not null
        group by rolconnlimit, datconnlimit`,
    );
  const tookMs = Math.round(performance.now() - startedAtMs);
  if (server === undefined) throw new Error('PostgreSQL returned no version');
  const found = `PostgreSQL ${server.version}${database.embedded ? ', embedded' : ''}, ${tookMs} ms away, ${server.free} connections free`;
  if (server.number < minPostgresVersion) {
    throw new StartupError(`${found}: it has to be PostgreSQL 14 or newer`);
  }
  if (server.fsync === 'off') {
    throw new StartupError(`${found}: fsync is off, so what is acknowledged is lost if its machine fails`);
  }
  if (server.number >= collationVersionsSince) await checkCollation(database, found);
  return found;
}

/** From this version, PostgreSQL records the version of a database's sorting rules. */
const collationVersionsSince = 150_000;

/** Fails if a library upgrade changed the sorting rules: the index of idempotency keys may then miss some. */
async function checkCollation({ orm }: Database, found: string): Promise<void> {
  const [changed] = await orm.em.fork().execute<{ name: string }[]>(
    `select quote_ident(datname) as name from pg_database
      where datname = current_database() and datcollversion <> pg_database_collation_actual_version(oid)`,
  );
  if (changed === undefined) return;
  throw new StartupError(
    `${found}: a system library has changed its collation, so indexes may miss rows: as the owner, run reindex database ${changed.name}; alter database ${changed.name} refresh collation version`,
  );
}

async function checkReplication({ orm, location }: Database): Promise<string> {
  const { isPrimary, timeline, epoch, waitsFor, archiveFails, standbys } = await readReplication(orm.em);
  if (!isPrimary) throw new StartupError('the database is a standby: name its primary in DATABASE_URL too');
  const found = `primary, timeline ${timeline}, epoch ${epoch}`;
  const state =
    standbys === null
      ? `${found}; its standbys are not visible: as a superuser, run grant ${replicationRole} to the role`
      : standbys.all === 0
        ? `${found}, without standby`
        : `${found}, ${standbys.synchronous} synchronous of ${standbys.all} standbys, ${standbys.lagSeconds.toFixed(1)} s behind`;
  const problems: string[] = [];
  if (standbys?.synchronous === 0 && waitsFor !== '')
    problems.push(`commits wait for ${waitsFor}, which is not attached`);
  // Several hosts mean that a standby is expected.
  else if (standbys?.synchronous === 0 && 'url' in location && urlsOf(location.url).length > 1)
    problems.push(
      'what is committed now is lost with this server. Bring a standby back, or set synchronous_standby_names',
    );
  if (archiveFails)
    problems.push(
      "the log cannot be archived, so it fills the disk and backups end. See pg_stat_archiver and the server's log",
    );
  if (problems.length > 0) throw new StartupError([state, ...problems].join('; '));
  return state;
}

async function checkSchema({ pending }: Database): Promise<string> {
  if (pending.length === 0) return 'up to date';
  throw new StartupError(`lacks ${pending.join(', ')}: run "npm run -s admin -- migrate"`);
}

async function checkSecrets(database: Database): Promise<string> {
  await assertVersions(database);
  await assertKeys(database);
  return 'hold every version used by keys, open intents and webhook secrets';
}

async function checkIntents({ orm }: Database, newest: number | 'all'): Promise<string> {
  const { read, broken } = await findBrokenRules(orm.em, newest);
  const which = newest === 'all' || read < newest ? `all ${read}` : `the newest ${read}`;
  if (broken.length === 0) return `${which} satisfy every rule`;
  const found = broken.map(
    ({ rule, count, example }) => `"${rule}" is broken by ${count}, such as ${example}`,
  );
  throw new StartupError(
    `${which} were read: ${found.join('; ')}. The service never writes such rows: find out what else writes to the table`,
  );
}

/** Keys of the first release stay valid. But anybody can make up such keys, and each one costs a query. */
async function checkKeyFormats(database: Database): Promise<string> {
  const [{ old }] = await database.orm.em.fork().execute<[{ old: number }]>(
    `select count(*)::int as old from api_keys
      where format = 'crc32' and revoked_at is null and (expires_at is null or expires_at > now())`,
  );
  return old === 0
    ? 'all have keyed check characters'
    : `${old} of the first release (format crc32 in "key list"): they stay valid; rotate them when convenient`;
}

/** Merchants with mainnet keys expect payments to be seen. */
async function unwatchedProblems({ orm }: Database): Promise<string[]> {
  const unwatched = await findUnwatchedMainnet(orm.em);
  const variables = chains.filter(({ mode }) => mode === 'mainnet').map(({ rpcVariable }) => rpcVariable);
  const remedy = (variables: string) =>
    `is not watched, but a mainnet key exists: set ${variables} on a process with the role watcher, or revoke the key`;
  return [
    ...unwatched.chains.map(
      (chain) => `mainnet ${chain} ${remedy(chainNamed('mainnet', chain).rpcVariable)}`,
    ),
    ...(unwatched.anyChain ? [`mainnet ${remedy(variables.join(' or '))}`] : []),
  ];
}

/** A watched chain must be read, from a node with recent blocks. */
async function checkChains(database: Database): Promise<string> {
  // Loads viem.
  const { chainsHealth } = await import('./chain-tasks.ts');
  const problems = await unwatchedProblems(database);
  const watched: string[] = [];
  const beforeStart: string[] = [];
  const unwatched: string[] = [];
  for (const { settings, row, isHeld, nodes } of await chainsHealth(database)) {
    const name = `${settings.mode} ${settings.chain}`;
    const newestMs = Math.max(...nodes.map(({ head }) => head?.time.getTime() ?? 0));
    const age =
      newestMs > 0 ? ` (newest block ${Math.max(0, Math.round((Date.now() - newestMs) / 1000))} s old)` : '';
    if (row === undefined) (nodes.length > 0 ? beforeStart : unwatched).push(name);
    else watched.push(name + age);
    for (const { name: node, head, problem } of nodes) {
      const ageMs = head === undefined ? undefined : Date.now() - head.time.getTime();
      if (problem !== undefined) problems.push(`${name}: ${problem}`);
      else if (ageMs !== undefined && ageMs > maxBlockAgeMs)
        problems.push(
          `${name}: the newest block of ${node} is ${Math.round(ageMs / 1000)} s old: the chain or the node has stopped`,
        );
      else if (ageMs !== undefined && -ageMs > maxClockSkewMs)
        problems.push(
          `${name}: the newest block of ${node} is ${Math.round(-ageMs / 1000)} s ahead of this machine's clock: synchronise the clock (NTP)`,
        );
    }
    if (row === undefined) continue;
    const behind = Number(row.headNumber) - Number(row.cursorNumber);
    if (!isHeld)
      problems.push(
        // A watcher is known by what it writes, and it writes nothing while it waits for a node.
        nodes.some(({ problem }) => problem !== undefined)
          ? `${name}: its payments are not seen: its watcher waits for a node that does not answer, or no process watches it: start one with the role watcher`
          : `${name}: no process watches it, so its payments are not seen: start one with the role watcher and its RPC_URL. If one runs, it may wait for the database: see its warn lines. Run "chain unwatch" only if no payment is expected there: blocks that have not been read yet are then never read`,
      );
    else if (behind > blocksIn(settings, maxBehindMs))
      problems.push(`${name}: ${behind} blocks behind its node`);
    const readAgeMs = Date.now() - (row.cursorTime?.getTime() ?? 0);
    // There is no node to ask here, and the watcher's may have stopped.
    if (isHeld && nodes.length === 0 && readAgeMs > maxBlockAgeMs)
      problems.push(`${name}: the last block that was read is ${Math.round(readAgeMs / 1000)} s old`);
    const unverified = Number(row.finalizedNumber ?? 0) - Number(row.verifiedNumber ?? 0);
    if (unverified > blocksIn(settings, maxUnverifiedMs))
      problems.push(`${name}: ${unverified} final blocks are not verified: see "chain status"`);
  }
  if (problems.length > 0) throw new StartupError(problems.join('; '));
  const say = (names: string[], what: string) => (names.length > 0 ? [`${names.join(', ')} ${what}`] : []);
  return [
    ...say(watched, 'watched'),
    ...say(beforeStart, 'watched from the start of a process with the role watcher'),
    ...say(
      unwatched,
      "not watched: payments there are not seen, open intents expire by the service's clock, and what is pending waits",
    ),
  ].join('; ');
}

async function checkClock({ orm }: Database): Promise<string> {
  const aheadMs = await readClockAheadMs(orm.em);
  const found = `${Math.abs(Math.round(aheadMs))} ms ${aheadMs < 0 ? 'behind' : 'ahead of'} the database's`;
  if (Math.abs(aheadMs) <= maxClockDifferenceMs) return found;
  throw new StartupError(`${found}: synchronise both clocks (NTP)`);
}

async function checkCertificate(tls: NonNullable<Config['tls']>): Promise<string> {
  const { cert, endsMs } = await readTls(tls);
  const { subject } = new X509Certificate(cert);
  const days = Math.floor((endsMs - Date.now()) / 86_400_000);
  const found = `${subject.replaceAll('\n', ', ')} ${days < 0 ? `expired ${-days} days ago` : `expires in ${days} days`}`;
  if (days >= minCertificateDays) return found;
  throw new StartupError(`${found}: renew ${tls.certFile} and send the service SIGHUP`);
}

async function checkPort({ host: usual, metricsPort }: Config, variable: string, port: number, host: string) {
  if (port === 0) return '0: any free port';
  const server = createServer().listen(port, host);
  const error: NodeJS.ErrnoException | undefined = await once(server, 'listening').then(
    () => undefined,
    (reason) => reason,
  );
  server.close();
  if (error === undefined) return `port ${port} of ${host} is free`;
  if (error.code !== 'EADDRINUSE') {
    throw new StartupError(`port ${port} of ${host} cannot be used: ${error.message}`);
  }
  // The running service itself may use the port.
  const alive = await fetch(`http://${reachable(usual)}:${metricsPort}/healthz`, {
    signal: AbortSignal.timeout(2_000),
  })
    .then(async (answer) => ((await answer.json()) as { status?: unknown }).status === 'alive')
    .catch(() => false);
  if (alive) return `port ${port} of ${host} is in use, and the service is running`;
  throw new StartupError(
    `port ${port} of ${host} is taken by something else: stop that, or set ${variable} to another port`,
  );
}

async function attempt(check: string, look: () => Promise<string>): Promise<Finding> {
  try {
    return { check, ok: true, message: await look() };
  } catch (error) {
    return { check, ok: false, message: messageOf(error) };
  }
}

function messageOf(error: unknown): string {
  if (error instanceof StartupError) return error.message;
  const message = error instanceof Error ? (error.message.split('\n', 1)[0] as string) : String(error);
  const remedy = remedyFor(error);
  return remedy === undefined ? message : `${faultOf(error)?.message ?? message}: ${remedy}`;
}
