import { X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createSecureContext } from 'node:tls';
import { type ChainSettings, chains, facilitatorVariableOf } from '../contract/chains.ts';
import { slipsFrom } from '../contract/nearest-name.ts';
import { type ModeName, modeNames } from '../contract/words.ts';
import { loopbackTargets, parseAllowedTargets } from './allowed-targets.ts';
import { databaseTargetOf } from './database-location.ts';
import { type KeyRing, parseKeyRing } from './key-ring.ts';
import { StartupError } from './startup-error.ts';

const logLevels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;

/** A process's tasks: answer requests; watch chains; deliver webhooks; expire intents, remove old events. */
const roleNames = ['api', 'watcher', 'deliveries', 'expiry'] as const;

/** Variables that hold key rings. They have no default if `DATABASE_URL` is set. */
export const secretNames = ['CLIENT_SECRET_KEYS', 'API_KEY_PEPPERS', 'WEBHOOK_SECRET_KEYS'] as const;
export type SecretName = (typeof secretNames)[number];

/** The checked configuration. docs/configuration.md has the table of variables. */
export type Config = ReturnType<typeof loadConfig>;
export type DatabaseTimeouts = Config['databaseTimeouts'];
/** The rate limits that a method's requests may count against. */
export type RatePolicy = keyof Config['rateLimits'];
export type ChainFacilitator = NonNullable<ChainNodes['facilitator']>;

/** A chain and its nodes. */
export interface ChainNodes extends ChainSettings {
  /** The first reads, the second confirms; a revert asks all. They may hold keys: never print them whole. */
  urls: readonly [string, ...string[]];
  /** The x402 facilitator that sends payments by a signature, and its token. */
  facilitator?: { url: string; token?: string | undefined } | undefined;
}

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Reads the environment variables. Throws one StartupError that lists every problem and shows no value that
 * may be secret. If `DATABASE_URL` is set, `requiredSecrets` must be set too. The server needs all of them.
 */
export function loadConfig(env: Environment, requiredSecrets: readonly SecretName[] = secretNames) {
  const variables = new Variables(env);
  const { problems } = variables;
  const integer = variables.integer.bind(variables);
  const databaseUrl = readDatabaseUrl(variables);
  const isEmbedded = databaseUrl === undefined;
  const rateLimit = integer('RATE_LIMIT', 500, 0, 1_000_000);
  const config = {
    /** The PostgreSQL to use; undefined for the embedded one. It may hold a password: never print it. */
    databaseUrl,
    /** The secrets that are set. Without a `databaseUrl`, the others are kept in `dataDir`. */
    secrets: readSecrets(variables, isEmbedded ? [] : requiredSecrets),
    tls: readTlsFiles(variables),
    logLevel: variables.oneOf('LOG_LEVEL', logLevels, 'info'),
    /** The embedded database, generated secrets and the demo merchant. */
    dataDir: variables.given('DATA_DIR') ?? '.data',
    databasePool: integer('DATABASE_POOL', 16, 1, 1000),
    /** The address of all listeners except the console's. */
    host: variables.given('HOST') ?? '127.0.0.1',
    /** 0 takes any free port. */
    httpPort: integer('HTTP_PORT', 8080, 0, 65535),
    grpcPort: integer('GRPC_PORT', 50051, 0, 65535),
    metricsPort: integer('METRICS_PORT', 9464, 0, 65535),
    /** The console; undefined if it is off. */
    console: readConsole(variables),
    /** Requests per second for each API key or client secret, with a burst of twice that; 0: no limit. */
    rateLimits: {
      creates: rateLimit,
      reads: integer('RATE_LIMIT_READS', rateLimit, 0, 1_000_000),
      changes: integer('RATE_LIMIT_CHANGES', rateLimit, 0, 1_000_000),
      checkout: integer('RATE_LIMIT_CHECKOUT', 5, 0, 1_000_000),
    },
    /** Networks of proxies whose `X-Forwarded-For` is trusted, in CIDR notation. */
    trustedProxies: readTrustedProxies(variables),
    roles: readRoles(variables),
    /** The watched chains, each with its nodes. */
    chainNodes: readChainNodes(variables),
    /** The public port's address for payers, without a trailing slash. Default: the one requested. */
    publicUrl: readAddress(variables, 'PUBLIC_URL'),
    /** Modes in which intents may also be created on unwatched chains. */
    allowUnwatched: readAllowUnwatched(variables, isEmbedded),
    webhookAllow: readWebhookAllow(variables, isEmbedded),
    /** Unattributed transfers below this amount are not recorded. In the token's smallest unit. */
    unattributedMinUnits: BigInt(integer('UNATTRIBUTED_MIN_UNITS', 10_000, 0, 999_999_999)),
    eventRetentionDays: integer('EVENT_RETENTION_DAYS', 30, 7, 3_650),
    /** How long the ports stay open at a stop, so that load balancers notice; at most half of all time. */
    drainDelayMs: integer('DRAIN_DELAY', isEmbedded ? 0 : 2, 0, 3600) * 1000,
    /** Longest time to stop, the delay included. Requests in flight have one second less (tracing: 3). */
    drainTimeoutMs: integer('DRAIN_TIMEOUT', 10, 0, 3600) * 1000,
    databaseTimeouts: {
      connectTimeoutMs: integer('DATABASE_CONNECT_TIMEOUT', 5, 1, 3600) * 1000,
      /** Time limit of one statement. Then its connection is cut, and its outcome is unknown. */
      statementTimeoutMs: integer('DATABASE_TIMEOUT', 10, 1, 3600) * 1000,
    },
    /** Creates wait if they arrive too fast. Those over a limit are refused as `unavailable`. */
    queue: {
      maxWaiting: integer('QUEUE_SIZE', 4_096, 1, 1_000_000),
      maxWaitMs: integer('QUEUE_TIMEOUT', 10, 1, 3600) * 1000,
    },
    /** Limits for the clients of a listener. A client that needs more is broken or hostile. */
    limits: {
      /** Connections to one listener. Above the limit, those open longest without a valid key are closed. */
      maxConnections: integer('MAX_CONNECTIONS', 1_024, 1, 1_000_000),
      /** Concurrent calls on one HTTP/2 connection. */
      maxConcurrentStreams: integer('MAX_CONCURRENT_STREAMS', 256, 1, 65_535),
      maxHeaderBytes: integer('MAX_HEADER_BYTES', 16_384, 1_024, 1_048_576),
      /** For a request's headers to arrive, and for the first byte on a new connection. */
      headersTimeoutMs: integer('HEADERS_TIMEOUT', 10, 1, 3600) * 1000,
      /** For a whole request to arrive, and over HTTP/2 also for the client to read its answer. */
      requestTimeoutMs: integer('REQUEST_TIMEOUT', 30, 1, 3600) * 1000,
      /** For an idle connection. Longer than the 60 s common for load balancers, so that they close first. */
      idleTimeoutMs: integer('IDLE_TIMEOUT', 65, 1, 3600) * 1000,
    },
    /** True if OpenTelemetry's variables turn tracing on. The SDK reads them itself. */
    tracing: isTracingRequested(env),
  };
  // Node.js refuses the pair, without the names of the variables.
  if (config.limits.headersTimeoutMs > config.limits.requestTimeoutMs) {
    problems.push('HEADERS_TIMEOUT must not be above REQUEST_TIMEOUT: lower it, or raise the other');
  }
  if (problems.length > 0) {
    const all = new Set([...problems, ...misspeltVariables(env).map(({ problem }) => problem)]);
    throw new StartupError(`the configuration is not usable: ${[...all].join('; ')}`);
  }
  return config;
}

/** Returns the variables that are set but not read, each with the similar name that was probably meant. */
export function misspeltVariables(env: Environment): { name: string; meant: string; problem: string }[] {
  const known = variablesRead();
  return Object.keys(env).flatMap((name) => {
    if (known.includes(name) || !env[name]) return [];
    const meant = known.find((candidate) => isSlip(name, candidate));
    return meant === undefined ? [] : [{ name, meant, problem: misspeltProblem(name, meant) }];
  });
}

function misspeltProblem(name: string, meant: string): string {
  return `${name} is set and not read: did you mean ${meant}?`;
}

/** Short names resemble those that other programs read, such as HOME and SSL_CERT_FILE. */
function isSlip(name: string, meant: string): boolean {
  return slipsFrom(name, meant) <= (meant.length < 5 ? 0 : meant.length < 14 ? 1 : 2);
}

/** The names that `loadConfig` reads, without OpenTelemetry's. */
function variablesRead(): string[] {
  const names = new Set<string>();
  const read = (_: object, name: string | symbol) => void names.add(String(name));
  loadConfig(new Proxy<Environment>({}, { get: read }), []);
  return [...names].filter((name) => !name.startsWith('OTEL_'));
}

/** The environment variables, and the problems found in them. */
class Variables {
  readonly problems: string[] = [];
  readonly #env: Environment;

  constructor(env: Environment) {
    this.#env = env;
  }

  /** Undefined if the variable is missing or empty. */
  given(name: string): string | undefined {
    return this.#env[name] || undefined;
  }

  /** Returns the name of a set variable that is probably a misspelling of this one, which is not set. */
  misspellingOf(meant: string): string | undefined {
    return Object.keys(this.#env).find((name) => this.given(name) && isSlip(name, meant));
  }

  integer(name: string, fallback: number, min: number, max: number): number {
    const text = this.given(name);
    if (text === undefined) return fallback;
    const value = /^\d{1,9}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= min && value <= max) return value;
    this.problems.push(`${name} must be an integer from ${min} to ${max}, not "${text}"`);
    return fallback;
  }

  oneOf<Word extends string>(name: string, words: readonly Word[], fallback: NoInfer<Word>): Word {
    const text = this.given(name) ?? fallback;
    const known = words.find((word) => word === text);
    if (known === undefined) this.problems.push(`${name} must be one of ${words.join(', ')}, not "${text}"`);
    return known ?? fallback;
  }

  /** Returns the parsed variable; undefined if it is unset or invalid. */
  parsed<T>(name: string, form: string, parse: (text: string) => T): T | undefined {
    const text = this.given(name);
    if (text === undefined) return undefined;
    try {
      return parse(text);
    } catch (error) {
      this.problems.push(`${name} must be ${form}: ${error instanceof Error ? error.message : error}`);
      return undefined;
    }
  }
}

function readDatabaseUrl(variables: Variables): string | undefined {
  const url = variables.given('DATABASE_URL');
  if (url === undefined) {
    // If its name is misspelt, the data would go to the embedded database.
    const name = variables.misspellingOf('DATABASE_URL');
    if (name !== undefined) {
      variables.problems.push(`${misspeltProblem(name, 'DATABASE_URL')} Otherwise unset it`);
    }
    return undefined;
  }
  try {
    databaseTargetOf({ url });
  } catch (error) {
    if (!(error instanceof StartupError)) throw error;
    variables.problems.push(error.message);
  }
  return url;
}

function readSecrets(variables: Variables, required: readonly SecretName[]) {
  const secrets: Partial<Record<SecretName, KeyRing>> = {};
  for (const name of secretNames) {
    const ring = variables.parsed(name, 'a list of version:base64, newest first', parseKeyRing);
    if (ring !== undefined) secrets[name] = ring;
    if (variables.given(name) === undefined && required.includes(name)) {
      variables.problems.push(
        `${name} is missing and required with DATABASE_URL: set it to "1:$(openssl rand -base64 32)" and keep it safe, or unset DATABASE_URL to try the service with a database of its own`,
      );
    }
  }
  return secrets;
}

const unwatchedModes = { all: modeNames, testnet: ['testnet'], none: [] } as const;

function readAllowUnwatched(variables: Variables, isEmbedded: boolean): ReadonlySet<ModeName> {
  const words = ['all', 'testnet', 'none'] as const;
  return new Set(unwatchedModes[variables.oneOf('ALLOW_UNWATCHED', words, isEmbedded ? 'all' : 'testnet')]);
}

/** The embedded mode also permits this machine. */
function readWebhookAllow(variables: Variables, isEmbedded: boolean) {
  const nothing = { hosts: [], networks: [] };
  const own = isEmbedded ? loopbackTargets : nothing;
  const form = 'a list like receiver.internal,10.0.0.0/8';
  const { hosts, networks } = variables.parsed('WEBHOOK_ALLOW', form, parseAllowedTargets) ?? nothing;
  return { hosts: [...own.hosts, ...hosts], networks: [...own.networks, ...networks] };
}

function readTrustedProxies(variables: Variables): readonly string[] {
  const parse = (text: string) => {
    const { hosts, networks } = parseAllowedTargets(text);
    if (hosts.length > 0) throw new Error(`"${hosts[0]}" is no address or network`);
    return networks;
  };
  return variables.parsed('TRUSTED_PROXIES', 'a list like 10.0.0.0/8,fd00::/8', parse) ?? [];
}

function readRoles(variables: Variables): ReadonlySet<(typeof roleNames)[number]> {
  const given = variables.given('ROLES')?.split(',');
  const roles = given?.map((role) => role.trim()) ?? roleNames;
  const unknown = roles.filter((role) => !(roleNames as readonly string[]).includes(role));
  if (unknown.length > 0) {
    variables.problems.push(
      `ROLES must be a comma-separated list of ${roleNames.join(', ')}; unknown: "${unknown.join('", "')}"`,
    );
  }
  return new Set(roles as (typeof roleNames)[number][]);
}

function readChainNodes(variables: Variables): ChainNodes[] {
  return chains.flatMap((chain) => {
    const form = 'a list of addresses of nodes, separated by commas';
    const urls = variables.parsed(chain.rpcVariable, form, parseRpcUrls);
    const facilitator = readFacilitator(variables, chain);
    return urls === undefined ? [] : [{ ...chain, urls, facilitator }];
  });
}

/** Throws if the text is not a list of addresses. The error does not repeat it. */
function parseRpcUrls(text: string): [string, ...string[]] {
  const [first = '', ...others] = text.split(',').map((url) => url.trim());
  const urls: [string, ...string[]] = [first, ...others];
  for (const [i, url] of urls.entries()) {
    if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
      throw new Error(`entry ${i + 1} is not an address that begins with http:// or https://`);
    }
  }
  const places = urls.map((url) => new URL(url).href.replace(/\/$/, ''));
  if (new Set(places).size < urls.length)
    throw new Error('an address is listed twice: the node that confirms must be another one');
  return urls;
}

const loopbackHosts = ['127.0.0.1', '::1', 'localhost'];

/**
 * Returns the console's address, on this machine unless `CONSOLE_ORIGIN` says otherwise; undefined if the
 * console is off. `port` is the port in use.
 */
export function consoleAddress(
  { console: settings, tls }: Pick<Config, 'console' | 'tls'>,
  port = settings?.port,
): string | undefined {
  if (settings === undefined) return undefined;
  const host = loopbackHosts.includes(settings.host) ? reachable(settings.host) : '127.0.0.1';
  return settings.origin ?? `${tls ? 'https' : 'http'}://${host}:${port}`;
}

/** The embedded mode is for trying the service out, so its console is on by default. */
const embeddedConsolePort = 9465;

function readConsole(variables: Variables) {
  const host = variables.given('CONSOLE_HOST') ?? '127.0.0.1';
  /** The origin of the console's pages. Without one, only loopback names are accepted. */
  const origin = readAddress(variables, 'CONSOLE_ORIGIN');
  const isEmbedded = variables.given('DATABASE_URL') === undefined;
  if (variables.given('CONSOLE_PORT') === undefined && !isEmbedded) return undefined;
  if (!loopbackHosts.includes(host) && variables.given('TLS_CERT_FILE') === undefined) {
    variables.problems.push(
      `CONSOLE_HOST ${host} needs TLS_CERT_FILE: what the console shows must not travel in the clear`,
    );
  }
  if (origin !== undefined && new URL(origin).origin !== origin) {
    variables.problems.push(
      'CONSOLE_ORIGIN must be a scheme, a host and a port, such as https://console.example',
    );
  }
  return { port: variables.integer('CONSOLE_PORT', embeddedConsolePort, 0, 65535), host, origin };
}

/** The service that sends the signed authorizations of a chain, if there is one. */
function readFacilitator(variables: Variables, { rpcVariable }: ChainSettings) {
  const variable = facilitatorVariableOf({ rpcVariable });
  // A value read from a file often ends with a line break.
  const token = variables.given(`${variable}_TOKEN`)?.trim() || undefined;
  const url = readAddress(variables, variable);
  if (url === undefined) {
    if (token !== undefined) variables.problems.push(`${variable}_TOKEN needs ${variable} to be set`);
    return undefined;
  }
  if (variables.given(rpcVariable) === undefined) {
    variables.problems.push(`${variable} needs ${rpcVariable} to be set`);
  }
  if (/[^\x20-\x7e]/.test(token ?? '')) {
    variables.problems.push(`${variable}_TOKEN has a character that no HTTP header can carry`);
  }
  return { url, token };
}

/** Returns the address without trailing slashes; undefined if it is unset or invalid. */
function readAddress(variables: Variables, name: string): string | undefined {
  // A value read from a file often ends with a line break.
  const text = variables.given(name)?.trim();
  if (text === undefined) return undefined;
  const url = URL.parse(text);
  if (url && /^https?:\/\//i.test(text) && !/[?#\s\\]/.test(text) && url.username + url.password === '') {
    return text.replace(/\/+$/, '');
  }
  variables.problems.push(
    `${name} must be an http:// or https:// address without user, password, query or fragment`,
  );
  return undefined;
}

function readTlsFiles(variables: Variables) {
  const certFile = variables.given('TLS_CERT_FILE');
  const keyFile = variables.given('TLS_KEY_FILE');
  if (certFile !== undefined && keyFile !== undefined) return { certFile, keyFile };
  if (certFile !== keyFile) {
    variables.problems.push('TLS_CERT_FILE and TLS_KEY_FILE go together: set both or neither');
  }
  return undefined;
}

/** True if an exporter or an endpoint is set and tracing is not off. By default spans go nowhere. */
function isTracingRequested(env: Environment): boolean {
  if (env.OTEL_SDK_DISABLED?.toLowerCase() === 'true') return false;
  if (env.OTEL_TRACES_EXPORTER) return env.OTEL_TRACES_EXPORTER !== 'none';
  return Boolean(env.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT || env.OTEL_EXPORTER_OTLP_ENDPOINT);
}

/** Returns the host to connect to, as it appears in a URL. A wildcard address becomes loopback. */
export function reachable(host: string): string {
  if (host === '0.0.0.0') return '127.0.0.1';
  if (host === '::') return '[::1]';
  return host.includes(':') ? `[${host}]` : host;
}

/**
 * Reads a PEM certificate and its key. Replace it by `dueMs`, when a sixth of its lifetime is left. Throws
 * StartupError if the files cannot be read or do not belong together.
 */
export async function readTls({ certFile, keyFile }: NonNullable<Config['tls']>) {
  const read = (variable: string, file: string) =>
    readFile(file).catch((cause) => {
      throw new StartupError(`${variable} cannot be read (${cause.message}): set it to a PEM file`, {
        cause,
      });
    });
  const pair = { cert: await read('TLS_CERT_FILE', certFile), key: await read('TLS_KEY_FILE', keyFile) };
  try {
    createSecureContext(pair);
  } catch (cause) {
    throw new StartupError(
      `TLS_CERT_FILE and TLS_KEY_FILE are not a usable pair (${(cause as Error).message}): set them to a certificate and its key in PEM`,
      { cause },
    );
  }
  const { validFromDate, validToDate } = new X509Certificate(pair.cert);
  const endsMs = validToDate.getTime();
  return { ...pair, endsMs, dueMs: endsMs - (endsMs - validFromDate.getTime()) / 6 };
}
