// A node returns wrong data. No intent succeeds without a payment on the chain, and once the node is honest,
// no payment is missing.

import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { type Address, concatHex, type Hex, padHex } from 'viem';
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { bridgedUsdcAddresses } from '../src/contract/chains.ts';
import { transferWithAuthorization } from '../src/contract/eip-3009.ts';
import { answerLies, type Lie, transportLies } from './support/lies.ts';
import { type LyingNode, startLyingNode } from './support/lying-node.ts';
import {
  createMerchantCalls,
  createTestWatcher,
  endWatch,
  idBytes,
  type PayableIntent,
  sendPayment,
} from './support/settlement.ts';
import { insertTransfers } from './support/transfer-rows.ts';
import { useChain, useService } from './support/use-service.ts';

const service = await useService({ ROLES: 'api' });
const chain = await useChain();
let node: LyingNode;
let watcher: ReturnType<typeof createTestWatcher>;

const calls = createMerchantCalls(service);

beforeEach(async () => {
  node = await startLyingNode(chain.url);
  watcher = createTestWatcher(service, { urls: [node.url], timeoutMs: 800 });
  await watcher.catchUp();
});

afterEach(() => endWatch(service, { watcher, node }));

async function watchAnew(
  urls: readonly [string, ...string[]],
  options?: Omit<Parameters<typeof createTestWatcher>[1], 'urls'>,
): Promise<void> {
  await watcher.release();
  watcher = createTestWatcher(service, { urls, ...options });
  await watcher.catchUp();
}

let amount = 1_000_000;
/** Each intent has a different amount. */
const createIntent = () => calls.createIntent({ amount_units: ++amount });
const getIntent = (id: string) => calls.getIntent(id);

const send = (intent: PayableIntent, amountUnits: bigint, suffix?: Hex) =>
  sendPayment(chain, intent, amountUnits, suffix && { suffix });

/** The answers by which a node denies a payment in one reading. */
const denial = [
  { lie: 'empty logs', times: 1 },
  { lie: 'null receipts', times: 1 },
] as const;

/** The node reads an amount of one unit more, once in the logs and so often in receipts. */
const misread = (receipts: number) =>
  node.lieInTurn([
    { lie: 'log of another amount', times: 1 },
    { lie: 'receipt of another amount', times: receipts },
  ]);

/** Sends a payment, which the node replaces with an invented one of a unit more. */
async function sendMisread(intent: PayableIntent, amountUnits: bigint): Promise<void> {
  await send(intent, amountUnits);
  await chain.mine(1);
  misread(3);
  await watcher.catchUp();
  node.lie(undefined);
  await watcher.catchUp(chain.mine(6));
}

const lies: Lie[] = [...(Object.keys(answerLies) as Lie[]), ...transportLies];

// A rate limit in an error is treated like HTTP 429, and its pauses would take as long again.
describe.each(lies.filter((lie) => lie !== 'rate limit error'))('%s', (lie) => {
  test('no intent succeeds without a payment on the chain, and no payment is missed', async () => {
    const [paid, also, unpaid] = [await createIntent(), await createIntent(), await createIntent()];
    await send(paid, BigInt(paid.amount_units));
    await send(also, BigInt(also.amount_units));
    if (lie === 'other chain') {
      // A node is asked for its chain id after each failure.
      node.lie('cut connection', { times: 1 });
      await watcher.follow().catch(() => {});
    }
    node.lie(lie, {
      transfer: {
        token: paid.token_address,
        to: unpaid.expected_wallet,
        amountUnits: BigInt(unpaid.amount_units),
      },
    });
    const told = node.untilTold(lie);
    await chain.mine();
    await watcher.tryToFollow(2);
    await chain.mine(12);
    await watcher.tryToFollow(3);
    await told;
    expect((await getIntent(unpaid.id)).status).not.toBe('succeeded');

    node.lie(undefined);
    await watcher.tryToFollow(6);
    await watcher.catchUp();
    await watcher.readAllAgain();
    await chain.mine(12);
    await watcher.tryToFollow(2);
    await watcher.catchUp();
    for (const intent of [paid, also]) {
      const { payments, ...paid } = await getIntent(intent.id);
      expect(paid, lie).toMatchObject({
        status: 'succeeded',
        amount_received_units: intent.amount_units,
        // The invented copy stays in the list as reverted.
        payments_count: lie === 'log twice' ? 2 : 1,
      });
      const isThere = ({ status }: { status: string }) => status !== 'reorged';
      expect(payments.filter(isThere)).toMatchObject([{ status: 'confirmed' }]);
    }
    expect(await getIntent(unpaid.id)).toMatchObject({
      status: 'requires_payment',
      amount_received_units: 0,
    });
  });
});

test('payments that the only node denies are reverted once each was denied for long enough', async () => {
  const wallet_address = `0x${randomBytes(20).toString('hex')}`;
  const intent = await calls.createIntent({ amount_units: 1_000, wallet_address });
  for (let passes = 0; passes < 2; passes++) {
    await sendMisread(intent, 10n);
    // In the second pass, the first payment has been denied for longer.
    await expect(watcher.verify()).rejects.toThrow('asked again');
  }
  await watcher.verify();
  const { payments } = await getIntent(intent.id);
  const invented = payments.filter(({ amount_units }: { amount_units: number }) => amount_units === 11);
  expect(invented).toMatchObject([{ status: 'reorged' }, { status: 'reorged' }]);
});

test('a watcher whose first pass fails after it has taken the lease goes on', async () => {
  node.lie('cut connection', { times: 1, methods: ['web3_clientVersion'] });
  await expect(watchAnew([node.url])).rejects.toThrow('cannot be reached');
  await watcher.catchUp();
});

test('wrong answers alternating with honest ones, or with other wrong ones, revert nothing', async () => {
  const { number } = await chain.client.getBlock();
  const tellFrom = async (first: bigint) => {
    node.rewrite((_, { result }) => {
      const isWrong = BigInt(Object(result).number ?? 0) >= first;
      return isWrong ? { result: { ...Object(result), hash: `0x${'ab'.repeat(32)}` } } : undefined;
    });
    await expect(watcher.follow()).rejects.toThrow('asked again');
    node.rewrite(undefined);
  };
  for (const blocks of [1, 5, 1]) {
    await tellFrom(number);
    await watcher.catchUp(chain.mine(blocks));
  }
  for (const first of [number, number + 1n, number]) await tellFrom(first);
});

test('the reader does not move to a node on another fork', async () => {
  await watchAnew([node.url, chain.url], { nodeChoice: { failsMs: 1, probeEveryMs: 0 } });
  await send(await createIntent(), 1n);
  await watcher.catchUp(chain.mine(4));
  await chain.reorg(4);
  node.lie('cut connection');
  await watcher.tryToFollow(4);
  expect(watcher.log).not.toContainEqual(expect.objectContaining({ reason: 'failing' }));
});

test('confirmed payments stay confirmed if the node fails before the rest are', async () => {
  const [first, second] = [await createIntent(), await createIntent()];
  await send(first, BigInt(first.amount_units));
  await chain.mine(1);
  await send(second, BigInt(second.amount_units));
  await watcher.catchUp(chain.mine(1));
  await chain.mine(12);
  const methods = ['eth_getTransactionReceipt'];
  // The batch fails, so receipts are requested one by one.
  node.lie('malformed JSON', { times: 2, methods });
  const failing = node
    .next(({ method, lie }) => lie === undefined && methods.includes(method))
    .then(() => node.lie('rate limit', { methods }));
  await expect(watcher.catchUp()).rejects.toThrow('refused eth_getTransactionReceipt');
  await failing;
  expect((await getIntent(first.id)).status).toBe('succeeded');
  expect((await getIntent(second.id)).status).toBe('processing');

  node.lie(undefined);
  await watcher.catchUp();
  expect((await getIntent(second.id)).status).toBe('succeeded');
});

describe.each(['receipt without logs', 'receipt of another amount', 'null receipts'] as const)(
  '%s',
  (lie) => {
    test('nothing is confirmed', async () => {
      const intent = await createIntent();
      await send(intent, BigInt(intent.amount_units));
      await chain.mine(12);
      node.lie(lie);
      await watcher.tryToFollow(3);
      expect(await getIntent(intent.id)).toMatchObject({
        status: 'processing',
        payments: [{ status: 'pending' }],
      });
      node.lie(undefined);
      await watcher.catchUp();
      expect((await getIntent(intent.id)).status).toBe('succeeded');
    });

    test('a payment whose id needs a receipt waits for the receipt', async () => {
      const intent = await createIntent();
      const amountUnits = BigInt(intent.amount_units);
      await chain.mint(chain.multicall3Address, amountUnits);
      const suffix = idBytes(intent.id);
      await chain.multicall([chain.transferCall({ to: intent.expected_wallet, amountUnits, suffix })]);
      await chain.mine(12);
      node.lie(lie);
      await watcher.tryToFollow(3);
      expect(await getIntent(intent.id)).toMatchObject({ status: 'requires_payment', payments_count: 0 });
      node.lie(undefined);
      await watcher.catchUp();
      expect((await getIntent(intent.id)).status).toBe('succeeded');
    });
  },
);

test.each([
  ['before a merchant used it is not reported', '77', '5 minutes', '', []],
  ["before a merchant used it, for another's intent, is not reported", '79', '5 minutes', 'id', []],
  ['while a merchant used it is reported', '78', '0', '', ['transfer.unattributed']],
])('a transfer that came to a wallet %s', async (_, digits, since, names, events) => {
  const { address: from } = chain.accounts[0] as { address: Address };
  const wallet = `0x${digits.repeat(20)}` as const;
  await chain.mint(from, 5_000_000n);
  const other = createMerchantCalls(service, (await service.newMerchant()).keys.testnet.apiKey);
  const suffix = names ? idBytes((await other.createIntent({ wallet_address: wallet })).id) : '0x';
  await chain.transfer({ from, to: wallet, amountUnits: 5_000_000n, suffix });
  await watcher.catchUp(chain.mine(12));
  for (const units of [1_000, 2_000])
    await calls.createIntent({ amount_units: units, wallet_address: wallet });
  await service.query(`update payment_intents set created_at = now() + $1::interval`, [since]);
  await watcher.readAllAgain();
  const own = watcher.changes.filter(({ merchantId }) => merchantId === service.merchant.id);
  expect(own.map(({ event }) => event)).toEqual(events);
});

// Both receipts are requested in one batch, then each alone, unless one is known to be too large.
test.each([
  ['block not found', 3],
  ['receipt too large', 1],
  ['malformed JSON', 3],
] as const)('a receipt that a node does not return (%s) holds up no other payment', async (lie, times) => {
  const intents = [await createIntent(), await createIntent()];
  for (const intent of intents) {
    await send(intent, BigInt(intent.amount_units));
    await chain.mine(1);
  }
  await watcher.catchUp();
  await chain.mine(11);
  node.lie(lie, { times, methods: ['eth_getTransactionReceipt'] });
  const statuses = async () => Promise.all(intents.map(async ({ id }) => (await getIntent(id)).status));
  await watcher.catchUp();
  expect(await statuses()).toEqual(['processing', 'succeeded']);
  await watcher.catchUp();
  expect(await statuses()).toEqual(['succeeded', 'succeeded']);
});

test('a receipt that never arrives, a different one in each pass, holds up other payments for one pass only', async () => {
  await watcher.release();
  // Longer than a pass spends on confirmations.
  watcher = createTestWatcher(service, { urls: [node.url], timeoutMs: 5_100 });
  const ended = new AbortController();
  const never = once(ended.signal, 'abort');
  const silent = new Set<unknown>();
  node.rewrite(({ method, params: [hash] = [] }) =>
    method === 'eth_getTransactionReceipt' && silent.has(hash) ? never.then(() => undefined) : undefined,
  );
  const payTwo = async () => {
    const [honest, hostile] = [await createIntent(), await createIntent()];
    await send(honest, BigInt(honest.amount_units));
    await chain.mine(1);
    silent.add(await send(hostile, BigInt(hostile.amount_units)));
    await chain.mine(12);
    return honest;
  };
  const first = await payTwo();
  await watcher.follow();
  await payTwo();
  await watcher.follow();
  expect((await getIntent(first.id)).status).toBe('succeeded');
  ended.abort();
});

test('a payment whose receipt is too large for its node does not hold up the chain', async () => {
  const intent = await createIntent();
  node.lie('receipt too large');
  const suffix = concatHex([idBytes(intent.id), transferWithAuthorization]);
  await send(intent, BigInt(intent.amount_units), suffix);
  await watcher.catchUp(chain.mine(12));
  expect((await getIntent(intent.id)).status).toBe('processing');
  node.lie(undefined);
  await watcher.catchUp();
  expect((await getIntent(intent.id)).status).toBe('succeeded');
});

test.each(['calldata without id', 'other calldata'] as const)(
  '%s: an ambiguous payment and a refund are attributed by their ids later',
  async (lie) => {
    const [paid, other] = [await createIntent(), await calls.createIntent({ amount_units: amount })];
    await send(paid, BigInt(paid.amount_units));
    const payment_intent = (await createIntent()).id;
    await insertTransfers(service, service.merchant, [{ paymentIntent: payment_intent, state: 'confirmed' }]);
    const asked = { payment_intent, amount_units: 1_000, destination: chain.accounts[5].address };
    const refund = (await service.call('createRefund', asked)).json;
    const { to, data } = refund.transaction as { to: Address; data: Hex };
    await chain.send(paid.expected_wallet, { to, data });
    const refundNow = async () => (await service.call('getRefund', { id: refund.id })).json.status;
    await chain.mine(12);
    node.lie(lie);
    await watcher.catchUp();
    expect(await getIntent(paid.id)).toMatchObject({ status: 'requires_payment', payments_count: 0 });
    expect(await refundNow()).toBe('requires_transfer');
    node.lie(undefined);
    await watcher.catchUp();
    await watcher.readAllAgain();
    await watcher.catchUp();
    expect(await getIntent(paid.id)).toMatchObject({
      status: 'succeeded',
      amount_received_units: paid.amount_units,
      payments_count: 1,
    });
    expect(await getIntent(other.id)).toMatchObject({ status: 'requires_payment', payments_count: 0 });
    expect(await refundNow()).toBe('succeeded');
  },
);

test('verification reports a payment whose id names another intent than it was attributed to', async () => {
  const [named, paid] = [await createIntent(), await createIntent()];
  await send(named, BigInt(paid.amount_units));
  await chain.mine(12);
  node.lie('calldata without id');
  await watcher.catchUp();
  expect((await getIntent(paid.id)).payments_count).toBe(1);
  node.lie(undefined);
  watcher.log.length = 0;
  await watcher.readAllAgain();
  expect(watcher.log.filter(({ level }) => level === 'error')).toMatchObject([
    { payment_intent: paid.id, proven: named.id },
    { missed: 1 },
  ]);
});

test('a hidden payment accuses its node, however small and without an id', async () => {
  await watchAnew([node.url], { unattributedMinUnits: 500_000_000n });
  const wallets = { wallet_address: `0x${randomBytes(20).toString('hex')}` };
  const [hidden, seen] = [
    await calls.createIntent(wallets),
    await calls.createIntent({ ...wallets, amount_units: 7 }),
  ];
  const [{ address: from }] = chain.accounts;
  await chain.mint(from, 100_000_000n);
  await watcher.catchUp(chain.mine(1));
  for (const { expected_wallet: to, amount_units } of [hidden, seen])
    await chain.transfer({ from, to, amountUnits: BigInt(amount_units) });
  node.lie('half of the logs');
  await watcher.catchUp(chain.mine(12));
  expect([await getIntent(hidden.id), await getIntent(seen.id)]).toMatchObject([
    { payments_count: 0 },
    { status: 'succeeded' },
  ]);
  node.lie(undefined);
  await watcher.readAllAgain();
  expect(watcher.log).toContainEqual(expect.objectContaining({ level: 'error', missed: 1 }));
});

test('verification corrects an amount that was wrong in log and receipt', async () => {
  // Any amount sent to this wallet pays this intent.
  const intent = await calls.createIntent({ wallet_address: `0x${randomBytes(20).toString('hex')}` });
  await send(intent, BigInt(intent.amount_units));
  await chain.mine(12);
  misread(1);
  await watcher.tryToFollow(3);
  expect(node.isHonest()).toBe(true);
  await watcher.readAllAgain();
  await watcher.catchUp();
  expect(await getIntent(intent.id)).toMatchObject({
    status: 'succeeded',
    amount_received_units: intent.amount_units,
    payments: expect.arrayContaining([
      expect.objectContaining({ amount_units: 12_500_001, status: 'reorged' }),
      expect.objectContaining({ amount_units: 12_500_000, status: 'confirmed' }),
    ]),
  });
});

test('a log that a node returns twice in one answer counts once', async () => {
  const intent = await calls.createIntent({ amount_units: 2_000 });
  await send(intent, 1_000n);
  node.rewrite(({ method }, { result }) =>
    method === 'eth_getLogs' ? { result: (result as object[]).flatMap((log) => [log, log]) } : undefined,
  );
  await chain.mine(1);
  await watcher.tryToFollow(2);
  node.rewrite(undefined);
  await watcher.catchUp(chain.mine(12));
  expect(await getIntent(intent.id)).toMatchObject({ status: 'requires_payment', payments_count: 1 });
});

test('a payment whose transaction a node lacks is not attributed by its amount', async () => {
  const [named, other] = [await createIntent(), await createIntent()];
  await send(named, BigInt(other.amount_units));
  await chain.mine(12);
  node.lie('null transactions');
  await watcher.tryToFollow(1);
  node.lie(undefined);
  await watcher.catchUp();
  expect((await getIntent(named.id)).status).toBe('succeeded');
});

test('a payment denied once is not reverted', async () => {
  const intent = await createIntent();
  await send(intent, BigInt(intent.amount_units));
  await watcher.catchUp(chain.mine(12));
  node.lieInTurn(denial);
  await expect(watcher.verify()).rejects.toThrow('asked again');
  expect(node.isHonest()).toBe(true);
  await watcher.readAllAgain();
  await watcher.catchUp();
  const paid = await getIntent(intent.id);
  expect(paid).toMatchObject({ status: 'succeeded', amount_received_units: intent.amount_units });
  expect(paid.labels).toBeUndefined();
});

/** From now on, the node answers as Reth and Erigon do for blocks whose receipts they have pruned. */
const prune = () =>
  node.rewrite(({ method }) => {
    if (method === 'eth_getLogs') return { result: [] };
    return method === 'eth_getTransactionReceipt' ? { result: null } : undefined;
  });

/** From now on, a node denies the payment of this transaction. */
const denyAt = (denier: LyingNode, hash: Hex) =>
  denier.rewrite(({ method, params: [asked] = [] }) => {
    if (method === 'eth_getLogs') return { result: [] };
    return asked === hash ? { result: null } : undefined;
  });

describe('a node that has pruned the receipts', () => {
  /** Two payments in one block: a block with a single transaction is not checked for its receipt. */
  async function payTwo(): Promise<PayableIntent[]> {
    const intents = [await createIntent(), await createIntent()];
    for (const intent of intents) await send(intent, BigInt(intent.amount_units));
    await chain.mine(1);
    return intents;
  }

  async function succeed(intents: readonly PayableIntent[]): Promise<void> {
    node.rewrite(undefined);
    await watcher.catchUp();
    for (const { id } of intents) expect((await getIntent(id)).status).toBe('succeeded');
    expect(watcher.changes.map(({ event }) => event)).not.toContain('payment_intent.reorged');
  }

  test('of blocks not yet read is refused, and no payment is missed', async () => {
    const intents = await payTwo();
    await chain.mine(2_100);
    prune();
    await expect(watcher.catchUp()).rejects.toThrow(/no longer has the receipts of block \d+: add a node/);
    await succeed(intents);
  });

  test('is not asked for old blocks again, if there is a third', async () => {
    const third = await startLyingNode(chain.url);
    await watchAnew([chain.url, node.url, third.url], { nodeChoice: { probeEveryMs: 0 } });
    const intents = await payTwo();
    await chain.mine(2_100);
    prune();
    await watcher.catchUp();
    await expect(watcher.verify()).rejects.toThrow(/no longer has the receipts of block/);
    // The third node confirms once it has reported its newest block.
    const verified = async () => {
      await watcher.follow();
      return watcher.readAllAgain().catch(({ message }) => message);
    };
    await expect.poll(verified, { interval: 20 }).toBeUndefined();
    await watcher.catchUp();
    const { verifiedNumber = 0, cursor } = (await watcher.ledger.progress()) ?? {};
    expect(verifiedNumber).toBeGreaterThan((cursor?.number ?? 0) - 2_000);
    for (const { id } of intents) expect((await getIntent(id)).status).toBe('succeeded');
    await third.close();
  });

  test('of blocks already read denies no payment', async () => {
    const intents = await payTwo();
    await watcher.catchUp(chain.mine(12));
    prune();
    for (let i = 0; i < 2; i++) await expect(watcher.verify()).rejects.toThrow('no longer has the receipts');
    await succeed(intents);
  });

  test('of the older of two blocks denies no payment there, although it denies one in the newer', async () => {
    const intents = await payTwo();
    const { transactions: pruned } = await chain.client.getBlock();
    intents.push(...(await payTwo()));
    const [, denied] = (await chain.client.getBlock()).transactions;
    await watcher.catchUp(chain.mine(12));
    node.rewrite(({ method, params: [asked] = [] }) => {
      if (method === 'eth_getLogs') return { result: [] };
      return [...pruned, denied].includes(asked as Hex) ? { result: null } : undefined;
    });
    for (let i = 0; i < 2; i++) await expect(watcher.verify()).rejects.toThrow('no longer has the receipts');
    await succeed(intents);
  });
});

describe('after a node has denied a payment twice and is honest again:', () => {
  async function payment(): Promise<PayableIntent & { amount_units: number }> {
    const intent = await createIntent();
    await send(intent, BigInt(intent.amount_units));
    await watcher.catchUp(chain.mine(6));
    node.lieInTurn([...denial, ...denial]);
    await expect(watcher.verify()).rejects.toThrow('asked again');
    return intent;
  }

  async function succeeds(intent: PayableIntent): Promise<void> {
    node.lie(undefined);
    await watcher.readAllAgain();
    await watcher.catchUp(chain.mine(10));
    expect(await getIntent(intent.id)).toMatchObject({
      status: 'succeeded',
      payments: [expect.objectContaining({ status: 'confirmed' })],
    });
  }

  test('two denials at the same time revert nothing', async () => {
    await watchAnew([node.url], { deniedAgainMs: 60_000 });
    const intent = await payment();
    await expect(watcher.verify()).rejects.toThrow('asked again');
    expect(node.isHonest()).toBe(true);
    await succeeds(intent);
    expect(watcher.changes.map(({ event }) => event)).not.toContain('payment_intent.reorged');
  });

  test('it is reverted if it is denied again a minute later, and not before', async () => {
    const now = performance.now.bind(performance);
    let laterMs = 0;
    const clock = vi.spyOn(performance, 'now').mockImplementation(() => now() + laterMs);
    onTestFinished(() => clock.mockRestore());
    await watchAnew([node.url], { deniedAgainMs: 'usual' });
    const intent = await payment();
    // The test itself takes less than the rest of the minute.
    laterMs = 45_000;
    await expect(watcher.verify()).rejects.toThrow('asked again');
    node.lieInTurn(denial);
    laterMs = 60_000;
    await watcher.verify();
    expect((await getIntent(intent.id)).payments[0].status).toBe('reorged');
  });

  test('a reverted payment returns at the next verification', async () => {
    const intent = await payment();
    await watcher.verify();
    expect(node.isHonest()).toBe(true);
    expect((await getIntent(intent.id)).payments[0].status).toBe('reorged');
    await succeeds(intent);
  });

  test('a reverted payment returns even if it was missing at the next verification', async () => {
    const intent = await payment();
    await watcher.verify();
    node.lie('empty logs', { times: 1 });
    await watcher.verify();
    expect(node.isHonest()).toBe(true);
    expect(await getIntent(intent.id)).toMatchObject({ status: 'requires_payment' });
    await service.query("update transfers set created_at = now() - interval '23 hours'");
    await succeeds(intent);
  });

  test('a payment that a node lacks because it is behind is not denied', async () => {
    const intent = await createIntent();
    await send(intent, BigInt(intent.amount_units));
    await watcher.catchUp(chain.mine(6));
    for (let i = 0; i < 2; i++) {
      // Its logs and receipts end before the payment, while another of its machines has the newest block.
      node.lieInTurn([denial[0], { lie: 'null blocks', times: 1 }]);
      await expect(watcher.verify()).rejects.toThrow(/does not have block \d+/);
      expect(node.isHonest()).toBe(true);
    }
    await succeeds(intent);
    expect(watcher.changes.map(({ event }) => event)).not.toContain('payment_intent.reorged');
  });
});

test('a payment that a third node has is not reverted', async () => {
  await watchAnew([node.url, node.url, chain.url]);
  const intent = await createIntent();
  const hash = await send(intent, BigInt(intent.amount_units));
  await watcher.catchUp(chain.mine(6));
  denyAt(node, hash);
  await watcher.tryToFollow(3);
  expect(watcher.changes.map(({ event }) => event)).toEqual(['payment_intent.processing']);
});

test('a payment is not reverted while the reader lacks receipts, even if the confirming node denies it', async () => {
  const denier = await startLyingNode(chain.url);
  await watchAnew([node.url, denier.url]);
  const [intent, other] = [await createIntent(), await createIntent()];
  await send(other, BigInt(other.amount_units));
  const hash = await send(intent, BigInt(intent.amount_units));
  await watcher.catchUp(chain.mine(6));
  denyAt(denier, hash);
  prune();
  for (let i = 0; i < 3; i++) await expect(watcher.verify()).rejects.toThrow('no longer has the receipts');
  expect(watcher.changes.map(({ event }) => event)).not.toContain('payment_intent.reorged');
  await denier.close();
});

test('blocks that the node has lost are not taken for reorged ones', async () => {
  const intent = await createIntent();
  await send(intent, BigInt(intent.amount_units));
  await watcher.catchUp(chain.mine(2));
  // With a transaction, the block differs from its replacement, whatever their times.
  await chain.mint(chain.accounts[0].address, 1n);
  await watcher.catchUp(chain.mine(1));
  const { number } = await chain.client.getBlock();
  await chain.reorg(1);
  await chain.mine(1);
  node.rewrite(({ method, params: [at] = [] }) => {
    const below = Number(number) - Number(at);
    return method === 'eth_getBlockByNumber' && (below === 1 || below === 2) ? { result: null } : undefined;
  });
  for (let i = 0; i < 3; i++) await expect(watcher.follow()).rejects.toThrow(/no longer has block \d+$/);
  node.rewrite(undefined);
  await expect(watcher.catchUp()).rejects.toThrow('asked again');
  await watcher.catchUp();
  expect(watcher.changes.map(({ event }) => event)).toEqual(['payment_intent.processing']);
});

test('denials of a payment in two different blocks do not add up', async () => {
  const intent = await createIntent();
  const { address: from } = chain.accounts[0] as { address: Address };
  const amountUnits = BigInt(intent.amount_units);
  await chain.mint(from, amountUnits);
  await chain.mine(1);
  const suffix = idBytes(intent.id);
  const hash = await chain.transfer({ from, to: intent.expected_wallet, amountUnits, suffix });
  await watcher.catchUp(chain.mine(6));
  node.lieInTurn(denial);
  await expect(watcher.verify()).rejects.toThrow('asked again');
  await chain.reorg(6, [{ hash, index: 1 }]);
  await chain.mine(3);
  await expect(watcher.catchUp()).rejects.toThrow('asked again');
  await watcher.catchUp();
  node.lieInTurn(denial);
  await expect(watcher.verify()).rejects.toThrow('asked again');
  expect(node.isHonest()).toBe(true);
  await watcher.catchUp(chain.mine(10));
  await watcher.readAllAgain();
  expect(await getIntent(intent.id)).toMatchObject({
    status: 'succeeded',
    payments: [expect.objectContaining({ transaction_hash: hash, status: 'confirmed' })],
  });
});

test.each(['only', 'second'] as const)(
  'blocks that replace reorged ones are read before they are verified, if the %s node hides logs',
  async (place) => {
    await watchAnew(place === 'only' ? [node.url] : [chain.url, node.url]);
    await watcher.catchUp(chain.mine(2));
    const { cursor } = (await watcher.ledger.progress()) ?? {};
    const [one, other] = [await createIntent(), await createIntent()];
    await chain.client.request({ method: 'anvil_rollback', params: [1] } as never);
    await send(one, BigInt(one.amount_units));
    await send(other, BigInt(other.amount_units));
    // The new block is final before it is read.
    await chain.mine(8);
    await expect(watcher.follow()).rejects.toThrow('asked again');
    node.lie('half of the logs', { times: 1 });
    await expect(watcher.verify()).rejects.toThrow(/has another block \d+ than the one read before/);
    expect(node.isHonest()).toBe(true);
    await watcher.catchUp();
    await watcher.readAllAgain();
    await watcher.catchUp(chain.mine(10));
    for (const { id } of [one, other]) {
      expect(await getIntent(id)).toMatchObject({
        status: 'succeeded',
        payments: [expect.objectContaining({ block_number: cursor?.number })],
      });
    }
  },
);

describe('with two nodes,', () => {
  beforeEach(async () => {
    await watchAnew([chain.url, node.url]);
  });

  test('the second one cannot revert a payment that the first one has', async () => {
    const intent = await createIntent();
    await send(intent, BigInt(intent.amount_units));
    await watcher.catchUp(chain.mine(6));
    // Like a node that lacks the logs and receipts of old blocks.
    node.lieInTurn([...denial, ...denial]);
    await watcher.verify();
    await chain.mine(1);
    await watcher.follow();
    await watcher.verify().catch(() => {});
    node.lie(undefined);
    await watcher.catchUp(chain.mine(10));
    await watcher.readAllAgain();
    expect(await getIntent(intent.id)).toMatchObject({
      status: 'succeeded',
      amount_received_units: intent.amount_units,
      payments: [expect.objectContaining({ status: 'confirmed' })],
    });
    expect(watcher.changes.map(({ event }) => event)).toEqual([
      'payment_intent.processing',
      'payment_intent.succeeded',
    ]);
  });

  test('a copy of a payment that the first one invents in place of an equal payment is reverted', async () => {
    await watchAnew([node.url, chain.url]);
    const intent = await calls.createIntent({ amount_units: 3_702_300 });
    const part = intent.amount_units / 3;
    const { address: from } = chain.accounts[0] as { address: Address };
    await chain.mint(from, BigInt(2 * part));
    await watcher.catchUp(chain.mine());
    const payment = {
      from,
      to: intent.expected_wallet,
      amountUnits: BigInt(part),
      suffix: idBytes(intent.id),
    };
    await chain.transfer(payment);
    await chain.transfer(payment);
    node.lie('log twice', { times: 1 });
    await watcher.catchUp(chain.mine(6));
    expect((await getIntent(intent.id)).payments_count).toBe(3);
    await watcher.catchUp(chain.mine(12));
    await watcher.tryToFollow(3);
    await watcher.catchUp();
    expect(await getIntent(intent.id)).toMatchObject({
      status: 'requires_payment',
      amount_received_units: 2 * part,
    });
  });

  test.each(['first', 'second'] as const)(
    'a payment that the %s one shows twice in its transaction counts once',
    async (place) => {
      if (place === 'first') {
        await watchAnew([node.url, chain.url]);
      }
      const intent = await calls.createIntent({ amount_units: 1_234_500 });
      // A copy of it would complete the amount.
      await send(intent, BigInt(intent.amount_units / 2));
      await chain.mine(6);
      if (place === 'first') node.lie('log twice', { times: 7 });
      await watcher.catchUp();
      if (place === 'second') node.lie('log twice', { times: 1 });
      await watcher.verify().catch(() => {});
      node.lie(undefined);
      await watcher.catchUp(chain.mine(12));
      const { payments_count } = await getIntent(intent.id);
      expect(payments_count).toBe(2);
      await watcher.tryToFollow(3);
      await watcher.catchUp();
      expect(await getIntent(intent.id)).toMatchObject({
        status: 'requires_payment',
        amount_received_units: intent.amount_units / 2,
      });
      expect(watcher.changes.map(({ event }) => event)).not.toContain('payment_intent.succeeded');
    },
  );

  test('a payment that the second one invents in a doubtful block is not confirmed', async () => {
    const first = await startLyingNode(chain.url);
    await watchAnew([first.url, node.url]);
    const intent = await createIntent();
    // One unit too little.
    await send(intent, BigInt(intent.amount_units - 1));
    await chain.mine(1);
    first.lie('empty logs');
    await watcher.follow();
    first.lie(undefined);
    misread(3);
    await watcher.verify();
    expect(await getIntent(intent.id)).toMatchObject({ status: 'processing' });
    await watcher.catchUp(chain.mine(10));
    expect(await getIntent(intent.id)).toMatchObject({ status: 'processing' });
    node.lie(undefined);
    await watcher.tryToFollow(3);
    await watcher.catchUp();
    expect(await getIntent(intent.id)).toMatchObject({
      status: 'requires_payment',
      amount_received_units: intent.amount_units - 1,
    });
    await first.close();
  });

  test('a doubtful block that the second one does not serve does not stop verification', async () => {
    const first = await startLyingNode(chain.url);
    await watchAnew([first.url, node.url]);
    await send(await createIntent(), 1n);
    await chain.mine(1);
    first.lie('empty logs');
    await watcher.follow();
    first.lie(undefined);
    node.rewrite(({ method, params: [at] = [] }) => {
      const { fromBlock, toBlock } = Object(at) as Record<string, string>;
      const isOfOneBlock = method === 'eth_getLogs' && fromBlock === toBlock;
      return isOfOneBlock ? { error: { code: -32000, message: 'pruned' } } : undefined;
    });
    await watcher.catchUp(chain.mine(12));
    await expect(watcher.verify()).rejects.toThrow('pruned');
    const { cursor, verifiedNumber = 0 } = (await watcher.ledger.progress()) ?? {};
    expect(verifiedNumber).toBeGreaterThan((cursor?.number ?? 0) - 12);
    await first.close();
  });

  test('a payment that the second one hid while it was the reader is found', async () => {
    await watchAnew([node.url, chain.url]);
    const wallet_address: Address = `0x${randomBytes(20).toString('hex')}`;
    const intent = await calls.createIntent({ amount_units: 100, wallet_address });
    const isHidden = ({ topics }: { topics: Hex[] }) => topics[2] === padHex(wallet_address, { size: 32 });
    node.rewrite(({ method }, { result }) =>
      method === 'eth_getLogs'
        ? { result: (result as { topics: Hex[] }[]).filter((log) => !isHidden(log)) }
        : undefined,
    );
    await send(intent, 100n);
    await watcher.catchUp(chain.mine(1));
    await watchAnew([chain.url, node.url]);
    await watcher.catchUp(chain.mine(12));
    expect((await getIntent(intent.id)).status).toBe('requires_payment');
    await watcher.readAllAgain();
    expect((await getIntent(intent.id)).status).toBe('processing');
  });

  test('a payment that the first one replaces with an invented one is found before that is reverted', async () => {
    await watchAnew([node.url, chain.url]);
    const wallet_address = `0x${randomBytes(20).toString('hex')}`;
    const intent = await calls.createIntent({ amount_units: 100, wallet_address });
    await sendMisread(intent, BigInt(intent.amount_units));
    const amountsOf = async () =>
      (await getIntent(intent.id)).payments.map(({ amount_units }: { amount_units: number }) => amount_units);
    expect(await amountsOf()).toEqual([intent.amount_units + 1]);
    await expect(watcher.verify()).rejects.toThrow('asked again');
    expect(await amountsOf()).toContain(intent.amount_units);
  });

  test.each(['token', 'sender', 'recipient'])(
    'a %s that only the first one reports pays nothing',
    async (lie) => {
      await watchAnew([node.url, chain.url]);
      const [from, other] = [chain.accounts[0].address, chain.accounts[1].address];
      const to: Address = `0x${randomBytes(20).toString('hex')}`;
      const { id } = await calls.createIntent({ amount_units: 100, wallet_address: to });
      const token = lie === 'token' ? bridgedUsdcAddresses.usdbC : chain.usdc;
      await chain.mint(from, 100n, token);
      await watcher.catchUp(chain.mine());
      await chain.transfer({ from, to: lie === 'recipient' ? other : to, amountUnits: 100n, token });
      const told = padHex(lie === 'sender' ? other : to, { size: 32 });
      const changed = (logs: { topics: Hex[] }[]) =>
        logs.map(({ topics, ...log }) => ({
          ...{ ...log, address: chain.usdc },
          topics: topics.with(lie === 'sender' ? 1 : 2, told),
        }));
      node.rewrite(({ method }, { result }) => {
        const { logs } = Object(result);
        if (method === 'eth_getLogs') return { result: changed(result as { topics: Hex[] }[]) };
        return logs && { result: { ...Object(result), logs: changed(logs) } };
      });
      await watcher.catchUp(chain.mine(13));
      expect(await getIntent(id)).toMatchObject({ status: 'processing', payments: [{ status: 'pending' }] });
    },
  );

  test('the second one on another fork neither adds nor reverts', async () => {
    const intent = await createIntent();
    await send(intent, BigInt(intent.amount_units));
    await watcher.catchUp(chain.mine(12));
    node.lie('another fork');
    for (let i = 0; i < 2; i++) {
      await expect(watcher.verify()).rejects.toThrow(/has another block \d+ than/);
    }
    node.lie(undefined);
    await watcher.readAllAgain();
    const paid = await getIntent(intent.id);
    expect(paid).toMatchObject({ status: 'succeeded', payments_count: 1 });
    expect(paid.labels).toBeUndefined();
    expect(watcher.changes.map(({ event }) => event)).not.toContain('payment_intent.reorged');
  });

  test.each([
    ['', 1],
    [', and would confirm it', 3],
  ])('a payment that the second one invents during verification%s is reverted', async (_, times) => {
    const wallet = `0x${randomBytes(20).toString('hex')}`;
    const intent = await calls.createIntent({ amount_units: 100, wallet_address: wallet });
    await send(intent, BigInt(intent.amount_units));
    await watcher.catchUp(chain.mine(6));
    misread(times);
    await watcher.verify();
    expect((await getIntent(intent.id)).payments_count).toBe(2);

    await watcher.catchUp(chain.mine(10));
    expect(node.isHonest()).toBe(true);
    await watcher.catchUp();
    await expect(watcher.verify()).rejects.toThrow('asked again');
    await watcher.readAllAgain();
    const paid = await getIntent(intent.id);
    expect(paid).toMatchObject({ status: 'succeeded', amount_received_units: intent.amount_units });
    expect(paid.payments.map(({ status }: { status: string }) => status).sort()).toEqual([
      'confirmed',
      'reorged',
    ]);
    expect(paid.labels).toBeUndefined();
  });
});
