// Several users pay in one transaction of ERC-4337, which a bundler sends.

import { concatHex, type Hex } from 'viem';
import type { Call } from '../support/chain.ts';
import { type EntryPointVersion, randomNonce, type SimpleAccount } from '../support/entry-points.ts';
import { idBytes } from '../support/settlement.ts';
import { amount, type Intent, pays, type Row, type Stage, unattributed } from './stage.ts';

const stranger = '0x00000000000000000000000000000000DeaDBeef';

interface Cast {
  stage: Stage;
  users: [SimpleAccount, SimpleAccount, SimpleAccount];
  /** Equal intents of the shop. */
  intents: [Intent, Intent, Intent];
}

const append = ({ to, data }: Call, suffix: Hex): Call => ({ to, data: concatHex([data, suffix]) });

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
    row('an operation carries an id and pays nothing', async ({ stage, users, intents: [thief] }) => {
      const { data } = stage.callWithId(thief);
      await stage.chain.bundle([
        { account: users[0], to: stranger, data },
        { account: users[1], ...stage.plainCall(thief) },
        { account: users[2], to: stranger, data },
      ]);
      return [unattributed(stage.shop)];
    }),
    row(
      'an operation of the same nonce carries an id and pays nothing',
      async ({ stage, users, intents }) => {
        const [thief] = intents;
        const nonce = randomNonce();
        const { data } = stage.callWithId(thief);
        await stage.chain.bundle([
          { account: users[0], to: stranger, data, nonce },
          { account: users[1], ...stage.plainCall(thief), nonce },
          { account: users[2], to: stranger, data, nonce },
        ]);
        return [unattributed(stage.shop)];
      },
    ),
    row(
      'an operation of the same account carries an id and pays nothing',
      async ({ stage, users, intents }) => {
        const [thief] = intents;
        const { data } = stage.callWithId(thief);
        await stage.chain.bundle([
          { account: users[0], to: stranger, data },
          { account: users[0], ...stage.plainCall(thief) },
          { account: users[0], to: stranger, data },
        ]);
        return [unattributed(stage.shop)];
      },
    ),
    row('one account pays twice, with two ids', async ({ stage, users: [account], intents }) => {
      await stage.chain.bundle(intents.map((intent) => ({ account, ...stage.callWithId(intent) })));
      return intents.map((intent) => pays(intent));
    }),
    row('the bundler appends an id', async ({ stage, users: [account], intents: [thief] }) => {
      await stage.chain.bundle([{ account, ...stage.plainCall(thief) }], { suffix: idBytes(thief.id) });
      return [unattributed(stage.shop)];
    }),
    row(
      'the bundler appends the whole call and an id',
      async ({ stage, users: [account], intents: [thief] }) => {
        const suffix = stage.callWithId(thief).data;
        await stage.chain.bundle([{ account, ...stage.plainCall(thief) }], { suffix });
        return [unattributed(stage.shop)];
      },
    ),
    row('the bundler appends another id', async ({ stage, users: [account], intents: [intent, thief] }) => {
      const suffix = stage.callWithId(thief).data;
      await stage.chain.bundle([{ account, ...stage.callWithId(intent) }], { suffix });
      return [pays(intent)];
    }),
    row('an id next to another amount', async ({ stage, users: [account], intents: [intent] }) => {
      const other = stage.callWithId({ ...intent, amountUnits: amount + 1n });
      await stage.chain.bundle([{ account, ...append(stage.plainCall(intent), other.data) }]);
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
      'an operation spends the allowance of a user whose own names an id',
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
      'an equal transfer, and one of an allowance beside it',
      async ({ stage, users, intents: [intent] }) => {
        const [account, owner] = users;
        await stage.approve(owner.address, account.address);
        await stage.chain.bundle([
          { account: owner, ...stage.callWithId(intent) },
          { account, ...stage.spendCall(owner.address, intent.wallet) },
        ]);
        // The second one is no word of its owner.
        return [pays(intent), unattributed(stage.shop)];
      },
    ),
  ];
}

export const bundleRows: Row[] = [
  ...(['0.6', '0.7', '0.8'] as const).flatMap(rowsOf),
  {
    name: 'a bundle within Multicall3',
    async pay(stage) {
      const { chain, shop } = stage;
      const [intent] = await stage.pair();
      const [account] = chain.simpleAccounts['0.6'];
      await chain.multicall([await chain.bundleCall([{ account, ...stage.callWithId(intent) }])]);
      return [unattributed(shop)];
    },
  },
  {
    name: 'a bundle within an operation of another entry point',
    async pay(stage) {
      const { chain, shop } = stage;
      const [intent] = await stage.pair();
      const [inner] = chain.simpleAccounts['0.6'];
      const [outer] = chain.simpleAccounts['0.7'];
      const call = await chain.bundleCall([{ account: inner, ...stage.callWithId(intent) }]);
      await chain.bundle([{ account: outer, ...call, callGasLimit: 2_000_000n }]);
      return [unattributed(shop)];
    },
  },
  {
    name: 'a bundler pays by an operation of its own beside an equal one',
    async pay(stage) {
      const { chain } = stage;
      const [first, second] = await stage.pair();
      const owner = chain.accounts[3];
      // From now on it is an account that the entry point can call.
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
    },
  },
];
