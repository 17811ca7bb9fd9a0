// When a payment is final: the second node, Polygon's finality, and reorganisations deeper than the stored headers.

import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Address, encodeFunctionData, type Hex, parseAbi, zeroAddress, zeroHash } from 'viem';
import { afterEach, describe, expect, test } from 'vitest';
import { bridgedUsdcAddresses, chainNamed, networkFor } from '../src/contract/chains.ts';
import { LeaseLost } from '../src/settlement/ledger/lease.ts';
import { type ChainOptions, startChain, type TestChain } from './support/chain.ts';
import type { Lie } from './support/lies.ts';
import { type LyingNode, startLyingNode } from './support/lying-node.ts';
import {
  createMerchantCalls,
  createTestWatcher,
  endWatch,
  leaseNumber,
  type PayableIntent,
  sendPayment,
} from './support/settlement.ts';
import { insertTransfers } from './support/transfer-rows.ts';
import { useService } from './support/use-service.ts';

const service = await useService({ ROLES: 'api' });
let chain: TestChain;
let node: LyingNode;
let watcher: ReturnType<typeof createTestWatcher>;
type Progress = NonNullable<Awaited<ReturnType<(typeof watcher)['ledger']['progress']>>>;

const calls = createMerchantCalls(service);

/** Starts a chain, with a node that can lie: the only one, or the second one. */
async function watch(place: 'only' | 'second', options: ChainOptions = {}): Promise<void> {
  chain = await startChain(options);
  node = await startLyingNode(chain.url, { clientVersion: 'Geth/v1.15.11' });
  watcher = createTestWatcher(service, {
    urls: place === 'only' ? [node.url] : [chain.url, node.url],
    chainId: chain.network.chainId,
  });
  await watcher.catchUp();
}

afterEach(() => endWatch(service, { watcher, node, chain }));

type Intent = PayableIntent & { amount_units: number; expires_at: string };

let amount = 2_000_000;
/** Each intent has a different amount. */
const createIntent = (fields: object = {}): Promise<Intent> =>
  calls.createIntent({ amount_units: ++amount, chain: chain.network.chain, ...fields });
const statusOf = async ({ id }: Intent) => (await calls.getIntent(id)).status;

/** Expires what is over until the work is done. */
async function whileExpiring<T>(work: Promise<T>): Promise<T> {
  const lease = await leaseNumber(service);
  let isDone = false;
  const end = () => {
    isDone = true;
  };
  work.then(end, end);
  while (!isDone) await watcher.ledger.expireSome(lease, 0);
  return work;
}

/** Pays the intent in a block of its own. */
async function pay(intent: Intent): Promise<Hex> {
  const hash = await sendPayment(chain, intent, intent.amount_units);
  await chain.mine();
  return hash;
}

describe('an intent does not succeed while the second node returns:', () => {
  test.each<Lie>([
    'older head',
    'wrong hash',
    'other block',
    'null blocks',
    'null receipts',
    'receipt without logs',
    'receipt of another amount',
  ])('%s', async (lie) => {
    await watch('second');
    const intent = await createIntent();
    await pay(intent);
    await watcher.catchUp();
    node.lie(lie);
    const told = node.untilTold(lie);
    await chain.mine(9);
    await watcher.catchUp().catch(() => {});
    await told;
    expect(await statusOf(intent)).toBe('processing');
    node.lie(undefined);
    await watcher.catchUp();
    expect(await statusOf(intent)).toBe('succeeded');
  });
});

test('while the second node does not answer, nothing is confirmed, and unpaid intents still expire', async () => {
  await watch('second');
  const [paid, unpaid] = [await createIntent(), await createIntent()];
  await pay(paid);
  node.lie('rate limit');
  const later = Number((await chain.client.getBlock()).timestamp) + 2 * 60 * 60;
  await chain.mine(20, { timestamp: later, timestampStep: 2 });
  await expect(watcher.catchUp()).rejects.toThrow();
  expect(await Promise.all([paid, unpaid].map(statusOf))).toEqual(['processing', 'expired']);
  node.lie(undefined);
  await watcher.catchUp();
  expect(await statusOf(paid)).toBe('succeeded');
});

test('an intent whose payment moves to another block after its deadline does not expire in between', async () => {
  await watch('second');
  const intent = await createIntent();
  await pay(intent);
  node.lie('rate limit');
  const later = Number((await chain.client.getBlock()).timestamp) + 2 * 60 * 60;
  await chain.mine(20, { timestamp: later, timestampStep: 2 });
  await expect(watcher.catchUp()).rejects.toThrow();
  const [{ log, blockTime } = expect.fail()] = await watcher.ledger.transfersIn(0, 100);
  const block = { number: log.blockNumber, hash: zeroHash, time: blockTime };
  const owners = [{ merchantId: service.merchant.id, isPayoutWallet: true, isExpected: true }];
  const moved = {
    log: { ...log, blockHash: zeroHash },
    blockTime,
    named: intent.id,
    owners,
    mayBeRefund: false,
  };
  const lease = await leaseNumber(service);
  const { changes } = await whileExpiring(
    watcher.ledger.apply(lease, block, [moved], undefined, async () => []),
  );
  const { status, amount_received_units: received } = await calls.getIntent(intent.id);
  expect([changes, status, received]).toEqual([2, 'processing', intent.amount_units]);
});

test('the same if a single node had it in another of the blocks that are verified', async () => {
  await watch('only');
  const intent = await createIntent();
  await pay(intent);
  await watcher.follow();
  await service.query(
    `update transfers t set block_number = h.number, block_hash = h.hash
       from block_headers h where h.number = t.block_number - 1`,
  );
  const later = Number((await chain.client.getBlock()).timestamp) + 2 * 60 * 60;
  await chain.mine(20, { timestamp: later, timestampStep: 2 });
  await watcher.follow();
  await expect(watcher.verify()).rejects.toThrow('does not have 1 recorded transfers; asked again');
  await whileExpiring(watcher.verify());
  const { status, payments } = await calls.getIntent(intent.id);
  expect([status, payments.length]).toEqual(['processing', 1]);
});

test('a block that was not final when it was replaced is reported as such, however late', async () => {
  await watch('only');
  const reorganisations: object[] = [];
  const observer = { reorganisation: (each: object) => reorganisations.push(each) };
  await watcher.release();
  watcher = createTestWatcher(service, { urls: [node.url], observer });
  await watcher.catchUp(chain.mine(5));
  await chain.reorg(1);
  await chain.mine(4);
  await expect(watcher.catchUp()).rejects.toThrow('asked again');
  await watcher.catchUp();
  expect(reorganisations).toEqual([{ depth: 1, transfers: 0, isFinal: false }]);
});

test('a revert that was committed without an answer is reported, and not repeated', async () => {
  await watch('only');
  const reorganisations: object[] = [];
  const observer = { reorganisation: (each: object) => reorganisations.push(each) };
  await watcher.catchUp(chain.mine(3));
  await watcher.release();
  // What another process has read as final counts.
  watcher = createTestWatcher(service, { urls: [node.url], observer });
  const { ledger } = watcher;
  const { revertTo } = ledger;
  ledger.revertTo = async (...to) => {
    ledger.revertTo = revertTo;
    await revertTo(...to);
    throw new Error('the connection was lost');
  };
  await chain.reorg(3);
  await expect(watcher.catchUp()).rejects.toThrow('asked again');
  await expect(watcher.catchUp()).rejects.toThrow('the connection was lost');
  await watcher.catchUp();
  expect((await ledger.progress())?.cursor.hash).toBe((await chain.client.getBlock()).hash);
  expect(reorganisations).toEqual([{ depth: 3, transfers: 0, isFinal: true }]);
});

describe('finality', () => {
  test('on Polygon an intent succeeds when its block is final, not with confirmations alone', async () => {
    // A block is final 40 blocks later.
    await watch('only', { network: networkFor('testnet', 'polygon'), slotsInAnEpoch: 20 });
    const intent = await createIntent();
    await pay(intent);
    await watcher.catchUp(chain.mine(11));
    expect(await calls.getIntent(intent.id)).toMatchObject({
      status: 'processing',
      payments: [{ confirmations: 12, status: 'pending' }],
    });
    const finalized = async () => Number((await chain.client.getBlock({ blockTag: 'finalized' })).number);
    const paidIn = (await calls.getIntent(intent.id)).payments[0].block_number;
    while ((await finalized()) < paidIn) {
      expect(await statusOf(intent)).toBe('processing');
      await watcher.catchUp(chain.mine());
    }
    expect(await statusOf(intent)).toBe('succeeded');
  });

  test('on Polygon an intent does not succeed before its block is final for the second node', async () => {
    await watch('second', { network: networkFor('testnet', 'polygon'), slotsInAnEpoch: 10 });
    const intent = await createIntent();
    await pay(intent);
    node.lie('older head', { depth: 5 });
    await watcher.catchUp(chain.mine(22));
    expect(await statusOf(intent)).toBe('processing');
    node.lie(undefined);
    await watcher.catchUp();
    expect(await statusOf(intent)).toBe('succeeded');
  });

  test('on Polygon without the tag finalized, a payment is final after half an hour of blocks', async () => {
    await watch('only', { network: networkFor('testnet', 'polygon') });
    node.lie('no finalized');
    const intent = await createIntent();
    await pay(intent);
    await watcher.catchUp(chain.mine(1_300));
    expect(await statusOf(intent)).toBe('processing');
    await watcher.catchUp(chain.mine(100));
    expect(await statusOf(intent)).toBe('succeeded');
  });

  test('on Polygon a final block above the newest one is not used', async () => {
    await watch('only', { network: networkFor('testnet', 'polygon'), slotsInAnEpoch: 20 });
    const intent = await createIntent();
    await pay(intent);
    await chain.mine(11);
    node.lie('far finalized');
    await expect(watcher.catchUp()).rejects.toThrow(
      /reports block \d+ as final, but its newest block is \d+/,
    );
    node.lie(undefined);
    await watcher.catchUp();
    expect(await statusOf(intent)).toBe('processing');
  });

  test('on Polygon bridged tokens minted by state sync are recorded without a transaction or a receipt', async () => {
    await watch('only', { network: networkFor('testnet', 'polygon') });
    const intent = await createIntent({ wallet_address: `0x${randomBytes(20).toString('hex')}` });
    const token = bridgedUsdcAddresses.usdcE as Address;
    const abi = parseAbi([
      'function masterMinter() view returns (address)',
      'function configureMinter(address,uint256) returns (bool)',
      'function mint(address,uint256) returns (bool)',
    ]);
    const master = await chain.client.readContract({ address: token, abi, functionName: 'masterMinter' });
    const allow = encodeFunctionData({ abi, functionName: 'configureMinter', args: [zeroAddress, 10n] });
    await chain.send(master, { to: token, data: allow });
    await chain.mine();
    const mint = encodeFunctionData({ abi, functionName: 'mint', args: [intent.expected_wallet, 1n] });
    const minted = await chain.send(zeroAddress, { to: token, data: mint });
    node.rewrite(({ method, params: [hash] = [] }) =>
      method === 'eth_getTransactionByHash' && hash === minted ? { result: null } : undefined,
    );
    // Native USDC is never minted in this way, so its transaction has a receipt.
    await chain.mint(intent.expected_wallet, 2n);
    await chain.mine();
    node.lie('null receipts');
    await watcher.catchUp(chain.mine(20));
    expect((await calls.getIntent(intent.id)).payments).toMatchObject([
      { amount_units: 1, status: 'confirmed' },
      { amount_units: 2, status: 'pending' },
    ]);
    node.lie(undefined);
    await pay(intent);
    await watcher.catchUp(chain.mine(20));
    expect(await calls.getIntent(intent.id)).toMatchObject({
      status: 'succeeded',
      amount_received_units: 2 + intent.amount_units,
      labels: ['wrong_token', 'overpaid'],
      payments: [
        { amount_units: 1, status: 'confirmed', labels: ['wrong_token'] },
        { amount_units: 2, status: 'confirmed' },
        { amount_units: intent.amount_units, status: 'confirmed' },
      ],
    });
  });

  test('on Polygon two logs with the same index do not stop the chain', async () => {
    await watch('only', { network: networkFor('testnet', 'polygon') });
    const { address } = chain.accounts[0] as { address: Address };
    for (const amountUnits of [1n, 2n]) await chain.mint(address, amountUnits);
    node.lie('equal log index');
    const told = node.untilTold('equal log index');
    await watcher.catchUp(chain.mine(2));
    await told;
    const head = Number((await chain.client.getBlock()).number);
    expect((await watcher.ledger.progress())?.cursor.number).toBe(head);
  });

  test('on Base an intent succeeds with its confirmations, or expires, once a block 20 s later exists', async () => {
    await watch('only', { slotsInAnEpoch: 200 });
    const [unpaid, intent] = [await createIntent(), await createIntent({ expires_in_minutes: 60 })];
    await sendPayment(chain, intent, intent.amount_units);
    const paidAt = Math.floor(Date.parse(unpaid.expires_at) / 1_000) + 1;
    await chain.mine(1, { timestamp: paidAt });
    const statuses = () => Promise.all([intent, unpaid].map(statusOf));
    await watcher.catchUp(chain.mine(19, { timestamp: paidAt + 1, timestampStep: 1 }));
    expect(await statuses()).toEqual(['processing', 'requires_payment']);
    await watcher.catchUp(chain.mine(1, { timestamp: paidAt + 20 }));
    expect(await statuses()).toEqual(['succeeded', 'expired']);
  });
});

test('a single wrong block time ends no intent', async () => {
  await watch('only');
  const intent = await createIntent();
  await watcher.catchUp(chain.mine(12));
  const { cursor } = (await watcher.ledger.progress()) as Progress;
  await service.query("update block_headers set time = time + interval '1 year' where number = $1", [
    cursor.number - 9,
  ]);
  await watcher.follow();
  expect(await statusOf(intent)).toBe('requires_payment');
});

// These tests read some six hundred blocks one by one.
describe('stored block headers', { timeout: 120_000 }, () => {
  /** Lets the chain grow, and follows it so that blocks are read one by one. */
  async function grow(blocks: number): Promise<void> {
    for (let left = blocks; left > 0; left -= 4) {
      await watcher.catchUp(chain.mine(Math.min(left, 4), { timestampStep: 1 }));
    }
  }

  const headers = async () =>
    (
      await service.query<{ number: string; is_checkpoint: boolean }>(
        'select number, is_checkpoint from block_headers order by number',
      )
    ).map(({ number, is_checkpoint }) => ({ number: Number(number), isCheckpoint: is_checkpoint }));

  test('include at least the newest 256 and the first of each day', async () => {
    const day = 24 * 60 * 60;
    const noon = (Math.floor(Date.now() / 1000 / day) - 0.5) * day;
    await watch('only', { genesisTimestamp: noon });
    const [start] = await headers();
    await grow(60);
    const sameDay = Number((await chain.client.getBlock()).number);
    const tomorrow = Number((await chain.client.getBlock()).timestamp) + day;
    await watcher.catchUp(chain.mine(1, { timestamp: tomorrow }));
    await grow(4);
    const doubtful = sameDay + 3;
    await service.query('update block_headers set is_doubtful = true where number = $1', [doubtful]);
    await grow(536);
    const all = await headers();
    // It is still to be read again.
    expect(all.map(({ number }) => number)).toContain(doubtful);
    const known = all.filter(({ number }) => number !== doubtful);
    const head = Number((await chain.client.getBlock()).number);
    const checkpoints = known.filter(({ isCheckpoint }) => isCheckpoint).map(({ number }) => number);
    expect(checkpoints).toEqual([start?.number, sameDay + 1]);
    const rest = known.filter(({ isCheckpoint }) => !isCheckpoint).map(({ number }) => number);
    expect(rest.length).toBeGreaterThanOrEqual(256);
    // Headers are pruned every 256 blocks.
    expect(rest.length).toBeLessThan(2 * 256);
    expect(rest).toEqual(rest.map((_, i) => head - rest.length + 1 + i));
  });

  test('are not enough for a deeper reorganisation, which reverts to the newest payment still on the chain', async () => {
    await watch('only', { reorgDepth: 1_000 });
    const reorganisations: object[] = [];
    await watcher.release();
    watcher = createTestWatcher(service, {
      urls: [node.url],
      observer: { reorganisation: (reorganisation) => reorganisations.push(reorganisation) },
    });
    await grow(20);
    const [kept, gone] = [await createIntent(), await createIntent()];
    await pay(kept);
    await watcher.catchUp();
    const keptIn = (await calls.getIntent(kept.id)).payments[0].block_number;
    await grow(20);
    await pay(gone);
    await grow(540);
    expect(await Promise.all([kept, gone].map(statusOf))).toEqual(['succeeded', 'succeeded']);
    const head = Number((await chain.client.getBlock()).number);
    expect((await headers()).filter(({ isCheckpoint }) => !isCheckpoint)[0]?.number).toBeGreaterThan(
      keptIn + 20,
    );

    await chain.reorg(head - keptIn - 10);
    await chain.mine();
    const asked = node.requests.length;
    await expect(watcher.catchUp()).rejects.toThrow(`reorganised to block ${keptIn}; asked again`);
    await watcher.catchUp();
    // By bisection, not one block after the other.
    expect(node.requests.slice(asked).length).toBeLessThan(head - keptIn);
    expect(reorganisations).toEqual([{ depth: head - keptIn, transfers: 1, isFinal: true }]);
    expect(watcher.log).toContainEqual(
      expect.objectContaining({
        level: 'error',
        block: keptIn,
        message: 'the chain reverted final blocks: check every payment in them by hand',
      }),
    );
    const still = await calls.getIntent(kept.id);
    expect([still.status, still.labels, still.payments[0].status]).toEqual([
      'succeeded',
      undefined,
      'confirmed',
    ]);
    expect(await calls.getIntent(gone.id)).toMatchObject({
      status: 'succeeded',
      labels: ['reorged'],
      payments: [{ status: 'reorged' }],
    });
    expect((await watcher.ledger.progress())?.cursor.number).toBe(head + 1);
  });

  test('take precedence over payments as the common ancestor', async () => {
    await watch('only');
    await pay(await createIntent());
    await watcher.catchUp();
    const { number, hash } = await chain.client.getBlock();
    await service.query("update transfers set block_hash = decode(repeat('ab', 32), 'hex')");
    const known = await watcher.ledger.knownBlocks(Number(number), 2);
    expect(known).toMatchObject([{ number: Number(number), hash }, { number: Number(number) - 1 }]);
  });

  test('a range reverted during its verification is verified again', async () => {
    await watch('only');
    await watcher.catchUp(chain.mine(8));
    const { ledger } = watcher;
    const { cursor, verifiedNumber } = (await ledger.progress()) as Progress;
    const ancestor = (await ledger.knownBlocks(cursor.number, 3)).at(-1) as Progress['cursor'];
    const lease = await leaseNumber(service);
    await ledger.revertTo(lease, ancestor);
    expect(await ledger.noteVerified(lease, cursor.number, cursor)).toBe(false);
    expect((await ledger.progress())?.verifiedNumber).toBe(verifiedNumber);
    expect(await ledger.noteVerified(lease, ancestor.number, ancestor)).toBe(true);
    expect((await ledger.progress())?.verifiedNumber).toBe(ancestor.number);
    // Pruning a header reverts nothing.
    await service.query('delete from block_headers where number = $1', [ancestor.number]);
    expect(await ledger.noteVerified(lease, ancestor.number, ancestor)).toBe(true);
    const [below] = await ledger.knownBlocks(ancestor.number, 1);
    await ledger.revertTo(lease, below as Progress['cursor']);
    expect((await ledger.progress())?.verifiedNumber).toBe(below?.number);
  });

  test('a block is recorded only after the block that it follows', async () => {
    await watch('only');
    await watcher.catchUp(chain.mine(8));
    const { ledger } = watcher;
    const { cursor } = (await ledger.progress()) as Progress;
    const next = { number: cursor.number + 1, hash: `0x${'ab'.repeat(32)}`, time: cursor.time } as const;
    const record = async (after: Hex) =>
      ledger.apply(await leaseNumber(service), next, [], after, async () => []);
    await expect(record(`0x${'cd'.repeat(32)}`)).rejects.toThrow(LeaseLost);
    expect((await ledger.progress())?.cursor).toEqual(cursor);
    // Its own transfers may be recorded in part. Those of a block that it replaces are reverted.
    const blockNumber = next.number;
    await insertTransfers(service, service.merchant, [
      { blockNumber, blockHash: next.hash },
      { blockNumber },
    ]);
    await record(cursor.hash);
    expect((await ledger.progress())?.cursor).toEqual(next);
    const states = await service.query('select state from transfers order by id');
    expect(states).toEqual([{ state: 'pending' }, { state: 'reorged' }]);
  });

  test('nothing expires and no authorization is released while a block is recorded', async () => {
    await watch('only');
    await watcher.catchUp(chain.mine(8));
    const { ledger } = watcher;
    const { cursor } = (await ledger.progress()) as Progress;
    const lease = await leaseNumber(service);
    const transactionHash: Hex = `0x${'ee'.repeat(32)}`;
    // Confirmed in another block, so the nodes are asked for it.
    await insertTransfers(service, service.merchant, [{ transactionHash, state: 'confirmed' }]);
    const accounts = { token: chain.usdc, from: zeroAddress, to: zeroAddress } as const;
    const place = { transactionHash, logIndex: 0, blockNumber: cursor.number, blockHash: cursor.hash };
    const log = { ...accounts, ...place, amountUnits: 1n };
    const found = { log, blockTime: cursor.time, named: undefined, owners: [], mayBeRefund: false };
    const [asked, answer] = [Promise.withResolvers<void>(), Promise.withResolvers<[]>()];
    const recording = ledger.apply(lease, cursor, [found], undefined, () => {
      asked.resolve();
      return answer.promise;
    });
    await asked.promise;
    const done: string[] = [];
    const others = [
      ledger.expireSome(lease, 0).then(() => done.push('expiry')),
      ledger.releaseAuthorizations(lease, []).then(() => done.push('release')),
    ];
    // Time in which they would have run.
    await sleep(200);
    expect(done).toEqual([]);
    answer.resolve([]);
    await Promise.all([recording, ...others]);
    expect(done).toEqual(['expiry', 'release']);
  });

  test('nothing is changed under a lease that was lost', async () => {
    await watch('only');
    const intent = await createIntent();
    await pay(intent);
    await watcher.catchUp();
    const { ledger } = watcher;
    const { cursor } = (await ledger.progress()) as Progress;
    const [{ id } = { id: '' }] = await ledger.transfersIn(0, cursor.number);
    const read = () => service.query('select * from watched_chains, transfers, block_headers');
    const lost = await leaseNumber(service);
    await watcher.release();
    await createTestWatcher(service, { urls: [node.url] }).follow();
    const before = await read();
    const next = { ...cursor, number: cursor.number + 1 };
    for (const change of [
      () => ledger.apply(lost, next, [], cursor.hash, async () => []),
      () => ledger.confirmAll(lost, cursor.hash, [id]),
      () => ledger.revertTransfers(lost, [id]),
      () => ledger.revertTo(lost, cursor),
      () => ledger.expireSome(lost, 0),
      () => ledger.noteVerified(lost, cursor.number, cursor),
      () => ledger.trust(lost, cursor.number),
      () => ledger.forgetHeaders(lost, cursor.number),
      () => ledger.releaseAuthorizations(lost, []),
      () => ledger.keep(lost, { head: 0, finalized: 0 }),
    ]) {
      await expect(change()).rejects.toThrow(LeaseLost);
    }
    await ledger.release(lost);
    expect(await read()).toEqual(before);
  });

  test.each([
    ['another network in place of the one watched', 'Geth/v1.15.11', undefined],
    ['a local chain in place of a real network', 'anvil/v1.7.1', 'genesisHash'],
  ] as const)('%s is refused', async (_, clientVersion, real) => {
    await watch('only');
    const intent = await createIntent();
    await pay(intent);
    await watcher.catchUp();
    await watcher.release();
    const { mode, chain: name } = chain.network;
    const hash = real && chainNamed(mode, name)[real].slice(2);
    if (hash) await service.query(`update watched_chains set genesis_hash = decode($1, 'hex')`, [hash]);
    const another = await startChain({ genesisTimestamp: 1_700_000_000 });
    const wrong = await startLyingNode(another.url, { clientVersion });
    const next = createTestWatcher(service, { urls: [wrong.url] });
    await expect(next.follow()).rejects.toThrow(real ? 'set the RPC_URL' : 'check its address');
    expect(await statusOf(intent)).toBe('processing');
    await wrong.close();
    await another.stop();
  });

  test.each([
    ['returns nothing', { result: null }],
    ['returns an error', { error: { code: 4444, message: 'pruned history unavailable' } }],
  ])('a node that has pruned block 0 and hides its version is read: for block 0 it %s', async (_, answer) => {
    chain = await startChain();
    node = await startLyingNode(chain.url, { clientVersion: 'Geth/v1.15.11' });
    node.rewrite(({ method, params: [block] = [] }) => {
      if (method === 'web3_clientVersion') return { error: { code: -32601, message: 'not whitelisted' } };
      return method === 'eth_getBlockByNumber' && block === '0x0' ? answer : undefined;
    });
    watcher = createTestWatcher(service, { urls: [node.url], chainId: chain.network.chainId });
    await watcher.catchUp();
    const intent = await createIntent();
    await pay(intent);
    await watcher.catchUp();
    expect(await statusOf(intent)).toBe('processing');
  });
});
