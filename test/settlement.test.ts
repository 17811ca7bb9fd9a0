// From the transfer on the chain to the intent, its payments and its events.

import { randomBytes } from 'node:crypto';
import { setTimeout } from 'node:timers/promises';
import type { Address, Hex } from 'viem';
import { afterEach, beforeEach, expect, onTestFinished, test } from 'vitest';
import { bridgedUsdcAddresses } from '../src/contract/chains.ts';
import { formatIdentifier, parseIdentifier } from '../src/database/identifiers.ts';
import { sessionsWaiting } from './support/blocker.ts';
import { startChain, type TestChain } from './support/chain.ts';
import { eventsOf } from './support/event-rows.ts';
import { insertIntents } from './support/intent-rows.ts';
import { type NodeRequest, startLyingNode } from './support/lying-node.ts';
import { openClient } from './support/open-client.ts';
import {
  createMerchantCalls,
  createTestWatcher,
  endWatch,
  idBytes,
  type PayableIntent,
  sendPayment,
} from './support/settlement.ts';
import { insertTransfers, insertWatchedChain } from './support/transfer-rows.ts';
import { useChain, useService } from './support/use-service.ts';

const service = await useService({ ROLES: 'api' });
const chain = await useChain();
let watcher: ReturnType<typeof createTestWatcher>;

const calls = createMerchantCalls(service);

/** Another chain with blocks of the same numbers, which nothing here may change. */
const elsewhere = () =>
  service.query(
    `select lease_number, cursor_number, second_number, t.state, h.number from watched_chains c
       join transfers t using (chain_id) join block_headers h using (chain_id) where c.chain = 'polygon'`,
  );

beforeEach(async () => {
  watcher = createTestWatcher(service, { urls: [chain.url] });
  await watcher.catchUp();
  await insertWatchedChain(service, { chain: 'polygon' });
  await service.query(
    `insert into block_headers (chain_id, number, hash, time)
     select chain_id, cursor_number, cursor_hash, '2026-01-01' from watched_chains where chain = 'polygon'`,
  );
  const blockNumber = Number(await chain.client.getBlockNumber()) + 1;
  await insertTransfers(service, service.merchant, [{ chain: 'polygon', blockNumber }]);
});

afterEach(async () => {
  const after = await elsewhere();
  await endWatch(service, { watcher });
  const numbers = { lease_number: '0', cursor_number: '21450112', second_number: '0', number: '21450112' };
  expect(after).toEqual([{ ...numbers, state: 'pending' }]);
});

async function eventTypesOf(id: string) {
  const rows = await eventsOf(service, id);
  expect(rows.map(({ sequence }) => sequence)).toEqual(rows.map((_, i) => i + 1));
  return rows.map(({ type }) => type.replace('payment_intent.', ''));
}

const isRangeOfLogs = ({ method, params }: NodeRequest) =>
  method === 'eth_getLogs' && 'fromBlock' in (params[0] as object);

type Sent = [intent: PayableIntent, amountUnits: bigint, options?: { token?: Address; suffix?: Hex }];
const send = (...sent: Sent) => sendPayment(chain, ...sent);

/** Sends a payment, mines a block, and lets the watcher read it. */
async function pay(...sent: Sent) {
  const hash = await send(...sent);
  await mine();
  return hash;
}

async function mine(...args: Parameters<TestChain['mine']>) {
  await watcher.catchUp(chain.mine(...args));
}

/** Sends a payment that can return after a reorganisation: its money was there before. */
async function sendOldMoney({ id, expected_wallet: to }: PayableIntent) {
  const { address: from } = chain.accounts[0] as { address: Address };
  await chain.mint(from, 12_500_000n);
  await mine();
  return chain.transfer({ from, to, amountUnits: 12_500_000n, suffix: idBytes(id) });
}

/** The time in whole seconds that is so many minutes after the chain's newest block. */
const later = async (minutes: number) => Number((await chain.client.getBlock()).timestamp) + minutes * 60;

test('an intent is paid: processing, then succeeded with ten confirmations', async () => {
  const intent = await calls.createIntent();
  const hash = await pay(intent, 12_500_000n);
  const processing = await calls.getIntent(intent.id);
  expect(processing).toMatchObject({
    status: 'processing',
    amount_received_units: 12_500_000,
    payments_count: 1,
    payments: [
      {
        transaction_hash: hash,
        amount_units: 12_500_000,
        to_address: intent.expected_wallet,
        token_address: intent.token_address,
        confirmations: 1,
        status: 'pending',
      },
    ],
  });
  await mine(8);
  expect(await calls.getIntent(intent.id)).toMatchObject({
    status: 'processing',
    payments: [{ confirmations: 9 }],
  });
  await mine(1);
  const succeeded = await calls.getIntent(intent.id);
  expect(succeeded).toMatchObject({
    status: 'succeeded',
    payments: [{ confirmations: 10, status: 'confirmed' }],
  });
  expect(succeeded.succeeded_at).toBeDefined();
  expect(await eventTypesOf(intent.id)).toEqual(['processing', 'succeeded']);
});

test('partial payments add up, and an excess is reported as overpaid', async () => {
  const intent = await calls.createIntent();
  await pay(intent, 5_000_000n);
  expect(await calls.getIntent(intent.id)).toMatchObject({
    status: 'requires_payment',
    amount_received_units: 5_000_000,
    payments_count: 1,
  });
  await send(intent, 4_000_000n);
  await send(intent, 4_000_000n);
  await mine();
  const processing = await calls.getIntent(intent.id);
  expect(processing).toMatchObject({
    status: 'processing',
    amount_received_units: 13_000_000,
    payments_count: 3,
    labels: ['overpaid'],
  });
  expect(processing.payments.map(({ amount_units }: { amount_units: number }) => amount_units)).toEqual([
    5_000_000, 4_000_000, 4_000_000,
  ]);
  await mine(9);
  expect(await calls.getIntent(intent.id)).toMatchObject({ status: 'succeeded', labels: ['overpaid'] });
  await pay(intent, 1_000_000n);
  expect(await calls.getIntent(intent.id)).toMatchObject({
    status: 'succeeded',
    amount_received_units: 14_000_000,
  });
  expect(await eventTypesOf(intent.id)).toEqual([
    'partially_paid',
    'processing',
    'overpaid',
    'succeeded',
    'overpaid',
  ]);
});

test('many payments in one block cause one event', async () => {
  const intent = await calls.createIntent();
  for (let i = 0; i < 5; i++) await send(intent, 1n);
  await mine();
  expect(await calls.getIntent(intent.id)).toMatchObject({ amount_received_units: 5, payments_count: 5 });
  expect(await eventTypesOf(intent.id)).toEqual(['partially_paid']);
});

test('an intent expires ten blocks after its time, by the clock of the chain; a late payment is recorded', async () => {
  const intent = await calls.createIntent({ expires_in_minutes: 5 });
  await pay(intent, 1_000_000n);
  await mine(1, { timestamp: await later(6) });
  await mine(8);
  expect((await calls.getIntent(intent.id)).status).toBe('requires_payment');
  await mine(1);
  expect(await calls.getIntent(intent.id)).toMatchObject({ status: 'expired', labels: ['underpaid'] });
  await pay(intent, 11_500_000n);
  expect(await calls.getIntent(intent.id)).toMatchObject({
    status: 'expired',
    amount_received_units: 1_000_000,
    payments_count: 2,
    labels: ['underpaid', 'late'],
    payments: [{}, { labels: ['late'] }],
  });
  expect(await eventTypesOf(intent.id)).toEqual(['partially_paid', 'expired', 'late_payment']);
});

test('a failing expiry does not hold up confirmations, and its lag is reported', async () => {
  await watcher.release();
  const expired: number[] = [];
  const observer = { expiry: (found: { expired: number }) => void expired.push(found.expired) };
  watcher = createTestWatcher(service, { urls: [chain.url], observer });
  await watcher.catchUp();
  const [paid, unpaid] = [
    await calls.createIntent({ expires_in_minutes: 5 }),
    await calls.createIntent({ expires_in_minutes: 5 }),
  ];
  await service.query(
    `alter table payment_intents add constraint broken check (status <> 'expired') not valid`,
  );
  try {
    await send(paid, 12_500_000n);
    await chain.mine();
    await chain.mine(30, { timestamp: await later(6), timestampStep: 1 });
    expired.length = 0;
    await expect(watcher.catchUp()).rejects.toThrow('broken');
    expect((await calls.getIntent(paid.id)).status).toBe('succeeded');
    expect(expired).toEqual([0]);
  } finally {
    await service.query('alter table payment_intents drop constraint broken');
  }
  await watcher.catchUp();
  expect((await calls.getIntent(unpaid.id)).status).toBe('expired');
  expect(expired).toContain(1);
});

test('a payment made in time counts even if it is read after the deadline', async () => {
  const intent = await calls.createIntent({ expires_in_minutes: 5 });
  await send(intent, 12_500_000n);
  await chain.mine();
  await mine(30, { timestamp: await later(6) });
  expect(await calls.getIntent(intent.id)).toMatchObject({
    status: 'succeeded',
    amount_received_units: 12_500_000,
  });
  expect(await eventTypesOf(intent.id)).toEqual(['processing', 'succeeded']);
});

test('nothing expires while the chain has no new blocks', async () => {
  const intent = await calls.createIntent();
  await service.query(
    `update payment_intents set created_at = created_at - interval '2 hours', expires_at = expires_at - interval '2 hours'
                        where id = $1`,
    [parseIdentifier('pi', intent.id)],
  );
  await watcher.catchUp();
  await service.query('select 1');
  expect((await calls.getIntent(intent.id)).status).toBe('requires_payment');
});

test('a payment of a canceled intent is recorded', async () => {
  const intent = await calls.createIntent();
  await calls.cancelIntent(intent.id);
  await pay(intent, 12_500_000n);
  expect(await calls.getIntent(intent.id)).toMatchObject({
    status: 'canceled',
    amount_received_units: 0,
    payments_count: 1,
    labels: ['after_cancel'],
    payments: [{ labels: ['after_cancel'] }],
  });
  expect(await eventTypesOf(intent.id)).toEqual(['canceled', 'late_payment']);
});

test('a bridged token does not count', async () => {
  const intent = await calls.createIntent();
  await pay(intent, 12_500_000n, { token: bridgedUsdcAddresses.usdcE });
  expect(await calls.getIntent(intent.id)).toMatchObject({
    status: 'requires_payment',
    amount_received_units: 0,
    payments_count: 1,
    labels: ['wrong_token'],
    payments: [{ token_address: bridgedUsdcAddresses.usdcE, labels: ['wrong_token'] }],
  });
  expect(await eventTypesOf(intent.id)).toEqual(['wrong_token']);
});

test('a payment of an intent that only a newer release can read waits for that release', async () => {
  const intent = await calls.createIntent();
  await service.query(`alter type payment_lane add value 'newer'`);
  const lane = (word: string) => service.query('update payment_intents set lane = $1', [word]);
  await lane('newer');
  await send(intent, intent.amount_units);
  await chain.mine();
  await expect(watcher.follow()).rejects.toThrow('newer than this process');
  await lane(intent.lane);
  await createTestWatcher(service, { urls: [chain.url] }).catchUp();
  expect(await calls.getIntent(intent.id)).toMatchObject({ status: 'processing' });
});

test('a reorged payment is reverted, and counted again when it returns', async () => {
  const wallet_address = `0x${randomBytes(20).toString('hex')}`;
  const { keys } = await service.newMerchant();
  const calls = createMerchantCalls(service, keys.testnet.apiKey);
  const intent = await calls.createIntent({ wallet_address });
  await mine(1);
  const hash = await sendOldMoney(intent);
  await mine(2);
  const before = await calls.getIntent(intent.id);
  expect(before.status).toBe('processing');
  // Another merchant, with a lower id, now has the wallet, too.
  await createMerchantCalls(service).createIntent({ wallet_address, amount_units: 1 });
  await chain.reorg(2, [{ hash, index: 1 }]);
  await chain.mine();
  // A single answer reverts nothing.
  await expect(watcher.catchUp()).rejects.toThrow('asked again');
  expect((await calls.getIntent(intent.id)).status).toBe('processing');
  await watcher.catchUp();
  const after = await calls.getIntent(intent.id);
  expect(after).toMatchObject({ status: 'processing', payments_count: 1, payments: [{ status: 'pending' }] });
  expect(after.payments[0].block_number).toBe(before.payments[0].block_number + 1);
  expect(after.payments[0].block_hash).not.toBe(before.payments[0].block_hash);
  await mine(8);
  expect((await calls.getIntent(intent.id)).status).toBe('succeeded');
  expect(await eventTypesOf(intent.id)).toEqual(['processing', 'reorged', 'processing', 'succeeded']);
  expect(await service.query('select from transfers where payment_intent is not null')).toHaveLength(1);
});

test('a reorganisation after success leaves the intent succeeded, with a label', async () => {
  const intent = await calls.createIntent();
  await mine();
  await pay(intent, 12_500_000n);
  await mine(9);
  await chain.reorg(11);
  // So many that they are read in ranges.
  await chain.mine(60);
  await expect(watcher.catchUp()).rejects.toThrow('asked again');
  await watcher.catchUp();
  expect(await calls.getIntent(intent.id)).toMatchObject({
    status: 'succeeded',
    amount_received_units: 0,
    labels: ['reorged'],
    payments: [{ status: 'reorged', confirmations: 0 }],
  });
  expect(await eventTypesOf(intent.id)).toEqual(['processing', 'succeeded', 'reorged']);
});

test('a payment that returns after its intent was canceled is late', async () => {
  const intent = await calls.createIntent();
  const hash = await sendOldMoney(intent);
  await mine();
  const raw = await chain.client.request({ method: 'eth_getRawTransactionByHash', params: [hash] } as never);
  await chain.reorg(1);
  await watcher.catchUp().catch(() => {});
  await watcher.catchUp();
  await calls.cancelIntent(intent.id);
  await chain.client.sendRawTransaction({ serializedTransaction: raw });
  await mine();
  expect(await calls.getIntent(intent.id)).toMatchObject({
    status: 'canceled',
    amount_received_units: 0,
    payments_count: 1,
    labels: ['after_cancel'],
    payments: [{ transaction_hash: hash, labels: ['after_cancel'] }],
  });
  expect(await eventTypesOf(intent.id)).toEqual(['processing', 'reorged', 'canceled', 'late_payment']);
});

test('far behind, blocks are read in ranges, with the same result', async () => {
  const [paid, partly, late] = [
    await calls.createIntent(),
    await calls.createIntent(),
    await calls.createIntent({ expires_in_minutes: 5 }),
  ];
  await send(paid, 12_500_000n);
  await chain.mine(20);
  await send(partly, 1_000_000n);
  await chain.mine(60, { timestamp: await later(6) });
  await send(late, 12_500_000n);
  await chain.mine(60);
  // Transfers to some wallets are asked for only if these are all.
  const wallets = (await watcher.ledger.wallets(1_000)) ?? [];
  expect(await watcher.ledger.wallets(wallets.length)).toHaveLength(wallets.length);
  expect(await watcher.ledger.wallets(wallets.length - 1)).toBeUndefined();
  const requests = watcher.requests.length;
  await watcher.catchUp();
  expect(watcher.requests.length - requests).toBeLessThan(100);
  expect(await calls.getIntent(paid.id)).toMatchObject({
    status: 'succeeded',
    payments: [{ confirmations: 10 }],
  });
  expect(await calls.getIntent(partly.id)).toMatchObject({
    status: 'requires_payment',
    amount_received_units: 1_000_000,
  });
  expect(await calls.getIntent(late.id)).toMatchObject({ status: 'expired', labels: ['late'] });
});

test('a node that only serves short ranges is rarely asked for longer ones', async () => {
  const intent = await calls.createIntent();
  await chain.mine(700);
  await send(intent, 12_500_000n);
  await chain.mine(100);
  await watcher.release();
  const limited = await startLyingNode(chain.url, { maxRange: 20 });
  const reading = createTestWatcher(service, { urls: [limited.url] });
  for (const work of [reading.follow, reading.verify]) {
    const [requestsBefore, faultsBefore] = [limited.requests.length, reading.faults.length];
    for (let hasMore = true; hasMore; ) hasMore = await work().catch(() => true);
    const asked = limited.requests.slice(requestsBefore).filter(isRangeOfLogs).length;
    const refused = reading.faults.slice(faultsBefore).filter(({ fault }) => fault === 'refused').length;
    expect(asked - refused).toBeGreaterThan(700 / 20);
    // Six halvings from 800 to 12. Then a longer range is tried after every 16th.
    expect(refused).toBeLessThan(6 + 2 + (asked - refused) / 16);
  }
  expect(await calls.getIntent(intent.id)).toMatchObject({ status: 'succeeded' });
  await reading.release();
  await limited.close();
});

test('with more wallets than a node takes in one filter, ranges are read without a filter', async () => {
  await insertIntents(service, {
    merchantId: service.merchant.id,
    count: 1_001,
    firstAtMs: Date.now(),
    columns: { expected_wallet: "decode(lpad(to_hex(n), 40, '0'), 'hex')" },
  });
  onTestFinished(async () => {
    await service.query("delete from payment_intents where expected_wallet < '\\x01'::bytea");
  });
  const intent = await calls.createIntent();
  await chain.mine(60);
  await send(intent, 12_500_000n);
  await chain.mine(60);
  await watcher.release();
  const limited = await startLyingNode(chain.url, { maxTopicValues: 1_000 });
  onTestFinished(limited.close);
  const reading = createTestWatcher(service, { urls: [limited.url] });
  await reading.catchUp();
  await reading.readAllAgain();
  expect([reading.faults, limited.requests.filter(isRangeOfLogs).length > 1]).toEqual([[], true]);
  expect(await calls.getIntent(intent.id)).toMatchObject({ status: 'succeeded' });
  await reading.release();
});

test('only one of two watchers reads; after losing the lease it cannot change anything', async () => {
  const intent = await calls.createIntent();
  const other = createTestWatcher(service, { urls: [chain.url] });
  await send(intent, 12_500_000n);
  await other.catchUp(chain.mine());
  expect(other.changes).toEqual([]);
  await service.query(`update watched_chains set lease_until = now() - interval '1 second'`);
  await other.catchUp();
  expect(other.changes.map(({ event }) => event)).toEqual(['payment_intent.processing']);
  await chain.mine();
  expect(await watcher.follow()).toBe(false);
  expect(watcher.changes).toEqual([]);
  await other.release();
});

test('a watcher keeps its lease while its node answers, however long the work takes', async () => {
  const intents = [];
  for (let i = 0; i < 12; i++) {
    const intent = await calls.createIntent({ amount_units: 100 + i });
    await send(intent, BigInt(intent.amount_units));
    await chain.mine();
    intents.push(intent);
  }
  await chain.mine(80);
  await watcher.release();
  const slow = await startLyingNode(chain.url, { delayMs: 150 });
  // Reading the range takes longer than the lease.
  const leaseMs = 2_400;
  const [reading, waiting] = [slow.url, chain.url].map((url) =>
    createTestWatcher(service, { urls: [url], leaseMs }),
  ) as [typeof watcher, typeof watcher];
  const startedAt = performance.now();
  let isRead = false;
  const done = reading.follow().finally(() => {
    isRead = true;
  });
  await slow.next(({ method }) => method === 'eth_getLogs');
  while (!isRead) {
    await waiting.follow();
    await setTimeout(50);
  }
  await done;
  expect(performance.now() - startedAt).toBeGreaterThan(leaseMs);
  expect(waiting.log).toEqual([]);
  for (const { id } of intents) expect((await calls.getIntent(id)).payments_count).toBe(1);
  await reading.release();
  await slow.close();
});

test('a watcher whose node fails for longer than its lease stops measuring', async () => {
  await watcher.release();
  const node = await startLyingNode(chain.url);
  let lost = 0;
  const observer = { leaseLost: () => void lost++ };
  const current = createTestWatcher(service, { urls: [node.url], leaseMs: 200, observer });
  await current.catchUp();
  node.lie('cut connection');
  await expect.poll(() => current.follow().catch(() => lost)).toBeGreaterThan(0);
  await current.release();
  await node.close();
});

test('the next watcher reads a restarted local chain at once', async () => {
  await mine(3);
  await watcher.release();
  const another = await startChain({ genesisTimestamp: 1_700_000_000 });
  const next = createTestWatcher(service, { urls: [another.url] });
  await next.catchUp();
  expect((await next.ledger.progress())?.cursor.hash).toBe((await another.client.getBlock()).hash);
  await next.release();
  await another.stop();
});

test('a transfer that may pay either of two intents is unattributed, and the merchant is notified', async () => {
  const [first, second] = [await calls.createIntent(), await calls.createIntent()];
  const hash = await pay(first, 12_500_000n, { suffix: '0x' });
  expect(await calls.getIntent(first.id)).toMatchObject({ payments_count: 0 });
  expect(await calls.getIntent(second.id)).toMatchObject({ payments_count: 0 });
  const events = await service.query<{ data: string; merchant_id: string }>(
    `select data, merchant_id from events where type = 'transfer.unattributed' and data like $1`,
    [`%${hash}%`],
  );
  expect(events).toHaveLength(1);
  expect(events[0]?.merchant_id).toBe(service.merchant.id);
  expect(JSON.parse(events[0]?.data ?? '').transfer).toMatchObject({
    status: 'unattributed',
    chain: 'base',
    amount_units: 12_500_000,
    confirmations: 1,
  });
});

test('a change that waited for another one is not dated before it', async () => {
  await watcher.release();
  const node = await startLyingNode(chain.url);
  const [asked, locked] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  node.rewrite(async ({ method }) => {
    if (!method.startsWith('eth_getTransaction')) return undefined;
    asked.resolve();
    await locked.promise;
    return undefined;
  });
  const reading = createTestWatcher(service, { urls: [node.url] });
  const intent = await calls.createIntent();
  await send(intent, 400n);
  const holder = await openClient(service.location);
  // Waiting for the lock may time out on a slow machine.
  const read = reading.catchUp(chain.mine()).catch(() => reading.catchUp());
  await asked.promise;
  // The last transaction before the one that records the payment has ended.
  await holder.query('begin; select from watched_chains for no key update');
  locked.resolve();
  await sessionsWaiting(service, 1);
  const { canceled_at } = await calls.cancelIntent(intent.id);
  await holder.query('rollback');
  await holder.end();
  await read;
  await reading.release();
  await node.close();
  const [late, canceled] = (await eventsOf(service, intent.id)).toReversed();
  expect([canceled?.type, late?.type]).toEqual(['payment_intent.canceled', 'payment_intent.late_payment']);
  expect(late?.created_at.getTime()).toBeGreaterThanOrEqual(Date.parse(canceled_at));
});

type ChangeTransfer = (lease: bigint, id: string, blockHash: Hex) => Promise<unknown>;

test.each<[string, ChangeTransfer, ChangeTransfer, object]>([
  [
    'confirmed',
    (lease, id, hash) => watcher.ledger.confirmAll(lease, hash, [id]),
    () => mine(10),
    { status: 'succeeded' },
  ],
  [
    'reverted',
    (lease, id) => watcher.ledger.revertTransfers(lease, [id]),
    (lease, id) => watcher.ledger.revertTransfers(lease, [id]),
    { status: 'requires_payment', amount_received_units: 0 },
  ],
])(
  'a transfer that was attributed while its chain was not watched is %s with its intent',
  async (_, change, again, end) => {
    const intent = await calls.createIntent({ amount_units: 20_000 });
    await calls.createIntent({ amount_units: 20_000 });
    const hash = await pay(intent, 20_000n, { suffix: '0x' });
    const [found] = await service.query<{ id: string; block: string }>(
      `select id, encode(block_hash, 'hex') as block from transfers where transaction_hash = $1`,
      [`\\x${hash.slice(2)}`],
    );
    const { id = '', block } = found ?? {};
    const [kept] = await service.query<{ chain: { lease_number: number } }>(
      `delete from watched_chains c where chain = 'base' returning to_jsonb(c) as chain`,
    );
    const blocker = await openClient(service.location);
    await blocker.query('begin; lock table events in exclusive mode');
    const attributing = service.call('attributeTransfer', {
      id: formatIdentifier('tr', id),
      payment_intent: intent.id,
    });
    await sessionsWaiting(service, 1);
    await service.query(
      'insert into watched_chains select * from jsonb_populate_record(null::watched_chains, $1)',
      [JSON.stringify(kept?.chain)],
    );
    const lease = BigInt(kept?.chain.lease_number ?? 0);
    let isHeld = true;
    // Its wait for the lock times out on a slow machine.
    const attempt = (): Promise<unknown> =>
      change(lease, id, `0x${block}`).catch(() => (isHeld ? attempt() : undefined));
    const changing = attempt();
    await sessionsWaiting(service, 2);
    isHeld = false;
    await blocker.query('commit');
    await blocker.end();
    expect((await attributing).code).toBe('ok');
    await changing;
    await again(lease, id, `0x${block}`);
    expect(await calls.getIntent(intent.id)).toMatchObject(end);
  },
);
