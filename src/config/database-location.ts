import { readFileSync } from 'node:fs';
import type { ConnectionOptions } from 'node:tls';
import { checkServerIdentity, createSecureContext, getCACertificates } from 'node:tls';
import type { ClientConfig } from 'pg';
import { StartupError } from './startup-error.ts';

/** How to reach a PostgreSQL: an address, or the folder of a local server's Unix socket. */
export type DatabaseLocation = { url: string } | SocketLocation;

export type SocketLocation = { socketFolder: string; user: string; database: string };

/** Which servers a session is accepted from; the same words as in libpq. */
const sessionTargets = ['any', 'read-write', 'primary'] as const;
type SessionTarget = (typeof sessionTargets)[number];

/** The servers of a database, in the order of its address, and the kind of server that is wanted. */
export interface DatabaseTarget {
  /** The options that `pg` needs to connect to each. */
  hosts: readonly [ClientConfig, ...ClientConfig[]];
  sessions: SessionTarget;
}

/**
 * Returns how to reach the database. An address may name several hosts, `h1:5432,h2:5432`, of which one
 * accepts writes. `sslmode` and `target_session_attrs` mean the same as in libpq; other parameters are passed
 * to `pg`. Throws StartupError if the address asks for something unsupported, or names an unusable file.
 */
export function databaseTargetOf(location: DatabaseLocation): DatabaseTarget {
  const application_name = 'payment-intent-service';
  if (!('url' in location)) {
    const { socketFolder: host, user, database } = location;
    // Without a port here, PGPORT would be used.
    return { hosts: [{ host, port: 5432, user, database, ssl: false, application_name }], sessions: 'any' };
  }
  const urls = urlsOf(location.url);
  const sessions = sessionTargetOf(urls[0], urls.length > 1);
  const configOf = (url: URL) => ({ ...addressConfig(url), application_name });
  const [first, ...others] = urls;
  return { hosts: [configOf(first), ...others.map(configOf)], sessions };
}

/** Default time to wait for a connection before the database counts as unreachable. */
export const defaultConnectTimeoutMs = 5_000;

/** Returns the options that `pg` needs to connect to the first host, whether it accepts writes or not. */
export function pgConfigOf(location: DatabaseLocation): ClientConfig {
  return { ...databaseTargetOf(location).hosts[0], connectionTimeoutMillis: defaultConnectTimeoutMs };
}

/** The part of an address before its hosts, the hosts, and the rest. */
const addressForm = /^(\w+:\/\/(?:[^@/?#]*@)?)([^/?#]*)(.*)$/s;

/** Returns one URL for each host of the address. Throws StartupError if it is not a PostgreSQL address. */
export function urlsOf(address: string): [URL, ...URL[]] {
  const [, before = '', hosts = '', after = ''] = addressForm.exec(address) ?? [];
  const [first = '', ...others] = hosts.split(',');
  const urlOf = (host: string) => {
    const url = URL.parse(`${before}${host}${after}`);
    if (url !== null && isPostgresUrl(url)) return url;
    throw new StartupError(
      'DATABASE_URL must be an address like postgresql://user:password@host:5432/database',
    );
  };
  if (others.length > 0 && [first, ...others].some((host) => host.replace(/:\d*$/, '') === '')) {
    throw new StartupError('DATABASE_URL names an empty host between its commas: remove it');
  }
  return [urlOf(first), ...others.map(urlOf)];
}

function isPostgresUrl({ protocol, pathname }: URL): boolean {
  return /^postgres(ql)?:$/.test(protocol) && /^\/(?:[^/%]|%[0-9A-Fa-f]{2})+$/.test(pathname);
}

function sessionTargetOf({ searchParams }: URL, isOneOfSeveral: boolean): SessionTarget {
  const given = searchParams.get('target_session_attrs') || process.env.PGTARGETSESSIONATTRS;
  if (!given) return isOneOfSeveral ? 'read-write' : 'any';
  const target = sessionTargets.find((known) => known === given);
  if (target !== undefined) return target;
  throw new StartupError(
    `target_session_attrs=${given} of DATABASE_URL is not supported: use ${sessionTargets.join(', ')}; several hosts imply read-write`,
  );
}

/** libpq's TLS parameters. Each may also be set by a variable, such as PGSSLMODE. */
const tlsParameters = ['sslmode', 'sslrootcert', 'sslcert', 'sslkey', 'sslnegotiation'] as const;
type TlsParameters = Partial<Record<(typeof tlsParameters)[number], string>>;

/** `pg` interprets `sslmode` differently from libpq, so the TLS parameters are removed from its address. */
function addressConfig(url: URL): ClientConfig {
  const given: TlsParameters = {};
  for (const name of tlsParameters) {
    const value = url.searchParams.get(name) || process.env[`PG${name.toUpperCase()}`];
    if (value) given[name] = value;
    url.searchParams.delete(name);
  }
  url.searchParams.delete('target_session_attrs');
  if (url.searchParams.get('channel_binding') === 'require' && given.sslmode !== 'verify-full') {
    throw new StartupError(
      'channel_binding=require of DATABASE_URL is not supported: use sslmode=verify-full instead, with sslrootcert=system for a certificate of a public CA',
    );
  }
  url.searchParams.delete('channel_binding');
  const unknown = [...url.searchParams.keys()].find((name) => name.startsWith('ssl'));
  if (unknown !== undefined) {
    throw new StartupError(
      `the parameter ${unknown} of DATABASE_URL is not supported: for TLS use ${tlsParameters.join(', ')}`,
    );
  }
  const host = url.searchParams.get('host') ?? decodeURIComponent(url.hostname).replace(/^\[|\]$/g, '');
  if (host.includes(',')) {
    throw new StartupError('several hosts of DATABASE_URL go before its first slash: host1:5432,host2:5432');
  }
  // As in libpq, there is no TLS on a Unix socket.
  const ssl = host.startsWith('/') ? false : tlsOptions(given, host);
  return { connectionString: url.href, ssl, ...(ssl && { sslnegotiation: negotiationOf(given) }) };
}

function negotiationOf({ sslnegotiation = 'postgres' }: TlsParameters): 'postgres' | 'direct' {
  if (sslnegotiation === 'postgres' || sslnegotiation === 'direct') return sslnegotiation;
  throw new StartupError(
    `sslnegotiation=${sslnegotiation} of DATABASE_URL is not supported: use postgres or direct`,
  );
}

/** TLS as libpq's documentation defines it: https://www.postgresql.org/docs/current/libpq-ssl.html. */
function tlsOptions(given: TlsParameters, host: string): false | ConnectionOptions {
  const { sslmode: mode, sslrootcert, sslcert, sslkey } = given;
  if (mode === 'disable') return false;
  if (mode === undefined) {
    const [unused] = Object.keys(given);
    if (unused === undefined) return false;
    throw new StartupError(
      `${unused} of DATABASE_URL has no effect without sslmode: add sslmode=verify-full`,
    );
  }
  if (mode !== 'require' && mode !== 'verify-ca' && mode !== 'verify-full') {
    throw new StartupError(
      `sslmode=${mode} of DATABASE_URL is not supported: use disable, require (encrypted; the certificate is checked only with sslrootcert), verify-ca or verify-full`,
    );
  }
  if ((sslcert === undefined) !== (sslkey === undefined)) {
    throw new StartupError('sslcert and sslkey of DATABASE_URL go together: give both or neither');
  }
  if (mode === 'verify-ca' && sslrootcert === undefined) {
    throw new StartupError(
      'sslmode=verify-ca of DATABASE_URL needs sslrootcert, the CA to trust: any certificate of a public CA would be accepted',
    );
  }
  const client = sslcert !== undefined && sslkey !== undefined && clientCertificate(sslcert, sslkey);
  if (sslrootcert === 'system') {
    if (mode !== 'verify-full') {
      throw new StartupError(
        `sslrootcert=system of DATABASE_URL needs sslmode=verify-full, not ${mode}: any certificate of a public CA would be accepted`,
      );
    }
    return { ...client, ca: getCACertificates('system'), checkServerIdentity: identityOf(host) };
  }
  if (mode === 'require' && sslrootcert === undefined) return { ...client, rejectUnauthorized: false };
  const ca = sslrootcert === undefined ? undefined : readPem('sslrootcert', sslrootcert);
  if (ca !== undefined) assertUsable('sslrootcert', { ca });
  return {
    ...client,
    ...(ca !== undefined && { ca }),
    checkServerIdentity: mode === 'verify-full' ? identityOf(host) : () => undefined,
  };
}

/** Checks the certificate against the address's host. For an IP address Node.js would check "localhost". */
function identityOf(host: string): NonNullable<ConnectionOptions['checkServerIdentity']> {
  return (_, certificate) => checkServerIdentity(host, certificate);
}

function clientCertificate(certFile: string, keyFile: string): ConnectionOptions {
  const pair = { cert: readPem('sslcert', certFile), key: readPem('sslkey', keyFile) };
  assertUsable('sslcert and sslkey', pair);
  return pair;
}

/** PEM files by path, each read once: a new connection must not fail because a file was removed. */
const pemFiles = new Map<string, string>();

function readPem(parameter: string, file: string): string {
  try {
    const pem = pemFiles.get(file) ?? readFileSync(file, 'utf8');
    pemFiles.set(file, pem);
    return pem;
  } catch (cause) {
    throw new StartupError(
      `${parameter} of DATABASE_URL cannot be read (${(cause as Error).message}): it has to name a PEM file`,
      { cause },
    );
  }
}

function assertUsable(parameters: string, pem: ConnectionOptions): void {
  try {
    if (typeof pem.ca === 'string' && !pem.ca.includes('-----BEGIN')) throw new Error('no certificate in it');
    createSecureContext(pem);
  } catch (cause) {
    throw new StartupError(
      `${parameters} of DATABASE_URL cannot be used (${(cause as Error).message}): PEM is expected`,
      { cause },
    );
  }
}
