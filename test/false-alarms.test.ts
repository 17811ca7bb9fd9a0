// Verification of final blocks finds more than the first reading could know of. Strangers can bring this about,
// and merchants do by chance: it accuses no node, which would page an engineer, and no payment is lost.

import { randomBytes } from 'node:crypto';
import { type Address, getAddress, type Hex } from 'viem';
import { afterEach, expect, test } from 'vitest';
import { formatIdentifier } from '../src/database/identifiers.ts';
import { startChain } from './support/chain.ts';
import {
  createMerchantCalls,
  createTestWatcher,
  endWatch,
  idBytes,
  sendPayment,
} from './support/settlement.ts';
import { useService } from './support/use-service.ts';

const service = await useService({ ROLES: 'api' });
const calls = createMerchantCalls(service);
let chain: Awaited<ReturnType<typeof startChain>>;
let watcher: ReturnType<typeof createTestWatcher>;

/** Watches a new chain, whose clock may be behind ours. */
async function start({ secondsAgo = 0 } = {}): Promise<void> {
  const genesisTimestamp = Math.floor(Date.now() / 1_000) - secondsAgo;
  chain = await startChain(secondsAgo === 0 ? {} : { genesisTimestamp });
  watcher = createTestWatcher(service, { urls: [chain.url], unattributedMinUnits: 10_000n });
  await watcher.catchUp();
}

afterEach(() => endWatch(service, { watcher, chain }));

const newWallet = () => `0x${randomBytes(20).toString('hex')}` as Address;

/** Sends money without a valid id, or with the suffix, and reads the block. */
async function send(wallet: Address, units: number, suffix: Hex = '0x'): Promise<void> {
  await sendPayment(chain, { id: '', expected_wallet: wallet }, units, { suffix });
  await watcher.catchUp(chain.mine(1));
}

/** Makes everything final and verifies it. Returns the units recorded, oldest transfer first. */
async function verified(): Promise<number[]> {
  await watcher.catchUp(chain.mine(12));
  await watcher.readAllAgain();
  await watcher.catchUp();
  expect(watcher.log.filter(({ level }) => level === 'error')).toEqual([]);
  const rows = await service.query<{ n: number }>(
    'select amount_units::int as n from transfers order by block_number',
  );
  return rows.map(({ n }) => n);
}

test.each(['no id', "another wallet's id"])(
  'dust with %s that turns out to be what was missing',
  async (id) => {
    await start();
    const fields = { wallet_address: newWallet() };
    const [intent] = [await calls.createIntent(fields), await calls.createIntent(fields)];
    const other = await calls.createIntent({ wallet_address: newWallet() });
    await send(intent.expected_wallet, 5_000, id === 'no id' ? '0x' : idBytes(other.id));
    expect(await calls.getIntent(intent.id)).toMatchObject({ payments_count: 0 });
    await send(intent.expected_wallet, intent.amount_units - 5_000, idBytes(intent.id));
    expect(await verified()).toEqual([5_000, intent.amount_units - 5_000]);
    expect(await calls.getIntent(intent.id)).toMatchObject({ status: 'succeeded', payments_count: 2 });
  },
);

test('dust that would have paid an intent in time, found after its end', async () => {
  await start();
  const fields = { wallet_address: newWallet(), expires_in_minutes: 5 };
  const [intent] = [await calls.createIntent(fields), await calls.createIntent(fields)];
  await send(intent.expected_wallet, 5_000);
  await send(intent.expected_wallet, intent.amount_units - 5_000, idBytes(intent.id));
  await chain.client.increaseTime({ seconds: 400 });
  await watcher.catchUp(chain.mine(12));
  expect(await calls.getIntent(intent.id)).toMatchObject({ status: 'expired' });
  watcher.changes.length = 0;
  await verified();
  expect(await calls.getIntent(intent.id)).toMatchObject({ labels: expect.arrayContaining(['found_late']) });
  expect(watcher.changes).toMatchObject([{ event: 'payment_intent.late_payment', mayBeLeftOut: true }]);
});

test('of transfers that no intent expects, one of exactly the least amount is recorded', async () => {
  await start();
  for (const units of [9_999, 10_000]) await send(service.merchant.wallets.testnet.base as Address, units);
  expect(await verified()).toEqual([10_000]);
});

test('a transfer of less that two intents expect is recorded', async () => {
  await start();
  const fields = { wallet_address: newWallet(), amount_units: 5_000 };
  const [intent] = [await calls.createIntent(fields), await calls.createIntent(fields)];
  await send(intent.expected_wallet, 5_000);
  expect(await verified()).toEqual([5_000]);
});

test('a transfer some seconds before the first intent that names its wallet', async () => {
  await start({ secondsAgo: 10 });
  const wallet = newWallet();
  await send(wallet, 20_000);
  await calls.createIntent({ wallet_address: wallet });
  expect(await verified()).toEqual([20_000]);
});

/** Makes the intents of a wallet older. An id has the time of its creation. */
const age = (wallet: Address, days: number) =>
  service.query<{ id: string }>(
    `update payment_intents set created_at = created_at - $2::int * interval '1 day', status = 'expired', expired_at = now(),
            id = (lpad(to_hex((extract(epoch from created_at) * 1000)::bigint - $2::bigint * 86400000), 12, '0') || substr(replace(id::text, '-', ''), 13))::uuid
      where expected_wallet = decode($1, 'hex') returning id`,
    [wallet.slice(2), days],
  );

test.each([
  ['named on the other chain before', 'polygon', 2, false],
  ['not named for months', 'base', 60, false],
  ["not named for months, with its old intent's id", 'base', 60, true],
])('a transfer to a wallet that was %s, and is named after it', async (_, before, days, hasId) => {
  await start({ secondsAgo: 3_600 });
  const wallet = newWallet();
  await calls.createIntent({ wallet_address: wallet, chain: before });
  const [old] = await age(wallet, days);
  await send(wallet, 20_000, hasId ? idBytes(formatIdentifier('pi', old?.id ?? '')) : '0x');
  await calls.createIntent({ wallet_address: wallet });
  expect(await verified()).toEqual([20_000]);
});

test('a transfer to an address of the other chain that becomes the payout wallet after it', async () => {
  await start({ secondsAgo: 3_600 });
  const wallet = newWallet();
  const merchant = await service.newMerchant();
  const own = createMerchantCalls(service, merchant.keys.testnet.apiKey);
  await own.createIntent({ wallet_address: wallet, chain: 'polygon' });
  await age(wallet, 2);
  await send(wallet, 20_000);
  await service.query(
    `update payout_wallets set address = $2, updated_at = now() where merchant_id = $1 and mode = 'testnet' and chain = 'base'`,
    [merchant.id, getAddress(wallet)],
  );
  expect(await verified()).toEqual([20_000]);
});

test("a transfer that was another merchant's by its wallet, until an intent waits for just its amount", async () => {
  await start();
  const own = await calls.createIntent();
  const other = await service.newMerchant();
  const theirs = createMerchantCalls(service, other.keys.testnet.apiKey);
  const fields = { wallet_address: own.expected_wallet };
  const [intent] = [await theirs.createIntent(fields), await theirs.createIntent(fields)];
  await send(own.expected_wallet, 20_000);
  await send(own.expected_wallet, intent.amount_units - 20_000, idBytes(intent.id));
  await verified();
  expect(await theirs.getIntent(intent.id)).toMatchObject({ status: 'succeeded', payments_count: 2 });
});

test('a refund sent elsewhere, to an address that another refund names later', async () => {
  await start();
  const paid = await calls.createIntent();
  await send(paid.expected_wallet, paid.amount_units, idBytes(paid.id));
  await watcher.catchUp(chain.mine(12));
  const [, , , { address: first }, { address: second }] = chain.accounts;
  const refundTo = async (destination: Address) => {
    const request = { payment_intent: paid.id, amount_units: 1_000_000, destination };
    return (await service.call('createRefund', request)).json;
  };
  const refund = await refundTo(first);
  const amountUnits = 1_000_000n;
  await chain.transfer({ from: paid.expected_wallet, to: second, amountUnits, suffix: idBytes(refund.id) });
  await watcher.catchUp(chain.mine(1));
  await refundTo(second);
  expect(await verified()).toEqual([paid.amount_units, 1_000_000]);
  expect(watcher.changes).toContainEqual(expect.objectContaining({ event: 'refund.unexpected' }));
});
