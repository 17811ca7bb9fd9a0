// One of two nodes invents blocks, times or finality that the other one does not have.

import { type Hash, type Hex, numberToHex } from 'viem';
import { afterEach, expect, test } from 'vitest';
import { type Network, networkFor } from '../src/contract/chains.ts';
import { startChain, type TestChain } from './support/chain.ts';
import { eventsOf } from './support/event-rows.ts';
import { type LyingNode, type Rewrite, startLyingNode } from './support/lying-node.ts';
import {
  createMerchantCalls,
  createTestWatcher,
  endWatch,
  type PayableIntent,
  sendPayment,
} from './support/settlement.ts';
import { useService } from './support/use-service.ts';

const service = await useService({ ROLES: 'api' });
let chain: TestChain;
let node: LyingNode;
let watcher: ReturnType<typeof createTestWatcher>;

afterEach(() => endWatch(service, { watcher, node, chain }));

/** A watched chain of six blocks. Either the reader or the second node can invent data. */
async function watch(
  place: 'reader' | 'second',
  network: Network = networkFor('testnet', 'base'),
  depth = 1,
) {
  chain = await startChain({ network, slotsInAnEpoch: depth });
  node = await startLyingNode(chain.url, { clientVersion: 'Geth/v1.15.11' });
  const urls = [node.url, chain.url] as const;
  watcher = createTestWatcher(service, {
    urls: place === 'reader' ? urls : [chain.url, node.url],
    chainId: network.chainId,
    nodeChoice: { failsMs: 0, probeEveryMs: 0 },
  });
  await watcher.catchUp(chain.mine(3));
  const { createIntent, getIntent } = createMerchantCalls(
    service,
    service.merchant.keys[network.mode].apiKey,
  );
  let amount = 1_000_000;
  return {
    createIntent: (fields: object = {}) =>
      createIntent({ chain: network.chain, amount_units: ++amount, ...fields }),
    getIntent,
  };
}

async function pay(intent: PayableIntent & { amount_units: number }): Promise<Hex> {
  const hash = await sendPayment(chain, intent, intent.amount_units);
  await chain.mine();
  return hash;
}

/** Invents linked, empty blocks above the newest one, up to `head`. */
async function inventing({ head, final, aheadSeconds = 2 }: Record<string, number>): Promise<Rewrite> {
  const real = await chain.client.getBlock();
  const hashOf = (number: number): Hex => `0x${'de'.repeat(24)}${number.toString(16).padStart(16, '0')}`;
  return async ({ method, params: [at] = [] }, _, ask) => {
    const { blockHash = '', toBlock } = Object(at) as Record<string, string>;
    if (method === 'eth_getLogs' && (blockHash.startsWith('0xdede') || Number(toBlock) > real.number)) {
      return { result: [] };
    }
    if (method !== 'eth_getBlockByNumber') return undefined;
    const number = at === 'latest' ? Number(head) : at === 'finalized' ? Number(final) : Number(at);
    const like = await ask(method, [numberToHex(Math.min(number, Number(real.number))), false]);
    if (number <= real.number) return like;
    const made = {
      number: numberToHex(number),
      hash: hashOf(number),
      parentHash: BigInt(number) - 1n === real.number ? real.hash : hashOf(number - 1),
      timestamp: numberToHex(Number(real.timestamp) + Number(aheadSeconds)),
    };
    return { result: { ...(like.result as object), ...made } };
  };
}

test('invented final blocks far above the chain do not hold it up once the node is honest', async () => {
  const { createIntent, getIntent } = await watch('reader');
  node.rewrite(await inventing({ head: 10_000_000, final: 9_999_000 }));
  await watcher.tryToFollow(2);
  expect((await watcher.ledger.progress())?.cursor.number).toBeGreaterThan(60);
  node.rewrite(undefined);
  const intent = await createIntent();
  await pay(intent);
  await chain.mine(30, { timestampStep: 1 });
  await watcher.tryToFollow(6);
  expect((await getIntent(intent.id)).status).toBe('succeeded');
});

test('a block time months ahead expires nothing on mainnet', async () => {
  const { createIntent, getIntent } = await watch('reader', networkFor('mainnet', 'base'));
  const intent = await createIntent({ expires_in_minutes: 5 });
  const head = Number(await chain.client.getBlockNumber()) + 12;
  node.rewrite(await inventing({ head, final: 0, aheadSeconds: 90 * 86_400 }));
  await watcher.follow();
  expect((await watcher.ledger.progress())?.cursor.number).toBe(head);
  expect((await getIntent(intent.id)).status).toBe('requires_payment');
});

test('a finality that the node no longer reports is not trusted', async () => {
  const { createIntent, getIntent } = await watch('reader', networkFor('testnet', 'polygon'), 20);
  node.rewrite(({ method, params: [at] = [] }, { result }) => {
    if (method !== 'eth_getBlockByNumber' || !['latest', 'finalized'].includes(String(at))) return undefined;
    return { result: { ...(result as object), number: at === 'latest' ? '0xfffff' : '0xffff0' } };
  });
  await watcher.tryToFollow(1);
  node.rewrite(undefined);
  const intent = await createIntent();
  await pay(intent);
  await chain.mine(chain.network.confirmationsRequired);
  await watcher.tryToFollow(3);
  expect((await getIntent(intent.id)).status).toBe('processing');
});

test.each([
  ['eth_getLogs', 'logIndex', '0xffffffff0'],
  ['eth_getBlockByNumber', 'timestamp', '0x1a3185c5000'],
])('%s with a %s that the database cannot store is an error of the node', async (method, field, value) => {
  const { createIntent } = await watch('reader');
  await pay(await createIntent());
  node.rewrite((call, { result }) => {
    if (call.method !== method) return undefined;
    const spoilt = (each: object) => ({ ...each, [field]: value });
    return { result: Array.isArray(result) ? result.map(spoilt) : spoilt(result as object) };
  });
  await expect(watcher.follow()).rejects.toMatchObject({ fault: 'malformed' });
});

test('thousands of transfers that a node cannot prove do not hold up later payments', async () => {
  const { createIntent, getIntent } = await watch('second');
  const [many, paid] = [await createIntent(), await createIntent()];
  const hash = await pay(many);
  await watcher.catchUp();
  // Simulates a transaction with thousands of transfers.
  await service.query(
    `insert into transfers select (json_populate_record(t, json_build_object(
       'id', gen_random_uuid(), 'log_index', log_index + n, 'ordinal', ordinal + n, 'payment_intent', null, 'counts', false))).*
       from transfers t, generate_series(1, 2000) as n`,
    [],
  );
  node.rewrite(({ method, params: [asked] = [] }) => {
    if (method !== 'eth_getTransactionReceipt' || asked !== hash) return undefined;
    return { error: { code: -32000, message: 'response size exceeded' } };
  });
  await pay(paid);
  await chain.mine(15);
  await watcher.tryToFollow(3);
  expect((await getIntent(paid.id)).status).toBe('succeeded');
  expect((await getIntent(many.id)).status).toBe('processing');
});

test('a lease from a clock that was an hour ahead is taken over', async () => {
  await watch('second');
  const inAnHour = `update watched_chains set lease_until = now() + interval '1 hour'`;
  await service.query(inAnHour, []);
  const other = createTestWatcher(service, { urls: [chain.url], chainId: chain.network.chainId });
  const lease = await other.ledger.acquire();
  expect(lease).toBeDefined();
  await other.ledger.release(lease as bigint);
});

test('a payment that moved to another block is not confirmed for its old block', async () => {
  const { createIntent, getIntent } = await watch('second');
  const intent = await createIntent();
  await pay(intent);
  await watcher.catchUp();
  await watcher.release();
  const lease = (await watcher.ledger.acquire()) as bigint;
  const [row] = await service.query<{ id: string; block: string }>(
    `select id, '0x' || encode(block_hash, 'hex') as block from transfers where state = 'pending'`,
  );
  for (const [block, status] of [
    [`0x${'1'.repeat(64)}`, 'processing'],
    [row?.block, 'succeeded'],
  ] as const) {
    await watcher.ledger.confirmAll(lease, block as Hex, [row?.id as string]);
    expect((await getIntent(intent.id)).status).toBe(status);
  }
  await watcher.ledger.revertTransfers(lease, [row?.id as string]);
  await watcher.ledger.confirmAll(lease, row?.block as Hex, [row?.id as string]);
  expect((await getIntent(intent.id)).payments).toMatchObject([{ status: 'reorged' }]);
  await watcher.ledger.release(lease);
});

test('a second node that does not answer does not hold up reading, however far behind the watcher is', async () => {
  await watch('second');
  node.lie('hang');
  await chain.mine(100);
  await watcher.follow();
  expect((await watcher.ledger.progress())?.cursor.number).toBeGreaterThan(30);
});

test.each(['reader', 'second'] as const)(
  'the %s alone does not move a confirmed payment to another block',
  async (place) => {
    const { createIntent, getIntent } = await watch(place);
    const intent = await createIntent();
    const hash = await pay(intent);
    await chain.mine(21, { timestampStep: 1 });
    await watcher.tryToFollow(2);
    expect((await getIntent(intent.id)).status).toBe('succeeded');
    const old = await chain.client.getTransactionReceipt({ hash });
    await pay(await createIntent());
    const block = await chain.client.getBlock();
    const there = { blockHash: block.hash, blockNumber: numberToHex(block.number) };
    const moved = (logs: object[]) => logs.map((log) => ({ ...log, ...there, logIndex: '0x9' }));
    let told = 0;
    node.rewrite(async ({ method, params: [at] = [] }, { result }, ask) => {
      if (method === 'eth_getTransactionByHash' && at === hash) {
        return { result: { ...(result as object), ...there } };
      }
      if (method === 'eth_getTransactionReceipt' && at === hash) {
        const receipt = result as { logs: object[] };
        return { result: { ...receipt, ...there, logs: moved(receipt.logs) } };
      }
      if (method !== 'eth_getLogs' || !JSON.stringify(result).includes(block.hash)) return undefined;
      told++;
      const before = await ask(method, [{ blockHash: old.blockHash }]);
      const own = (before.result as { transactionHash: Hash }[]).filter(
        (log) => log.transactionHash === hash,
      );
      return { result: [...(result as object[]), ...moved(own)] };
    });
    await chain.mine(15);
    await watcher.tryToFollow(6);
    expect(told).toBeGreaterThan(0);
    const types = (await eventsOf(service, intent.id)).map(({ type }) => type);
    expect(types).not.toContain('payment_intent.reorged');
    expect((await getIntent(intent.id)).status).toBe('succeeded');
  },
);

test.each([
  ['final', 1],
  ['not final yet', 32],
] as const)('the reader alone does not revert payments that both nodes confirmed (%s)', async (_, depth) => {
  const { createIntent, getIntent } = await watch('reader', networkFor('testnet', 'base'), depth);
  const intent = await createIntent();
  await pay(intent);
  await chain.mine(40, { timestampStep: 1 });
  await watcher.tryToFollow(3);
  expect((await getIntent(intent.id)).status).toBe('succeeded');
  const forked = (number: bigint): Hex => `0x${number.toString(16).padStart(64, 'fa')}`;
  node.rewrite(({ method }, { result }) => {
    const block = Object(result) as Record<'number' | 'hash' | 'parentHash', Hex>;
    if (method === 'eth_getLogs') return { result: [] };
    if (method !== 'eth_getBlockByNumber' || BigInt(block.number) < 5n) return undefined;
    const number = BigInt(block.number);
    const parentHash = number === 5n ? block.parentHash : forked(number - 1n);
    return { result: { ...block, hash: forked(number), parentHash } };
  });
  await watcher.tryToFollow(4);
  node.rewrite(undefined);
  await watcher.tryToFollow(4);
  const types = (await eventsOf(service, intent.id)).map(({ type }) => type);
  expect(types).not.toContain('payment_intent.reorged');
  expect((await getIntent(intent.id)).status).toBe('succeeded');
});

test('a payment that both nodes have confirmed is not reverted while the second one is behind', async () => {
  const { createIntent, getIntent } = await watch('second');
  const intent = await createIntent();
  const { number } = await chain.client.getBlock();
  await pay(intent);
  await chain.mine(21, { timestampStep: 1 });
  await watcher.tryToFollow(2);
  node.stopAt(Number(number));
  await chain.reorg(22);
  await chain.mine();
  await watcher.tryToFollow(4);
  expect(await getIntent(intent.id)).toMatchObject({ payments: [{ status: 'confirmed' }] });
});
