// Every fault of a machine, its database or the service, in the cluster that operators get. Nothing
// acknowledged is lost or doubled, every failure may be retried, and the cluster recovers by itself.

import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startChain, type TestChain } from '../support/chain.ts';
import { type HaCluster, startHaCluster } from './support/cluster.ts';
import { type Cost, openShop, type Shop, startTraffic } from './support/traffic.ts';

/** `ROUNDS=1 npm run test:ha -- -t switchover` tries one of them once. */
const rounds = Number(process.env.ROUNDS ?? 5);
/** ops/ha/patroni.yaml */
const ttlMs = 30_000;

let chain: TestChain;
let cluster: HaCluster;
let shop: Shop;
const table: Record<string, string | number>[] = [];

beforeAll(async () => {
  chain = await startChain();
  cluster = await startHaCluster({
    RPC_URL_BASE_SEPOLIA: chain.url,
    WEBHOOK_ALLOW: '127.0.0.1',
    RATE_LIMIT: '0',
  });
  shop = await openShop(cluster, chain);
});

afterAll(async () => {
  console.table(table);
  await cluster.stop();
  await shop.receiver.close();
  await chain.stop();
});

const noFault = { failures: new Map<string, number>() };

interface Fault {
  name: string;
  inject(): Promise<void>;
  /** What else must be true after a round. */
  check?: (cost: Cost) => void;
}

const faults: Fault[] = [
  {
    name: "the primary's PostgreSQL is killed",
    inject: async () => cluster.killPostgres(await cluster.memberIn('Leader')),
  },
  {
    name: "the primary's machine is gone",
    async inject() {
      const turnOn = await cluster.turnOff(await cluster.memberIn('Leader'));
      await sleep(ttlMs + 15_000);
      await turnOn();
    },
    check: ({ outageMs }) => expect(outageMs).toBeLessThan(ttlMs + 5_000),
  },
  {
    name: 'switchover',
    inject: async () => void (await cluster.member('one', 'ctl', 'switchover', '--force')),
    check({ failures, p99Ms }) {
      expect({ failures }).toEqual(noFault);
      expect(p99Ms).toBeLessThan(5_000);
    },
  },
  {
    name: 'the primary stands still for 30 s',
    inject: async () => stall(await cluster.memberIn('Leader'), 30_000),
  },
  {
    name: "the primary's Patroni stands still for 50 s",
    inject: async () => stall(await cluster.memberIn('Leader'), 50_000, { postgres: false }),
  },
  {
    name: "the synchronous standby's PostgreSQL is killed",
    inject: async () => cluster.killPostgres(await cluster.memberIn('Sync Standby')),
  },
  {
    name: 'the synchronous standby stands still for 40 s',
    inject: async () => stall(await cluster.memberIn('Sync Standby'), 40_000),
  },
  {
    name: 'the four processes restart, one after the other',
    async inject() {
      for (const name of ['api1', 'api2', 'background1', 'background2']) {
        await cluster.end(name, 'SIGTERM');
        await sleep(8_000);
      }
    },
  },
  {
    name: "the processes restart while the primary's PostgreSQL is killed",
    async inject() {
      await cluster.killPostgres(await cluster.memberIn('Leader'));
      await cluster.end('api1', 'SIGTERM');
      await sleep(20_000);
      await cluster.end('api2', 'SIGTERM');
    },
    // A process answers requests in flight before it ends, so no connection is reset.
    check: ({ failures }) =>
      expect([...failures.keys()].filter((code) => code !== 'unavailable')).toEqual([]),
  },
];

async function stall(...[name, ms, what]: [string, number, { postgres: boolean }?]): Promise<void> {
  const goOn = await cluster.freeze(name, what);
  await sleep(ms);
  goOn();
}

test.each(faults)('$name', async ({ name, inject, check }) => {
  const costs: Cost[] = [];
  for (let round = 0; round < rounds; round++) {
    await cluster.untilWhole();
    const traffic = await startTraffic(cluster, shop);
    try {
      await traffic.load.progress(300);
      await inject();
      await traffic.load.progress(300);
      // The cluster recovers by itself.
      await cluster.untilWhole();
    } finally {
      costs.push(await traffic.finish());
    }
  }
  const sum = (key: 'acknowledged' | 'lost' | 'doubled' | 'notRetryable') =>
    costs.reduce((total, cost) => total + cost[key], 0);
  const most = (key: 'outageMs' | 'p99Ms') => Math.max(...costs.map((cost) => cost[key]));
  const failures: Record<string, number> = {};
  for (const [code, n] of costs.flatMap((cost) => [...cost.failures]))
    failures[code] = (failures[code] ?? 0) + n;
  const row = {
    fault: name,
    rounds,
    acknowledged: sum('acknowledged'),
    lost: sum('lost'),
    doubled: sum('doubled'),
    'not retryable': sum('notRetryable'),
    'longest outage (s)': most('outageMs') / 1_000,
    'p99 (s)': most('p99Ms') / 1_000,
    failures: JSON.stringify(failures),
  };
  table.push(row);
  console.log(JSON.stringify(row));
  expect(row).toMatchObject({ lost: 0, doubled: 0, 'not retryable': 0 });
  for (const cost of costs) check?.(cost);
});
