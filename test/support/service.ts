// A complete service for a test, with its own database, its own ports and a recorded log.

import { randomBytes, randomUUID } from 'node:crypto';
import { EventEmitter, on } from 'node:events';
import http from 'node:http';
import https from 'node:https';
import pg from 'pg';
import { getAddress } from 'viem/utils';
import { expect, inject } from 'vitest';
import { loadConfig, type SecretName } from '../../src/config/config.ts';
import { pgConfigOf, type SocketLocation } from '../../src/config/database-location.ts';
import { parseKeyRing } from '../../src/config/key-ring.ts';
import type { WalletAddress } from '../../src/contract/wallet-address.ts';
import type { ChainName, ModeName } from '../../src/contract/words.ts';
import { keysChangedChannel } from '../../src/database/entities/merchant.ts';
import { parseIdentifier } from '../../src/database/identifiers.ts';
import { createOrm } from '../../src/database/orm.ts';
import { createApiKey, createMerchant, setWallets } from '../../src/merchants/administration.ts';
import type { Database } from '../../src/processes/open-database.ts';
import { type RunningServer, startServer } from '../../src/processes/serve.ts';
import type { Identity } from '../../src/requests/request-context.ts';
import { createLogger } from '../../src/telemetry/logging.ts';
import { type Call, openCalls } from './call.ts';
import { findLeaks } from './leaks.ts';
import { openClient } from './open-client.ts';
import { anyPorts, newKeyRing } from './test-environment.ts';

/** A fresh copy of the migrated database. */
export async function createTestDatabase(): Promise<SocketLocation & { drop(): Promise<void> }> {
  const postgres = inject('postgres');
  const database = `test_${randomUUID().replaceAll('-', '')}`;
  const run = async (sql: string) => {
    const client = await openClient(postgres);
    await client.query(sql).finally(() => client.end());
  };
  // The default strategy would write all pages to the WAL.
  await run(`create database ${database} template ${inject('templateDatabase')} strategy file_copy`);
  return { ...postgres, database, drop: () => run(`drop database ${database} with (force)`) };
}

export interface TestMerchant {
  merchantId: string;
  /** UUID. */
  id: string;
  keys: Record<ModeName, { keyId: string; apiKey: string }>;
  wallets: Record<ModeName, Record<ChainName, WalletAddress>>;
}

/** A merchant's API key. */
export const keyOf = ({ keys }: TestMerchant, mode: ModeName = 'testnet') => keys[mode].apiKey;

/** The merchant's identity as a method gets it, with the testnet key. */
export const identityOf = ({ id, merchantId, keys, wallets }: TestMerchant): Identity => ({
  ...{ merchantId: id, merchantTypeId: merchantId, keyTypeId: keys.testnet.keyId },
  ...{ mode: 'testnet', payoutWallets: wallets.testnet },
});

export interface TestService {
  database: Database;
  /** The service's own sessions, with its role. `database` has the owner's. */
  served: Database['orm'];
  location: SocketLocation;
  server: RunningServer;
  /** Parsed lines of the log so far. */
  log: Record<string, unknown>[];
  /** The lines of requests. */
  requestLines(): Record<string, unknown>[];
  /** Resolves with the next line of a request. */
  nextLogLine(): Promise<Record<string, unknown>>;
  /** Resolves with the first line that matches, of those so far or to come. */
  loggedLine(matches: (line: Record<string, unknown>) => boolean): Promise<Record<string, unknown>>;
  /** Resolves when the service has processed every change of a key or wallet made so far. */
  keyChangesHeard(): Promise<void>;
  publicUrl: string;
  internalUrl: string;
  operationsUrl: string;
  merchant: TestMerchant;
  /** Creates another merchant. */
  newMerchant(): Promise<TestMerchant>;
  /** Calls a method through a door, by default with the testnet key of the service's merchant. */
  call: Call;
  query<T extends pg.QueryResultRow>(sql: string, values?: unknown[]): Promise<T[]>;
  close(): Promise<void>;
}

const isOfRequest = (line: Record<string, unknown>) => line.request_id !== undefined;

export interface ServiceOptions {
  /** Whether the service treats its database as the embedded one or as an external one. */
  embedded?: boolean;
  /** Another process on the same database, with the same secrets and merchant. Close this one first. */
  beside?: TestService;
  /** False: no notification reaches the service, as behind PgBouncer in transaction mode. */
  isNotified?: boolean;
  /** Chains that the test runs locally in place of test networks, in the folder `DATA_DIR`. */
  localChains?: readonly ChainName[];
  /** Key rings in the form of their variables. Without them they are random. */
  secrets?: Partial<Record<SecretName, string>>;
}

export async function startService(
  env: Record<string, string> = {},
  { embedded = true, beside, isNotified = true, localChains = [], secrets: given = {} }: ServiceOptions = {},
): Promise<TestService> {
  const location = beside ? { ...beside.location, drop: async () => {} } : await createTestDatabase();
  const config = loadConfig({
    ...anyPorts,
    DATABASE_POOL: '8',
    RATE_LIMIT: '0',
    ...env,
  });
  const orm = createOrm(location, config.databasePool, config.databaseTimeouts);
  const ringOf = (name: SecretName) =>
    beside?.database.keyRing(name) ?? parseKeyRing(given[name] ?? newKeyRing());
  const secrets = {
    CLIENT_SECRET_KEYS: ringOf('CLIENT_SECRET_KEYS'),
    API_KEY_PEPPERS: ringOf('API_KEY_PEPPERS'),
    WEBHOOK_SECRET_KEYS: ringOf('WEBHOOK_SECRET_KEYS'),
  };
  const database: Database = {
    orm,
    config,
    location,
    keyRing: (name) => secrets[name],
    embedded,
    pending: [],
    close: () => orm.close(),
  };
  const log: Record<string, unknown>[] = [];
  const lines = new EventEmitter();
  const logger = createLogger('trace', {
    write(text: string) {
      const line = JSON.parse(text);
      log.push(line);
      lines.emit('line', line);
    },
  });
  const nextLine = async (matches: (line: Record<string, unknown>) => boolean) => {
    for await (const [line] of on(lines, 'line')) if (matches(line)) return line;
    throw new Error('the log has ended');
  };
  // On another database of the same server, it gets no notifications of this one.
  const heard = isNotified ? location : inject('postgres');
  // With the rights of docs/operations.md. The test itself has the owner's.
  const served = createOrm({ ...location, user: 'serving' }, config.databasePool, config.databaseTimeouts);
  const ofServer = { ...database, orm: served, location: { ...heard, user: 'serving' } };
  const server = await startServer(config, ofServer, logger, { localChains });
  const client = new pg.Pool({ ...pgConfigOf(location), max: 1 });
  client.on('error', () => {});
  const urls = {
    publicUrl: `http://127.0.0.1:${server.ports.http}`,
    internalUrl: `http://127.0.0.1:${server.ports.grpc}`,
    operationsUrl: `http://127.0.0.1:${server.ports.metrics}`,
  };
  const merchant = beside?.merchant ?? (await createTestMerchant(database));
  const calls = openCalls(urls, merchant.keys.testnet.apiKey);
  return {
    ...urls,
    call: calls.call,
    database,
    served,
    location,
    server,
    log,
    requestLines: () => log.filter(isOfRequest),
    nextLogLine: () => nextLine(isOfRequest),
    loggedLine: async (matches) => log.find(matches) ?? nextLine(matches),
    async keyChangesHeard() {
      // Notifications arrive in order: after this one, all earlier ones have been processed.
      const payload = randomUUID();
      const heard = nextLine((line) => line.payload === payload);
      await client.query('select pg_notify($1, $2)', [keysChangedChannel, payload]);
      await heard;
    },
    merchant,
    newMerchant: () => createTestMerchant(database),
    async query(sql, values) {
      return (await client.query(sql, values)).rows;
    },
    async close() {
      calls.close();
      await server.close();
      await Promise.all([served.close(), database.close()]);
      const leaks = await findLeaks(log, async (sql) => (await client.query(sql)).rows);
      await client.end();
      await location.drop();
      expect(leaks).toEqual([]);
    },
  };
}

/** Creates a merchant with a key for each mode, and a different wallet for each mode and chain. */
async function createTestMerchant(database: Database): Promise<TestMerchant> {
  const { em } = database.orm;
  // Unique, so that a mix-up is detected. Lower case needs no checksum.
  const wallet = (): WalletAddress => getAddress(`0x${randomBytes(20).toString('hex')}`);
  const wallets = {
    testnet: { base: wallet(), polygon: wallet() },
    mainnet: { base: wallet(), polygon: wallet() },
  };
  const merchantId = await createMerchant(em, 'Test merchant', 'testnet', wallets.testnet);
  await setWallets(em, merchantId, 'mainnet', wallets.mainnet);
  const peppers = database.keyRing('API_KEY_PEPPERS');
  return {
    merchantId,
    id: parseIdentifier('mer', merchantId) as string,
    wallets,
    keys: {
      testnet: await createApiKey(em, peppers, merchantId, 'testnet', undefined),
      mainnet: await createApiKey(em, peppers, merchantId, 'mainnet', undefined),
    },
  };
}

export interface HttpAnswer {
  status: number;
  headers: http.IncomingHttpHeaders;
  body: string;
}

/** Sends JSON, by default a creation, with a key or another bearer token. */
export const postJson = (
  url: string,
  bearer: string,
  body = '{"amount_units":1}',
  { headers, ...options }: { headers?: http.OutgoingHttpHeaders; agent?: http.Agent | false } = {},
): Promise<HttpAnswer> =>
  httpRequest(
    url,
    {
      ...options,
      headers: { authorization: `Bearer ${bearer}`, 'content-type': 'application/json', ...headers },
    },
    body,
  );

/** Sends one HTTP request, with full control over its headers and bytes. An https URL needs the server's `ca`. */
export function httpRequest(
  url: string,
  options: https.RequestOptions,
  body?: string | Uint8Array,
): Promise<HttpAnswer> {
  return new Promise((resolve, reject) => {
    const { request: open } = url.startsWith('https:') ? https : http;
    const request = open(url, { method: 'POST', ...options }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk) => chunks.push(chunk));
      response.on('error', reject);
      response.on('end', () => {
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          body: Buffer.concat(chunks).toString(),
        });
      });
    });
    request.on('error', reject);
    request.end(body);
  });
}
