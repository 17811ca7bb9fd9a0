// The payer makes several calls at once: Multicall3, an EIP-7702 account, a Safe.

import { concatHex, encodeFunctionData, type Hex, multicall3Abi, stringToHex } from 'viem';
import { bridgedUsdcAddresses } from '../../src/contract/chains.ts';
import type { Call } from '../support/chain.ts';
import { type EntryPointVersion, randomNonce, type SimpleAccount } from '../support/entry-points.ts';
import { idBytes } from '../support/settlement.ts';
import {
  amount,
  approveData,
  attachments,
  type Expected,
  type Intent,
  paired,
  pays,
  type Row,
  records,
  type Stage,
  unattributed,
} from './stage.ts';

/** Calls that concern two equal intents of the shop, made through Multicall3 and by an EIP-7702 account. */
const batch = (
  name: string,
  callsFor: (first: Intent, second: Intent, stage: Stage) => Call[],
  expected: (first: Intent, second: Intent, stage: Stage) => Expected[],
): Row[] => [
  paired(`Multicall3: ${name}`, async (stage, first, second) => {
    await stage.chain.multicall(callsFor(first, second, stage));
    return expected(first, second, stage);
  }),
  paired(`EIP-7702: ${name}`, async (stage, first, second) => {
    await stage.chain.batch7702(stage.chain.accounts[3], callsFor(first, second, stage));
    return expected(first, second, stage);
  }),
];

const bothUnattributed = (_: Intent, __: Intent, { shop }: Stage) => [unattributed(shop, [amount, amount])];

const withSuffix = ({ to, data }: Call, suffix: Hex): Call => ({ to, data: concatHex([data, suffix]) });

export const batchRows: Row[] = [
  ...batch(
    'one transfer with its id',
    (first, _, { callWithId }) => [callWithId(first)],
    (first) => [pays(first)],
  ),
  ...batch(
    'two equal transfers with two ids',
    (first, second, { callWithId }) => [callWithId(first), callWithId(second)],
    bothUnattributed,
  ),
  ...batch(
    'two equal transfers with one id twice',
    (first, _, { callWithId }) => [callWithId(first), callWithId(first)],
    (first) => [pays(first, { amounts: [amount, amount], labels: ['overpaid'] })],
  ),
  ...batch(
    'two equal transfers, one with an id and one without',
    (first, _, { callWithId, plainCall }) => [callWithId(first), plainCall(first)],
    bothUnattributed,
  ),
  ...batch(
    'two transfers of different amounts, each with an id',
    (first, second, { callWithId }) => [
      callWithId(first),
      callWithId({ ...second, amountUnits: amount + 1n }),
    ],
    (first, second) => [pays(first), pays(second, { amounts: [amount + 1n], labels: ['overpaid'] })],
  ),
  ...batch(
    'other bytes between the transfer and the id',
    (first, _, { plainCall }) => [withSuffix(plainCall(first), concatHex(['0x00', idBytes(first.id)]))],
    (_, __, { shop }) => [unattributed(shop)],
  ),
  ...batch(
    'an id cut short',
    (first, _, { plainCall }) => [withSuffix(plainCall(first), idBytes(first.id.slice(0, -1)))],
    (_, __, { shop }) => [unattributed(shop)],
  ),
  ...batch(
    'the id, and more bytes after it',
    (first, second, { callWithId }) => [withSuffix(callWithId(first), stringToHex(`/${second.id}`))],
    (first) => [pays(first)],
  ),
  ...batch(
    'an id next to another amount',
    (first, second, { plainCall, callWithId }) => [
      withSuffix(plainCall(first), callWithId({ ...second, amountUnits: amount + 1n }).data),
    ],
    (_, __, { shop }) => [unattributed(shop)],
  ),
  ...batch(
    'an id next to another recipient',
    (first, second, { plainCall, callWithId, newWallet }) => [
      withSuffix(plainCall(first), callWithId({ ...second, wallet: newWallet() }).data),
    ],
    (_, __, { shop }) => [unattributed(shop)],
  ),
  ...batch(
    'one transfer, whose call with the id appears twice',
    (first, _, { callWithId }) => [withSuffix(callWithId(first), callWithId(first).data)],
    (_, __, { shop }) => [unattributed(shop)],
  ),
  ...batch(
    'an equal transfer to somebody else next to it',
    (first, _, { callWithId, plainCall, newWallet }) => [
      plainCall({ ...first, wallet: newWallet() }),
      callWithId(first),
    ],
    (first) => [pays(first)],
  ),
  ...batch(
    'an approval of the same amount next to it',
    (first, _, { chain, callWithId }) => [
      { to: chain.usdc, data: approveData(first.wallet, amount) },
      callWithId(first),
    ],
    (first) => [pays(first)],
  ),
  paired('Multicall3: an equal transfer of another token, without an id', async (stage, intent) => {
    const wrong = { ...stage.plainCall(intent), to: bridgedUsdcAddresses.usdbC };
    await stage.chain.multicall([wrong, stage.callWithId(intent)]);
    return [
      pays(intent, {
        labels: ['wrong_token'],
        events: ['processing', 'wrong_token'],
        transfers: [...pays(intent).transfers, ...records(intent, ['wrong_token']).transfers],
      }),
    ];
  }),
  paired("Multicall3: somebody's allowance and an id next to its own transfer", async (stage, intent) => {
    const { chain, shop } = stage;
    const { address: owner } = chain.accounts[1];
    await stage.approve(owner, chain.multicall3Address);
    await chain.multicall([
      stage.spendCall(owner, intent.wallet, stage.callWithId(intent).data),
      stage.plainCall(intent),
    ]);
    // Its own call names the intent once, and it paid once.
    return [pays(intent), unattributed(shop)];
  }),
  paired("Multicall3: somebody's allowance, with an id", async (stage, intent) => {
    const { chain, shop } = stage;
    const { address: owner } = chain.accounts[1];
    await stage.approve(owner, chain.multicall3Address);
    await chain.multicall([stage.spendCall(owner, intent.wallet, stage.callWithId(intent).data)]);
    return [unattributed(shop)];
  }),
  paired("Multicall3: the sender's own allowance, with an id", async (stage, intent) => {
    const { chain, shop } = stage;
    const { address: by } = chain.accounts[1];
    await stage.approve(by, chain.multicall3Address);
    await chain.multicall([stage.spendCall(by, intent.wallet, idBytes(intent.id))], { by });
    return [unattributed(shop)];
  }),
  paired(
    "Multicall3: the sender's own allowance, with the whole call of a transfer and the id",
    async (stage, intent) => {
      const { chain } = stage;
      const { address: by } = chain.accounts[1];
      await stage.approve(by, chain.multicall3Address);
      await chain.multicall([stage.spendCall(by, intent.wallet, stage.callWithId(intent).data)], { by });
      // The owner of the money sent the transaction, and wrote the id.
      return [pays(intent)];
    },
  ),
  paired('Multicall3, called by a Safe', async (stage, intent) => {
    const { chain, shop } = stage;
    const { to, data } = stage.callWithId(intent);
    const targets = [{ target: to, allowFailure: false, callData: data }];
    await chain.safeExec({
      to: chain.multicall3Address,
      data: encodeFunctionData({ abi: multicall3Abi, functionName: 'aggregate3', args: [targets] }),
    });
    return [unattributed(shop)];
  }),

  paired('a Safe, with the id in the calldata that its owner has signed', async (stage, intent) => {
    await stage.chain.safeExec(stage.callWithId(intent));
    return [pays(intent)];
  }),
  paired('a Safe, with its id and another one that the submitter appends', async (stage, intent, thief) => {
    await stage.chain.safeExec(stage.callWithId(intent), { suffix: stage.callWithId(thief).data });
    return [pays(intent)];
  }),
  ...attachments.map(([what, suffixOf]) =>
    paired(`a Safe, with ${what} that the submitter appends`, async (stage, thief) => {
      await stage.chain.safeExec(stage.plainCall(thief), { suffix: suffixOf(thief, stage) });
      return [unattributed(stage.shop)];
    }),
  ),
  paired("a Safe that spends somebody's allowance, with an id", async (stage, thief) => {
    const { chain, shop } = stage;
    const { address: owner } = chain.accounts[1];
    await stage.approve(owner, chain.safe.address);
    await chain.safeExec(stage.spendCall(owner, thief.wallet, stage.callWithId(thief).data));
    return [unattributed(shop)];
  }),
];

// Several users pay in one ERC-4337 transaction, which a bundler sends.

const stranger = '0x00000000000000000000000000000000DeaDBeef';

interface Cast {
  stage: Stage;
  users: [SimpleAccount, SimpleAccount, SimpleAccount];
  /** Equal intents of the shop. */
  intents: [Intent, Intent, Intent];
}

function rowsOf(version: EntryPointVersion): Row[] {
  const row = (name: string, pay: (cast: Cast) => ReturnType<Row['pay']>): Row => ({
    name: `entry point ${version}: ${name}`,
    async pay(stage) {
      const intents: Cast['intents'] = [...(await stage.pair()), await stage.intent()];
      return pay({ stage, users: stage.chain.simpleAccounts[version], intents });
    },
  });
  return [
    row('three users pay the same amount, each with an id', async ({ stage, users, intents }) => {
      const calls = intents.map((intent) => stage.callWithId(intent));
      await stage.chain.bundle(users.map((account, i) => ({ account, ...(calls[i] as Call) })));
      return intents.map((intent) => pays(intent));
    }),
    row('three users pay the same amount, the second one with an id', async ({ stage, users, intents }) => {
      const calls = intents.map((intent, i) => (i === 1 ? stage.callWithId : stage.plainCall)(intent));
      await stage.chain.bundle(users.map((account, i) => ({ account, ...(calls[i] as Call) })));
      return [pays(intents[1]), unattributed(stage.shop, [amount, amount])];
    }),
    ...(
      [
        ['an operation', [0, 1, 2], () => ({})],
        ['an operation of the same nonce', [0, 1, 2], () => ({ nonce: randomNonce() })],
        ['an operation of the same account', [0, 0, 0], () => ({})],
      ] as const
    ).map(([what, [before, paying, after], nonceOf]) =>
      row(`${what} carries an id and pays nothing`, async ({ stage, users, intents: [thief] }) => {
        const other = { to: stranger, data: stage.callWithId(thief).data, ...nonceOf() } as const;
        await stage.chain.bundle([
          { account: users[before], ...other },
          { account: users[paying], ...other, ...stage.plainCall(thief) },
          { account: users[after], ...other },
        ]);
        return [unattributed(stage.shop)];
      }),
    ),
    row('one account pays twice, with two ids', async ({ stage, users: [account], intents }) => {
      await stage.chain.bundle(intents.map((intent) => ({ account, ...stage.callWithId(intent) })));
      return intents.map((intent) => pays(intent));
    }),
    ...attachments.map(([what, suffixOf]) =>
      row(`the bundler appends ${what}`, async ({ stage, users: [account], intents: [thief] }) => {
        const suffix = suffixOf(thief, stage);
        await stage.chain.bundle([{ account, ...stage.plainCall(thief) }], { suffix });
        return [unattributed(stage.shop)];
      }),
    ),
    row('the bundler appends another id', async ({ stage, users: [account], intents: [intent, thief] }) => {
      const suffix = stage.callWithId(thief).data;
      await stage.chain.bundle([{ account, ...stage.callWithId(intent) }], { suffix });
      return [pays(intent)];
    }),
    row('an id next to another amount', async ({ stage, users: [account], intents: [intent] }) => {
      const other = stage.callWithId({ ...intent, amountUnits: amount + 1n });
      await stage.chain.bundle([{ account, ...withSuffix(stage.plainCall(intent), other.data) }]);
      return [unattributed(stage.shop)];
    }),
    row("an operation spends another user's allowance", async ({ stage, users, intents: [thief] }) => {
      const [account, owner] = users;
      await stage.approve(owner.address, account.address);
      const call = stage.spendCall(owner.address, thief.wallet, stage.callWithId(thief).data);
      await stage.chain.bundle([{ account, ...call }]);
      return [unattributed(stage.shop)];
    }),
    row(
      'an operation spends the allowance of a user whose own operation has an id',
      async ({ stage, users, intents }) => {
        const [account, owner] = users;
        const [intent] = intents;
        const nonce = randomNonce();
        await stage.approve(owner.address, account.address);
        await stage.chain.bundle([
          { account, ...stage.spendCall(owner.address, intent.wallet), nonce },
          { account: owner, to: stranger, data: stage.callWithId(intent).data, nonce },
        ]);
        return [unattributed(stage.shop)];
      },
    ),
    row(
      'an equal transfer, and one from an allowance next to it',
      async ({ stage, users, intents: [intent] }) => {
        const [account, owner] = users;
        await stage.approve(owner.address, account.address);
        await stage.chain.bundle([
          { account: owner, ...stage.callWithId(intent) },
          { account, ...stage.spendCall(owner.address, intent.wallet) },
        ]);
        // The owner of the money did not write the second one.
        return [pays(intent), unattributed(stage.shop)];
      },
    ),
  ];
}

export const bundleRows: Row[] = [
  ...(['0.6', '0.7', '0.8'] as const).flatMap(rowsOf),
  paired('a bundle within Multicall3', async (stage, intent) => {
    const { chain, shop } = stage;
    const [account] = chain.simpleAccounts['0.6'];
    await chain.multicall([await chain.bundleCall([{ account, ...stage.callWithId(intent) }])]);
    return [unattributed(shop)];
  }),
  paired('a bundle within an operation of another entry point', async (stage, intent) => {
    const { chain, shop } = stage;
    const [inner] = chain.simpleAccounts['0.6'];
    const [outer] = chain.simpleAccounts['0.7'];
    const call = await chain.bundleCall([{ account: inner, ...stage.callWithId(intent) }]);
    await chain.bundle([{ account: outer, ...call, callGasLimit: 2_000_000n }]);
    return [unattributed(shop)];
  }),
  paired('a bundler pays by an operation of its own next to an equal one', async (stage, first, second) => {
    const { chain } = stage;
    const owner = chain.accounts[3];
    // Makes it an account that the entry point can call.
    await chain.batch7702(owner, []);
    await chain.mine();
    const bundler: SimpleAccount = { version: '0.8', address: owner.address, owner };
    const [user] = chain.simpleAccounts['0.8'];
    const operations = [
      { account: bundler, ...stage.callWithId(first) },
      { account: user, ...stage.callWithId(second) },
    ];
    await chain.bundle(operations, { by: owner.address });
    return [pays(first), pays(second)];
  }),
];
