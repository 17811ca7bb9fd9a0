// Several merchants with one wallet, each handled separately; and who gets reports of unattributed transfers.

import type { Address } from 'viem';
import { formatIdentifier } from '../../src/database/identifiers.ts';
import { insertIntents } from '../support/intent-rows.ts';
import { idBytes } from '../support/settlement.ts';
import { amount, pays, type Row, records, type Stage, unattributed, way } from './stage.ts';

/** Intents of the shop that expected a wallet so many days ago, and have expired. Returns the id of one. */
async function expectedDaysAgo({ service, shop }: Stage, wallet: Address, days: number, count = 2) {
  await insertIntents(service, {
    merchantId: shop.id,
    count,
    firstAtMs: Date.now() - days * 86_400_000,
    columns: {
      amount_units: String(amount),
      expected_wallet: `'\\x${wallet.slice(2)}'::bytea`,
      status: `'expired'`,
      expired_at: `to_timestamp($3 / 1000.0) + interval '31 minutes'`,
    },
  });
  const [row] = await service.query<{ id: string }>(
    `select id from payment_intents where merchant_id = $1 and status = 'expired'`,
    [shop.id],
  );
  return formatIdentifier('pi', row?.id ?? '');
}

export const merchantRows: Row[] = [
  way(
    "another merchant's intent expects this payout wallet: it is paid, and the shop gets a report",
    async (stage) => {
      const other = await stage.merchant();
      const [intent] = [await stage.intent({ of: other, wallet: stage.wallet })];
      await stage.transfer({ to: stage.wallet });
      return [pays(intent), unattributed(stage.shop)];
    },
  ),
  way("another merchant's intent expects this payout wallet, and its id is given", async (stage) => {
    const other = await stage.merchant();
    const [intent] = await stage.pair({ of: other, wallet: stage.wallet });
    await stage.pair();
    await stage.transfer({ to: stage.wallet, suffix: idBytes(intent.id) });
    return [pays(intent), unattributed(stage.shop)];
  }),
  way(
    "another merchant's intent expects this payout wallet, and its id is given: the shop's candidate gets nothing",
    async (stage) => {
      const other = await stage.merchant();
      const [intent] = await stage.pair({ of: other, wallet: stage.wallet });
      await stage.intent();
      await stage.transfer({ to: stage.wallet, suffix: idBytes(intent.id) });
      // A proven id decides for every merchant.
      return [pays(intent), unattributed(stage.shop)];
    },
  ),
  way(
    "another merchant's only intent expects this payout wallet: it gets no transfer with an id of the shop's",
    async (stage) => {
      const other = await stage.merchant();
      await stage.intent({ of: other, wallet: stage.wallet });
      const [intent] = await stage.pair();
      await stage.transfer({ to: stage.wallet, suffix: idBytes(intent.id) });
      return [pays(intent)];
    },
  ),
  way("another merchant's intents expect this payout wallet: the shop's candidates stay", async (stage) => {
    const other = await stage.merchant();
    const [partly] = await stage.pair({ of: other, wallet: stage.wallet });
    await stage.change(partly, { amount_received_units: '1', amount_units: 'amount_units + 1' });
    await stage.intent({ amountUnits: 1n });
    const intent = await stage.intent();
    await stage.transfer({ to: stage.wallet });
    return [pays(intent)];
  }),
  way(
    "another merchant's intents expect this payout wallet: an id of the shop's pays none of them",
    async (stage) => {
      const other = await stage.merchant();
      await stage.pair({ of: other, wallet: stage.wallet });
      const [intent] = await stage.pair();
      await stage.transfer({ to: stage.wallet, suffix: idBytes(intent.id) });
      return [pays(intent)];
    },
  ),
  way('two merchants and one wallet, each with one candidate', async (stage) => {
    const other = await stage.merchant();
    const theirs = await stage.intent({ of: other, wallet: stage.wallet });
    await stage.intent({ of: other, wallet: stage.wallet, amountUnits: 1n });
    await stage.intent({ amountUnits: 2n });
    const ours = await stage.intent();
    await stage.transfer({ to: stage.wallet });
    return [pays(theirs), pays(ours)];
  }),
  way('a wallet that is not a payout wallet: reported to each merchant that expects it', async (stage) => {
    const [other, third] = [await stage.merchant(), await stage.merchant()];
    const wallet = stage.newWallet();
    await stage.pair({ wallet });
    await stage.pair({ wallet, of: other });
    await stage.intent({ of: third });
    await stage.transfer({ to: wallet });
    return [unattributed(stage.shop), unattributed(other)];
  }),
  way('a payout wallet: reported to its merchant, not to others that expect it', async (stage) => {
    const other = await stage.merchant();
    await stage.pair({ of: other, wallet: stage.wallet });
    await stage.transfer({ to: stage.wallet });
    return [unattributed(stage.shop)];
  }),
  way('a payout wallet of two merchants: reported to both', async (stage) => {
    const other = await stage.merchant();
    await stage.setPayoutWallet(other, stage.wallet);
    await stage.transfer({ to: stage.wallet });
    return [unattributed(stage.shop), unattributed(other)];
  }),
  way('a payout wallet of another chain and of another mode: not reported', async ({ shop, transfer }) => {
    await transfer({ to: shop.wallets.testnet.polygon as Address });
    await transfer({ to: shop.wallets.mainnet.base as Address });
    return [];
  }),
  way('a wallet that no intent ever named', async ({ transfer, newWallet }) => {
    await transfer({ to: newWallet() });
    return [];
  }),
  ...[29, 31].map((days) =>
    way(`a wallet that intents expected ${days} days ago`, async (stage) => {
      const wallet = stage.newWallet();
      await expectedDaysAgo(stage, wallet, days);
      await stage.transfer({ to: wallet });
      return days < 30 ? [unattributed(stage.shop)] : [];
    }),
  ),
  way('a wallet that over a hundred intents expected 31 days ago, and one of more expects', async (stage) => {
    const [wallet, amountUnits] = [stage.newWallet(), amount + 1n];
    await expectedDaysAgo(stage, wallet, 31, 101);
    const intent = await stage.intent({ wallet, amountUnits });
    await stage.transfer({ to: wallet, amountUnits });
    return [pays(intent)];
  }),
  way('a wallet that intents expected 31 days ago, with the id of one of them', async (stage) => {
    const wallet = stage.newWallet();
    const id = await expectedDaysAgo(stage, wallet, 31);
    await stage.transfer({ to: wallet, suffix: idBytes(id) });
    return [];
  }),
  way('an intent that was made a day ago and expired half an hour later', async (stage) => {
    const wallet = stage.newWallet();
    const other = await stage.intent({ wallet, amountUnits: amount + 1n });
    const id = await expectedDaysAgo(stage, wallet, 1, 1);
    await stage.transfer({ to: wallet });
    return [records({ ...other, id, amountUnits: amount }, ['late'], { status: 'expired' })];
  }),
];
