// `admin webhook …`: each command, with tables and with JSON.

import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parseKeyRing } from '../src/config/key-ring.ts';
import { parseIdentifier } from '../src/database/identifiers.ts';
import { createOrm } from '../src/database/orm.ts';
import { createMerchant } from '../src/merchants/administration.ts';
import { insertEventRows } from './support/event-rows.ts';
import { findLeaks } from './support/leaks.ts';
import { createTestDatabase } from './support/service.ts';
import { createWebhookWorker, type WebhookWorker } from './support/webhook-worker.ts';

const run = promisify(execFile);
const keys = parseKeyRing(`1:${Buffer.alloc(32, 7).toString('base64')}`);
const wallet = '0xd8dA6BF26964aF9D7eEd9e03E53415D37aA96045';
const url = 'https://shop.example/webhooks';

let database: Awaited<ReturnType<typeof createTestDatabase>>;
let orm: ReturnType<typeof createOrm>;
let worker: WebhookWorker;
let env: NodeJS.ProcessEnv;
let merchantId: string;

beforeAll(async () => {
  database = await createTestDatabase();
  orm = createOrm(database, 4);
  worker = createWebhookWorker(orm.em, keys);
  env = {
    ...process.env,
    DATABASE_URL: `postgresql://payments@localhost/${database.database}?host=${encodeURIComponent(database.socketFolder)}`,
    API_KEY_PEPPERS: `1:${randomBytes(32).toString('base64')}`,
    WEBHOOK_SECRET_KEYS: `1:${Buffer.alloc(32, 7).toString('base64')}`,
  };
  merchantId = await createMerchant(orm.em, "Ada's Books", 'testnet', { base: wallet, polygon: wallet });
});

afterAll(async () => {
  const leaks = await findLeaks([], query);
  await worker.close();
  await orm.close();
  await database.drop();
  expect(leaks).toEqual([]);
});

const query = async (sql: string, values: unknown[] = []) => {
  const pool = await orm.em.getConnection().getNativeClient();
  return (await pool.query(sql, values)).rows;
};

interface Output {
  code: number;
  stdout: string;
  stderr: string;
}

async function webhook(...args: string[]): Promise<Output> {
  try {
    return { code: 0, ...(await run(process.execPath, ['src/admin.ts', 'webhook', ...args], { env })) };
  } catch (error) {
    const { code, stdout, stderr } = error as Output;
    return { code, stdout, stderr };
  }
}

/** What a table shows, or JSON. */
const shown = (output: Output): string => {
  expect([output.code, output.stderr]).toEqual([0, '']);
  expect(Math.max(...output.stdout.split('\n').map((line) => line.length))).toBeLessThanOrEqual(120);
  return output.stdout;
};
const read = (output: Output) => {
  expect([output.code, output.stderr]).toEqual([0, '']);
  return JSON.parse(output.stdout);
};
const json = async (...args: string[]) => read(await webhook(...args, '--json'));

const owner = () => ['--merchant', merchantId, '--mode', 'testnet'];
const secretOf = (endpoint: string, generation: number) =>
  `whsec_${keys.hmac(1, `webhook:${endpoint}:${generation}`, 'base64')}`;
const isMissing = (endpoint: string) =>
  query('select deleted_at is not null as gone from webhook_endpoints where id = $1', [
    parseIdentifier('we', endpoint),
  ]);

/** What a terminal obeys, and what changes the direction of text. */
const hostile = 'a\x1b]0;b\x07\x1b[2Jc\x7f\x9b31md\u202ee\u2066f\u2028g\r\nh';

test('control characters are escaped in the output', { timeout: 120_000 }, async () => {
  const own = await createMerchant(orm.em, 'Hostile', 'testnet', { base: wallet, polygon: wallet });
  const ofIt = ['--merchant', own, '--mode', 'testnet'];
  const { webhook_endpoint } = await json('create', ...ofIt, '--url', url);
  // Rows as an earlier release would have written them.
  await query('update webhook_endpoints set description = $1, url = $2 where id = $3', [
    hostile,
    `${url}/\u202e`,
    parseIdentifier('we', webhook_endpoint),
  ]);
  await query('update merchants set name = $1 where id = $2', [hostile, parseIdentifier('mer', own)]);
  const admin = (...args: string[]) => run(process.execPath, ['src/admin.ts', ...args], { env });
  const [table, list, merchants, merchantsJson] = await Promise.all([
    webhook('list', ...ofIt),
    webhook('list', ...ofIt, '--json'),
    admin('merchant', 'list'),
    admin('merchant', 'list', '--json'),
  ]);
  for (const { stdout } of [table, list, merchants, merchantsJson]) {
    expect(stdout).toContain('\\u001b]0;b\\u0007');
    expect(stdout).toContain('\\u009b31md\\u202ee\\u2066f\\u2028g');
    expect(stdout.replaceAll('\n', '')).not.toMatch(/[\p{Cc}\p{Bidi_Control}\p{Zl}]/u);
  }
  expect(read(list)).toMatchObject([{ description: hostile, url: `${url}/\u202e` }]);
  expect(JSON.parse(merchantsJson.stdout)).toContainEqual(expect.objectContaining({ name: hostile }));
  await query('update webhook_endpoints set deleted_at = now() where id = $1', [
    parseIdentifier('we', webhook_endpoint),
  ]);
});

test('an endpoint from creation to deletion', { timeout: 120_000 }, async () => {
  const [none, created, table] = await Promise.all([
    webhook('list', '--merchant', merchantId, '--mode', 'mainnet'),
    json(
      'create',
      ...owner(),
      '--url',
      url,
      '--description',
      'orders',
      '--events',
      'payment_intent.succeeded, *',
    ),
    webhook('create', ...owner(), '--url', `${url}/2`),
  ]);
  expect(shown(none)).toBe('This merchant has no endpoints: "webhook create" makes one.\n');
  const { webhook_endpoint: id, secret, ...fields } = created;
  expect(fields).toEqual({
    merchant_id: merchantId,
    mode: 'testnet',
    url,
    event_types: ['payment_intent.succeeded', '*'],
    enabled: true,
    description: 'orders',
    created_at: expect.any(String),
  });
  expect(secret).toBe(secretOf(id, 1));
  // The secret on a line of its own, to be copied.
  const [secretLine, , ...rest] = shown(table).split('\n');
  const [, second = ''] = /(we_\w{26})/.exec(rest.join('\n')) ?? [];
  expect(secretLine).toBe(secretOf(second, 1));
  expect(rest.join('\n')).toMatch(/│ https:\/\/shop\.example\/webhooks\/2 +│ \* +│ enabled +│/);
  expect(rest.join('\n')).toMatch(
    /Keep the secret now: it is not stored, and only "webhook rotate" shows another\./,
  );

  const [list, listTable] = await Promise.all([json('list', ...owner()), webhook('list', ...owner())]);
  expect(list).toHaveLength(2);
  expect(list).toContainEqual({ webhook_endpoint: id, ...fields });
  expect(JSON.stringify(list) + shown(listTable)).not.toContain('whsec_');
  expect(shown(listTable)).toContain(id);
  expect(shown(listTable)).toContain(second);

  const [updated, disabled] = await Promise.all([
    json(
      'update',
      '--endpoint',
      id,
      '--url',
      `${url}/3`,
      '--events',
      'payment_intent.expired',
      '--description',
      '',
    ),
    webhook('update', '--endpoint', second, '--disable'),
  ]);
  const { description, ...others } = fields;
  expect(updated).toEqual({
    webhook_endpoint: id,
    ...others,
    url: `${url}/3`,
    event_types: ['payment_intent.expired'],
  });
  expect(shown(disabled)).toMatch(/│ https:\/\/shop\.example\/webhooks\/2 +│ \* +│ disabled +│/);

  const [rotated, rotatedTable] = await Promise.all([
    json('rotate', '--endpoint', id, '--overlap', '2h'),
    webhook('rotate', '--endpoint', second, '--overlap', '0s'),
  ]);
  expect(rotated).toMatchObject({ webhook_endpoint: id, secret: secretOf(id, 2) });
  expect(shown(rotatedTable).split('\n')[0]).toBe(secretOf(second, 2));
  const [overlap] = await query(
    `select extract(epoch from expires_at - now())::float / 3600 as hours from webhook_secrets
      where endpoint_id = $1 and generation = 1`,
    [parseIdentifier('we', id)],
  );
  expect(overlap?.hours).toBeGreaterThan(1.9);
  expect(overlap?.hours).toBeLessThanOrEqual(2);

  const [enabled, deleted, deletedTable] = await Promise.all([
    json('update', '--endpoint', second, '--enable'),
    json('delete', '--endpoint', id),
    webhook(
      'delete',
      '--endpoint',
      (await json('create', ...owner(), '--url', url)).webhook_endpoint,
      '--yes',
    ),
  ]);
  expect(enabled).toMatchObject({ webhook_endpoint: second, enabled: true });
  expect(deleted).toEqual({ deleted: id });
  expect(await isMissing(id)).toEqual([{ gone: true }]);
  expect(shown(deletedTable)).toMatch(/│ deleted +│\n.*\n│ we_\w+ │/);
});

test('deliveries: pinged, listed and sent again', { timeout: 120_000 }, async () => {
  // Nobody listens there, so that every attempt fails.
  env = { ...env, WEBHOOK_ALLOW: '127.0.0.0/8' };
  const target = 'http://127.0.0.1:9/';
  const { webhook_endpoint: id } = await json(
    'create',
    ...owner(),
    '--url',
    target,
    '--events',
    'payment_intent.expired',
  );
  const [event = ''] = await insertEventRows(query, [
    { merchantId: parseIdentifier('mer', merchantId) as string, type: 'payment_intent.expired' },
  ]);
  await worker.deliverAll();
  const [deliveries, table, delivered] = await Promise.all([
    json('deliveries', '--endpoint', id),
    webhook('deliveries', '--endpoint', id, '--status', 'pending'),
    webhook('deliveries', '--endpoint', id, '--status', 'delivered'),
  ]);
  const delivery = {
    webhook_delivery: expect.stringMatching(/^del_/),
    event,
    event_type: 'payment_intent.expired',
    payment_intent: expect.stringMatching(/^pi_/),
    webhook_endpoint: id,
    status: 'pending',
    attempts: [
      { at: expect.any(String), duration_ms: expect.any(Number), error: 'the connection was refused' },
    ],
    next_attempt_at: expect.any(String),
  };
  expect(deliveries).toEqual([delivery]);
  expect(shown(table)).toMatch(/the connection was refused/);
  expect(shown(table)).toContain(event);
  expect(shown(delivered)).toBe('There are none.\n');

  await query(`update webhook_deliveries set status = 'failed', next_attempt_at = null`);
  const [pending, failed] = [
    await json('redeliver', '--endpoint', id, '--status', 'pending'),
    await json('redeliver', '--endpoint', id),
  ];
  expect([pending, failed]).toEqual([
    { webhook_endpoint: id, deliveries_count: 0 },
    { webhook_endpoint: id, deliveries_count: 1 },
  ]);
  await query(`update webhook_deliveries set status = 'failed', next_attempt_at = null`);
  const [again, ping] = await Promise.all([
    json('redeliver', '--event', event, '--endpoint', id),
    json('ping', '--endpoint', id),
  ]);
  expect(again).toEqual([{ ...delivery, next_attempt_at: expect.any(String) }]);
  expect(ping).toEqual({ event: expect.stringMatching(/^evt_/) });
  expect(
    await query('select type, webhook_endpoint from events where id = $1', [
      parseIdentifier('evt', ping.event),
    ]),
  ).toEqual([{ type: 'webhook_endpoint.ping', webhook_endpoint: parseIdentifier('we', id) }]);
  await worker.makeDeliveries();
  const [all, pingTable] = await Promise.all([
    webhook('redeliver', '--event', event),
    webhook('ping', '--endpoint', id),
  ]);
  // It waited, and is due.
  expect(shown(all)).toMatch(/│ evt_\w+ +│ pending +│ 1 +│ the connection was refused +│/);
  expect(shown(pingTable)).toMatch(new RegExp(`webhook deliveries --endpoint ${id}`));
  await query('update webhook_endpoints set enabled = false');
  const [nobody, disabled] = await Promise.all([
    webhook('redeliver', '--event', event),
    webhook('ping', '--endpoint', id),
  ]);
  expect(shown(nobody)).toBe('No enabled endpoint is subscribed to this event.\n');
  expect(disabled).toEqual({
    code: 1,
    stdout: '',
    stderr: 'admin: The webhook endpoint is disabled. Enable it first, with {"enabled": true}.\n',
  });
});

describe('prints the problem in one line', () => {
  const unknown = '01h2xcejqtf2nbrexx3vqjhp41';
  const we = ['--endpoint', `we_${unknown}`];
  const cases: [string, () => string[], number, RegExp][] = [
    [
      'an unknown endpoint',
      () => ['delete', ...we],
      1,
      /^admin: there is no endpoint we_.*"webhook list" shows/,
    ],
    ['an id of another type', () => ['ping', '--endpoint', `evt_${unknown}`], 2, /does not begin with we_/],
    [
      'an unknown event',
      () => ['redeliver', '--event', `evt_${unknown}`],
      1,
      /^admin: there is no event evt_.*"event list" shows them/,
    ],
    [
      'an unknown merchant',
      () => ['list', '--merchant', `mer_${unknown}`, '--mode', 'testnet'],
      1,
      /there is no merchant mer_/,
    ],
    [
      'a URL without TLS',
      () => ['create', ...owner(), '--url', 'http://shop.example/'],
      1,
      /^admin: --url must begin with https:\/\/\n$/,
    ],
    [
      'a type of event that is none, and a long description',
      () => [
        'create',
        ...owner(),
        '--url',
        url,
        '--events',
        'payment_intent.suceeded',
        '--description',
        'x'.repeat(201),
      ],
      1,
      /--events must be "\*" or a type of event, such as payment_intent\.succeeded \(did you mean payment_intent\.succeeded\?\); --description must have at most 200/,
    ],
    [
      'an empty list of types',
      () => ['create', ...owner(), '--url', url, '--events', ''],
      2,
      /list of types, separated by commas/,
    ],
    [
      'an overlap that the API refuses too',
      () => ['rotate', ...we, '--overlap', '169h'],
      1,
      /--overlap must be at most 168h/,
    ],
    ['nothing to change', () => ['update', ...we], 1, /^admin: name something to change: see --help\n$/],
    ['both ways at once', () => ['update', ...we, '--enable', '--disable'], 2, /cannot be used with/],
  ];

  test('prints the problem in one line', { timeout: 120_000 }, async () => {
    env = { ...env, WEBHOOK_ALLOW: '' };
    const before = await query('select count(*)::int as n from webhook_endpoints');
    const outputs: [string, Output][] = [];
    const left = [...cases];
    // A few at a time: each is a process.
    const next = async (): Promise<void> => {
      const one = left.shift();
      if (one === undefined) return;
      outputs.push([one[0], await webhook(...one[1]())]);
      await next();
    };
    await Promise.all([next(), next(), next()]);
    for (const [name, { code, stdout, stderr }] of outputs) {
      const [, , exitCode, says] = cases.find(([one]) => one === name) as (typeof cases)[number];
      expect([name, code, stdout]).toEqual([name, exitCode, '']);
      expect(stderr).toMatch(says);
      expect(stderr.trim().split('\n').length).toBeLessThanOrEqual(2);
      expect(stderr).not.toMatch(/\bat .*\.ts/);
    }
    expect(await query('select count(*)::int as n from webhook_endpoints')).toEqual(before);
  });
});
