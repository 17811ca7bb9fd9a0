// Blocks filled by a stranger are recorded completely, whatever the planner's statistics, and do not affect other
// payments.

import { type Address, type Hash, padHex } from 'viem';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { chainNamed, networkFor } from '../src/contract/chains.ts';
import { lowestUuid, parseIdentifier } from '../src/database/identifiers.ts';
import type { RunPrepared } from '../src/database/prepared.ts';
import { keepSums, readPaymentSums } from '../src/payment-intents/payment-sums.ts';
import { readReturnedMoney } from '../src/refunds/returned-money.ts';
import { createAttribution } from '../src/settlement/ledger/attribution.ts';
import { createOwners } from '../src/settlement/ledger/owners.ts';
import { startChain, type TestChain } from './support/chain.ts';
import { type HostileKind, hostileKinds, prepareHostileBlocks } from './support/hostile-blocks.ts';
import { insertIntents } from './support/intent-rows.ts';
import { openClient } from './support/open-client.ts';
import { wrongSums } from './support/report-recount.ts';
import {
  createMerchantCalls,
  createTestWatcher,
  endWatch,
  idBytes,
  sendPayment,
} from './support/settlement.ts';
import { insertTransfers } from './support/transfer-rows.ts';
import { useService } from './support/use-service.ts';

/** More than are recorded at once. */
const count = 1_100;
const price = 12_500_000n;

// A statement may take three seconds.
const service = await useService({ ROLES: 'api', DATABASE_TIMEOUT: '3' });
let chain: TestChain;
let watcher: ReturnType<typeof createTestWatcher>;
let hostile: Awaited<ReturnType<typeof prepareHostileBlocks>>;

const calls = createMerchantCalls(service);

beforeEach(async () => {
  chain = await startChain();
  hostile = await prepareHostileBlocks(chain);
  watcher = createTestWatcher(service, { urls: [chain.url], unattributedMinUnits: 10_000n });
  await watcher.catchUp();
});

afterEach(() => endWatch(service, { watcher, chain }));

const transfersOf = (id: string) =>
  service.query<{ counts: boolean; hash: string; ordinal: number }>(
    `select counts, encode(transaction_hash, 'hex') as hash, ordinal from transfers
      where payment_intent = $1 order by hash, ordinal`,
    [parseIdentifier('pi', id)],
  );
const unattributed = async (wallet: Address) => {
  const [row] = await service.query<{ n: number; ordinals: number; places: number }>(
    `select count(*)::int as n, count(distinct (amount_units, ordinal))::int as ordinals,
            count(distinct log_index)::int as places
       from transfers where payment_intent is null and to_address = $1`,
    [Buffer.from(wallet.slice(2), 'hex')],
  );
  return row;
};
const reports = () =>
  service.query<{ n: number; amount: number }>(
    `select (data::json ->> 'transfers_count')::int as n, (data::json -> 'transfer' ->> 'amount_units')::int as amount
       from events where type = 'transfer.unattributed' order by created_at`,
  );

test.each(hostileKinds)('%s, more than one chunk: each is attributed correctly', async (kind) => {
  const intent = await calls.createIntent({ amount_units: Number(price) });
  // A second candidate, so that no attribution is guessed.
  await calls.createIntent({ amount_units: Number(price) });
  const wallet = intent.expected_wallet as Address;
  await service.query('delete from events');
  await hostile.fill(kind, { count, to: wallet, amountUnits: price, intentId: intent.id });
  await chain.mine();
  const logs = await chain.client.getLogs({ blockHash: (await chain.client.getBlock()).hash });
  expect(logs.filter(({ address }) => address === chain.usdc.toLowerCase()).length).toBeGreaterThanOrEqual(
    count,
  );
  await watcher.catchUp();
  expect([watcher.faults, watcher.log.filter(({ level }) => level !== 'info')]).toEqual([[], []]);
  const [recorded] = await service.query<{ most: number }>(
    'select max(n)::int as most from (select count(*) as n from transfers group by xmin::text) of_transaction',
  );
  expect(recorded).toEqual({ most: kind === 'other recipients' ? 1 : 500 });
  const paid = await transfersOf(intent.id);
  if (kind.startsWith('calls')) {
    expect(paid.filter(({ counts }) => counts)).toHaveLength(count);
    const hashes = new Set(logs.map(({ transactionHash }) => transactionHash));
    const numbered = [...hashes].flatMap((hash) => {
      const made = logs.filter(
        (log) => log.transactionHash === hash && log.address === chain.usdc.toLowerCase(),
      );
      return made.map((_, ordinal) => `${hash.slice(2)} ${ordinal}`);
    });
    expect(paid.map(({ hash, ordinal }) => `${hash} ${ordinal}`).sort()).toEqual(numbered.sort());
    expect(await calls.getIntent(intent.id)).toMatchObject({
      status: 'processing',
      amount_received_units: count * Number(price),
      payments_count: count,
    });
    expect(await reports()).toEqual([]);
  } else if (kind === 'other recipients') {
    expect([paid, await unattributed(wallet)]).toEqual([[], { n: 1, ordinals: 1, places: 1 }]);
  } else {
    expect([paid, await unattributed(wallet)]).toEqual([[], { n: count, ordinals: count, places: count }]);
    const largest = kind === 'equal amounts' ? price : price + BigInt(count - 1);
    expect(await reports()).toEqual([{ n: count, amount: Number(largest) }]);
  }
  // Confirmed, and read a second time: nothing is recorded twice, and each large receipt is asked for once.
  watcher.requests.length = 0;
  await watcher.catchUp(chain.mine(10));
  const transactions = new Set(logs.map(({ transactionHash }) => transactionHash)).size;
  const receipts = watcher.requests.filter((method) => method === 'eth_getTransactionReceipt').length;
  expect(receipts).toBe(kind === 'other recipients' ? 1 : transactions);
  await watcher.readAllAgain();
  expect(await transfersOf(intent.id)).toEqual(paid);
  expect(watcher.log.filter(({ level }) => level !== 'info')).toEqual([]);
});

test.each<[HostileKind, string, number]>([
  ['equal amounts', 'another wallet', 0],
  ['calls repeated by the owner', 'the wallet that was paid', count],
  ['calls through Multicall3', 'the wallet that was paid', count],
  ['calls through Multicall3', 'another wallet', 2],
])('%s, from %s to the destination of a refund: %i are its transfers', async (kind, sender, recognised) => {
  const { id: payment_intent } = await calls.createIntent({ amount_units: Number(price) });
  const confirmed = {
    paymentIntent: payment_intent,
    state: 'confirmed',
    amountUnits: Number(price),
  } as const;
  await insertTransfers(service, service.merchant, [confirmed]);
  const to: Address = '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed';
  const { id } = (await service.call('createRefund', { payment_intent, destination: to })).json;
  await hostile.fill(kind, { count, to, amountUnits: price, intentId: id });
  await chain.mine();
  if (sender === 'the wallet that was paid') {
    const [sent] = await chain.client.getLogs({ address: chain.usdc });
    const wallet = Buffer.from(sent?.topics[1]?.slice(26) ?? '', 'hex');
    await service.query('update refunds set wallet = $1 where id = $2', [wallet, parseIdentifier('rf', id)]);
  }
  await watcher.catchUp();
  expect(watcher.faults).toEqual([]);
  const rows = await service.query<{ counts: boolean; labels: string[] | null }>(
    'select counts, labels from transfers where refund = $1',
    [parseIdentifier('rf', id)],
  );
  expect(rows.filter(({ counts }) => counts)).toHaveLength(Math.min(1, recognised));
  expect(rows.filter(({ labels }) => labels?.join() === 'twice')).toHaveLength(Math.max(0, recognised - 1));
  const { status, transfers } = (await service.call('getRefund', { id })).json;
  expect([status, transfers?.length]).toEqual(
    recognised === 0 ? ['requires_transfer', undefined] : ['processing', Math.min(100, recognised)],
  );
  await watcher.catchUp(chain.mine(chain.network.confirmationsRequired));
  expect((await service.call('getRefund', { id })).json.status).toBe(
    recognised === 0 ? 'requires_transfer' : 'succeeded',
  );
  expect(await service.query(wrongSums)).toEqual([]);
  await service.query('analyze transfers, payment_sums');
  // The sums are stored, so earlier transfers are not read again for each new one.
  const intentId = parseIdentifier('pi', payment_intent) as string;
  // A table as small as here may otherwise be read whole.
  await service.query('set enable_seqscan = off');
  expect(await rowsReadBy((run) => readReturnedMoney(run, [intentId]))).toBeLessThan(50);
  await service.query('reset enable_seqscan');
});

/** Records the newest block with a database that is gone after the first 500 transfers. */
async function followUntilGone(): Promise<void> {
  await service.query(`
    create function be_gone() returns trigger language plpgsql security definer as
      $$ begin if (select count(*) from transfers) > 500 then raise 'gone' using errcode = '57P01'; end if; return null; end $$;
    create trigger be_gone after insert on transfers for each statement execute function be_gone()`);
  await expect(watcher.follow()).rejects.toThrow();
  await service.query('drop function be_gone cascade');
  expect(await service.query('select from transfers')).toHaveLength(500);
}

test.each([
  ['equal amounts', 0],
  ['distinct amounts', 0],
  ['distinct amounts', 120],
] as const)(
  '%s, recorded in two attempts, %i blocks behind: reported once, with the number of all',
  async (kind, behind) => {
    await service.query('delete from events');
    const to = service.merchant.wallets.testnet.base as Address;
    await hostile.fill(kind, { count, to, amountUnits: price, intentId: 'none' });
    await chain.mine(1);
    await chain.mine(behind);
    await followUntilGone();
    expect(await reports()).toEqual([]);
    await watcher.catchUp();
    const largest = kind === 'equal amounts' ? price : price + BigInt(count - 1);
    expect(await reports()).toEqual([{ n: count, amount: Number(largest) }]);
  },
);

test('a part of a block, recorded before another replaced it, is reported if the other has it', async () => {
  await service.query('delete from events');
  const to = service.merchant.wallets.testnet.base as Address;
  const of = { to, amountUnits: price, intentId: 'none' };
  const hash = await hostile.fill('equal amounts', { ...of, count: 500 });
  await hostile.fill('equal amounts', { ...of, count: 1, amountUnits: price + 1n });
  await chain.mine();
  await followUntilGone();
  await chain.reorg(1, [{ hash: hash as Hash, index: 0 }]);
  await chain.mine();
  await watcher.catchUp();
  expect(await reports()).toEqual([{ n: 500, amount: Number(price) }]);
});

test('dust to a wallet with thousands of intents delays no payment, whatever the statistics', async () => {
  const { id: merchantId } = service.merchant;
  const wallet = service.merchant.wallets.testnet.base as Address;
  const columns = {
    amount_units: String(price),
    expected_wallet: `'\\x${wallet.slice(2)}'::bytea`,
    status: `case when n % 2 = 0 then 'requires_payment' else 'expired' end`,
    expired_at: 'case when n % 2 = 1 then now() end',
    // Every second one was paid in part, by dust.
    amount_received_units: 'case when n % 2 = 1 then 1 else 0 end',
  };
  await insertIntents(service, { merchantId, count: 6_600, firstAtMs: Date.now() - 600_000, columns });
  await service.query('analyze payment_intents');
  expect(await rowsReadForCandidates(merchantId, wallet)).toBeLessThan(1_000);
  const other = await service.newMerchant();
  const theirs = createMerchantCalls(service, other.keys.testnet.apiKey);
  const intent = await theirs.createIntent({ amount_units: Number(price) });
  const [payer] = chain.accounts;
  await hostile.fill('distinct amounts', { count: 4_500, to: wallet, amountUnits: 1n, intentId: intent.id });
  const to = intent.expected_wallet as Address;
  await chain.transfer({ from: payer.address, to, amountUnits: price, suffix: idBytes(intent.id) });
  await watcher.catchUp(chain.mine());
  expect([watcher.faults, watcher.log.filter(({ level }) => level !== 'info')]).toEqual([[], []]);
  expect(await theirs.getIntent(intent.id)).toMatchObject({ status: 'processing' });
  expect(await unattributed(wallet)).toMatchObject({ n: 0 });
  await service.query(`delete from payment_intents where id < $1`, [lowestUuid(Date.now() - 500_000)]);
});

test('the owner of a wallet with thousands of intents on another chain is found by few reads', async () => {
  const wallet = padHex('0xfa', { size: 20 });
  const columns = {
    network: String(networkFor('testnet', 'polygon').id),
    status: `'expired'`,
    expired_at: 'now()',
    expected_wallet: `'\\x${wallet.slice(2)}'::bytea`,
  };
  const { id: merchantId } = service.merchant;
  await insertIntents(service, { merchantId, count: 5_000, firstAtMs: Date.now() - 600_000, columns });
  await service.query('analyze payment_intents');
  const settings = chainNamed('testnet', 'base');
  expect(await rowsReadBy((run) => createOwners(run, settings).ownersOf([wallet]))).toBeLessThan(1_000);
  await service.query(`delete from payment_intents where expected_wallet = $1`, [
    Buffer.from(wallet.slice(2), 'hex'),
  ]);
});

test('of 33,000 refunds, those of another amount, network or wallet are not read', async () => {
  const receivers = ['d0', 'd1', 'd2'].map((byte) => byte.repeat(20));
  const wallet = 'fa'.repeat(20);
  await service.query(
    `insert into refunds (id, merchant_id, mode, payment_intent, network, amount_units, destination, wallet, status, metadata,
                          created_at, expires_at, watched_until)
     select gen_random_uuid(), $1, 'testnet', gen_random_uuid(), k.network, k.amount, k.destination, k.wallet, 'canceled', '{}',
            now(), now(), case when i % 2 = 0 then now() else '9999-12-31'::timestamptz end
       from generate_series(1, 11000) i
      cross join (values ($2::int, 1, $4::bytea, $7::bytea), ($3, 7, $5, $7), ($2, 7, $6, $6))
                 as k (network, amount, destination, wallet)`,
    [
      service.merchant.id,
      ...[networkFor('testnet', 'base').id, networkFor('testnet', 'polygon').id],
      ...[...receivers, wallet].map((address) => Buffer.from(address, 'hex')),
    ],
  );
  await service.query('analyze refunds');
  const logs = receivers.map((to) => ({
    token: chain.usdc,
    from: `0x${wallet}`,
    to: `0x${to}`,
    amountUnits: 7n,
  }));
  const settings = chainNamed('testnet', 'base');
  const read = await rowsReadBy((run) => createOwners(run, settings).refundsAt(logs as never));
  expect(read).toBeLessThan(100);
  // Over 10,000 are watched: the destination of one may be missing in a list.
  expect(await watcher.ledger.wallets(1_000)).toBeUndefined();
  await service.query("delete from refunds where status = 'canceled'");
});

interface PlanNode {
  'Actual Rows': number;
  'Actual Loops': number;
  'Rows Removed by Filter'?: number;
  'Rows Removed by Index Recheck'?: number;
  Plans?: PlanNode[];
}

/** Rows that PostgreSQL reads to look for candidates for a hundred transfers that have none. */
function rowsReadForCandidates(merchantId: string, wallet: Address): Promise<number> {
  const transfer = { merchantId, wallet, named: undefined, requiresId: false };
  const transfers = Array.from({ length: 100 }, (_, i) => ({ ...transfer, amountUnits: BigInt(i + 1) }));
  const options = { networkIds: [chain.network.id], onFailedAlone: () => {}, isFatal: () => true };
  return rowsReadBy((run) => createAttribution(run, options)(new Date(), transfers, async () => {}));
}

/** Rows that PostgreSQL reads for the statements of this work, which gets none of them. */
async function rowsReadBy(work: (run: RunPrepared) => Promise<unknown>): Promise<number> {
  let read = 0;
  const rowsOf = (node: PlanNode): number =>
    node['Actual Loops'] *
      (node['Actual Rows'] +
        (node['Rows Removed by Filter'] ?? 0) +
        (node['Rows Removed by Index Recheck'] ?? 0)) +
    (node.Plans ?? []).reduce((sum, child) => sum + rowsOf(child), 0);
  await work(async ({ text }, values) => {
    const [row] = await service.query<{ 'QUERY PLAN': { Plan: PlanNode }[] }>(
      `explain (analyze, timing off, format json) ${text}`,
      values,
    );
    read += rowsOf(row?.['QUERY PLAN'][0]?.Plan as PlanNode);
    return { rows: [] } as never;
  });
  return read;
}

test.each([
  ['is refused', "raise 'not this one'", /not this one/],
  ['takes too long', 'perform pg_sleep(7); return new', /statement timeout/],
])('a transfer whose recording %s stays unattributed and does not delay others', async (_, body, reason) => {
  const intents = [];
  // The first is in one failing part after another, for longer than a lease.
  for (let place = 0; place < 20; place++)
    intents.push(await calls.createIntent({ amount_units: 5_000_000 + place }));
  const [payer] = chain.accounts;
  for (const { id, expected_wallet: to, amount_units } of intents) {
    await chain.transfer({ from: payer.address, to, amountUnits: BigInt(amount_units), suffix: idBytes(id) });
  }
  await chain.mine();
  // PostgreSQL refuses one of them, and only as a payment.
  await service.query(`
    create function refuse_payment() returns trigger language plpgsql as $$ begin ${body}; end $$;
    create trigger refuse_payment before insert on transfers for each row
      when (new.amount_units = 5000000 and new.payment_intent is not null) execute function refuse_payment()`);
  // A second process asks for the lease all the time.
  const rival = createTestWatcher(service, { urls: [chain.url], unattributedMinUnits: 10_000n });
  let isRecorded = false;
  const wanting = (async () => {
    while (!isRecorded) await rival.follow();
  })();
  await watcher.catchUp();
  isRecorded = true;
  await wanting;
  await service.query('drop function refuse_payment cascade');
  const statuses = [];
  for (const { id } of intents) statuses.push((await calls.getIntent(id)).status);
  expect(statuses).toEqual(['requires_payment', ...Array(19).fill('processing')]);
  const wallet = intents[0].expected_wallet as Address;
  expect(await unattributed(wallet)).toMatchObject({ n: 1 });
  expect(watcher.log.filter(({ message = '' }) => /another process/.test(String(message)))).toEqual([]);
  expect(watcher.log.filter(({ level }) => level === 'error')).toMatchObject([
    { err: { message: expect.stringMatching(reason) }, transaction_hash: expect.stringMatching(/^0x/) },
  ]);
  // It is left for manual attribution: later blocks are read without a fault.
  await watcher.catchUp(chain.mine());
  expect(watcher.faults).toEqual([]);
});

test('a transfer that names an intent which cannot be read is not guessed to be for another', async () => {
  const named = await calls.createIntent({ amount_units: 6_000_000 });
  const other = await calls.createIntent({ amount_units: 6_000_001 });
  const id = parseIdentifier('pi', named.id);
  await service.query('alter table payment_intents alter expected_wallet drop not null');
  await service.query('update payment_intents set expected_wallet = null where id = $1', [id]);
  await sendPayment(chain, named, 6_000_001);
  await watcher.catchUp(chain.mine());
  await service.query('delete from payment_intents where id = $1', [id]);
  await service.query('alter table payment_intents alter expected_wallet set not null');
  expect(await calls.getIntent(other.id)).toMatchObject({ status: 'requires_payment' });
  expect(await unattributed(named.expected_wallet)).toMatchObject({ n: 1 });
});

test('the payment of a locked intent is recorded after the lock is released', async () => {
  const intent = await calls.createIntent({ amount_units: 5_000_000 });
  const [payer] = chain.accounts;
  const to = intent.expected_wallet as Address;
  await chain.transfer({ from: payer.address, to, amountUnits: 5_000_000n, suffix: idBytes(intent.id) });
  await chain.mine();
  const blocker = await openClient(service.location);
  await blocker.query('begin');
  await blocker.query('select from payment_intents where id = $1 for update', [
    parseIdentifier('pi', intent.id),
  ]);
  // A wait for a lock is not taken for a statement that cannot end: the block is read again.
  for (let turn = 0; turn < 3; turn++)
    await expect(watcher.catchUp()).rejects.toMatchObject({ code: '55P03' });
  await blocker.query('rollback');
  await blocker.end();
  await watcher.catchUp();
  expect(await calls.getIntent(intent.id)).toMatchObject({ status: 'processing' });
  expect(watcher.log.filter(({ level }) => level === 'error')).toEqual([]);
});

test('twelve thousand payments of one intent are reverted in parts, and not read again', async () => {
  const intent = await calls.createIntent({ amount_units: 9_000_000 });
  await watcher.catchUp(chain.mine(3));
  const { number, hash: blockHash } = await chain.client.getBlock();
  const payment = {
    paymentIntent: intent.id,
    state: 'pending',
    amountUnits: 1,
    blockNumber: Number(number),
  } as const;
  const rows = Array.from({ length: 12_000 }, () => ({ ...payment, blockHash }));
  await insertTransfers(service, service.merchant, rows);
  const id = parseIdentifier('pi', intent.id);
  await service.query(
    `update payment_intents set status = 'processing', amount_received_units = 12000, payments_count = 12000 where id = $1`,
    [id],
  );
  await chain.reorg(2);
  await expect(watcher.catchUp()).rejects.toThrow('asked again');
  await watcher.catchUp();
  expect(
    await service.query(
      `select count(*)::int as n, state from transfers where payment_intent = $1 group by state`,
      [id],
    ),
  ).toEqual([{ n: 12_000, state: 'reorged' }]);
  const events = await service.query(
    `select from events where payment_intent = $1 and type = 'payment_intent.reorged'`,
    [id],
  );
  expect(events).toHaveLength(6);
  expect(await calls.getIntent(intent.id)).toMatchObject({
    status: 'requires_payment',
    amount_received_units: 0,
  });
  const [payer] = chain.accounts;
  const to = intent.expected_wallet as Address;
  await chain.transfer({ from: payer.address, to, amountUnits: 9_000_000n, suffix: idBytes(intent.id) });
  await watcher.catchUp(chain.mine(chain.network.confirmationsRequired));
  expect((await calls.getIntent(intent.id)).status).toBe('succeeded');
  expect(await service.query(wrongSums)).toEqual([]);
  await service.query('analyze transfers, payment_sums');
  const own = { id: id as string, paymentsCount: 12_000 };
  expect(await rowsReadBy((run) => readPaymentSums(run, [own.id]))).toBeLessThan(50);
  expect(await rowsReadBy((run) => keepSums(run, [own]))).toBeLessThan(50);
});

test('a payment whose COMMIT exceeds the statement timeout is counted once', async () => {
  const intent = await calls.createIntent({ amount_units: 5_000_003 });
  const [payer] = chain.accounts;
  const to = intent.expected_wallet as Address;
  await chain.transfer({ from: payer.address, to, amountUnits: 5_000_003n, suffix: idBytes(intent.id) });
  // Far behind: within a range of blocks, no cursor moves that would tell a second attempt from the first.
  await chain.mine(1);
  await chain.mine(120);
  await service.query(`
    create sequence commits;
    create function commit_slowly() returns trigger language plpgsql as
      $$ begin if nextval('commits') = 1 then perform pg_sleep(5); end if; return null; end $$;
    create constraint trigger commit_slowly after insert or update on transfers deferrable initially deferred for each row
      when (new.amount_units = 5000003) execute function commit_slowly()`);
  const head = Number(await chain.client.getBlockNumber());
  let failures = 0;
  while ((await watcher.ledger.progress())?.cursor.number !== head && failures < 100) {
    await watcher.catchUp().catch(() => failures++);
  }
  const [{ commits } = { commits: 0 }] = await service.query<{ commits: number }>(
    'select last_value::int as commits from commits',
  );
  await service.query('drop function commit_slowly cascade; drop sequence commits');
  const events = await service.query<{ type: string }>(
    `select type from events where payment_intent = $1 and type <> 'payment_intent.succeeded' order by sequence`,
    [parseIdentifier('pi', intent.id)],
  );
  expect(events.map(({ type }) => type)).toEqual(['payment_intent.processing']);
  expect(await calls.getIntent(intent.id)).toMatchObject({
    amount_received_units: 5_000_003,
    payments_count: 1,
  });
  expect(commits).toBeGreaterThan(1);
});
