import { chains } from '../contract/chains.ts';
import { slipsFrom } from '../contract/nearest-name.ts';
import { type ModeName, modeNames } from '../contract/words.ts';
import { type AllowedTargets, loopbackTargets, parseAllowedTargets } from './allowed-targets.ts';
import { databaseTargetOf } from './database-location.ts';
import { type KeyRing, parseKeyRing } from './key-ring.ts';
import { type ChainNodes, parseRpcUrls } from './rpc-urls.ts';
import { StartupError } from './startup-error.ts';
import type { TlsFiles } from './tls.ts';

const logLevels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;
export type LogLevel = (typeof logLevels)[number];

const roleNames = ['api', 'watcher', 'deliveries', 'expiry'] as const;
/** What a process does: answer requests; watch chains; deliver webhooks; expire intents and remove old events. */
export type Role = (typeof roleNames)[number];

/** Variables that hold key rings. With a `DATABASE_URL` there is no default for them. */
export const secretNames = ['CLIENT_SECRET_KEYS', 'API_KEY_PEPPERS', 'WEBHOOK_SECRET_KEYS'] as const;
export type SecretName = (typeof secretNames)[number];

/** The checked configuration. docs/configuration.md has the table of variables. */
export interface Config {
  /** PostgreSQL to use; undefined for the embedded one. It may hold a password and is never printed. */
  databaseUrl: string | undefined;
  /** The embedded database, generated secrets and the demo merchant. */
  dataDir: string;
  /** Connections to PostgreSQL. */
  databasePool: number;
  databaseTimeouts: DatabaseTimeouts;
  /** Limits on creates that wait to be written. */
  queue: QueueLimits;
  /** Address of the listeners but the console's. */
  host: string;
  /** 0 takes any free port. */
  httpPort: number;
  grpcPort: number;
  metricsPort: number;
  /** The console; undefined if it is off. */
  console: ConsoleSettings | undefined;
  /** The secrets that are set. Without a `databaseUrl`, the others are kept in `dataDir`. */
  secrets: Partial<Record<SecretName, KeyRing>>;
  /** Requests per second for each API key by policy, with a burst of twice that; 0 means no limit. */
  rateLimits: Record<'creates' | 'reads' | 'changes' | 'checkout', number>;
  /** Networks of proxies whose `X-Forwarded-For` is trusted, in CIDR notation. */
  trustedProxies: readonly string[];
  roles: ReadonlySet<Role>;
  /** The chains that are watched, each with its nodes. */
  chainNodes: readonly ChainNodes[];
  /** The facilitators of x402, by the id of their chain. */
  facilitators: readonly ChainFacilitator[];
  /** The address of the public port as payers reach it, without a slash at its end; by default what they ask for. */
  publicUrl: string | undefined;
  /** Modes in which intents are created also on unwatched chains. */
  allowUnwatched: ReadonlySet<ModeName>;
  /** Targets of webhooks that are permitted although they are not public. */
  webhookAllow: AllowedTargets;
  /** Days that events are kept. */
  eventRetentionDays: number;
  /** Unattributed transfers below this amount are not recorded. In the token's smallest unit. */
  unattributedMinUnits: bigint;
  /** How long the ports stay open when the service stops, so that load balancers notice first. */
  drainDelayMs: number;
  /** Longest time to finish requests in flight when the service stops, the delay included. */
  drainTimeoutMs: number;
  limits: TransportLimits;
  tls: TlsFiles | undefined;
  logLevel: LogLevel;
  /** True if OpenTelemetry's variables turn tracing on. The SDK reads them itself. */
  tracing: boolean;
}

export interface ConsoleSettings {
  /** 0 takes any free port. */
  port: number;
  host: string;
  /** The origin of its pages; without one, that of loopback names. */
  origin: string | undefined;
}

/** Sends signed authorizations on a chain. */
export interface ChainFacilitator {
  chainId: number;
  /** Without a slash at its end. */
  url: string;
  token: string | undefined;
}

export interface DatabaseTimeouts {
  connectTimeoutMs: number;
  /** Longest time of one statement. Its connection is then cut, and it is unknown whether it took effect. */
  statementTimeoutMs: number;
}

/** Creates wait if they arrive faster than they are written. Those over a limit are refused as `unavailable`. */
export interface QueueLimits {
  maxWaiting: number;
  maxWaitMs: number;
}

/** Limits for the clients of a listener. A client that needs more is broken or hostile. */
export interface TransportLimits {
  /** Connections to one listener. Above the limit, those open longest without a valid key are closed. */
  maxConnections: number;
  /** Concurrent calls on one HTTP/2 connection. */
  maxConcurrentStreams: number;
  maxHeaderBytes: number;
  /** For the headers of a request to arrive, and for the first byte on a new connection. */
  headersTimeoutMs: number;
  /** For a whole request to arrive, and over HTTP/2 also for the client to read its answer. */
  requestTimeoutMs: number;
  /** For an idle connection. Longer than the 60 s common for load balancers, so that they close first. */
  idleTimeoutMs: number;
}

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Reads the configuration from environment variables. Throws one StartupError that lists every problem and shows no value
 * of a variable that may hold a secret. With a `DATABASE_URL`, `requiredSecrets` must be set: the server needs all of them.
 */
export function loadConfig(env: Environment, requiredSecrets: readonly SecretName[] = secretNames): Config {
  const problems: string[] = [];
  const integer = integerReader(env, problems);
  const databaseUrl = readDatabaseUrl(env, problems);
  const rateLimit = integer('RATE_LIMIT', 500, 0, 1_000_000);
  const config: Config = {
    databaseUrl,
    secrets: readSecrets(env, databaseUrl === undefined ? [] : requiredSecrets, problems),
    tls: readTlsFiles(env, problems),
    logLevel: readLogLevel(env, problems),
    dataDir: given(env, 'DATA_DIR') ?? '.data',
    databasePool: integer('DATABASE_POOL', 16, 1, 1000),
    host: given(env, 'HOST') ?? '127.0.0.1',
    httpPort: integer('HTTP_PORT', 8080, 0, 65535),
    grpcPort: integer('GRPC_PORT', 50051, 0, 65535),
    metricsPort: integer('METRICS_PORT', 9464, 0, 65535),
    console: readConsole(env, integer, problems),
    rateLimits: {
      creates: rateLimit,
      reads: integer('RATE_LIMIT_READS', rateLimit, 0, 1_000_000),
      changes: integer('RATE_LIMIT_CHANGES', rateLimit, 0, 1_000_000),
      checkout: integer('RATE_LIMIT_CHECKOUT', 5, 0, 1_000_000),
    },
    trustedProxies: readTrustedProxies(env, problems),
    roles: readRoles(env, problems),
    chainNodes: readChainNodes(env, problems),
    facilitators: readFacilitators(env, problems),
    publicUrl: readAddress(env, 'PUBLIC_URL', problems),
    allowUnwatched: readAllowUnwatched(env, databaseUrl === undefined ? 'all' : 'testnet', problems),
    webhookAllow: readWebhookAllow(env, databaseUrl === undefined, problems),
    unattributedMinUnits: BigInt(integer('UNATTRIBUTED_MIN_UNITS', 10_000, 0, 999_999_999)),
    eventRetentionDays: integer('EVENT_RETENTION_DAYS', 30, 7, 3_650),
    drainDelayMs: integer('DRAIN_DELAY', databaseUrl === undefined ? 0 : 2, 0, 3600) * 1000,
    drainTimeoutMs: integer('DRAIN_TIMEOUT', 10, 0, 3600) * 1000,
    databaseTimeouts: {
      connectTimeoutMs: integer('DATABASE_CONNECT_TIMEOUT', 5, 1, 3600) * 1000,
      statementTimeoutMs: integer('DATABASE_TIMEOUT', 10, 1, 3600) * 1000,
    },
    queue: {
      maxWaiting: integer('QUEUE_SIZE', 4_096, 1, 1_000_000),
      maxWaitMs: integer('QUEUE_TIMEOUT', 10, 1, 3600) * 1000,
    },
    limits: {
      maxConnections: integer('MAX_CONNECTIONS', 1_024, 1, 1_000_000),
      maxConcurrentStreams: integer('MAX_CONCURRENT_STREAMS', 256, 1, 65_535),
      maxHeaderBytes: integer('MAX_HEADER_BYTES', 16_384, 1_024, 1_048_576),
      headersTimeoutMs: integer('HEADERS_TIMEOUT', 10, 1, 3600) * 1000,
      requestTimeoutMs: integer('REQUEST_TIMEOUT', 30, 1, 3600) * 1000,
      idleTimeoutMs: integer('IDLE_TIMEOUT', 65, 1, 3600) * 1000,
    },
    tracing: isTracingRequested(env),
  };
  if (problems.length > 0) {
    problems.push(...misspeltVariables(env).map(misspeltProblem));
    throw new StartupError(`the configuration is not usable: ${problems.join('; ')}`);
  }
  return config;
}

/** A variable that is set and not read, and the one that was probably meant. */
interface MisspeltVariable {
  name: string;
  meant: string;
}

/** Returns the variables that are set, and named nearly like one that is read. */
export function misspeltVariables(env: Environment): MisspeltVariable[] {
  const known = variablesRead();
  return Object.keys(env).flatMap((name) => {
    if (known.includes(name) || given(env, name) === undefined) return [];
    const meant = known.find((candidate) => slipsFrom(name, candidate) <= allowedSlips(candidate));
    return meant === undefined ? [] : [{ name, meant }];
  });
}

export function misspeltProblem({ name, meant }: MisspeltVariable): string {
  return `${name} is set and not read: did you mean ${meant}?`;
}

/** A short name is near to many that other programs read, such as HOME and SSL_CERT_FILE. */
function allowedSlips({ length }: string): number {
  return length < 5 ? 0 : length < 14 ? 1 : 2;
}

/** The names that `loadConfig` reads, without those that belong to OpenTelemetry. */
function variablesRead(): string[] {
  const names = new Set<string>();
  const read = (_: object, name: string | symbol) => void names.add(String(name));
  loadConfig(new Proxy<Environment>({}, { get: read }), []);
  return [...names].filter((name) => !name.startsWith('OTEL_'));
}

/** Returns the value of a variable, or undefined if it is missing or empty. */
function given(env: Environment, name: string): string | undefined {
  return env[name] || undefined;
}

function integerReader(env: Environment, problems: string[]) {
  return (name: string, fallback: number, min: number, max: number): number => {
    const text = given(env, name);
    if (text === undefined) return fallback;
    const value = /^\d{1,9}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= min && value <= max) return value;
    problems.push(`${name} must be an integer from ${min} to ${max}, not "${text}"`);
    return fallback;
  };
}

function readDatabaseUrl(env: Environment, problems: string[]): string | undefined {
  const url = given(env, 'DATABASE_URL');
  if (url === undefined) return undefined;
  try {
    databaseTargetOf({ url });
  } catch (error) {
    if (!(error instanceof StartupError)) throw error;
    problems.push(error.message);
  }
  return url;
}

function readSecrets(
  env: Environment,
  required: readonly SecretName[],
  problems: string[],
): Config['secrets'] {
  const secrets: Config['secrets'] = {};
  for (const name of secretNames) {
    const text = given(env, name);
    if (text !== undefined) {
      try {
        secrets[name] = parseKeyRing(text);
      } catch (error) {
        problems.push(
          `${name} must be a list of version:base64, newest first: ${error instanceof Error ? error.message : error}`,
        );
      }
    } else if (required.includes(name)) {
      problems.push(
        `${name} is missing, which DATABASE_URL requires: set it to "1:$(openssl rand -base64 32)" and keep it safe`,
      );
    }
  }
  return secrets;
}

const unwatchedModes = { all: modeNames, testnet: ['testnet'], none: [] } as const;

function readAllowUnwatched(
  env: Environment,
  fallback: keyof typeof unwatchedModes,
  problems: string[],
): ReadonlySet<ModeName> {
  const text = given(env, 'ALLOW_UNWATCHED') ?? fallback;
  if (Object.hasOwn(unwatchedModes, text)) return new Set(unwatchedModes[text as typeof fallback]);
  problems.push(`ALLOW_UNWATCHED must be one of ${Object.keys(unwatchedModes).join(', ')}, not "${text}"`);
  return new Set();
}

/** The embedded mode also permits this machine. */
function readWebhookAllow(env: Environment, isEmbedded: boolean, problems: string[]): AllowedTargets {
  const own = isEmbedded ? loopbackTargets : { hosts: [], networks: [] };
  const { hosts, networks } = readTargets(env, 'WEBHOOK_ALLOW', 'receiver.internal,10.0.0.0/8', problems);
  return { hosts: [...own.hosts, ...hosts], networks: [...own.networks, ...networks] };
}

function readTrustedProxies(env: Environment, problems: string[]): readonly string[] {
  return readTargets(env, 'TRUSTED_PROXIES', '10.0.0.0/8,fd00::/8', problems, ({ hosts: [host] }) => {
    if (host !== undefined) throw new Error(`"${host}" is no address or network`);
  }).networks;
}

/** Nothing, if the variable is not set or not usable. */
function readTargets(
  env: Environment,
  name: string,
  example: string,
  problems: string[],
  check: (targets: AllowedTargets) => void = () => {},
): AllowedTargets {
  const nothing = { hosts: [], networks: [] };
  const text = given(env, name);
  if (text === undefined) return nothing;
  try {
    const targets = parseAllowedTargets(text);
    check(targets);
    return targets;
  } catch (error) {
    problems.push(
      `${name} must be a list like ${example}: ${error instanceof Error ? error.message : error}`,
    );
    return nothing;
  }
}

function readRoles(env: Environment, problems: string[]): ReadonlySet<Role> {
  const text = given(env, 'ROLES');
  if (text === undefined) return new Set(roleNames);
  const roles = text.split(',').map((role) => role.trim());
  const unknown = roles.filter((role) => !(roleNames as readonly string[]).includes(role));
  if (unknown.length > 0) {
    problems.push(
      `ROLES must be a list of ${roleNames.join(', ')}, separated by commas, without "${unknown.join('", "')}"`,
    );
  }
  return new Set(roles as Role[]);
}

function readChainNodes(env: Environment, problems: string[]): ChainNodes[] {
  return chains.flatMap((chain) => {
    const text = given(env, chain.rpcVariable);
    if (text === undefined) return [];
    try {
      return [{ ...chain, urls: parseRpcUrls(text) }];
    } catch (error) {
      problems.push(
        `${chain.rpcVariable} must be a list of addresses of nodes, separated by commas: ${error instanceof Error ? error.message : error}`,
      );
      return [];
    }
  });
}

/** Where the console's pages are; undefined if it is off. `port` is the one in use. */
export function consoleAddress(
  { console: settings, tls }: Pick<Config, 'console' | 'tls'>,
  port = settings?.port,
): string | undefined {
  return settings && (settings.origin ?? `${tls ? 'https' : 'http'}://127.0.0.1:${port}`);
}

/** With a PostgreSQL of its own the service is somebody's who tries it out. */
const embeddedConsolePort = 9465;

function readConsole(
  env: Environment,
  integer: ReturnType<typeof integerReader>,
  problems: string[],
): ConsoleSettings | undefined {
  const host = given(env, 'CONSOLE_HOST') ?? '127.0.0.1';
  const origin = readAddress(env, 'CONSOLE_ORIGIN', problems);
  const isEmbedded = given(env, 'DATABASE_URL') === undefined;
  if (given(env, 'CONSOLE_PORT') === undefined && !isEmbedded) return undefined;
  const isLocal = ['127.0.0.1', '::1', 'localhost'].includes(host);
  if (!isLocal && given(env, 'TLS_CERT_FILE') === undefined) {
    problems.push(
      `CONSOLE_HOST ${host} needs TLS_CERT_FILE: what the console shows must not travel in the clear`,
    );
  }
  if (origin !== undefined && new URL(origin).origin !== origin) {
    problems.push('CONSOLE_ORIGIN must be a scheme, a host and a port, such as https://console.example');
  }
  return { port: integer('CONSOLE_PORT', embeddedConsolePort, 0, 65535), host, origin };
}

function readFacilitators(env: Environment, problems: string[]): ChainFacilitator[] {
  return chains.flatMap(({ chainId, rpcVariable }) => {
    const variable = rpcVariable.replace('RPC_URL', 'X402_FACILITATOR_URL');
    const token = given(env, `${variable}_TOKEN`);
    const url = readAddress(env, variable, problems);
    if (url === undefined) {
      if (token !== undefined) problems.push(`${variable}_TOKEN needs ${variable} to be set`);
      return [];
    }
    if (given(env, rpcVariable) === undefined) problems.push(`${variable} needs ${rpcVariable} to be set`);
    return [{ chainId, url, token }];
  });
}

/** An address without a slash at its end; undefined if the variable is not set or not usable. */
function readAddress(env: Environment, name: string, problems: string[]): string | undefined {
  const text = given(env, name);
  if (text === undefined) return undefined;
  if (URL.canParse(text) && /^https?:$/.test(new URL(text).protocol) && !/[?#]/.test(text)) {
    return text.replace(/\/+$/, '');
  }
  problems.push(`${name} must be an address that begins with https:// or http://`);
  return undefined;
}

function readTlsFiles(env: Environment, problems: string[]): TlsFiles | undefined {
  const certFile = given(env, 'TLS_CERT_FILE');
  const keyFile = given(env, 'TLS_KEY_FILE');
  if (certFile !== undefined && keyFile !== undefined) return { certFile, keyFile };
  if (certFile !== keyFile) {
    problems.push('TLS_CERT_FILE and TLS_KEY_FILE go together: set both or neither');
  }
  return undefined;
}

function readLogLevel(env: Environment, problems: string[]): LogLevel {
  const level = given(env, 'LOG_LEVEL') ?? 'info';
  if (isLogLevel(level)) return level;
  problems.push(`LOG_LEVEL must be one of ${logLevels.join(', ')}, not "${level}"`);
  return 'info';
}

/** True if an exporter or an endpoint is set and tracing is not turned off. By default spans have no destination. */
function isTracingRequested(env: Environment): boolean {
  if (env.OTEL_SDK_DISABLED?.toLowerCase() === 'true') return false;
  if (env.OTEL_TRACES_EXPORTER) return env.OTEL_TRACES_EXPORTER !== 'none';
  return Boolean(env.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT || env.OTEL_EXPORTER_OTLP_ENDPOINT);
}

function isLogLevel(text: string): text is LogLevel {
  return (logLevels as readonly string[]).includes(text);
}

/** Returns the host to connect to, as it appears in a URL. A wildcard address becomes loopback. */
export function reachable(host: string): string {
  if (host === '0.0.0.0') return '127.0.0.1';
  if (host === '::') return '[::1]';
  return host.includes(':') ? `[${host}]` : host;
}
