// The console with many intents of one merchant: how long each call of its views takes, and what polling for
// the newest payments costs the database.

import { parseKeyRing } from '../src/config/key-ring.ts';
import { createLink } from '../src/console/sessions.ts';
import { formatIdentifier } from '../src/database/identifiers.ts';
import { hasBrowser } from '../test/support/browser.ts';
import { measurePages, type PageTimes } from './console-pages.ts';
import { enterAll, fillIntents, fillTransfers } from './money.ts';
import {
  freePort,
  median,
  onThisMachine,
  type PreparedDatabase,
  percentile,
  prepareDatabase,
  publish,
  startOurs,
  table,
  withSetting,
} from './setting.ts';

const calls = 500;
/** Calls that warm the server up. */
const unmeasured = 100;
const received = 200_000;
const unattributed = 2_000;
const failed = 20_000;
const dayMs = 86_400_000;

export async function measureConsole({ rounds, rows }: { rounds: number; rows: number }): Promise<void> {
  await withSetting(async ({ postgres }) => {
    const database = await prepareDatabase(postgres);
    await fillIntents(database, rows);
    await enterAll(database);
    await fillOthers(database);
    const consolePort = String(await freePort());
    const own = { ...database.environment, ROLES: 'api', CONSOLE_PORT: consolePort };
    const server = await startOurs(own, 'HTTP_PORT');
    const newLink = () => makeLink(database, consolePort);
    const pages = hasBrowser ? await measurePages(newLink, rounds) : undefined;
    const call = await openConsole(database, await newLink());
    const times: (readonly [string, number[]])[] = [];
    for (const [name, method, request] of await viewsOf(database)) {
      times.push([name, await timesOf(() => call(method, request))]);
    }
    const pollMs = await databaseTimeOf(database, () =>
      call('payments.v1.PaymentIntentService/ListPaymentIntents', { pageSize: 50 }),
    );
    await server.stop();
    await database.orm.close();
    await publish(
      'results-console.md',
      `# The console's views

\`npm run bench -- --console\` ${onThisMachine()}; ${rows / 1e6} million intents of one merchant, ${calls} calls each, with the time that the client takes to read the answer as JSON.

${table(
  ['', 'p50 (ms)', 'p99 (ms; target: 300)'],
  times.map(([name, all]) => [name, median(all).toFixed(1), percentile(all, 0.99).toFixed(1)]),
)}

${pages === undefined ? 'Without Chromium, its pages were not measured.' : pageTable(pages)}

Asking for the newest fifty payments again costs ${pollMs.toFixed(2)} ms of the database's time (target: 2), by \`active_time\` of \`pg_stat_database\`.
`,
    );
  });
}

type Call = (method: string, request: object) => Promise<void>;

function pageTable({ firstPaintMs, figuresMs, changeMs, frameMs }: PageTimes): string {
  const ms = (value: number) => `${Math.round(value)} ms`;
  return table(
    ['in Chromium', ''],
    [
      ['something is drawn, after a cold start of the browser (target: 1 s)', ms(firstPaintMs)],
      ['the figures are there', ms(figuresMs)],
      [
        'from Home to Payments or back, p50 and slowest (target: 150 ms)',
        `${ms(changeMs.p50)} and ${ms(changeMs.max)}`,
      ],
      [
        'between frames while a thousand rows are scrolled, p50 and p99 (60 a second: 16.7 ms)',
        `${frameMs.p50.toFixed(1)} and ${frameMs.p99.toFixed(1)} ms`,
      ],
    ],
  );
}

/** A link for an operator. */
async function makeLink({ orm, environment }: PreparedDatabase, port: string): Promise<string> {
  const peppers = parseKeyRing(environment.API_KEY_PEPPERS as string);
  const { code } = await createLink(orm.em, peppers, { name: 'Bench', isReadOnly: true, lastsMs: dayMs });
  return `http://127.0.0.1:${port}/#${code}`;
}

/** Calls as the console's page does, for an operator who looks at the merchant. */
async function openConsole({ merchantId }: PreparedDatabase, link: string): Promise<Call> {
  const { origin, hash } = new URL(link);
  const post = async (path: string, body: object, headers: Record<string, string>) => {
    const answer = await fetch(origin + path, {
      method: 'POST',
      headers: { origin, 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${path} answered ${answer.status}: ${text}`);
    return JSON.parse(text);
  };
  const { token } = await post('/console/session', { code: hash.slice(1) }, {});
  const headers = {
    authorization: `Bearer ${token}`,
    'x-merchant': formatIdentifier('mer', merchantId),
    'x-mode': 'testnet',
  };
  return (method, request) => post(`/${method}`, request, headers);
}

/** What intents do not bring: transfers, some without an intent, figures, an endpoint and its failures. */
async function fillOthers({ orm: { em }, merchantId }: PreparedDatabase): Promise<void> {
  await fillTransfers(em, received, 'newest');
  await em.execute(
    `insert into transfers (id, merchant_id, mode, chain_id, transaction_hash, log_index, block_number, block_hash, block_time,
                            from_address, to_address, token_address, amount_units, ordinal, state, created_at)
     select gen_random_uuid(), merchant_id, mode, 84532, sha256(i::text::bytea), 0, 1, sha256('b'), now(), expected_wallet,
            expected_wallet, expected_wallet, 1000000, 0, 'confirmed', now()
       from generate_series(1, ${unattributed}) i cross join (select * from payment_intents limit 1) any_intent`,
  );
  await em.execute(
    `insert into report_hours
     select ?, 'testnet', date_trunc('hour', now()) - i * interval '1 hour', 84532, kind, 100, 1000000
       from generate_series(1, 7200) i cross join unnest(enum_range(null::report_kind)) kind
     on conflict do nothing`,
    [merchantId],
  );
  await em.execute(
    `insert into webhook_endpoints (id, merchant_id, mode, url, event_types, enabled, created_at)
     values (uuidv7(), ?, 'testnet', 'https://shop.example/webhooks', '{}', true, now())`,
    [merchantId],
  );
  await em.execute(
    `insert into webhook_deliveries (merchant_id, event_id, endpoint_id, id, status, created_at, attempts)
     select w.merchant_id, uuidv7(), w.id, uuidv7(), 'failed', now(), 9
       from webhook_endpoints w cross join generate_series(1, ${failed})`,
  );
  await em.execute('vacuum analyze');
}

/** The calls of each view. */
async function viewsOf({
  orm: { em },
  merchantId,
}: PreparedDatabase): Promise<[view: string, method: string, request: object][]> {
  const [newest] = await em.execute<{ id: string; hash: string; wallet: string; number: string }[]>(
    `select i.id, encode(t.transaction_hash, 'hex') as hash, encode(i.expected_wallet, 'hex') as wallet,
            i.metadata ->> 'order_id' as number
       from payment_intents i join transfers t on t.payment_intent = i.id
      where i.merchant_id = ? order by i.id desc limit 1`,
    [merchantId],
  );
  const [endpoint] = await em.execute<{ id: string }[]>('select id from webhook_endpoints');
  if (newest === undefined || endpoint === undefined) throw new Error('nothing was entered');
  const day = (ms: number) => new Date(Date.now() + ms).toISOString().slice(0, 10);
  const id = formatIdentifier('pi', newest.id);
  const intents = 'payments.v1.PaymentIntentService/ListPaymentIntents';
  const transfers = 'payments.v1.TransferService/ListTransfers';
  const webhooks = 'payments.v1.WebhookEndpointService';
  const pageSize = 50;
  const month = { firstDay: day(-31 * dayMs), lastDay: day(dayMs), timeZone: 'Europe/Berlin' };
  return [
    ['Home: figures of a month', 'console.v1.ConsoleService/GetSummary', month],
    ['Home: what needs somebody', 'console.v1.ConsoleService/ListAttention', {}],
    ['Payments: the newest', intents, { pageSize }],
    ['Payments: expired', intents, { pageSize, status: 'PAYMENT_INTENT_STATUS_EXPIRED' }],
    ['Payments: on Base', intents, { pageSize, chain: 'CHAIN_BASE' }],
    ['Payments: late', intents, { pageSize, label: 'late' }],
    ['Payments: with a label that none has', intents, { pageSize, label: 'overpaid' }],
    ['Search: an order', intents, { metadataKey: 'order_id', metadataValue: newest.number, pageSize }],
    ['Search: an idempotency key', intents, { idempotencyKey: 'unknown', pageSize }],
    ['Search: a wallet', intents, { expectedWallet: `0x${newest.wallet}`, pageSize }],
    ['Search: an address that paid', transfers, { fromAddress: `0x${newest.wallet}`, pageSize }],
    ['Search: a transaction', transfers, { transactionHash: `0x${newest.hash}`, pageSize }],
    ['A payment', 'payments.v1.PaymentIntentService/GetPaymentIntent', { id }],
    ['A payment: its transfers', transfers, { paymentIntent: id, pageSize: 100 }],
    ['A payment: its refunds', 'payments.v1.RefundService/ListRefunds', { paymentIntent: id, pageSize: 100 }],
    ['A payment: its events', 'payments.v1.EventService/ListEvents', { paymentIntent: id, pageSize: 100 }],
    ['A payment: its timeline', 'console.v1.ConsoleService/GetTimeline', { paymentIntent: id }],
    ['Unattributed', transfers, { status: 'TRANSFER_STATUS_UNATTRIBUTED', pageSize: 100 }],
    ['Refunds', 'payments.v1.RefundService/ListRefunds', { pageSize: 100 }],
    ['Webhooks', `${webhooks}/ListWebhookEndpoints`, { pageSize: 100 }],
    [
      'An endpoint: what failed',
      `${webhooks}/ListWebhookDeliveries`,
      { id: formatIdentifier('we', endpoint.id), status: 'WEBHOOK_DELIVERY_STATUS_FAILED', pageSize: 50 },
    ],
    ['Merchants', 'console.v1.ConsoleService/ListMerchants', {}],
  ];
}

async function timesOf(work: () => Promise<void>): Promise<number[]> {
  const times: number[] = [];
  for (let i = 0; i < unmeasured + calls; i++) {
    const beganAtMs = performance.now();
    await work();
    if (i >= unmeasured) times.push(performance.now() - beganAtMs);
  }
  return times;
}

/** Milliseconds that the database's sessions take for one call. */
async function databaseTimeOf({ orm: { em } }: PreparedDatabase, work: () => Promise<void>): Promise<number> {
  const activeMs = async () => {
    const [row] = await em.execute<{ active: number }[]>(
      'select active_time as active from pg_stat_database where datname = current_database()',
    );
    return row?.active ?? 0;
  };
  const before = await activeMs();
  await timesOf(work);
  // A session reports what it did at most once a second, and only when it has something to do.
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  for (let i = 0; i < 20; i++) await work();
  return ((await activeMs()) - before) / (calls + unmeasured + 20);
}
