// Shared by the rows of the attribution table: merchants, intents, payers with money, and expected outcomes.

import { randomBytes } from 'node:crypto';
import { type Address, bytesToHex, concatHex, encodeFunctionData, erc20Abi, type Hex } from 'viem';
import { getAddress } from 'viem/utils';
import { bridgedUsdcAddresses } from '../../src/contract/chains.ts';
import type { ModeName } from '../../src/contract/words.ts';
import { parseIdentifier } from '../../src/database/identifiers.ts';
import { setWallets } from '../../src/merchants/administration.ts';
import type { Call, TestChain } from '../support/chain.ts';
import type { TestMerchant, TestService } from '../support/service.ts';
import { idBytes } from '../support/settlement.ts';

/** The amount of an intent, unless a row sets another. */
export const amount = 12_500_000n;

export interface Intent {
  id: string;
  merchantId: string;
  wallet: Address;
  amountUnits: bigint;
}

export interface IntentOptions {
  /** Default: the shop. */
  of?: TestMerchant;
  amountUnits?: bigint;
  /** Default: the merchant's payout wallet. */
  wallet?: Address;
  chain?: 'base' | 'polygon';
  mode?: ModeName;
}

/** A row of `transfers` that a row of the table expects. */
export interface ExpectedTransfer {
  amountUnits: bigint;
  counts: boolean;
  labels: string[];
}

/** What is expected of an intent. */
export interface ExpectedIntent {
  intent: Intent;
  status: string;
  receivedUnits: bigint;
  labels: string[];
  /** Events of this change, without `payment_intent.`. */
  events: string[];
  transfers: ExpectedTransfer[];
}

/** Transfers that are reported to a merchant as unattributed. */
export interface ExpectedReport {
  reportedTo: TestMerchant;
  transfers: ExpectedTransfer[];
}

export type Expected = ExpectedIntent | ExpectedReport;

export interface Row {
  name: string;
  /** Sends transactions for the next block, and returns the expected outcomes. Nothing else may happen. */
  pay: (stage: Stage) => Promise<Expected[]>;
}

export type Stage = ReturnType<typeof createStage>;

/** What a stranger can attach to somebody's transfer to be paid by it. */
export const attachments: readonly [what: string, of: (thief: Intent, stage: Stage) => Hex][] = [
  ['an id', ({ id }) => idBytes(id)],
  ['the call of a transfer and an id', (thief, { callWithId }) => callWithId(thief).data],
];

export const way = (name: string, pay: Row['pay']): Row => ({ name, pay });

/** A row that begins with two intents between which only an id decides. */
export const paired = (
  name: string,
  pay: (stage: Stage, first: Intent, second: Intent) => Promise<Expected[]>,
): Row => ({ name, pay: async (stage) => pay(stage, ...(await stage.pair())) });

/** The intent gets these payments, which are the first thing that happens to it. */
export function pays(
  intent: Intent,
  { amounts = [intent.amountUnits], ...other }: { amounts?: bigint[] } & Partial<ExpectedIntent> = {},
): ExpectedIntent {
  const receivedUnits = amounts.reduce((sum, each) => sum + each, 0n);
  return {
    intent,
    status: 'processing',
    receivedUnits,
    labels: [],
    events: ['processing', ...(other.labels?.includes('overpaid') ? ['overpaid'] : [])],
    transfers: amounts.map((amountUnits) => ({ amountUnits, counts: true, labels: [] })),
    ...other,
  };
}

/** The intent gets less than its amount. */
export const paysPart = (intent: Intent, amountUnits: bigint): ExpectedIntent =>
  pays(intent, { amounts: [amountUnits], status: 'requires_payment', events: ['partially_paid'] });

/** One transfer is recorded with the intent, and does not count. */
export const records = (
  intent: Intent,
  labels: string[],
  { amountUnits = intent.amountUnits, ...other }: { amountUnits?: bigint } & Partial<ExpectedIntent> = {},
): ExpectedIntent => ({
  intent,
  status: 'requires_payment',
  receivedUnits: 0n,
  labels,
  events: [labels.includes('wrong_token') ? 'wrong_token' : 'late_payment'],
  transfers: [{ amountUnits, counts: false, labels }],
  ...other,
});

/** The transfers are unattributed, and are reported to this merchant. */
export const unattributed = (
  reportedTo: TestMerchant,
  amounts: readonly bigint[] = [amount],
  labels: string[] = [],
): ExpectedReport => ({
  reportedTo,
  transfers: amounts.map((amountUnits) => ({ amountUnits, counts: false, labels })),
});

/** Columns of an intent that ended unpaid so long before the newest block. */
export const endedBefore = (end: 'canceled' | 'expired', interval: string): Record<string, string> => ({
  status: `'${end}'`,
  [`${end}_at`]: `$2::timestamptz - interval '${interval}'`,
  created_at: `created_at - interval '2 days'`,
  expires_at: `expires_at - interval '2 days'`,
});

export function createStage(service: TestService, chain: TestChain, shop: TestMerchant) {
  const { em } = service.database.orm;
  const uuidOf = ({ id }: Intent) => parseIdentifier('pi', id);

  async function intent({
    of = shop,
    amountUnits = amount,
    wallet,
    chain: on = 'base',
    mode = 'testnet',
  }: IntentOptions = {}): Promise<Intent> {
    const answer = await fetch(`${service.publicUrl}/v1/payment_intents`, {
      method: 'POST',
      headers: { authorization: `Bearer ${of.keys[mode].apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({
        amount_units: Number(amountUnits),
        chain: on,
        ...(wallet && { wallet_address: wallet }),
      }),
    });
    const body = (await answer.json()) as { id: string; expected_wallet: Address };
    if (!answer.ok) throw new Error(JSON.stringify(body));
    return { id: body.id, merchantId: of.id, wallet: body.expected_wallet, amountUnits };
  }

  return {
    service,
    chain,
    /** The merchant who is paid. No other row uses it. */
    shop,
    /** The default wallet of the shop. */
    wallet: shop.wallets.testnet.base as Address,
    /** Creates another merchant. */
    merchant: () => service.newMerchant(),
    /** Changes the payout wallet of a merchant. */
    setPayoutWallet: (of: TestMerchant, base: Address) =>
      setWallets(em, of.merchantId, 'testnet', { base: base as TestMerchant['wallets']['testnet']['base'] }),
    /** A wallet that no intent has used. */
    newWallet: (): Address => getAddress(bytesToHex(randomBytes(20))),

    intent,
    /** Two intents between which only an id decides. */
    pair: async (options: IntentOptions = {}): Promise<[Intent, Intent]> => [
      await intent(options),
      await intent(options),
    ],
    cancel: async ({ id }: Intent, of = shop) => {
      const answer = await fetch(`${service.publicUrl}/v1/payment_intents/${id}/cancel`, {
        method: 'POST',
        headers: { authorization: `Bearer ${of.keys.testnet.apiKey}` },
      });
      if (!answer.ok) throw new Error(await answer.text());
    },
    /** Sets columns of an intent, by SQL expressions. `$2` is the time of the newest block. */
    async change(which: Intent, columns: Record<string, string>): Promise<void> {
      const { timestamp } = await chain.client.getBlock();
      const sets = Object.entries(columns).map(([name, expression]) => `${name} = ${expression}`);
      await service.query(
        `update payment_intents set ${sets.join(', ')} where id = $1 and $2::timestamptz is not null`,
        [uuidOf(which), new Date(Number(timestamp) * 1000).toISOString()],
      );
    },

    /** A direct transfer by the first account. */
    transfer: (payment: { to: Address; amountUnits?: bigint; suffix?: Hex; token?: Address }) =>
      chain.transfer({ from: chain.accounts[0].address, amountUnits: amount, ...payment }),
    /** The call of a transfer to the wallet of an intent, with its id. */
    callWithId: ({ wallet, amountUnits, id }: Intent) =>
      chain.transferCall({ to: wallet, amountUnits, suffix: idBytes(id) }),
    /** The same call without the id. */
    plainCall: ({ wallet, amountUnits }: Pick<Intent, 'wallet' | 'amountUnits'>) =>
      chain.transferCall({ to: wallet, amountUnits }),
    /** Lets another address spend USDC of the owner. */
    approve: (owner: Address, spender: Address, amountUnits = amount) =>
      chain.send(owner, { to: chain.usdc, data: approveData(spender, amountUnits) }),
    /** The call that spends what was approved, with bytes after its arguments. */
    spendCall: (from: Address, to: Address, suffix: Hex = '0x', amountUnits = amount): Call => ({
      to: chain.usdc,
      data: concatHex([
        encodeFunctionData({ abi: erc20Abi, functionName: 'transferFrom', args: [from, to, amountUnits] }),
        suffix,
      ]),
    }),
  };
}

export const approveData = (spender: Address, amountUnits: bigint) =>
  encodeFunctionData({ abi: erc20Abi, functionName: 'approve', args: [spender, amountUnits] });

/** Gives each payer more money than all rows need. */
export async function fundPayers(chain: TestChain): Promise<void> {
  const payers = [
    ...chain.accounts,
    ...Object.values(chain.simpleAccounts).flat(),
    chain.safe,
    { address: chain.multicall3Address },
  ];
  const plenty = 1_000_000_000_000n;
  for (const { address } of payers) await chain.mint(address, plenty);
  for (const token of Object.values(bridgedUsdcAddresses)) {
    await chain.mint(chain.accounts[0].address, plenty, token);
    await chain.mint(chain.multicall3Address, plenty, token);
  }
  await chain.mine();
}
