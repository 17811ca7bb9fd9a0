// Finding money again: how fast metadata is indexed, what that costs creates, how fast an order is found
// among many, what an export takes, and what open refunds cost the reading of a block.

import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { Client } from 'undici';
import type { Address, Hash } from 'viem';
import { chainNamed } from '../src/contract/chains.ts';
import { formatIdentifier } from '../src/database/identifiers.ts';
import { createPreparedStatements } from '../src/database/prepared.ts';
import { createMetadataIndexing } from '../src/payment-intents/metadata-index.ts';
import { createOwners } from '../src/settlement/ledger/owners.ts';
import { loadByH2load, requireTools } from './load.ts';
import {
  inTurn,
  median,
  onThisMachine,
  type PreparedDatabase,
  percentile,
  prepareDatabase,
  publish,
  ratiosOf,
  residentMbOf,
  spread,
  startOurs,
  table,
  withSetting,
} from './setting.ts';

/** How many times creates are measured beside the filler and without it, in each round. */
const turnsEach = 4;
const exported = 200_000;
const finds = 2_000;
/** Requests that warm the server up. */
const warming = 1_000;
const openRefunds = 10_000;
const transfersOfBlock = 2_000;
const wallet = `'\\x${'11'.repeat(20)}'::bytea`;

export async function measureMoney({
  rounds,
  seconds,
  rows,
}: {
  rounds: number;
  seconds: number;
  rows: number;
}): Promise<void> {
  await requireTools(['h2load']);
  await withSetting(async ({ folder, postgres }) => {
    const database = await prepareDatabase(postgres);
    const creates = await measureCreates(database, { folder, rounds, seconds });
    await fillIntents(database, rows);
    const entered = await measureEntering(database);
    await enterAll(database);
    // The work that filling leaves behind is not measured.
    await database.orm.em.execute('vacuum analyze payment_intents, payment_intent_metadata');
    await database.orm.em.execute('checkpoint');
    const found = await measureFinds(database, rows);
    const exports = await measureExport(database);
    const refunds = await measureRefunds(database, rounds);
    await database.orm.close();
    const million = `${rows / 1e6} million`;
    await publish(
      'results-money.md',
      `# Money found again

\`npm run bench -- --money\` ${onThisMachine()}; ${rounds} rounds, ${million} intents.

${table(
  ['', ''],
  [
    ['creates, beside the filler at full pace / without (target: 0.95)', spread(creates)],
    ['intents entered a second, without pauses (target: 2,000)', Math.round(entered)],
    [
      `an order of ${million} found by its number, p50 and p99 (target: 5 ms)`,
      `${found.p50} and ${found.p99} ms`,
    ],
    [
      `export of ${exported.toLocaleString('en')} payments (target: 20 s, 150 MB)`,
      `${exports.seconds} s, ${exports.peakMb} MB`,
    ],
    [
      `owners of ${transfersOfBlock.toLocaleString('en')} transfers, with ${openRefunds.toLocaleString('en')} open refunds`,
      `${refunds.owners} ms, of which ${refunds.refunds} ms for the refunds (${refunds.without} ms without any)`,
    ],
  ],
)}
`,
    );
  });
}

/** The ratios of create rates while the filler works on a backlog to those while it is stopped, in turn. */
async function measureCreates(
  { environment, apiKey, orm, merchantId }: PreparedDatabase,
  { folder, rounds, seconds }: { folder: string; rounds: number; seconds: number },
): Promise<number[]> {
  await orm.em.execute('truncate payment_intents, payment_intent_metadata');
  await orm.em.execute(`update metadata_progress set position = '00000000-0000-0000-0000-000000000000'`);
  await insertIntents(orm.em, merchantId, 0, 100_000);
  const filler = await startOurs({ ...environment, ROLES: 'expiry' }, 'HTTP_PORT');
  const server = await startOurs({ ...environment, ROLES: 'api' }, 'HTTP_PORT');
  const load = { port: server.port, apiKey, inFlight: 32, seconds };
  await loadByH2load(folder, 'http', load);
  const rates = { alone: [] as number[], beside: [] as number[] };
  for (let round = 0; round < rounds * turnsEach; round++) {
    for (const state of inTurn(['alone', 'beside'] as const, round)) {
      filler.send(state === 'alone' ? 'SIGSTOP' : 'SIGCONT');
      rates[state].push((await loadByH2load(folder, 'http', load)).perSecond);
    }
  }
  filler.send('SIGCONT');
  await filler.stop();
  await server.stop();
  return ratiosOf(rates.beside, rates.alone);
}

type Em = PreparedDatabase['orm']['em'];

async function insertIntents(em: Em, merchantId: string, first: number, count: number): Promise<void> {
  await em.execute(
    // One in eight has expired, and some of these were paid too late.
    `insert into payment_intents (id, merchant_id, mode, status, labels, network, amount_units, expected_wallet, lane, metadata,
                                  created_at, expires_at, client_secret_version)
     select uuidv7(at - now()), ?, 'testnet', case i % 8 when 7 then 'expired' else 'succeeded' end::payment_intent_status,
            case i % 1000 when 7 then array['late'] end, 3, 12500000, ${wallet}, 'sdk',
            json_build_object('order_id', 'order-' || i, 'customer_id', 'customer-' || i % 1000), at, at + interval '30 minutes', 1
       from (select i, now() - interval '300 days' + i * interval '2 seconds' as at
               from generate_series(?::int, ?::int) i) n`,
    [merchantId, first, first + count - 1],
  );
}

export async function fillIntents(
  { orm: { em }, merchantId }: PreparedDatabase,
  rows: number,
): Promise<void> {
  await em.execute('truncate payment_intents, payment_intent_metadata');
  await em.execute(`update metadata_progress set position = '00000000-0000-0000-0000-000000000000'`);
  for (let first = 0; first < rows; first += 500_000) {
    await insertIntents(em, merchantId, first, Math.min(500_000, rows - first));
  }
  await em.execute('vacuum analyze payment_intents');
}

/** Intents indexed a second, over ten seconds. */
async function measureEntering({ orm }: PreparedDatabase): Promise<number> {
  const enter = createMetadataIndexing(orm.em);
  const beganAtMs = performance.now();
  while (performance.now() - beganAtMs < 10_000 && (await enter()));
  const [row] = await orm.em.execute<{ count: string }[]>(
    'select count(distinct payment_intent) as count from payment_intent_metadata',
  );
  return Number(row?.count) / ((performance.now() - beganAtMs) / 1_000);
}

export async function enterAll({ orm: { em } }: PreparedDatabase): Promise<void> {
  await em.execute(`insert into payment_intent_metadata
    select i.merchant_id, i.mode,
           substr(sha256(convert_to(p.key, 'UTF8') || '\\x00' || convert_to(p.value #>> '{}', 'UTF8')), 1, 16), i.id
      from payment_intents i cross join lateral json_each(i.metadata) p on conflict do nothing`);
  await em.execute('vacuum analyze payment_intent_metadata');
}

async function measureFinds({ environment, apiKey }: PreparedDatabase, rows: number) {
  const server = await startOurs({ ...environment, ROLES: 'api' }, 'HTTP_PORT');
  // A fast client: fetch alone takes as long as finding an order.
  const client = new Client(`http://127.0.0.1:${server.port}`);
  const times: number[] = [];
  for (let i = -warming; i < finds; i++) {
    const number = Math.floor(Math.random() * rows);
    const beganAtMs = performance.now();
    const { body } = await client.request({
      method: 'GET',
      path: `/v1/payment_intents?metadata_key=order_id&metadata_value=order-${number}`,
      headers: { authorization: `Bearer ${apiKey}` },
    });
    const text = await body.text();
    if (i >= 0) times.push(performance.now() - beganAtMs);
    const { payment_intents } = JSON.parse(text) as { payment_intents: unknown[] };
    if (payment_intents.length !== 1) throw new Error(`order-${number} was not found`);
  }
  await client.close();
  await server.stop();
  return { p50: median(times).toFixed(1), p99: percentile(times, 0.99).toFixed(1) };
}

/** Confirmed payments of `count` intents. */
export async function fillTransfers(em: Em, count: number, which: 'oldest' | 'newest'): Promise<void> {
  await em.execute(
    `insert into transfers (id, merchant_id, mode, chain_id, transaction_hash, log_index, block_number, block_hash, block_time,
                            from_address, to_address, token_address, amount_units, ordinal, state, payment_intent, counts, created_at)
     select gen_random_uuid(), merchant_id, mode, 84532, sha256(id::text::bytea), 0, 1, sha256('b'), created_at, ${wallet},
            ${wallet}, ${wallet}, amount_units, 0, 'confirmed', id, true, created_at
       from payment_intents order by id ${which === 'newest' ? 'desc' : ''} limit ${count}`,
  );
  await em.execute('vacuum analyze transfers');
}

async function measureExport({ orm: { em }, environment, merchantId }: PreparedDatabase) {
  await fillTransfers(em, exported, 'oldest');
  const range = ['--from', '2020-01-01', '--before', '2100-01-01'];
  const merchant = ['--merchant', formatIdentifier('mer', merchantId), '--mode', 'testnet'];
  const beganAtMs = performance.now();
  const { scripts } = JSON.parse(await readFile('package.json', 'utf8')) as { scripts: { admin: string } };
  const command = `${scripts.admin} export payments ${[...merchant, ...range].join(' ')}`;
  const child = spawn('sh', ['-c', command], {
    env: { ...process.env, ...environment },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let lines = 0;
  let peakMb = 0;
  for await (const chunk of child.stdout) {
    lines += String(chunk).split('\n').length - 1;
    peakMb = await residentMbOf(child.pid as number).then(
      ({ peak }) => peak,
      () => peakMb,
    );
  }
  if (child.exitCode === null) await once(child, 'exit');
  if (lines !== exported + 1) throw new Error(`the export has ${lines} lines`);
  return { seconds: ((performance.now() - beganAtMs) / 1_000).toFixed(1), peakMb: Math.round(peakMb) };
}

/** How long it takes to look up the owners of a block's transfers, with and without refunds. */
async function measureRefunds({ orm: { em }, merchantId }: PreparedDatabase, rounds: number) {
  const settings = chainNamed('testnet', 'base');
  const { run } = createPreparedStatements(em);
  const { ownersOf, refundsAt } = createOwners(run, settings);
  const random = (bytes: number) => `0x${randomBytes(bytes).toString('hex')}` as const;
  const logs = Array.from({ length: transfersOfBlock }, (_, logIndex) => ({
    token: settings.networks[0]?.tokenAddress.toLowerCase() as Address,
    from: random(20) as Address,
    to: random(20) as Address,
    amountUnits: BigInt(logIndex + 1),
    transactionHash: random(32) as Hash,
    logIndex,
    blockNumber: 1,
    blockHash: random(32) as Hash,
  }));
  const timeOf = async (work: () => Promise<unknown>) => {
    const times: number[] = [];
    for (let i = 0; i < rounds * 5; i++) {
      const beganAtMs = performance.now();
      await work();
      times.push(performance.now() - beganAtMs);
    }
    return median(times).toFixed(1);
  };
  const without = await timeOf(() => refundsAt(logs));
  // Half of the refunds go to receivers in the block.
  await em.execute(
    `insert into refunds (id, merchant_id, mode, payment_intent, network, amount_units, destination, wallet, status, metadata,
                          created_at, expires_at, watched_until)
     select gen_random_uuid(), ?, 'testnet', gen_random_uuid(), 3, i,
            case when i % 2 = 0 then (?::bytea[])[1 + i % ${transfersOfBlock}] else sha256(i::text::bytea) end,
            ${wallet}, 'requires_transfer', '{}', now(), now(), '9999-12-31'
       from generate_series(1, ${openRefunds}) i`,
    [merchantId, `{${logs.map(({ to }) => `"\\\\x${to.slice(2)}"`).join(',')}}`],
  );
  await em.execute('vacuum analyze refunds');
  const refunds = await timeOf(() => refundsAt(logs));
  const owners = await timeOf(async () => {
    await ownersOf(logs.map(({ to }) => to));
    await refundsAt(logs);
  });
  return { without, refunds, owners };
}
