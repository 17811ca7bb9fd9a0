// The migration from the release before events and webhooks, with rows of every form that it wrote or found.
// Each can be retrieved, listed, canceled and expired, and a retry of its creation gets the original answer.

import { randomUUID } from 'node:crypto';
import type { JsonObject } from '@bufbuild/protobuf';
import type pg from 'pg';
import { getAddress } from 'viem';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import type { SocketLocation } from '../../src/config/database-location.ts';
import { parseKeyRing } from '../../src/config/key-ring.ts';
import { formatIdentifier, newUuid } from '../../src/database/identifiers.ts';
import { createOrm, migrate, pendingMigrations } from '../../src/database/orm.ts';
import { findBrokenRules } from '../../src/payment-intents/intent-rules.ts';
import { type Call, doors, pagesOf } from '../support/call.ts';
import { newCrc32Key } from '../support/crc32-key.ts';
import golden from '../support/golden-answers.json' with { type: 'json' };
import { openClient } from '../support/open-client.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { postJson } from '../support/service.ts';
import { endAll, type ServiceProcess, startProcess, useCluster } from './support/process.ts';
import { releasedMigrations } from './support/release.ts';

const modes = ['testnet', 'mainnet'] as const;
type Mode = (typeof modes)[number];

/** The columns that the first release repeated in each row. */
const facts = [
  {
    mode: 'mainnet',
    chain: 'base',
    chain_id: 8453,
    confirmations_required: 10,
    token_address: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913',
  },
  {
    mode: 'mainnet',
    chain: 'polygon',
    chain_id: 137,
    confirmations_required: 12,
    token_address: '0x3c499c542cEF5E3811e1192ce70d8cC03d5c3359',
  },
  {
    mode: 'testnet',
    chain: 'base',
    chain_id: 84532,
    confirmations_required: 10,
    token_address: '0x036CbD53842c5426634e7929541eC2318f3dCF7e',
  },
  {
    mode: 'testnet',
    chain: 'polygon',
    chain_id: 80002,
    confirmations_required: 12,
    token_address: '0x41E94Eb019C0762f9Bfcf9Fb1E58725BfB0e7582',
  },
] as const;

const metadata: JsonObject[] = [
  {},
  { order_id: 'order-1', customer: 'Zoë "Z" \\ 李' },
  { nested: { list: [1, null, true, 'x'], empty: {} }, price: 12.5 },
];

const merchantId = /values \('([^']+)'/.exec(golden.rows[0] ?? '')?.[1] as string;
const merchantInsert = golden.rows.find((sql) => sql.startsWith('insert into merchants')) as string;
/** A key of the first release. */
const oldestKey = newCrc32Key('testnet');

/** An older intent, as it has to be retrieved. */
interface Known {
  id: string;
  mode: Mode;
  expires_at: string;
  [field: string]: unknown;
}

let location: SocketLocation;
let client: pg.Client;
let receiver: Receiver;
const known: Known[] = [];
/** The answers of that release. */
let answers: { mode: string; idempotencyKey: string; body: string; answer: string }[];

const cluster = useCluster();

beforeAll(async () => {
  receiver = await startReceiver();
  await cluster.query('create database released');
  location = { ...cluster.location, database: 'released' };
  client = await openClient(location);
  await migrate(location, releasedMigrations.slice(0, 1));
  await insertMerchant();
  await client.query('create role reader; grant select on payment_intents to reader');
  await insertIntents('wide');
  await migrate(location, releasedMigrations);
  await insertIntents('narrow');
  await insertGolden();
});

afterEach(endAll);

afterAll(async () => {
  await client.end();
  await receiver.close();
});

async function insertMerchant(): Promise<void> {
  await client.query(merchantInsert);
  const hash = parseKeyRing(golden.apiKeyPeppers).hmac(1, oldestKey, 'hex');
  await client.query(
    `insert into api_keys (id, merchant_id, mode, pepper_version, key_hash, hint, created_at)
     values ($1, $2, 'testnet', 1, decode($3, 'hex'), 'sk_testnet_…', now())`,
    [randomUUID(), merchantId, hash],
  );
}

/** Every combination of network, lane, idempotency key and whether its time has passed. */
async function insertIntents(form: 'wide' | 'narrow'): Promise<void> {
  let n = 0;
  const rows: object[] = [];
  for (const { mode, chain, ...others } of facts) {
    for (const lane of ['sdk', 'manual']) {
      for (const hasKey of [true, false]) {
        for (const isOverdue of [true, false]) {
          n++;
          const createdAt = new Date(Date.now() - n * 1_000 - (isOverdue ? 7_200_000 : 0));
          const minutes = isOverdue ? 5 + n : 60;
          const expiresAt = new Date(createdAt.getTime() + minutes * 60_000);
          const id = newUuid(createdAt.getTime());
          const wallet = getAddress(`0x${n.toString(16).padStart(2, '0').repeat(19)}ab`);
          const amount = n % 5 === 0 ? Number.MAX_SAFE_INTEGER : n;
          const values = metadata[n % metadata.length];
          const common = {
            id,
            merchant_id: merchantId,
            mode,
            status: 'requires_payment',
            amount_units: amount,
            lane,
            metadata: values,
            created_at: createdAt,
            expires_at: expiresAt,
            client_secret_version: 1 + (n % 2),
            idempotency_key: hasKey ? `${form}-${n}` : null,
            request_fingerprint: hasKey ? `\\x${'ab'.repeat(32)}` : null,
          };
          const token = { decimals: 6, token_symbol: 'USDC' };
          rows.push(
            form === 'wide'
              ? {
                  ...common,
                  ...others,
                  ...token,
                  chain,
                  expected_wallet: wallet,
                  expires_in_minutes: minutes,
                }
              : { ...common, network: networkOf(mode, chain), expected_wallet: `\\x${wallet.slice(2)}` },
          );
          known.push({
            id: formatIdentifier('pi', id),
            status: 'requires_payment',
            mode,
            chain,
            ...others,
            ...token,
            amount_units: amount,
            expected_wallet: wallet,
            expires_at: expiresAt.toISOString(),
            expires_in_minutes: minutes,
            lane,
            metadata: values,
            created_at: createdAt.toISOString(),
          });
        }
      }
    }
  }
  await client.query(
    'insert into payment_intents select * from json_populate_recordset(null::payment_intents, $1)',
    [JSON.stringify(rows)],
  );
}

const networkOf = (mode: Mode, chain: string) =>
  1 + facts.findIndex((each) => each.mode === mode && each.chain === chain);

/** Inserts rows and answers that the release itself has written. Moves every second row to the present. */
async function insertGolden(): Promise<void> {
  for (const sql of golden.rows) if (sql !== merchantInsert) await client.query(sql);
  answers = [];
  for (const [i, { mode, idempotencyKey, body, answer }] of golden.answers.entries()) {
    const { client_secret, ...intent } = JSON.parse(answer);
    const { expires_in_minutes: minutes, expires_at: expiresAt } = intent;
    const movedTo = new Date(Date.now() + minutes * 60_000).toISOString();
    const moved = i % 2 === 0 ? movedTo : expiresAt;
    const { rows } = await client.query(
      `update payment_intents set expires_at = $3, created_at = $3::timestamptz - $4 * interval '1 minute'
        where mode = $1 and idempotency_key = $2 returning created_at`,
      [mode, idempotencyKey, moved, minutes],
    );
    answers.push({ mode, idempotencyKey, body, answer: answer.replace(expiresAt, moved) });
    known.push({ ...intent, expires_at: moved, created_at: rows[0].created_at.toISOString() });
  }
}

const startService = async (env: Record<string, string> = {}) =>
  startProcess(cluster, {
    DATABASE_URL: cluster.url.replace('/postgres?', '/released?'),
    CLIENT_SECRET_KEYS: golden.clientSecretKeys,
    API_KEY_PEPPERS: golden.apiKeyPeppers,
    WEBHOOK_ALLOW: '127.0.0.1',
    ...env,
  });

const keyOf = (mode: string) => golden.apiKeys[mode as Mode];
const isOverdue = ({ expires_at }: Known) => Date.parse(expires_at) < Date.now();
const sorted = (ids: Iterable<string>) => [...ids].sort();

function post(
  { publicUrl }: ServiceProcess,
  path: string,
  apiKey: string,
  body: string,
  idempotencyKey?: string,
) {
  const headers = idempotencyKey === undefined ? {} : { 'idempotency-key': idempotencyKey };
  return postJson(`${publicUrl}/v1/${path}`, apiKey, body, { headers });
}

async function expectFirstAnswers(service: ServiceProcess): Promise<void> {
  for (const { mode, idempotencyKey, body, answer } of answers) {
    const replay = await post(service, 'payment_intents', keyOf(mode), body, idempotencyKey);
    expect([replay.status, replay.headers['idempotent-replayed'], replay.body]).toEqual([
      201,
      'true',
      answer,
    ]);
    const other = await post(service, 'payment_intents', keyOf(mode), '{"amount_units":77}', idempotencyKey);
    expect(JSON.parse(other.body).error.code).toBe('idempotency_key_reused');
  }
}

/** Expects every intent through both doors, and in the lists of its mode, with this status. */
async function expectKnown(service: { call: Call }, statusOf: (intent: Known) => string): Promise<void> {
  for (const door of doors) {
    for (const intent of known) {
      const { code, json } = await service.call(
        'getPaymentIntent',
        { id: intent.id },
        { door, apiKey: keyOf(intent.mode) },
      );
      expect([code, json]).toEqual(['ok', expect.objectContaining({ ...intent, status: statusOf(intent) })]);
    }
    for (const mode of modes) {
      const listed = (
        await pagesOf(service.call, 'listPaymentIntents', { page_size: 20 }, { door, apiKey: keyOf(mode) })
      ).flat();
      const expected = known.filter((intent) => intent.mode === mode);
      expect(sorted(listed.map(({ id, status }) => `${id} ${status}`))).toEqual(
        sorted(expected.map((intent) => `${intent.id} ${statusOf(intent)}`)),
      );
    }
  }
}

test('every intent of the previous release can be retrieved, canceled and expired, and its creation retried', async () => {
  const ran = await migrate(location);
  expect(ran.slice(0, 2)).toEqual(['2026-11-22-follow-payment-intents', '2026-11-22-deliver-webhooks']);
  const orm = createOrm(location, 1);
  expect(await pendingMigrations(orm.em.fork())).toEqual([]);
  const granted = await client.query(
    `select has_table_privilege('reader', 'payment_intents', 'select') as kept`,
  );
  expect(granted.rows).toEqual([{ kept: true }]);
  expect(await findBrokenRules(orm.em, 'all')).toEqual({ read: known.length, broken: [] });
  await orm.close();

  // Without the role `expiry`, no intent changes.
  let service = await startService({ ROLES: 'api' });
  await expectKnown(service, () => 'requires_payment');
  await expectFirstAnswers(service);
  const get = (id: string, apiKey: string) => service.call('getPaymentIntent', { id }, { apiKey });
  const [first] = known.filter(({ mode }) => mode === 'testnet') as [Known];
  expect((await get(first.id, oldestKey)).json.id).toBe(first.id);
  expect((await get(first.id, keyOf('mainnet'))).code).toBe('resource_missing');

  for (const mode of modes) {
    const body = JSON.stringify({ url: `${receiver.url}/${mode}` });
    expect((await post(service, 'webhook_endpoints', keyOf(mode), body)).status).toBe(201);
  }
  const statuses = new Map<string, string>();
  for (const [i, { id, mode }] of known.entries()) {
    if (i % 3 !== 0) continue;
    statuses.set(id, 'canceled');
    // Canceled once, whatever the number of calls and the door.
    for (const door of doors) {
      const answer = await service.call('cancelPaymentIntent', { id }, { door, apiKey: keyOf(mode) });
      expect(answer.json.status).toBe('canceled');
    }
  }
  await service.end('SIGTERM');

  for (const intent of known) {
    if (!statuses.has(intent.id) && isOverdue(intent)) statuses.set(intent.id, 'expired');
  }
  service = await startService();
  const requests = await receiver.arrived(statuses.size);
  await expectKnown(service, ({ id }) => statuses.get(id) ?? 'requires_payment');
  await expectFirstAnswers(service);

  // One event for each intent that has ended, with the intent as it is now, and none for the others.
  const events = requests.map(({ path, body }) => ({ path, ...JSON.parse(body) }));
  expect(
    sorted(events.map(({ type, sequence, data }) => `${data.payment_intent.id} ${type} ${sequence}`)),
  ).toEqual(sorted([...statuses].map(([id, status]) => `${id} payment_intent.${status} 1`)));
  for (const { path, mode, data } of events) {
    expect(path).toBe(`/${mode}`);
    const { id } = data.payment_intent;
    const { client_secret, ...intent } = (await get(id, keyOf(mode))).json;
    expect(data.payment_intent).toEqual(intent);
    const answer = await service.call('cancelPaymentIntent', { id }, { apiKey: keyOf(mode) });
    expect(answer.code).toBe(statuses.get(id) === 'expired' ? 'invalid_state' : 'ok');
  }
  const counts = await client.query(
    `select (select count(*)::int from payment_intents) as intents, (select count(*)::int from events) as events,
            (select last_position::int from event_progress) as last`,
  );
  expect(counts.rows).toEqual([{ intents: known.length, events: statuses.size, last: statuses.size }]);
  const ends = Object.entries(Object.groupBy(statuses.values(), (status) => status));
  console.log(
    `${known.length} intents: ${ends.map(([status, all]) => `${all?.length} ${status}`).join(', ')}`,
  );
  expect(service.log.filter(({ level }) => level === 'error' || level === 'fatal')).toEqual([]);
});
