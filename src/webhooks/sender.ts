// Sends a webhook. A receiver that is slow, never ends its answer, hangs or redirects costs at most ten
// seconds, one connection and 64 KiB.

import type { LookupAddress } from 'node:dns';
import { lookup as lookUpOnMachine, Resolver } from 'node:dns/promises';
import { isIP, type LookupFunction } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';
import { Agent, buildConnector, type Dispatcher, Pool } from 'undici';
import manifest from '../../package.json' with { type: 'json' };
import type { AddressPolicy } from './address-policy.ts';

const contentType = 'application/json; charset=utf-8';
/** For the whole attempt, including the answer. */
const timeoutMs = 10_000;
/** For the answer's body, after its status. */
const maxReadMs = 2_000;
/** Interim answers (1xx) before the answer. */
const maxInterim = 10;
const maxReadBytes = 64 * 1024;
const maxKeptBytes = 1024;
/** Timeout of one DNS query; each name is queried twice. */
const dnsTimeoutMs = 2_000;
/** How long the addresses of one family wait for those of the other. */
const otherFamilyMs = 500;
/** Maximum origins remembered as reachable only by the operator's permission. */
const maxPermittedOrigins = 10_000;
const userAgent = `payment-intent-service/${manifest.version}`;

export interface AttemptResult {
  at: Date;
  durationMs: number;
  statusCode: number | undefined;
  /** The problem, for the merchant. */
  error: string | undefined;
  /** The beginning of the answer. */
  response: Buffer | undefined;
}

export interface Sender {
  /** Posts the body. Never throws: failures are results. */
  send(url: string, headers: Readonly<Record<string, string>>, body: string): Promise<AttemptResult>;
  /** Closes all connections; attempts in flight fail. */
  close(): Promise<void>;
}

/** The receiver's address is not permitted. */
class ForbiddenAddress extends Error {}

/** `dnsServers` replace those of this machine. */
export function createSender(policy: AddressPolicy, dnsServers?: readonly string[]): Sender {
  const permittedOrigins = new LRUCache<string, true>({ max: maxPermittedOrigins });
  const agent = new Agent({
    connect: createConnector(policy, createLookup(policy, dnsServers), (origin) => {
      permittedOrigins.set(origin, true);
    }),
    factory: createPool,
    // Unlimited here: the attempts in flight are bounded. A hanging path must not delay others on its host.
    connections: null,
    pipelining: 1,
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
    maxHeaderSize: 16 * 1024,
    // Common servers close theirs after 5 s, which is also when a failed attempt is repeated.
    keepAliveTimeout: 4_000,
    keepAliveMaxTimeout: 60_000,
  });
  return {
    async send(url, headers, body) {
      const at = new Date();
      const startedAtMs = performance.now();
      const result = await attempt(agent, policy, url, headers, body).catch((reason) => ({
        statusCode: undefined,
        error: describe(reason),
        response: undefined,
      }));
      // The merchant must not see what a private address answers.
      if (permittedOrigins.get(URL.parse(url)?.origin ?? '')) result.response = undefined;
      return { at, durationMs: Math.round(performance.now() - startedAtMs), ...result };
    },
    close: () => agent.destroy(),
  };
}

/**
 * undici 8.12 drops the pool of an origin when its last connection ends, unless a request is pending. One that was
 * cut off still counts then, and the pool stayed for good. Repeats the event when it no longer counts.
 */
function createPool(origin: string | URL, options: object): Pool {
  const pool = new Pool(origin, options);
  let isRepeated = false;
  return pool.on('disconnect', (...event) => {
    if (isRepeated) return;
    setImmediate(() => {
      isRepeated = true;
      pool.emit('disconnect', ...event);
      isRepeated = false;
    });
  });
}

async function attempt(
  agent: Agent,
  policy: AddressPolicy,
  text: string,
  headers: Readonly<Record<string, string>>,
  body: string,
): Promise<Pick<AttemptResult, 'statusCode' | 'error' | 'response'>> {
  // The policy may have changed since the endpoint was created.
  const problem = policy.urlProblem(text);
  if (problem !== undefined) throw new ForbiddenAddress(`the URL ${problem}`);
  const url = new URL(text);
  const flooded = new AbortController();
  let interim = 0;
  const answer = await agent.request({
    origin: url.origin,
    path: url.pathname + url.search,
    method: 'POST',
    // Firewalls refuse requests without Accept; servlets read text without a charset as Latin-1.
    headers: { ...headers, accept: '*/*', 'content-type': contentType, 'user-agent': userAgent },
    body,
    // Each one restarts the limit on headers, and all are parsed as fast as they arrive.
    onInfo() {
      if (++interim > maxInterim)
        flooded.abort(Object.assign(new Error('interim answers'), { code: 'EINTERIM' }));
    },
    signal: AbortSignal.any([AbortSignal.timeout(timeoutMs), flooded.signal]),
  });
  const { statusCode } = answer;
  const isSuccess = statusCode >= 200 && statusCode <= 299;
  const kept = await readBeginning(answer.body);
  return {
    statusCode,
    error: isSuccess ? undefined : describeStatus(statusCode),
    response: kept.length === 0 ? undefined : kept,
  };
}

function describeStatus(statusCode: number): string {
  return statusCode >= 300 && statusCode <= 399
    ? `answered ${statusCode}: redirects are not followed`
    : `answered ${statusCode}`;
}

/** Reads a body up to its limits and returns the beginning. */
async function readBeginning(body: Dispatcher.ResponseData['body']): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let kept = 0;
  let read = 0;
  const timer = setTimeout(() => body.destroy(), maxReadMs);
  try {
    for await (const chunk of body as AsyncIterable<Buffer>) {
      read += chunk.length;
      if (kept < maxKeptBytes) {
        const part = chunk.subarray(0, maxKeptBytes - kept);
        kept += part.length;
        // A view would keep the whole chunk in memory.
        chunks.push(Buffer.from(part));
      }
      if (read > maxReadBytes) break;
    }
  } catch {
    // Cut off: keep what was read.
  } finally {
    clearTimeout(timer);
    body.on('error', () => {}).destroy();
  }
  return Buffer.concat(chunks, kept);
}

/** Reports the origin of each connection to an address that only the operator's permission allows. */
function createConnector(
  policy: AddressPolicy,
  lookup: LookupFunction,
  onPermitted: (origin: string) => void,
): buildConnector.connector {
  // Node's default is 250 ms for all addresses but the last: without an IPv6 route, distant receivers failed.
  const autoSelectFamilyAttemptTimeout = timeoutMs / 4;
  // Over HTTP/2, the header `Upgrade` or `Keep-Alive` of an application behind a proxy would be an error.
  const overHttp1 = { allowH2: false, timeout: timeoutMs, lookup, autoSelectFamilyAttemptTimeout };
  const connect = buildConnector(overHttp1);
  return (options, callback) => {
    const { hostname, protocol, host } = options;
    if (isIP(hostname) !== 0 && policy.reachOf(hostname) === undefined) {
      return callback(new ForbiddenAddress('the address is not public'), null);
    }
    connect(options, (...result) => {
      const [error, socket] = result;
      if (error === null) {
        // Check the address of the connection itself, whatever was resolved before.
        const reach = policy.reachOf(socket.remoteAddress ?? '');
        const isPermitted = reach === 'permitted' || policy.permitsHost(hostname);
        if (reach !== 'public' && !isPermitted) {
          socket.destroy();
          return callback(new ForbiddenAddress('the address is not public'), null);
        }
        if (isPermitted) onPermitted(`${protocol}//${host}`);
      }
      callback(...result);
    });
  };
}

/** Resolves a name. Fails if any of its addresses is not permitted. */
function createLookup(policy: AddressPolicy, dnsServers: readonly string[] | undefined): LookupFunction {
  // Not the operating system's resolver: it has four threads, so a few hanging names would delay all.
  const resolver = new Resolver({ timeout: dnsTimeoutMs, tries: 2 });
  if (dnsServers !== undefined) resolver.setServers(dnsServers);
  const resolve = async (hostname: string): Promise<LookupAddress[]> => {
    const of = (family: number) => (all: string[]) => all.map((address) => ({ address, family }));
    const v4 = resolver.resolve4(hostname).then(of(4));
    const families = [v4, resolver.resolve6(hostname).then(of(6))];
    await Promise.any(families).catch(() => v4);
    // Some name servers, or firewalls in front of them, never answer one of the two query types.
    const late = sleep(otherFamilyMs, [], { ref: false });
    return (await Promise.all(families.map((each) => Promise.race([each.catch(() => []), late])))).flat();
  };
  const resolveChecked = async (hostname: string): Promise<LookupAddress[]> => {
    // The operator may have defined the name on this machine.
    if (policy.permitsHost(hostname)) return lookUpOnMachine(hostname, { all: true });
    const addresses = await resolve(hostname);
    if (addresses.every(({ address }) => policy.reachOf(address) !== undefined)) return addresses;
    throw new ForbiddenAddress(`${hostname} resolves to an address that is not public`);
  };
  return (hostname, options, callback) => {
    resolveChecked(hostname).then(
      (addresses) => {
        const [first] = addresses as [LookupAddress];
        if (options.all) callback(null, addresses);
        else callback(null, first.address, first.family);
      },
      (reason) => callback(reason, '', 0),
    );
  };
}

/** Describes the failure for the merchant, without details of our network. */
function describe(reason: unknown): string {
  for (let error = reason; error instanceof Error; error = error.cause) {
    if (error instanceof ForbiddenAddress) return `not sent: ${error.message}`;
    const { code, name } = error as { code?: string; name: string };
    if (name === 'TimeoutError') return `no answer within ${timeoutMs / 1000} s`;
    if (code === 'UND_ERR_SOCKET' && error.message === 'bad response') return unrequestedContinue;
    const known = code === undefined ? undefined : faults[code];
    if (known !== undefined) return known;
    if (
      code !== undefined &&
      /^(?:ERR_TLS|ERR_SSL|CERT_|UNABLE_TO|DEPTH_ZERO|SELF_SIGNED|HOSTNAME_MISMATCH)/.test(code)
    ) {
      return `the TLS certificate or handshake is not acceptable (${code})`;
    }
  }
  return 'the answer was not HTTP, or the connection broke';
}

/** undici closes the connection, with the message "bad response". It accepts all other interim answers. */
const unrequestedContinue = 'answered 100 Continue, which was not requested';

const faults: Readonly<Record<string, string>> = {
  ENOTFOUND: 'the name of the host does not resolve',
  ENODATA: 'the name of the host does not resolve',
  ESERVFAIL: 'the name of the host does not resolve',
  EREFUSED: 'the name of the host does not resolve',
  ETIMEOUT: 'the name of the host could not be resolved in time',
  ECONNREFUSED: 'the connection was refused',
  ECONNRESET: 'the connection was reset',
  EHOSTUNREACH: 'the host cannot be reached',
  ENETUNREACH: 'the host cannot be reached',
  ETIMEDOUT: `no connection within ${timeoutMs / 1000} s`,
  UND_ERR_CONNECT_TIMEOUT: `no connection within ${timeoutMs / 1000} s`,
  UND_ERR_HEADERS_TIMEOUT: `no answer within ${timeoutMs / 1000} s`,
  UND_ERR_BODY_TIMEOUT: `no answer within ${timeoutMs / 1000} s`,
  EINTERIM: `more than ${maxInterim} interim answers (1xx) came before an answer`,
  UND_ERR_HEADERS_OVERFLOW: 'the headers of the answer are larger than 16 KiB',
};
