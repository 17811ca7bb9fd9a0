// Blocks that anybody can fill with transfers of various kinds, for a few cents.

import {
  type Address,
  concatHex,
  encodeAbiParameters,
  encodeFunctionData,
  erc20Abi,
  type Hex,
  maxUint256,
} from 'viem';
import type { Call, TestChain } from './chain.ts';
import { idBytes } from './settlement.ts';

/** An attacker's contract, which no library has. */
const loopAddress: Address = '0x1009000000000000000000000000000000000001';
/**
 * Reads seven words: token, from, to, amount, step of the amount, count, step of the recipient. Calls the token's
 * `transferFrom` that often, adding the steps each time. Ignores what follows the words.
 */
const loopCode: Hex = concatHex([
  // The selector, then from, to and amount.
  '0x6323b872dd60e01b5f52',
  '0x6060602060043760a035',
  // The loop: call, or revert.
  '0x5b5f5f60645f5f5f355af1156040576044516080350160445260245160c03501602452600190038060145700',
  '0x5b5f5ffd',
]);

/** The kinds of transfers. Repeated calls have an id after them, like a payment of an intent. */
export const hostileKinds = [
  'distinct amounts',
  'equal amounts',
  'other recipients',
  'calls repeated by the owner',
  'calls repeated in an operation',
  'calls repeated in a Safe',
  'calls through Multicall3',
] as const;

const maxCalls = 1_000;

export type HostileKind = (typeof hostileKinds)[number];

export interface HostileTransfers {
  count: number;
  to: Address;
  /** The amount of the first transfer, or of all. */
  amountUnits: bigint;
  /** The public id of an intent, for kinds with an id. */
  intentId: string;
}

/** Prepares this chain for hostile blocks. Mines two blocks. */
export async function prepareHostileBlocks(chain: TestChain) {
  const [owner] = chain.accounts;
  const account = chain.simpleAccounts['0.7'][0];
  await chain.client.setCode({ address: loopAddress, bytecode: loopCode });
  const holders = [owner.address, account.address, chain.safe.address, chain.multicall3Address];
  for (const holder of holders) await chain.mint(holder, 10n ** 14n);
  await chain.mine();
  const approve = {
    to: chain.usdc,
    data: encodeFunctionData({ abi: erc20Abi, functionName: 'approve', args: [loopAddress, maxUint256] }),
  };
  await chain.send(owner.address, approve);
  await chain.bundle([{ account, ...approve }]);
  await chain.safeExec(approve);
  await chain.mine();

  /** Transfers from one holder, in one call. */
  const loop = (
    from: Address,
    { count, to, amountUnits }: HostileTransfers,
    { step = 0n, toStep = 0n, rest = '0x' as Hex } = {},
  ): Call => ({
    to: loopAddress,
    data: concatHex([
      encodeAbiParameters(
        [
          { type: 'address' },
          { type: 'address' },
          { type: 'address' },
          ...Array(4).fill({ type: 'uint256' }),
        ],
        [chain.usdc, from, to, amountUnits, step, BigInt(count), toStep],
      ),
      rest,
    ]),
  });
  /** The call of such a transfer with the id, repeated for each transfer. */
  const repeated = ({ count, to, amountUnits, intentId }: HostileTransfers): Hex => {
    const { data } = chain.transferCall({ to, amountUnits, suffix: idBytes(intentId) });
    return concatHex(Array(count).fill(data));
  };
  const gas = ({ count }: HostileTransfers) => 50_000_000n + BigInt(count) * 150_000n;

  const senders: Record<HostileKind, (transfers: HostileTransfers) => Promise<unknown>> = {
    'distinct amounts': (of) => chain.send(owner.address, loop(owner.address, of, { step: 1n }), gas(of)),
    'equal amounts': (of) => chain.send(owner.address, loop(owner.address, of), gas(of)),
    'other recipients': (of) => chain.send(owner.address, loop(owner.address, of, { toStep: 1n }), gas(of)),
    'calls repeated by the owner': (of) =>
      chain.send(owner.address, loop(owner.address, of, { rest: repeated(of) }), gas(of)),
    'calls repeated in an operation': (of) => {
      const call = loop(account.address, of, { rest: repeated(of) });
      const limits = { callGasLimit: gas(of) - 40_000_000n, verificationGasLimit: 10_000_000n };
      return chain.bundle([{ account, ...call, ...limits }], { gas: gas(of) });
    },
    'calls repeated in a Safe': (of) =>
      chain.safeExec(loop(chain.safe.address, of, { rest: repeated(of) }), { gas: gas(of) }),
    'calls through Multicall3': async (of) => {
      const { to, amountUnits, intentId, count } = of;
      const call = chain.transferCall({ to, amountUnits, suffix: idBytes(intentId) });
      // Anvil does not accept larger requests.
      for (let left = count; left > 0; left -= maxCalls) {
        await chain.multicall(Array(Math.min(left, maxCalls)).fill(call), { gas: 200_000_000n });
      }
    },
  };

  return {
    /** Sends transfers of one kind, for the next block: in one transaction, or a few. */
    fill: (kind: HostileKind, transfers: HostileTransfers): Promise<unknown> => senders[kind](transfers),
  };
}
