// `admin intent …`, `transfer …`, `event list` and `delivery list` show the same as the API, for any merchant.

import { describe, expect, test } from 'vitest';
import { networkFor } from '../src/contract/chains.ts';
import { formatIdentifier, parseIdentifier } from '../src/database/identifiers.ts';
import { createPositioner } from '../src/events/position-events.ts';
import { createEndpoint } from '../src/webhooks/endpoints.ts';
import { type AdminRun, runAdmin } from './support/admin.ts';
import { insertEventRows } from './support/event-rows.ts';
import { insertIntents } from './support/intent-rows.ts';
import { bareEnvironment, databaseUrl } from './support/test-environment.ts';
import { insertTransfers } from './support/transfer-rows.ts';
import { useService } from './support/use-service.ts';
import { createWebhookWorker } from './support/webhook-worker.ts';

const service = await useService({ ROLES: 'api' });
let endpoint: string;

async function admin(...args: string[]): Promise<AdminRun> {
  const env = { ...bareEnvironment(), DATABASE_URL: databaseUrl(service.location) };
  const output = await runAdmin(args, env);
  expect(output.stdout).not.toMatch(/_secret_|whsec_/);
  return output;
}

// biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects to be there.
async function json(...args: string[]): Promise<any> {
  const { code, stdout, stderr } = await admin(...args, '--json');
  expect([code, stderr]).toEqual([0, '']);
  return JSON.parse(stdout);
}

const one = service.merchant;
const two = await service.newMerchant();
/** Oldest first: three of the first merchant (testnet, testnet, mainnet), one of the second (testnet). */
const intents: string[] = [];
for (const [merchant, mode, chain] of [
  [one, 'testnet', 'base'],
  [one, 'testnet', 'polygon'],
  [one, 'mainnet', 'base'],
  [two, 'testnet', 'base'],
] as const) {
  const { json } = await service.call(
    'createPaymentIntent',
    { amount_units: 5, chain, metadata: { order_id: 'a' } },
    { apiKey: merchant.keys[mode].apiKey, idempotencyKey: `order-${intents.length}` },
  );
  intents.push(json.id);
}
const transfers = [
  ...(await insertTransfers(service, one, [
    { paymentIntent: intents[0] as string, labels: ['late'] },
    {},
    { state: 'reorged' },
  ])),
  ...(await insertTransfers(service, two, [{}])),
];
await service.query('update payment_intents set payments_count = 1 where id = $1', [
  parseIdentifier('pi', intents[0] as string),
]);
const { em } = service.database.orm;
const keys = service.database.keyRing('WEBHOOK_SECRET_KEYS');
const settings = { url: 'https://shop.example/', eventTypes: ['*'], enabled: true, description: '' };
for (const { id } of [two, one]) {
  const created = await createEndpoint(em, keys, { merchantId: id, mode: 'testnet' }, settings);
  endpoint = formatIdentifier('we', created.endpoint.id);
}
const worker = createWebhookWorker(em, keys);
const paymentIntent = parseIdentifier('pi', intents[0] as string) as string;
const events = await insertEventRows(service.query, [
  { merchantId: one.id, paymentIntent },
  { merchantId: one.id, type: 'payment_intent.succeeded' },
  { merchantId: two.id },
]);
await worker.makeDeliveries();
await worker.close();
await service.query(`update webhook_deliveries set status = 'failed' where event_id = any ($1)`, [
  [events[0], events[2]].map((id) => parseIdentifier('evt', id as string)),
]);

const ids = (rows: { id: string }[]) => rows.map(({ id }) => id);

describe('intent', () => {
  test('list shows the intents of every merchant, newest first, without client secrets', async () => {
    const listed = await json('intent', 'list');
    expect(ids(listed)).toEqual([...intents].reverse());
    expect(listed[3]).toMatchObject({
      merchant_id: one.merchantId,
      mode: 'testnet',
      metadata: { order_id: 'a' },
      payments: [{ labels: ['late'] }],
      created_at: expect.stringMatching(/Z$/),
    });
    const { stdout } = await admin('intent', 'list', '--limit', '1');
    expect([stdout.includes(intents[3] as string), stdout.includes(intents[2] as string)]).toEqual([
      true,
      false,
    ]);
  });

  test.each([
    [
      ['--merchant', 'ONE'],
      [2, 1, 0],
    ],
    [
      ['--merchant', 'ONE', '--mode', 'testnet'],
      [1, 0],
    ],
    [['--mode', 'mainnet'], [2]],
    [['--merchant', 'ONE', '--chain', 'polygon'], [1]],
    [['--lane', 'manual'], []],
    [['--label', 'overpaid'], []],
    [['--metadata-key', 'order_id', '--metadata-value', 'a', '--mode', 'mainnet'], [2]],
    [['--metadata-key', 'order_id', '--metadata-value', 'b'], []],
    [
      ['--status', 'requires_payment', '--limit', '2'],
      [3, 2],
    ],
    [['--idempotency-key', 'order-1'], [1]],
    [['--created-before', '2026-01-01'], []],
    [['--succeeded-from', '2026-01-01', '--succeeded-before', '2100-01-01'], []],
    [['--expected-wallet', one.wallets.testnet.polygon], [1]],
    [['--created-from', '2026-01-01T00:00:00+02:00', '--limit', '1'], [3]],
  ])('list %j', async (args, expected) => {
    const listed = await json('intent', 'list', ...args.map((arg) => (arg === 'ONE' ? one.merchantId : arg)));
    expect(ids(listed)).toEqual(expected.map((i) => intents[i]));
  });

  test('show prints the same as the API', async () => {
    const shown = await json('intent', 'show', '--intent', intents[0] as string);
    const answer = await fetch(`${service.publicUrl}/v1/payment_intents/${intents[0]}`, {
      headers: { authorization: `Bearer ${one.keys.testnet.apiKey}` },
    });
    const { client_secret: _, ...intent } = (await answer.json()) as Record<string, unknown>;
    expect(shown).toEqual({ merchant_id: one.merchantId, ...intent });
    const { stdout } = await admin('intent', 'show', '--intent', intents[0] as string);
    expect(stdout).toMatch(/requires_payment/);
  });

  test('a list that did not search every row says so', async () => {
    const firstAtMs = Date.now() - 86_400_000;
    const rows = { merchantId: two.id, firstAtMs };
    await insertIntents(service, { ...rows, count: 10_001 });
    const mainnet = { mode: "'mainnet'", network: String(networkFor('mainnet', 'base').id) };
    await insertIntents(service, { ...rows, count: 2_000, columns: mainnet });
    const args = ['intent', 'list', '--merchant', two.merchantId, '--lane', 'manual'];
    expect(await admin(...args)).toEqual({
      code: 0,
      stdout: 'There are none.\n',
      stderr: 'admin: note: only the newest 12000 rows were searched; there may be older matches\n',
    });
    expect((await admin(...args, '--created-before', new Date(firstAtMs + 9_000).toISOString())).stderr).toBe(
      '',
    );
    const [oldest] = await json(
      ...args.toSpliced(-2),
      '--created-before',
      new Date(firstAtMs + 1).toISOString(),
    );
    await service.query('update payment_intents set idempotency_key = $1 where id = $2', [
      'oldest',
      parseIdentifier('pi', oldest.id),
    ]);
    const ofKey = ['intent', 'list', '--idempotency-key', 'oldest'];
    expect((await admin(...ofKey)).stderr).toContain(': --merchant searches those of one merchant');
    expect(ids(await json(...ofKey, '--merchant', two.merchantId))).toEqual([oldest.id]);
    await service.query('delete from payment_intents where created_at < now() - interval $$1 hour$$');
  });
});

describe('transfer', () => {
  test('list shows the transfers of every merchant, newest first', async () => {
    const listed = await json('transfer', 'list');
    expect(ids(listed)).toEqual([...transfers].reverse());
    expect(listed[3]).toMatchObject({
      merchant_id: one.merchantId,
      status: 'attributed',
      payment_intent: intents[0],
      amount_units: 12_500_000,
    });
    expect((await admin('transfer', 'list')).stdout).toContain(intents[0]);
  });

  test('list filters like the API, and leaves reorged transfers out of the unattributed ones', async () => {
    expect(ids(await json('transfer', 'list', '--status', 'unattributed'))).toEqual([
      transfers[3],
      transfers[1],
    ]);
    const ofOne = ['--merchant', one.merchantId, '--status', 'attributed'];
    expect(ids(await json('transfer', 'list', ...ofOne))).toEqual([transfers[0]]);
    const [{ transaction_hash: hash, from_address: from }] = await json('transfer', 'list');
    const found = ['--transaction-hash', hash, '--from-address', from];
    expect(ids(await json('transfer', 'list', ...found))).toEqual([transfers[3]]);
    expect(await json('transfer', 'list', ...found, '--to-address', `0x${'ab'.repeat(20)}`)).toEqual([]);
    const since = ['--chain', 'base', '--block-time-from', '2026-01-01'];
    expect(ids(await json('transfer', 'list', ...found, ...since))).toEqual([transfers[3]]);
    expect(await json('transfer', 'list', ...found, '--chain', 'polygon')).toEqual([]);
    expect(await json('transfer', 'list', ...found, '--block-time-before', '2026-01-01')).toEqual([]);
  });

  test('show prints one transfer', async () => {
    expect(await json('transfer', 'show', '--transfer', transfers[1] as string)).toMatchObject({
      id: transfers[1],
      merchant_id: one.merchantId,
      mode: 'testnet',
      to_address: one.wallets.testnet.base,
      token_address: networkFor('testnet', 'base').tokenAddress,
    });
  });
});

describe('event and delivery', () => {
  test('event list shows type, intent and time, newest first', async () => {
    const listed = await json('event', 'list');
    expect(ids(listed)).toEqual([...events].reverse());
    expect(listed[2]).toMatchObject({
      merchant_id: one.merchantId,
      type: 'payment_intent.canceled',
      data: { payment_intent: { id: intents[0] } },
    });
    const { stdout } = await admin('event', 'list', '--intent', intents[0] as string);
    expect(stdout).toMatch(/payment_intent\.canceled/);
    expect(stdout).toContain(intents[0]);
    expect(stdout).toMatch(/\d{4}-\d\d-\d\d \d\d:\d\d/);
    expect(ids(await json('event', 'list', '--intent', intents[0] as string))).toEqual([events[0]]);
    expect(ids(await json('event', 'list', '--type', 'payment_intent.succeeded'))).toEqual([events[1]]);
    expect(ids(await json('event', 'list', '--merchant', two.merchantId))).toEqual([events[2]]);
  });

  test('event list --intent finds an event behind 10,001 newer ones', async () => {
    await insertEventRows(service.query, Array(10_001).fill({ merchantId: two.id, mode: 'mainnet' }));
    const { em } = service.database.orm;
    await createPositioner(em, async () => 0).positionAll();
    const ofIntent = ['--intent', intents[0] as string];
    for (const args of [ofIntent, [...ofIntent, '--merchant', one.merchantId]]) {
      expect(ids(await json('event', 'list', ...args))).toEqual([events[0]]);
    }
    expect(await json('event', 'list', ...ofIntent, '--merchant', two.merchantId)).toEqual([]);
    await service.query(`delete from events where mode = 'mainnet'`);
  });

  test.each([
    [[], [2, 1, 0]],
    [['--failed'], [2, 0]],
    [['--status', 'pending'], [1]],
    [['--merchant', 'ONE', '--failed'], [0]],
    [['--merchant', 'ONE', '--mode', 'mainnet'], []],
    [['--endpoint', 'ENDPOINT', '--limit', '1'], [1]],
  ])('delivery list %j', async (args, expected) => {
    const named: Record<string, string> = { ONE: one.merchantId, ENDPOINT: endpoint };
    const listed = await json('delivery', 'list', ...args.map((arg) => named[arg] ?? arg));
    expect(listed.map(({ event }: { event: string }) => event)).toEqual(expected.map((i) => events[i]));
  });

  test('delivery list shows the merchant, the type and intent of the event, and the time', async () => {
    const args = ['delivery', 'list', '--merchant', one.merchantId, '--failed'];
    expect(await json(...args)).toEqual([
      {
        merchant_id: one.merchantId,
        mode: 'testnet',
        event_type: 'payment_intent.canceled',
        payment_intent: intents[0],
        webhook_delivery: expect.stringMatching(/^del_/),
        event: events[0],
        webhook_endpoint: endpoint,
        status: 'failed',
        attempts: [],
        next_attempt_at: expect.stringMatching(/Z$/),
        created_at: expect.stringMatching(/Z$/),
      },
    ]);
    const { stdout } = await admin(...args);
    for (const shown of ['payment_intent.canceled', intents[0], endpoint, 'failed', 'created (UTC)']) {
      expect(stdout).toContain(shown);
    }
  });
});

test.each([
  [['intent', 'list', '--limit', '0'], 2, /whole number from 1 to 1000/],
  [['intent', 'list', '--limit', '1001'], 2, /whole number from 1 to 1000/],
  [['intent', 'list', '--status', 'paid'], 2, /requires_payment, processing/],
  [['intent', 'list', '--created-from', 'yesterday'], 2, /must be a date/],
  [['intent', 'list', '--created-from', '2026-13-01'], 2, /must be a date/],
  [['intent', 'list', '--created-from', '2026-02-31'], 2, /must be a date/],
  [['intent', 'show', '--intent', 'pi_x'], 2, /is not a payment intent's id: .*; "intent list" shows them/],
  [['intent', 'show'], 2, /--intent/],
  [
    ['intent', 'show', '--intent', formatIdentifier('pi', '01980000-0000-7000-8000-000000000000')],
    1,
    /there is no payment intent pi_.*"intent list" shows them/,
  ],
  [
    ['event', 'list', '--intent', formatIdentifier('pi', '01980000-0000-7000-8000-000000000000')],
    1,
    /there is no payment intent pi_.*"intent list" shows them/,
  ],
  [['event', 'list', '--type', 'a\x1b[2J\u202eb'], 2, /argument 'a\\u001b\[2J\\u202eb' is invalid/],
  [['transfer', 'show', '--transfer', 'tr_x'], 2, /is not a transfer's id: .*; "transfer list" shows them/],
  [
    ['transfer', 'show', '--transfer', formatIdentifier('tr', '01980000-0000-7000-8000-000000000000')],
    1,
    /there is no transfer tr_.*"transfer list" shows them/,
  ],
  [['event', 'list', '--type', 'payment_intent.paid'], 2, /choices are/],
  [['delivery', 'list', '--failed', '--status', 'pending'], 2, /cannot be used with/],
  [['intent', 'list', '--metadata-key', 'order_id'], 1, /--metadata-key and --metadata-value go together/],
  [['intent', 'list', '--metadata-value', 'a'], 1, /--metadata-key and --metadata-value go together/],
  [['intent', 'list', '--label', 'over_paid'], 2, /choices are/],
  [
    ['delivery', 'list', '--merchant', formatIdentifier('mer', '01980000-0000-7000-8000-000000000000')],
    1,
    /there is no merchant mer_/,
  ],
])('%j is refused', async (args, code, message) => {
  const refused = await admin(...args);
  expect([refused.code, refused.stdout]).toEqual([code, '']);
  expect(refused.stderr).toMatch(message);
});

test('control and bidirectional characters are escaped, in tables and as JSON', async () => {
  // As an earlier release may have stored it.
  const hostile = 'a\x1b]0;b\x07\x1b[2Jc\x7f\x9b31md\u202ee\u2066f\u2028g\r\nh';
  await service.query('update merchants set name = $1 where id = $2', [hostile, two.id]);
  for (const args of [[], ['--json']]) {
    const { stdout } = await admin('merchant', 'list', ...args);
    expect(stdout).toContain('\\u001b]0;b\\u0007');
    expect(stdout).toContain('\\u009b31md\\u202ee\\u2066f\\u2028g');
    expect(stdout.replaceAll('\n', '')).not.toMatch(/[\p{Cc}\p{Bidi_Control}\p{Zl}]/u);
  }
  expect(await json('merchant', 'list')).toContainEqual(expect.objectContaining({ name: hostile }));
  await service.query("update merchants set name = 'Test merchant' where id = $1", [two.id]);
});

describe('money', () => {
  test('transfer attribute and detach act for the merchant, like the API', async () => {
    // In the future, because the intent is created after this row.
    const blockTime = new Date(Date.now() + 600_000);
    const [free = ''] = await insertTransfers(service, one, [{ amountUnits: 5, blockTime }]);
    const attribute = ['transfer', 'attribute', '--transfer', free, '--intent', intents[3] as string];
    const refused = await admin(...attribute);
    expect([refused.code, refused.stderr]).toEqual([1, expect.stringContaining('not an intent of yours')]);
    attribute[5] = (await service.call('createPaymentIntent', { amount_units: 5 })).json.id;
    expect(await json(...attribute)).toMatchObject({ status: 'attributed', payment_intent: attribute[5] });
    expect(await json('transfer', 'detach', '--transfer', free)).toMatchObject({ status: 'unattributed' });
    const shown = ['transfer', 'show', '--transfer', free];
    expect((await json(...shown)).candidates[0]).toMatchObject({ id: attribute[5], amount_units: 5 });
    expect((await admin(...shown)).stdout).toContain(`${attribute[5]} (5 units)`);
  });

  test('refund list and show print the refunds of any merchant', async () => {
    const { id: intent } = (await service.call('createPaymentIntent', { amount_units: 5 })).json;
    await insertTransfers(service, one, [{ paymentIntent: intent, state: 'confirmed', amountUnits: 5 }]);
    const refund = { payment_intent: intent, destination: '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed' };
    const { id } = (await service.call('createRefund', refund)).json;
    const ofIntent = ['--status', 'requires_transfer', '--intent', intent];
    expect(ids(await json('refund', 'list', ...ofIntent))).toEqual([id]);
    expect(await json('refund', 'show', '--refund', id)).toMatchObject({
      merchant_id: one.merchantId,
      status: 'requires_transfer',
      transaction: { value: '0x0' },
    });
    await service.call('cancelRefund', { id });
    const canceled = { type: 'refund.canceled', data: { refund: { id } } };
    await expect.poll(() => json('event', 'list', '--refund', id)).toMatchObject([canceled]);
    expect((await admin('event', 'list', '--refund', id)).stdout).toContain(id);
    const deliveries = () => json('delivery', 'list');
    await expect.poll(deliveries).toContainEqual(expect.objectContaining({ payment_intent: intent }));
  });

  test('an export has one line for each payment in the period, and no cell is a formula', async () => {
    const merchant = await service.newMerchant();
    const { apiKey } = merchant.keys.testnet;
    const idempotencyKey = '=HYPERLINK("https://evil.example");"=1+1';
    const metadata = { note: '=1+1', text: 'a "b", c\nd', 'a;=b': 'a;=1+1' };
    const intent = { amount_units: 12_500_000, metadata };
    const { id } = (await service.call('createPaymentIntent', intent, { apiKey, idempotencyKey })).json;
    const noon = (day: number) => new Date(`2026-11-0${day}T12:00:00Z`);
    const payment = { paymentIntent: id, state: 'confirmed' as const };
    await insertTransfers(service, merchant, [
      { ...payment, blockTime: noon(3), amountUnits: 1 },
      { ...payment, blockTime: noon(2) },
      { ...payment, blockTime: noon(4), labels: ['late'] },
      { ...payment, blockTime: noon(1) },
      { ...payment, blockTime: noon(2), state: 'reorged' },
      { blockTime: noon(2) },
    ]);
    const range = ['--from', '2026-11-02', '--before', '2026-11-04T12:00:00.001Z'];
    const options = ['--merchant', merchant.merchantId, '--mode', 'testnet', ...range];
    const { code, stdout } = await admin('export', 'payments', ...options);
    expect(code).toBe(0);
    const [head = [], ...rows] = stdout.trimEnd().split('\r\n').map(cellsOf);
    const lines = rows.map((row) => Object.fromEntries(row.map((cell, i) => [head[i], cell])));
    expect(lines).toMatchObject([
      { time: noon(2).toISOString(), type: 'payment', amount: '12.50', counted: 'true', token: 'USDC' },
      { amount: '0.000001', amount_units: '1', payment_intent: id, status: 'confirmed' },
      {
        labels: 'late',
        counted: 'false',
        idempotency_key: `'${idempotencyKey.replace(';', ";'")}`,
        chain: 'base',
      },
    ]);
    expect(JSON.parse(lines[0]?.metadata ?? '')).toEqual(metadata);
    expect(lines[0]?.explorer_url).toBe(`https://sepolia.basescan.org/tx/${lines[0]?.transaction_hash}`);
    expect(stdout).not.toMatch(/(?:^|[,;\n])"?[=+@\t\r-]/);
    const jsonl = (await admin('export', 'payments', ...options, '--format', 'jsonl')).stdout
      .trim()
      .split('\n');
    expect(jsonl.map((line) => JSON.parse(line))).toMatchObject([
      { amount: '12.50', counted: true, labels: [], metadata },
      { amount_units: 1 },
      { labels: ['late'], idempotency_key: idempotencyKey },
    ]);
  });
});

/** The cells of an RFC 4180 line. */
function cellsOf(line: string): string[] {
  const cells = line.matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g);
  return [...cells].map(([, quoted, plain = '']) => quoted?.replaceAll('""', '"') ?? plain);
}
