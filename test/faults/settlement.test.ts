// The watcher or PostgreSQL ends at any moment. Every intent ends as the chain says, with every event once.

import { setTimeout as sleep } from 'node:timers/promises';
import { stringToHex } from 'viem';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Call, startChain, type TestChain } from '../support/chain.ts';
import { endAll, type ServiceProcess, startProcess, useCluster } from './support/process.ts';
import { random } from './support/seed.ts';

/** `KILLS=100 npm run test:faults -- settlement` is the soak test. */
const kills = Number(process.env.KILLS ?? 3);

let chain: TestChain;

const cluster = useCluster();

beforeEach(async () => {
  chain = await startChain();
});

afterEach(async () => {
  await endAll();
  await chain.stop();
  await cluster.query('delete from watched_chains');
  await cluster.query('delete from block_headers');
});

const startWatcher = async () =>
  startProcess(cluster, { ROLES: 'watcher,expiry', RPC_URL_BASE_SEPOLIA: chain.url });

const createIntent = async (api: ServiceProcess) =>
  (await api.call('createPaymentIntent', { amount_units: 1_000, chain: 'base' })).json.id;

/** Returns the prepared transaction of a new refund. Undefined while the payment is not confirmed. */
async function createRefund(api: ServiceProcess, payment_intent: string): Promise<Call | undefined> {
  const asked = { payment_intent, destination: `0x${'2'.repeat(40)}` };
  const { code, json } = await api.call('createRefund', asked);
  return code === 'ok' ? (json.transaction as Call) : undefined;
}

/**
 * Pays intents, with a block for every few, and refunds some of them, until told to stop. Returns the ids of
 * the paid intents.
 */
function keepPaying(api: ServiceProcess) {
  let isDone = false;
  const [{ address: from }] = chain.accounts;
  const paid: string[] = [];
  let returned = 0;
  const run = async () => {
    await chain.mint(from, 1_000_000_000n);
    while (!isDone) {
      const ids = await Promise.all([createIntent(api), createIntent(api), createIntent(api)]);
      const calls = ids.map((id) =>
        chain.transferCall({ to: `0x${'1'.repeat(40)}`, amountUnits: 1_000n, suffix: stringToHex(id) }),
      );
      const refund = paid[returned] && (await createRefund(api, paid[returned] as string));
      if (refund) {
        calls.push(refund);
        returned++;
      }
      await chain.sendMany(from, calls);
      await chain.mine();
      paid.push(...ids);
      await sleep(100);
    }
    // Mines enough blocks for every confirmation, and for at least one refund.
    await chain.mine(12);
    while (returned === 0) {
      const refund = await createRefund(api, paid[0] as string);
      if (refund === undefined) await sleep(100);
      else returned += (await chain.sendMany(from, [refund])).length;
    }
    await chain.mine(12);
    return paid;
  };
  const running = run();
  return () => {
    isDone = true;
    return running;
  };
}

/** Expects the events of every refund once, and its amount in its intent. Returns the number of refunds. */
async function expectAllReturned(): Promise<number> {
  const open = `select 1 from refunds where status <> 'succeeded' limit 1`;
  while ((await cluster.query(open)).length > 0) await sleep(100);
  const rows = await cluster.query<{ n: number; events: string; refunded: string; transfers: number }>(
    `select count(*)::int as n, events, refunded, transfers
       from (select (select string_agg(e.type || ' ' || e.sequence, ', ' order by e.sequence) from events e where e.refund = r.id)
                      as events,
                    i.amount_refunded_units as refunded,
                    (select count(*)::int from transfers t where t.refund = r.id) as transfers
               from refunds r join payment_intents i on i.id = r.payment_intent) r
      group by events, refunded, transfers`,
  );
  const n = rows[0]?.n ?? 0;
  const events = 'refund.processing 1, refund.succeeded 2';
  expect(rows).toEqual(n === 0 ? [] : [{ n, events, refunded: '1000', transfers: 1 }]);
  await cluster.query('delete from refunds');
  return n;
}

async function expectAllPaid(paid: readonly string[]): Promise<void> {
  for (;;) {
    const [row] = await cluster.query<{ open: number }>(
      `select count(*)::int as open from payment_intents where status <> 'succeeded'`,
    );
    if (row?.open === 0) break;
    await sleep(100);
  }
  const rows = await cluster.query<{
    events: string;
    sequences: number[];
    received: string;
    transfers: number;
  }>(
    `select string_agg(e.type, ' ' order by e.sequence) as events, array_agg(e.sequence order by e.sequence) as sequences,
            i.amount_received_units as received,
            (select count(*)::int from transfers t where t.payment_intent = i.id) as transfers
       from payment_intents i join events e on e.payment_intent = i.id group by i.id`,
  );
  expect(rows).toHaveLength(paid.length);
  expect(new Set(rows.map((row) => JSON.stringify(row)))).toEqual(
    new Set([
      JSON.stringify({
        events: 'payment_intent.processing payment_intent.succeeded',
        sequences: [1, 2],
        received: '1000',
        transfers: 1,
      }),
    ]),
  );
  await cluster.query('delete from payment_intents');
  await cluster.query('delete from events');
  await cluster.query('delete from transfers');
}

test('every intent is paid and refunded once if one of two watchers is killed at random moments', {
  timeout: 60_000 + kills * 15_000,
}, async () => {
  const api = await startProcess(cluster, { ROLES: 'api' });
  const watchers = [await startWatcher(), await startWatcher()];
  const stopPaying = keepPaying(api);
  for (let i = 0; i < kills; i++) {
    await sleep(random.fraction() * 1_500);
    const [victim] = watchers.splice(random.below(watchers.length), 1);
    await victim?.end('SIGKILL');
    watchers.push(await startWatcher());
  }
  const paid = await stopPaying();
  const returned = await expectAllReturned();
  expect(returned).toBeGreaterThan(0);
  await expectAllPaid(paid);
  console.log(`${paid.length} intents paid, ${returned} refunded, ${kills} watchers killed`);
});

test('PostgreSQL is cut off in the middle of blocks', async () => {
  const api = await startProcess(cluster, { ROLES: 'api' });
  await startWatcher();
  const ids = await Promise.all(Array.from({ length: 60 }, () => createIntent(api)));
  const [{ address: from }] = chain.accounts;
  await chain.mint(from, 1_000_000n);
  await chain.mine();
  for (let i = 0; i < ids.length; i += 6) {
    const calls = ids
      .slice(i, i + 6)
      .map((id) =>
        chain.transferCall({ to: `0x${'1'.repeat(40)}`, amountUnits: 1_000n, suffix: stringToHex(id) }),
      );
    await chain.sendMany(from, calls);
    await chain.mine();
    if (i % 18 === 6) {
      await sleep(random.fraction() * 500);
      await cluster.stopImmediately();
      await cluster.start();
    }
  }
  await chain.mine(12);
  await expectAllPaid(ids);
});
