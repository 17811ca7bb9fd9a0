// Nodes with the limits of common plans: rate limits, range limits, and failures.

import { afterEach, expect, test } from 'vitest';
import { Node } from '../src/settlement/node.ts';
import { paceOf } from '../src/settlement/node-pace.ts';
import { type LyingNode, type NodeLimits, startLyingNode } from './support/lying-node.ts';
import { createMerchantCalls, createTestWatcher, forgetChain, sendPayment } from './support/settlement.ts';
import { useChain, useService } from './support/use-service.ts';

const service = await useService({ ROLES: 'api' });
const chain = await useChain();
let nodes: LyingNode[] = [];
let watcher: ReturnType<typeof createTestWatcher> | undefined;

const calls = createMerchantCalls(service);

afterEach(async () => {
  await watcher?.release();
  await Promise.all(nodes.map((node) => node.close()));
  [watcher, nodes] = [undefined, []];
  await forgetChain(service);
});

async function openNodes(count: number, limits: NodeLimits = {}) {
  for (let i = 0; i < count; i++) nodes.push(await startLyingNode(chain.url, limits));
  return nodes.map(({ url }) => url) as [string, ...string[]];
}

const headOf = async () => Number(await chain.client.getBlockNumber());

test('a node of a common plan that is 500 blocks behind is read within a minute, and payments are confirmed meanwhile', {
  timeout: 120_000,
}, async () => {
  const urls = await openNodes(1, { unitsPerSecond: 25, maxRange: 10 });
  const [node] = nodes as [LyingNode];
  const headsAtMs: number[] = [];
  const observer = { head: () => void headsAtMs.push(performance.now()) };
  watcher = createTestWatcher(service, { urls, patienceMs: 3_000, observer });
  await watcher.catchUp();
  const intent = await calls.createIntent();
  await sendPayment(chain, intent, intent.amount_units);
  await chain.mine(500, { timestampStep: 1 });
  const before = { asked: node.requests.length, refused: node.overPlan() };
  const startedAtMs = performance.now();
  headsAtMs.splice(0, headsAtMs.length, startedAtMs);
  const blocksBehind = async () =>
    (await headOf()) - ((await watcher?.ledger.progress())?.cursor.number ?? 0);
  let behindAtSuccess: number | undefined;
  while ((await blocksBehind()) > 0 && performance.now() - startedAtMs < 80_000) {
    // A process goes on after a failure, too.
    await watcher.follow().catch(() => {});
    if (behindAtSuccess === undefined && (await calls.getIntent(intent.id)).status === 'succeeded')
      behindAtSuccess = await blocksBehind();
  }
  const seconds = (performance.now() - startedAtMs) / 1_000;
  const refused = node.overPlan() - before.refused;
  const asked = node.requests.length - before.asked + refused;
  expect(seconds).toBeLessThan(60);
  expect(refused / asked).toBeLessThan(0.2);
  // Each pass begins with the head, ends with due confirmations, and reads for 5 s at most.
  expect(behindAtSuccess).toBeGreaterThan(100);
  expect(Math.max(...headsAtMs.slice(1).map((at, i) => at - (headsAtMs[i] as number)))).toBeLessThan(20_000);
});

test('at the tip, a block takes at most three requests', async () => {
  const urls = await openNodes(1);
  const [node] = nodes as [LyingNode];
  watcher = createTestWatcher(service, { urls });
  await calls.createIntent();
  await watcher.catchUp();
  await watcher.readAllAgain();
  const before = node.requests.length;
  for (let block = 0; block < 20; block++) {
    await watcher.catchUp(chain.mine());
  }
  expect((node.requests.length - before) / 20).toBeLessThanOrEqual(3);
});

test('payments succeed while each of three nodes fails, stalls, lags and recovers', {
  timeout: 120_000,
}, async () => {
  const urls = await openNodes(3);
  const places: number[] = [];
  const times = { failsMs: 200, standsStillMs: 300, healthyMs: 500, probeEveryMs: 50 };
  const observer = { reader: (place: number) => void (places.at(-1) !== place && places.push(place)) };
  const current = createTestWatcher(service, { urls, nodeChoice: times, observer });
  watcher = current;
  await current.catchUp();
  await chain.mine(25);

  /** Pays an intent and mines until it has succeeded. Nothing is sent twice. */
  const payOne = async () => {
    const intent = await calls.createIntent();
    await sendPayment(chain, intent, intent.amount_units);
    const paid = async () => {
      await chain.mine(2);
      await current.follow().catch(() => {});
      await current.verify().catch(() => {});
      return calls.getIntent(intent.id);
    };
    const { amount_units: amount_received_units } = intent;
    const once = { status: 'succeeded', payments_count: 1, amount_received_units };
    await expect.poll(paid, { interval: 50 }).toMatchObject(once);
  };
  const comesBack = async (node: LyingNode) => {
    node.lie(undefined);
    node.stopAt(undefined);
    // The first node becomes the reader again once it has been healthy for long enough.
    const reading = async () => {
      await chain.mine();
      await current.follow().catch(() => {});
      return places.at(-1);
    };
    await expect.poll(reading, { interval: 50 }).toBe(0);
  };

  await payOne();
  for (const [place, node] of nodes.entries()) {
    const faults: [string, () => Promise<void>][] = [
      ['dies', async () => node.lie('cut connection')],
      ['answers some questions only', async () => node.lie('cut connection', { methods: ['eth_getLogs'] })],
      ['stands still', async () => node.stopAt(await headOf())],
      ['lags', async () => node.stopAt((await headOf()) - 30)],
    ];
    // The last node is not asked while the other two are healthy.
    for (const [fault, begin] of place < 2 ? faults : faults.filter(([name]) => /dies|lags/.test(name))) {
      places.length = 0;
      await begin();
      await payOne();
      await payOne();
      if (place === 0)
        expect([fault, places.length > 0 && places.every((at) => at === 0)]).toEqual([fault, false]);
      await comesBack(node);
    }
  }
  await payOne();
  expect(current.log.filter(({ level }) => level === 'error')).toEqual([]);
  const [{ n } = { n: -1 }] = await service.query<{ n: number }>(
    "select count(*)::int as n from transfers where state = 'reorged'",
  );
  expect(n).toBe(0);
});

test('a node that reports a missing newest block is the reader only briefly', async () => {
  const urls = await openNodes(2);
  const [, second] = nodes as [LyingNode, LyingNode];
  const places: number[] = [];
  const times = { failsMs: 100, standsStillMs: 300, healthyMs: 60_000, probeEveryMs: 50 };
  const observer = { reader: (place: number) => void (places.at(-1) !== place && places.push(place)) };
  const current = createTestWatcher(service, { urls, nodeChoice: times, observer });
  watcher = current;
  await current.catchUp();
  second.lie('far head');
  const follow = async () => {
    await chain.mine();
    await current.follow().catch(() => {});
  };
  await expect.poll(() => follow().then(() => places), { interval: 20 }).toEqual([0, 1, 0]);
  const intent = await calls.createIntent();
  await sendPayment(chain, intent, intent.amount_units);
  for (let i = 0; i < 20; i++) await follow();
  expect((await calls.getIntent(intent.id)).status).toBe('succeeded');
  expect(places).toEqual([0, 1, 0]);
});

test('the watcher does not wait for a node that asks for a long pause', async () => {
  const urls = await openNodes(1);
  const [node] = nodes as [LyingNode];
  const current = createTestWatcher(service, { urls, patienceMs: 500 });
  watcher = current;
  await current.catchUp();
  node.lie('rate limit', { times: 1, retryAfter: 60 });
  await chain.mine();
  await expect(current.follow()).rejects.toThrow(/refused/);
  const asked = node.requests.length;
  await expect(current.follow()).rejects.toThrow(/asked to wait 60 s more \(rate limit\)$/);
  expect(node.requests.length).toBe(asked);
});

test('with one of two nodes down, payments are seen but no intent succeeds', async () => {
  const urls = await openNodes(2);
  const [first] = nodes as [LyingNode];
  const times = { failsMs: 100, standsStillMs: 300, healthyMs: 500, probeEveryMs: 50 };
  const current = createTestWatcher(service, { urls, nodeChoice: times });
  watcher = current;
  await current.catchUp();
  const intent = await calls.createIntent();
  first.lie('cut connection');
  await sendPayment(chain, intent, intent.amount_units);
  await chain.mine(30);
  const followed = async () => {
    await current.follow().catch(() => {});
    return (await calls.getIntent(intent.id)).status;
  };
  await expect.poll(followed, { interval: 20 }).toBe('processing');
  for (let turn = 0; turn < 5; turn++) await current.follow().catch(() => {});
  expect((await calls.getIntent(intent.id)).status).toBe('processing');
  first.lie(undefined);
  await expect.poll(followed, { interval: 20 }).toBe('succeeded');
});

test('no more requests are sent at once than a plan allows in a second', () => {
  const node = new Node({ url: 'http://127.0.0.1:1/burst', chainId: 1, tokens: [] });
  expect([node.burst, node.range.blocks]).toEqual([16, 2_000]);
  for (let i = 0; i < 8; i++) node.pace.answered();
  node.pace.refused();
  expect(node.burst).toBe(4);
  for (let i = 0; i < 8; i++) node.pace.refused();
  expect(node.burst).toBeGreaterThan(0);
});

test('the rate is halved once for concurrent refusals, and grows again', async () => {
  const pace = paceOf('halved');
  for (let i = 0; i < 100; i++) pace.answered();
  expect(pace.perSecond).toBe(Number.POSITIVE_INFINITY);
  pace.refused();
  pace.refused();
  expect(pace.perSecond).toBe(50);
  pace.answered();
  expect(pace.perSecond).toBeGreaterThan(50);
  pace.refused();
  expect(pace.perSecond).toBeCloseTo(25, 0);
});

test('requests that were sent together and refused later halve the rate once', async () => {
  const pace = paceOf('halved once');
  for (let i = 0; i < 8; i++) pace.answered();
  const sentAtMs = await pace.turn();
  pace.refused(0, sentAtMs);
  const halved = pace.perSecond;
  pace.answered();
  pace.refused(0, sentAtMs);
  expect(pace.perSecond).toBeGreaterThanOrEqual(halved);
});

test('a node that stopped answering keeps its rate', () => {
  const pace = paceOf('silent');
  for (let i = 0; i < 5; i++) pace.refused();
  expect(pace.perSecond).toBe(Number.POSITIVE_INFINITY);
});
