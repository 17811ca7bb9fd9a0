import { notAName } from '../src/contract/nearest-name.ts';
import { describe } from './describe.ts';
import { PaymentIntentsError } from './error.ts';

/** Time limits for every call of a client, or for one call. */
export interface Timeouts {
  /** Longest time of one try, in milliseconds. Default: 10,000. */
  timeoutMs?: number | undefined;
  /**
   * Longest time of the whole call, with all its tries and pauses, in milliseconds. The call ends earlier if
   * its next try could not begin in time. Default: no limit of its own.
   */
  callTimeoutMs?: number | undefined;
}

export interface JsonClientOptions extends Timeouts {
  /**
   * Address of the public port for JSON, such as `https://pay.example`, or of the internal port for gRPC. A
   * path is kept, for a gateway: `https://gateway.example/payments`.
   */
  baseUrl: string;
  /** Your secret API key. The client refuses to run in a browser, where a payer could read it. */
  apiKey: string;
  /** Default: `json`. */
  protocol?: 'json' | undefined;
  /** How many times a call is tried before it fails. Default: 6, which takes some seconds. */
  maxTries?: number | undefined;
}

export interface PaymentIntentsClientOptions extends Omit<JsonClientOptions, 'protocol'> {
  /** Default: `json`. */
  protocol?: 'json' | 'grpc' | undefined;
}

/** Options of one call; for a list, of each page. */
export interface CallOptions extends Timeouts {
  /** Aborts the call, which then throws the signal's reason. The service may already have carried it out. */
  signal?: AbortSignal | undefined;
}

export interface CreateOptions extends CallOptions {
  /**
   * Calls with the same key create one intent, refund, webhook endpoint or secret. Give the order's id: a
   * process that takes over after a crash finds the same intent. The key lives as long as its intent. After
   * an intent expires unpaid, use `order-1001/2` for a second attempt. 1 to 255 visible ASCII characters.
   *
   * Leave it out to get a new UUID, kept across the retries of this call. `undefined` is refused: a missing
   * order id would otherwise create a second intent silently.
   */
  idempotencyKey?: string;
}

export type CheckedOptions = ReturnType<typeof readOptions>;
export type CheckedCallOptions = ReturnType<typeof readCallOptions>;

const defaultTimeoutMs = 10_000;
const defaultMaxTries = 6;
/** A JavaScript timer with a longer delay fires immediately. */
const maxTimerMs = 2 ** 31 - 1;

/**
 * Reads the options of a client. Throws a TypeError that names the faulty option and never shows the API key,
 * and an Error in a browser, where a payer could read the key.
 */
export function readOptions(options: unknown, protocols: readonly string[]) {
  if ('window' in globalThis || 'importScripts' in globalThis) {
    throw new Error(
      'The payment intents client runs on servers only: anybody could read an API key in a browser. Call your own server, and let it call this. In a test, use the environment "node" instead of jsdom.',
    );
  }
  const given = namedOptions(options, clientOptions);
  const { protocol = 'json', maxTries = defaultMaxTries } = given;
  if (typeof protocol !== 'string' || !protocols.includes(protocol)) {
    throw new TypeError(`protocol must be "${protocols.join('" or "')}", not ${describe(protocol)}`);
  }
  if (!Number.isSafeInteger(maxTries) || (maxTries as number) < 1) {
    throw new TypeError(`maxTries must be an integer from 1 on, not ${describe(maxTries)}`);
  }
  return {
    /** Without a `/` at its end. */
    baseUrl: readBaseUrl(given.baseUrl),
    apiKey: readApiKey(given.apiKey),
    protocol,
    timeoutMs: readTimeout('timeoutMs', given.timeoutMs) ?? defaultTimeoutMs,
    callTimeoutMs: readTimeout('callTimeoutMs', given.callTimeoutMs),
    maxTries: maxTries as number,
  };
}

/**
 * Reads the options of one call. Throws a TypeError that names the faulty option, and
 * `idempotency_key_invalid` for a key that cannot be sent in a header.
 */
export function readCallOptions(options: unknown, takesKey: boolean, defaults: CheckedOptions) {
  const given = namedOptions(options, takesKey ? createOptions : callOptions);
  const keyOf = () => ('idempotencyKey' in given ? readKey(given.idempotencyKey) : crypto.randomUUID());
  return {
    signal: readSignal(given.signal),
    timeoutMs: readTimeout('timeoutMs', given.timeoutMs) ?? defaults.timeoutMs,
    callTimeoutMs: readTimeout('callTimeoutMs', given.callTimeoutMs) ?? defaults.callTimeoutMs,
    /** Undefined for a call that is safe to repeat without one. */
    idempotencyKey: takesKey ? keyOf() : undefined,
  };
}

export function readSignal(signal: unknown): AbortSignal | undefined {
  if (signal === undefined || signal instanceof AbortSignal) return signal;
  throw new TypeError(`signal must be an AbortSignal, not ${describe(signal)}`);
}

const clientOptions = ['baseUrl', 'apiKey', 'protocol', 'timeoutMs', 'callTimeoutMs', 'maxTries'] as const;
const callOptions = ['signal', 'timeoutMs', 'callTimeoutMs'] as const;
const createOptions = ['idempotencyKey', ...callOptions] as const;

/** Returns the options. Throws a TypeError for one that does not exist. */
export function namedOptions<Name extends string>(options: unknown, names: readonly Name[]) {
  if (typeof options !== 'object' || options === null) {
    throw new TypeError(`the options must be an object, not ${describe(options)}`);
  }
  for (const name of Object.keys(options)) {
    if (!(names as readonly string[]).includes(name)) {
      throw new TypeError(`${name} ${notAName('an option', name, names)}`);
    }
  }
  return options as Partial<Record<Name, unknown>>;
}

function readBaseUrl(baseUrl: unknown): string {
  const url = typeof baseUrl === 'string' && URL.canParse(baseUrl) ? new URL(baseUrl) : null;
  if (url === null || (url.protocol !== 'http:' && url.protocol !== 'https:')) {
    // With an @ it may hold a password.
    const given = typeof baseUrl === 'string' && baseUrl.includes('@') ? 'that' : describe(baseUrl);
    throw new TypeError(`baseUrl must be an address such as "https://pay.example", not ${given}`);
  }
  // Not shown: it may hold a password.
  if (url.username !== '' || url.password !== '') {
    throw new TypeError('baseUrl must not contain a user name or a password');
  }
  if (url.search !== '' || url.hash !== '') {
    throw new TypeError(`baseUrl must have no query or fragment: use ${describe(url.origin + url.pathname)}`);
  }
  const path = url.pathname.replace(/\/+$/, '');
  if (path === '/v1' || path.endsWith('/v1/payment_intents')) {
    throw new TypeError(
      `baseUrl must not include the service's own path, which the client adds: remove it from ${describe(baseUrl)}`,
    );
  }
  return url.origin + path;
}

function readApiKey(apiKey: unknown): string {
  if (typeof apiKey !== 'string' || apiKey === '') {
    const given = apiKey === '' ? 'empty' : describe(apiKey);
    throw new TypeError(
      `apiKey must be your secret API key, a string, but it is ${given}; is the environment variable set?`,
    );
  }
  if (!/^[\x21-\x7e]+$/.test(apiKey)) {
    throw new TypeError(
      'apiKey must be the key alone: it has a space, a line break or a character beyond ASCII',
    );
  }
  return apiKey;
}

function readTimeout(name: string, ms: unknown): number | undefined {
  if (ms === undefined) return undefined;
  if (typeof ms === 'number' && ms > 0 && ms <= maxTimerMs) return Math.ceil(ms);
  throw new TypeError(`${name} must be milliseconds, from 1 to ${maxTimerMs}, not ${describe(ms)}`);
}

function readKey(key: unknown): string {
  // A header may also hold the key in quotes, with some characters escaped.
  if (typeof key === 'string' && /^(?:[\x21-\x7e]{1,255}|"[\x20-\x7e]{1,510}")$/.test(key)) return key;
  const message = `must be 1 to 255 visible ASCII characters, not ${describe(key)}`;
  throw new PaymentIntentsError('idempotency_key_invalid', `idempotencyKey ${message}`, {
    details: [{ field: 'idempotencyKey', message }],
  });
}
