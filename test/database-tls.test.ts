// TLS to the database: `sslmode` in DATABASE_URL has libpq's meaning. Uses a real PostgreSQL that accepts only TLS,
// with a self-signed certificate.

import { execFile } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import { copyFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, describe, expect, test } from 'vitest';
import { loadConfig } from '../src/config/config.ts';
import { listenForNotifications } from '../src/database/notifications.ts';
import { migrate } from '../src/database/orm.ts';
import { openDatabase } from '../src/processes/open-database.ts';
import { createLogger } from '../src/telemetry/logging.ts';
import { useFolder } from './support/folder.ts';
import { openClient } from './support/open-client.ts';
import { type OwnPostgres, startOwnPostgres } from './support/own-postgres.ts';

const run = promisify(execFile);
const ring = `1:${Buffer.alloc(32, 1).toString('base64')}`;

/** Creates a self-signed certificate and its key, as `<name>.pem` and `<name>.key`. */
async function makeCertificate(name: string, subject: string, alternativeNames?: string): Promise<void> {
  await run('openssl', [
    ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '1'],
    ...['-subj', subject, ...(alternativeNames ? ['-addext', `subjectAltName=${alternativeNames}`] : [])],
    ...['-keyout', file(`${name}.key`), '-out', file(`${name}.pem`)],
  ]);
}

const file = (name: string) => join(folder, name);

const folder = await useFolder();
await makeCertificate('server', '/CN=localhost', 'DNS:localhost');
await makeCertificate('other', '/CN=localhost', 'DNS:localhost');
await makeCertificate('client', '/CN=with_certificate');
await writeFile(file('nonsense.pem'), 'nonsense');
const postgres = await startOwnPostgres({
  isMigrated: true,
  settings: [
    'ssl = on',
    "ssl_cert_file = 'server.pem'",
    "ssl_key_file = 'server.key'",
    "ssl_ca_file = 'client.pem'",
  ],
  hba: [
    'local all all trust',
    'hostssl all with_certificate all cert',
    'hostssl all all all trust',
    'hostnossl all all all reject',
  ],
  files: Object.fromEntries(['server.pem', 'server.key', 'client.pem'].map((name) => [name, file(name)])),
});
await postgres.query('create role with_certificate login superuser');
const plain = await startOwnPostgres({ isMigrated: true });

afterAll(async () => {
  await postgres.stop();
  await plain.stop();
});

/** Returns whether the connection is encrypted; throws if it cannot connect. */
async function isEncrypted(url: string): Promise<boolean | undefined> {
  const client = await openClient({ url });
  const { rows } = await client
    .query<{ ssl: boolean }>('select ssl from pg_stat_ssl where pid = pg_backend_pid()')
    .finally(() => client.end());
  return rows[0]?.ssl;
}

/** A URL with these parameters; file names become paths. */
const address = (
  server: OwnPostgres,
  host: string,
  parameters: Record<string, string>,
  user = 'postgres',
  database = 'postgres',
) => {
  const query = new URLSearchParams(
    Object.entries(parameters).map(([name, value]): [string, string] => [
      name,
      /\.(?:pem|key)$/.test(value) ? file(value) : value,
    ]),
  );
  return `postgresql://${user}@${host}:${server.port}/${database}?${query}`;
};

describe('connects, encrypted', () => {
  test.each<[string, Record<string, string>]>([
    ['127.0.0.1', { sslmode: 'require' }],
    ['localhost', { sslmode: 'require' }],
    ['127.0.0.1', { sslmode: 'require', sslrootcert: 'server.pem' }],
    ['127.0.0.1', { sslmode: 'verify-ca', sslrootcert: 'server.pem' }],
    ['localhost', { sslmode: 'verify-full', sslrootcert: 'server.pem' }],
    ['127.0.0.1', { sslmode: 'require', sslnegotiation: 'direct' }],
  ])('%s %o', async (host, parameters) => {
    expect(await isEncrypted(address(postgres, host, parameters))).toBe(true);
  });

  test('with a client certificate', async () => {
    const parameters = { sslmode: 'require', sslcert: 'client.pem', sslkey: 'client.key' };
    expect(await isEncrypted(address(postgres, 'localhost', parameters, 'with_certificate'))).toBe(true);
    await expect(
      isEncrypted(address(postgres, 'localhost', { sslmode: 'require' }, 'with_certificate')),
    ).rejects.toThrow(/requires a valid client certificate/);
  });

  test('with parameters from variables, which the address overrides', async () => {
    process.env.PGSSLMODE = 'require';
    try {
      expect(await isEncrypted(address(postgres, '127.0.0.1', {}))).toBe(true);
      expect(await isEncrypted(address(plain, '127.0.0.1', { sslmode: 'disable' }))).toBe(false);
    } finally {
      delete process.env.PGSSLMODE;
    }
  });
});

test('there is no TLS on a Unix socket', async () => {
  const url = `postgresql://postgres@localhost:${postgres.port}/postgres?sslmode=verify-full&host=${encodeURIComponent(postgres.folder)}`;
  expect(await isEncrypted(url)).toBe(false);
});

describe('refuses to connect', () => {
  test.each<[string, Record<string, string>, RegExp]>([
    ['127.0.0.1', { sslmode: 'require', sslrootcert: 'other.pem' }, /self-signed certificate/],
    ['127.0.0.1', { sslmode: 'verify-ca', sslrootcert: 'other.pem' }, /self-signed certificate/],
    ['localhost', { sslmode: 'verify-full' }, /self-signed certificate/],
    ['localhost', { sslmode: 'verify-full', sslrootcert: 'system' }, /self-signed certificate/],
    // The certificate is for "localhost", not for the requested host.
    ['127.0.0.1', { sslmode: 'verify-full', sslrootcert: 'server.pem' }, /127\.0\.0\.1 is not in the cert/],
    ['127.0.0.1', { sslmode: 'disable' }, /no encryption/],
    ['127.0.0.1', {}, /no encryption/],
  ])('%s %o', async (host, parameters, says) => {
    await expect(isEncrypted(address(postgres, host, parameters))).rejects.toThrow(says);
  });

  test('a server without TLS, if TLS is required', async () => {
    await expect(isEncrypted(address(plain, '127.0.0.1', { sslmode: 'require' }))).rejects.toThrow(
      /does not support SSL/,
    );
  });
});

test('the service, its migrations and its listener use TLS, even after a file was removed', async () => {
  const files = {
    sslrootcert: 'service-ca.pem',
    sslcert: 'service-client.pem',
    sslkey: 'service-client.key',
  };
  await copyFile(file('server.pem'), file(files.sslrootcert));
  await copyFile(file('client.pem'), file(files.sslcert));
  await copyFile(file('client.key'), file(files.sslkey));
  const parameters = { sslmode: 'verify-full', ...files };
  const url = address(postgres, 'localhost', parameters, 'with_certificate', 'empty');
  await migrate({ url });
  const database = await openDatabase(
    loadConfig({
      DATABASE_URL: url,
      API_KEY_PEPPERS: ring,
      CLIENT_SECRET_KEYS: ring,
      WEBHOOK_SECRET_KEYS: ring,
    }),
  );
  expect(database.pending).toEqual([]);
  for (const name of Object.values(files)) await rm(file(name));
  // Two concurrent queries need two connections.
  const sleep = () => database.orm.em.fork().execute('select pg_sleep(0.1)');
  await Promise.all([sleep(), sleep()]);
  const heard = new EventEmitter();
  const logger = createLogger('trace', { write: (line) => void heard.emit('line', line) });
  const changed = once(heard, 'changed');
  const changes = await listenForNotifications(
    database.location,
    { changed: () => void heard.emit('changed') },
    logger,
  );
  await changed;
  await changes.stop();
  await database.close();
});

describe('reports faults of the address before it connects', () => {
  test.each<[Record<string, string>, RegExp]>([
    [{ sslmode: 'prefer' }, /sslmode=prefer of DATABASE_URL is not supported: use disable, require/],
    [{ sslmode: 'allow' }, /sslmode=allow of DATABASE_URL is not supported/],
    [{ sslmode: 'no-verify' }, /sslmode=no-verify of DATABASE_URL is not supported/],
    [{ sslmode: 'verify-ca' }, /needs sslrootcert/],
    [{ sslmode: 'require', sslrootcert: 'system' }, /needs sslmode=verify-full/],
    [{ sslrootcert: 'server.pem' }, /no effect without sslmode/],
    [{ sslmode: 'require', sslcert: 'client.pem' }, /sslcert and sslkey .* go together/],
    [{ sslmode: 'require', sslcert: 'client.pem', sslkey: 'other.key' }, /cannot be used/],
    [
      { sslmode: 'verify-full', sslrootcert: 'missing.pem' },
      /sslrootcert of DATABASE_URL cannot be read \(ENOENT/,
    ],
    [{ sslmode: 'verify-full', sslrootcert: 'nonsense.pem' }, /sslrootcert of DATABASE_URL cannot be used/],
    [{ sslmode: 'require', sslcrl: 'server.pem' }, /parameter sslcrl of DATABASE_URL is not supported/],
    [
      { sslmode: 'require', channel_binding: 'require' },
      /channel_binding=require of DATABASE_URL is not supported: use sslmode=verify-full/,
    ],
    [{ ssl: 'true' }, /parameter ssl of DATABASE_URL is not supported/],
    [{ sslmode: 'require', sslnegotiation: 'soon' }, /sslnegotiation=soon/],
  ])('%o', (parameters, says) => {
    expect(() => loadConfig({ DATABASE_URL: address(postgres, 'localhost', parameters) }, [])).toThrow(says);
  });

  test('in one line that shows no password', () => {
    const url = 'postgresql://payments:hunter2@localhost/payments?sslmode=prefer';
    expect(() => loadConfig({ DATABASE_URL: url }, [])).toThrow(/^the configuration is not usable: [^\n]*$/);
    expect(() => loadConfig({ DATABASE_URL: url }, [])).not.toThrow(/hunter2/);
  });
});
