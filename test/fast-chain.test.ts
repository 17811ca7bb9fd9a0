// A chain with several blocks a second, read together: with fewer requests, and as safely as one by one.

import { EventEmitter, once } from 'node:events';
import { pino } from 'pino';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { chainNamed } from '../src/contract/chains.ts';
import { Node } from '../src/settlement/node.ts';
import { Watcher } from '../src/settlement/watcher.ts';
import { startChain, type TestChain } from './support/chain.ts';
import { accounts } from './support/chain-contracts.ts';
import { eventsOf } from './support/event-rows.ts';
import { type LyingNode, startLyingNode } from './support/lying-node.ts';
import { createMerchantCalls, createTestWatcher, forgetChain, sendPayment } from './support/settlement.ts';
import { useService } from './support/use-service.ts';

const service = await useService({ ROLES: 'api' });
const calls = createMerchantCalls(service);
let chain: TestChain;
let node: LyingNode;
let watcher: ReturnType<typeof createTestWatcher>;
let amount = 2_000_000;

beforeEach(async () => {
  chain = await startChain();
  node = await startLyingNode(chain.url);
  watcher = createTestWatcher(service, { urls: [node.url] });
  await calls.createIntent();
  await watcher.catchUp();
});

afterEach(async () => {
  await watcher.release();
  await node.close();
  await chain.stop();
  await forgetChain(service);
});

const createIntent = () => calls.createIntent({ amount_units: ++amount });
const headOf = async () => Number(await chain.client.getBlockNumber());
const cursorOf = async () => (await watcher.ledger.progress())?.cursor.number;

/** Mines blocks that each have a transfer of no merchant. */
async function mineTransfers(blocks: number): Promise<void> {
  for (let i = 0; i < blocks; i++) {
    await chain.mint(accounts[0].address, 1n);
    await chain.mine();
  }
}

/** An intent that is paid in the fifth of ten new blocks. Resolves with it and the number of that block. */
async function payAmongTen() {
  await mineTransfers(4);
  const intent = await createIntent();
  await sendPayment(chain, intent, intent.amount_units);
  await chain.mine();
  const block = await headOf();
  await mineTransfers(5);
  return { intent, block };
}

test('ten blocks take six requests at most', async () => {
  await mineTransfers(10);
  const before = node.requests.length;
  await watcher.follow();
  expect(await cursorOf()).toBe(await headOf());
  expect(node.requests.slice(before).map(({ method }) => method).length).toBeLessThanOrEqual(6);
});

test('a payment in one of ten blocks is recorded in its block, and stays if later ones are replaced', async () => {
  const { intent, block } = await payAmongTen();
  await watcher.follow();
  expect(await cursorOf()).toBe(await headOf());
  const [payment] = (await calls.getIntent(intent.id)).payments;
  expect([payment.block_number, payment.status]).toEqual([block, 'pending']);
  await chain.reorg(4);
  await chain.mine(2);
  await watcher.tryToFollow(3);
  expect(await cursorOf()).toBe(await headOf());
  const types = (await eventsOf(service, intent.id)).map(({ type }) => type);
  expect(types).not.toContain('payment_intent.reorged');
});

test('the receipts of payments in five blocks are asked for at once', async () => {
  const intents = [];
  for (let i = 0; i < 5; i++) {
    const intent = await createIntent();
    intents.push(intent);
    await sendPayment(chain, intent, intent.amount_units);
    await chain.mine();
  }
  await watcher.catchUp();
  await chain.mine(20);
  const asked = new EventEmitter();
  const all = once(asked, 'all');
  let receipts = 0;
  node.rewrite(async ({ method }, real) => {
    if (method !== 'eth_getTransactionReceipt') return undefined;
    receipts++;
    if (receipts === 5) asked.emit('all');
    await all;
    return real;
  });
  await watcher.catchUp();
  const statuses = await Promise.all(intents.map(async ({ id }) => (await calls.getIntent(id)).status));
  expect(statuses).toEqual(Array(5).fill('succeeded'));
});

test('a node with servers that lag behind its newest block does not fail a pass', async () => {
  await watcher.release();
  await node.close();
  node = await startLyingNode(chain.url, { clientVersion: 'Geth/v1.15.11' });
  watcher = createTestWatcher(service, { urls: [node.url], spreadMs: 1_000 });
  await watcher.follow();
  await mineTransfers(10);
  const head = await headOf();
  const isUnknown = (at: unknown) => typeof at === 'string' && Number(at) > head - 4;
  node.rewrite(({ method, params: [at] = [] }) => {
    if (method === 'eth_getBlockByNumber' && isUnknown(at)) return { result: null };
    if (method !== 'eth_getLogs' || !isUnknown(Object(at).toBlock)) return undefined;
    return { error: { code: -32000, message: 'block range extends beyond current head block' } };
  });
  await watcher.follow();
  expect(await cursorOf()).toBe(head - 5);
  const settings = chainNamed('testnet', 'base');
  const nodes = [new Node({ url: node.url, chainId: settings.chainId, tokens: settings.tokens })] as const;
  const asServed = new Watcher({ settings, nodes, ledger: watcher.ledger, logger: pino({ enabled: false }) });
  await watcher.release();
  await asServed.follow();
  await asServed.release();
  node.rewrite(undefined);
  await watcher.follow();
  expect(await cursorOf()).toBe(head);
});

test('a payment whose block is replaced is reverted', async () => {
  const { intent } = await payAmongTen();
  await watcher.follow();
  await chain.reorg(7);
  await chain.mine(10);
  await watcher.tryToFollow(3);
  expect(await cursorOf()).toBe(await headOf());
  const { status, payments } = await calls.getIntent(intent.id);
  expect([status, payments[0].status]).toEqual(['requires_payment', 'reorged']);
});

test('a block whose logs an answer leaves out, despite its bloom filter, is asked for alone', async () => {
  const { intent, block } = await payAmongTen();
  node.rewrite(({ method, params: [filter] = [] }, { result }) => {
    if (method !== 'eth_getLogs' || Object(filter).fromBlock === undefined) return undefined;
    return {
      result: (result as { blockNumber: string }[]).filter((log) => Number(log.blockNumber) !== block),
    };
  });
  await watcher.follow();
  expect(await cursorOf()).toBe(await headOf());
  expect((await calls.getIntent(intent.id)).payments).toMatchObject([{ block_number: block }]);
});

test('each block whose logs a node hides, despite its bloom filter, is noted to be read again', async () => {
  const { block } = await payAmongTen();
  node.lie('empty logs');
  node.requests.length = 0;
  await watcher.follow();
  const doubtful = (await watcher.ledger.doubtful(20)).map(({ number }) => number);
  expect(doubtful).toEqual(Array.from({ length: 10 }, (_, i) => block + 5 - i));
  // Each is asked for five times.
  const alone = node.requests.filter(({ params: [of] = [] }) => Object(of).blockHash !== undefined);
  expect(alone.filter(({ method }) => method === 'eth_getLogs')).toHaveLength(50);
});

test('transfers of a fork are not taken for those of this chain', async () => {
  const { intent } = await payAmongTen();
  const [before, head] = [await cursorOf(), await headOf()];
  // The node that answers does not have the newest block, but another one.
  node.rewrite(({ method, params: [filter] = [] }, { result }) => {
    if (method !== 'eth_getLogs' || Object(filter).fromBlock === undefined) return undefined;
    const logs = (result as { blockNumber: string; topics: string[] }[]).slice(0, 4);
    return {
      result: [
        ...logs,
        { ...logs[0], blockNumber: `0x${head.toString(16)}`, blockHash: `0x${'fa'.repeat(32)}` },
      ],
    };
  });
  await expect(watcher.follow()).rejects.toThrow('has transfers of a block that it does not have');
  expect(await cursorOf()).toBe(before);
  node.rewrite(undefined);
  await watcher.follow();
  expect((await calls.getIntent(intent.id)).status).toBe('processing');
});
