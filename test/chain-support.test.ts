// The tests' own chain does what its helpers say, as its logs show.

import { erc20Abi, parseEventLogs, stringToHex } from 'viem';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startChain, type TestChain } from './support/chain.ts';

let chain: TestChain;
beforeAll(async () => {
  chain = await startChain();
});
afterAll(() => chain.stop());

const id = stringToHex('pi_01m7yzn0mtexwagr0spq4wg7vz');
const wallet = '0xDDf6EDe5C9525Bd7A5BF244C600195c559358Ab2';

/** Transfers in a mined transaction. */
async function transfersOf(hash: `0x${string}`) {
  const { logs, status } = await chain.client.getTransactionReceipt({ hash });
  expect(status).toBe('success');
  return parseEventLogs({ abi: erc20Abi, logs, eventName: 'Transfer' }).map(({ address, args }) => ({
    token: address,
    ...args,
  }));
}

test('a transfer carries bytes after its arguments', async () => {
  const [payer] = chain.accounts;
  await chain.mint(payer.address, 5_000_000n);
  const hash = await chain.transfer({ from: payer.address, to: wallet, amountUnits: 3_000_000n, suffix: id });
  await chain.mine();
  expect(await transfersOf(hash)).toHaveLength(1);
  expect((await chain.client.getTransaction({ hash })).input.endsWith(id.slice(2))).toBe(true);
});

test('a reorganisation takes a transfer away', async () => {
  const before = await chain.client.getBlock();
  const hash = await chain.mint(wallet, 1n);
  await chain.mine(3);
  await chain.reorg(3);
  expect((await chain.client.getBlock({ blockNumber: before.number })).hash).toBe(before.hash);
  await expect(chain.client.getTransactionReceipt({ hash })).rejects.toThrow();
});
