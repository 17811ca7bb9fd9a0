// The payer makes several calls at once: Multicall3, an account of EIP-7702, a Safe.

import { concatHex, encodeFunctionData, type Hex, multicall3Abi, stringToHex } from 'viem';
import { bridgedUsdcAddresses } from '../../src/contract/chains.ts';
import type { Call } from '../support/chain.ts';
import { idBytes } from '../support/settlement.ts';
import {
  amount,
  approveData,
  type Expected,
  type Intent,
  pays,
  type Row,
  records,
  type Stage,
  unattributed,
} from './stage.ts';

/** Calls of which two equal intents of the shop know, made by each who calls several contracts by himself. */
const batch = (
  name: string,
  callsFor: (first: Intent, second: Intent, stage: Stage) => Call[],
  expected: (first: Intent, second: Intent, stage: Stage) => Expected[],
): Row[] => [
  {
    name: `Multicall3: ${name}`,
    async pay(stage) {
      const [first, second] = await stage.pair();
      await stage.chain.multicall(callsFor(first, second, stage));
      return expected(first, second, stage);
    },
  },
  {
    name: `EIP-7702: ${name}`,
    async pay(stage) {
      const [first, second] = await stage.pair();
      await stage.chain.batch7702(stage.chain.accounts[3], callsFor(first, second, stage));
      return expected(first, second, stage);
    },
  },
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
    'one transfer, whose call with the id is there twice',
    (first, _, { callWithId }) => [withSuffix(callWithId(first), callWithId(first).data)],
    (_, __, { shop }) => [unattributed(shop)],
  ),
  ...batch(
    'an equal transfer to somebody else beside it',
    (first, _, { callWithId, plainCall, newWallet }) => [
      plainCall({ ...first, wallet: newWallet() }),
      callWithId(first),
    ],
    (first) => [pays(first)],
  ),
  ...batch(
    'an approval of the same amount beside it',
    (first, _, { chain, callWithId }) => [
      { to: chain.usdc, data: approveData(first.wallet, amount) },
      callWithId(first),
    ],
    (first) => [pays(first)],
  ),
  {
    name: 'Multicall3: an equal transfer of another token beside it, without an id',
    async pay(stage) {
      const [intent] = await stage.pair();
      const wrong = { ...stage.plainCall(intent), to: bridgedUsdcAddresses.usdbC };
      await stage.chain.multicall([wrong, stage.callWithId(intent)]);
      return [
        pays(intent, {
          labels: ['wrong_token'],
          events: ['processing', 'wrong_token'],
          transfers: [...pays(intent).transfers, ...records(intent, ['wrong_token']).transfers],
        }),
      ];
    },
  },
  {
    name: "Multicall3: somebody's allowance and an id beside its own transfer",
    async pay(stage) {
      const { chain, shop } = stage;
      const [intent] = await stage.pair();
      const { address: owner } = chain.accounts[1];
      await stage.approve(owner, chain.multicall3Address);
      await chain.multicall([
        stage.spendCall(owner, intent.wallet, stage.callWithId(intent).data),
        stage.plainCall(intent),
      ]);
      // Its own words name the intent once, and it paid once.
      return [pays(intent), unattributed(shop)];
    },
  },
  {
    name: "Multicall3: somebody's allowance, with an id",
    async pay(stage) {
      const { chain, shop } = stage;
      const [intent] = await stage.pair();
      const { address: owner } = chain.accounts[1];
      await stage.approve(owner, chain.multicall3Address);
      await chain.multicall([stage.spendCall(owner, intent.wallet, stage.callWithId(intent).data)]);
      return [unattributed(shop)];
    },
  },
  {
    name: "Multicall3: the sender's own allowance, with an id",
    async pay(stage) {
      const { chain, shop } = stage;
      const [intent] = await stage.pair();
      const { address: by } = chain.accounts[1];
      await stage.approve(by, chain.multicall3Address);
      await chain.multicall([stage.spendCall(by, intent.wallet, idBytes(intent.id))], { by });
      return [unattributed(shop)];
    },
  },
  {
    name: "Multicall3: the sender's own allowance, with the whole call of a transfer and the id",
    async pay(stage) {
      const { chain } = stage;
      const [intent] = await stage.pair();
      const { address: by } = chain.accounts[1];
      await stage.approve(by, chain.multicall3Address);
      await chain.multicall([stage.spendCall(by, intent.wallet, stage.callWithId(intent).data)], { by });
      // The owner of the money sent the transaction, and wrote the id.
      return [pays(intent)];
    },
  },
  {
    name: 'Multicall3, called by a Safe',
    async pay(stage) {
      const { chain, shop } = stage;
      const [intent] = await stage.pair();
      const { to, data } = stage.callWithId(intent);
      const targets = [{ target: to, allowFailure: false, callData: data }];
      await chain.safeExec({
        to: chain.multicall3Address,
        data: encodeFunctionData({ abi: multicall3Abi, functionName: 'aggregate3', args: [targets] }),
      });
      return [unattributed(shop)];
    },
  },

  {
    name: 'a Safe, with the id in what its owner has signed',
    async pay(stage) {
      const [intent] = await stage.pair();
      await stage.chain.safeExec(stage.callWithId(intent));
      return [pays(intent)];
    },
  },
  {
    name: 'a Safe, with its id and another one that the submitter appends',
    async pay(stage) {
      const [intent, thief] = await stage.pair();
      await stage.chain.safeExec(stage.callWithId(intent), { suffix: stage.callWithId(thief).data });
      return [pays(intent)];
    },
  },
  {
    name: 'a Safe, with an id that the submitter appends',
    async pay(stage) {
      const [thief] = await stage.pair();
      await stage.chain.safeExec(stage.plainCall(thief), { suffix: idBytes(thief.id) });
      return [unattributed(stage.shop)];
    },
  },
  {
    name: 'a Safe, with the whole call of a transfer and an id that the submitter appends',
    async pay(stage) {
      const [thief] = await stage.pair();
      await stage.chain.safeExec(stage.plainCall(thief), { suffix: stage.callWithId(thief).data });
      return [unattributed(stage.shop)];
    },
  },
  {
    name: "a Safe that spends somebody's allowance, with an id",
    async pay(stage) {
      const { chain, shop } = stage;
      const [thief] = await stage.pair();
      const { address: owner } = chain.accounts[1];
      await stage.approve(owner, chain.safe.address);
      await chain.safeExec(stage.spendCall(owner, thief.wallet, stage.callWithId(thief).data));
      return [unattributed(shop)];
    },
  },
];
