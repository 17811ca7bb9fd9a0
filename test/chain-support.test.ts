// The test chain: every helper has its documented effect, according to the logs of its transaction.

import { type Address, erc20Abi, type Hex, numberToHex, parseEventLogs, stringToHex } from 'viem';
import { entryPoint08Abi } from 'viem/account-abstraction';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { bridgedUsdcAddresses } from '../src/contract/chains.ts';
import { startChain, type TestChain } from './support/chain.ts';

let chain: TestChain;
beforeAll(async () => {
  chain = await startChain();
});
afterAll(() => chain.stop());

const id = stringToHex('pi_01m7yzn0mtexwagr0spq4wg7vz');
const otherId = stringToHex('pi_01m7yzn1c0edqrx1nberv1e58s');
const wallet: Address = '0xDDf6EDe5C9525Bd7A5BF244C600195c559358Ab2';
const stranger: Address = '0x00000000000000000000000000000000DeaDBeef';

const receiptOf = (hash: Hex) => chain.client.getTransactionReceipt({ hash });

/** The transfers that a mined transaction logged, in their order. */
async function transfersOf(hash: Hex) {
  const { logs, status } = await receiptOf(hash);
  expect(status).toBe('success');
  return parseEventLogs({ abi: erc20Abi, logs, eventName: 'Transfer' }).map(({ address, args }) => ({
    token: address,
    ...args,
  }));
}

const inputOf = async (hash: Hex) => (await chain.client.getTransaction({ hash })).input;

function usdcTransfer(from: Address, value: bigint, to: Address = wallet) {
  return { token: chain.usdc.toLowerCase() as Address, from, to, value };
}

test('a transfer carries bytes after its arguments', async () => {
  const [payer] = chain.accounts;
  await chain.mint(payer.address, 3_000_000n);
  const hash = await chain.transfer({ from: payer.address, to: wallet, amountUnits: 3_000_000n, suffix: id });
  await chain.mine();
  expect(await transfersOf(hash)).toEqual([usdcTransfer(payer.address, 3_000_000n)]);
  expect(await inputOf(hash)).toMatch(new RegExp(`^0xa9059cbb.*${id.slice(2)}$`));
});

test('a transfer can come from an address without a key', async () => {
  await chain.mint(stranger, 1n);
  const hash = await chain.transfer({ from: stranger, to: wallet, amountUnits: 1n });
  await chain.mine();
  expect(await transfersOf(hash)).toEqual([usdcTransfer(stranger, 1n)]);
});

test('a mint logs a transfer from address 0', async () => {
  const hash = await chain.mint(wallet, 7n);
  await chain.mine();
  expect(await transfersOf(hash)).toEqual([usdcTransfer('0x0000000000000000000000000000000000000000', 7n)]);
});

test.for([
  ['USDC.e', bridgedUsdcAddresses.usdcE],
  ['USDbC', bridgedUsdcAddresses.usdbC],
] as const)('%s is another token with the same behaviour', async ([symbol, token]) => {
  await chain.mint(stranger, 5n, token);
  const hash = await chain.transfer({ from: stranger, to: wallet, amountUnits: 5n, token });
  await chain.mine();
  expect(await transfersOf(hash)).toEqual([
    { ...usdcTransfer(stranger, 5n), token: token.toLowerCase() as Address },
  ]);
  expect(await chain.client.readContract({ address: token, abi: erc20Abi, functionName: 'symbol' })).toBe(
    symbol,
  );
});

test('transferFrom moves money of another than the sender', async () => {
  await chain.mint(stranger, 2n);
  const hash = await chain.transferFrom({ from: stranger, to: wallet, amountUnits: 2n, suffix: id });
  await chain.mine();
  expect(await transfersOf(hash)).toEqual([usdcTransfer(stranger, 2n)]);
  expect((await chain.client.getTransaction({ hash })).from).not.toBe(stranger.toLowerCase());
  expect(await inputOf(hash)).toMatch(new RegExp(`^0x23b872dd.*${id.slice(2)}$`));
});

test('an authorization can be submitted by a relayer that appends bytes', async () => {
  const [, owner] = chain.accounts;
  await chain.mint(owner.address, 4n);
  const hash = await chain.transferWithAuthorization({
    from: owner,
    to: wallet,
    amountUnits: 4n,
    by: stranger,
    suffix: otherId,
  });
  await chain.mine();
  expect(await transfersOf(hash)).toEqual([usdcTransfer(owner.address, 4n)]);
  expect((await chain.client.getTransaction({ hash })).from).toBe(stranger.toLowerCase());
  expect(await inputOf(hash)).toMatch(new RegExp(`^0xe3ee160e.*${otherId.slice(2)}$`));
});

test('Multicall3 pays from its own balance', async () => {
  await chain.mint(chain.multicall3Address, 30n);
  const hash = await chain.multicall([
    chain.transferCall({ to: wallet, amountUnits: 10n, suffix: id }),
    chain.transferCall({ to: wallet, amountUnits: 20n }),
  ]);
  await chain.mine();
  expect(await transfersOf(hash)).toEqual([
    usdcTransfer(chain.multicall3Address, 10n),
    usdcTransfer(chain.multicall3Address, 20n),
  ]);
  // The id follows selector, address and amount at once.
  const { data } = chain.transferCall({ to: wallet, amountUnits: 10n, suffix: id });
  expect(await inputOf(hash)).toContain(data.slice(2));
});

test.for(['0.6', '0.7', '0.8'] as const)(
  'a bundle of entry point %s pays for three users',
  async (version) => {
    const users = chain.simpleAccounts[version];
    for (const { address } of users) await chain.mint(address, 12n);
    const hash = await chain.bundle(
      users.map((account, index) => ({
        account,
        ...chain.transferCall({ to: wallet, amountUnits: 12n, suffix: index === 1 ? id : undefined }),
      })),
      { suffix: otherId },
    );
    await chain.mine();
    expect(await transfersOf(hash)).toEqual(users.map(({ address }) => usdcTransfer(address, 12n)));
    expect(await inputOf(hash)).toMatch(new RegExp(`${id.slice(2)}.*${otherId.slice(2)}$`));

    // Each user's transfer stands between the event before it and the user's own.
    const { logs } = await receiptOf(hash);
    const order = parseEventLogs({ abi: [...entryPoint08Abi, ...erc20Abi], logs }).map(
      ({ eventName, args }) =>
        eventName === 'UserOperationEvent'
          ? `operation of ${(args as { sender: Address }).sender}`
          : eventName === 'Transfer'
            ? `transfer of ${(args as { from: Address }).from}`
            : eventName,
    );
    expect(order).toEqual([
      'BeforeExecution',
      ...users.flatMap(({ address }) => [`transfer of ${address}`, `operation of ${address}`]),
    ]);
  },
);

test('a bundle of entry point 0.6 can be nested in another contract', async () => {
  const [user] = chain.simpleAccounts['0.6'];
  await chain.mint(user.address, 1n);
  const operation = { account: user, ...chain.transferCall({ to: wallet, amountUnits: 1n }) };
  const hash = await chain.multicall([await chain.bundleCall([operation])]);
  await chain.mine();
  expect(await transfersOf(hash)).toEqual([usdcTransfer(user.address, 1n)]);
});

test('a Safe executes a transfer signed by its owner', async () => {
  await chain.mint(chain.safe.address, 9n);
  const call = chain.transferCall({ to: wallet, amountUnits: 9n, suffix: id });
  const hash = await chain.safeExec(call, { by: stranger, suffix: otherId });
  await chain.mine();
  expect(await transfersOf(hash)).toEqual([usdcTransfer(chain.safe.address, 9n)]);
  expect(await inputOf(hash)).toMatch(new RegExp(`^0x6a761202.*${id.slice(2)}.*${otherId.slice(2)}$`));
});

test('an EIP-7702 account makes two transfers in one transaction to itself', async () => {
  const [, , , owner] = chain.accounts;
  await chain.mint(owner.address, 3n);
  for (const [first, second] of [
    [1n, 1n],
    [1n, 0n],
  ] as const) {
    const hash = await chain.batch7702(owner, [
      chain.transferCall({ to: wallet, amountUnits: first, suffix: id }),
      chain.transferCall({ to: wallet, amountUnits: second }),
    ]);
    await chain.mine();
    expect(await transfersOf(hash)).toEqual([
      usdcTransfer(owner.address, first),
      usdcTransfer(owner.address, second),
    ]);
    const { from, to } = await chain.client.getTransaction({ hash });
    expect(from).toBe(to);
  }
});

test('a blacklisted address cannot receive USDC', async () => {
  const restore = await chain.checkpoint();
  await chain.mint(stranger, 2n);
  await chain.blacklist(wallet);
  const refused = await chain.transfer({ from: stranger, to: wallet, amountUnits: 1n });
  const other = await chain.transfer({ from: stranger, to: chain.safe.address, amountUnits: 1n });
  await chain.mine();
  expect(await receiptOf(refused)).toMatchObject({ status: 'reverted', logs: [] });
  expect(await transfersOf(other)).toHaveLength(1);
  await restore();
});

test('transfers fail while the token is paused', async () => {
  await chain.mint(stranger, 1n);
  await chain.pause();
  const refused = await chain.transfer({ from: stranger, to: wallet, amountUnits: 1n });
  await chain.unpause();
  const later = await chain.transfer({ from: stranger, to: wallet, amountUnits: 1n });
  await chain.mine();
  expect((await receiptOf(refused)).status).toBe('reverted');
  expect(await transfersOf(later)).toHaveLength(1);
});

test('a test can return to a checkpoint any number of times', async () => {
  const before = await chain.client.getBlock();
  const restore = await chain.checkpoint();
  const other: Address = '0x00000000000000000000000000000000000c0ffe';
  for (let round = 0; round < 3; round++) {
    await chain.mint(other, 1n);
    const hash = await chain.transfer({ from: other, to: wallet, amountUnits: 1n });
    await chain.mine();
    expect(await transfersOf(hash)).toHaveLength(1);
    await chain.reorg(1);
    await chain.mine(2);
    await restore();
    expect((await chain.client.getBlock()).hash).toBe(before.hash);
    expect((await chain.client.getTxpoolStatus()).pending).toBe(0);
  }
});

test('a test controls when blocks are mined, and their times', async () => {
  const before = await chain.client.getBlock();
  const timestamp = Number(before.timestamp) + 100;
  await chain.mine(3, { timestamp, timestampStep: 2 });
  const times: number[] = [];
  for (const offset of [1n, 2n, 3n]) {
    const block = await chain.client.getBlock({ blockNumber: before.number + offset });
    times.push(Number(block.timestamp) - timestamp);
  }
  expect(times).toEqual([0, 2, 4]);
  expect(await chain.client.getBlockNumber()).toBe(before.number + 3n);
});

test('safe and finalized follow the newest block', async () => {
  await chain.mine(3);
  const numbers: bigint[] = [];
  for (const blockTag of ['latest', 'safe', 'finalized'] as const) {
    numbers.push((await chain.client.getBlock({ blockTag })).number);
  }
  const [latest = 0n] = numbers;
  expect(numbers).toEqual([latest, latest - 1n, latest - 2n]);
});

test('a reorganisation removes a transfer', async () => {
  const before = await chain.client.getBlock();
  const hash = await chain.mint(wallet, 1n);
  await chain.mine(3);
  const gone = await chain.client.getBlock();
  await chain.reorg(3);
  expect((await chain.client.getBlock({ blockNumber: before.number })).hash).toBe(before.hash);
  expect(await chain.client.getBlock()).toMatchObject({ number: gone.number });
  expect((await chain.client.getBlock()).hash).not.toBe(gone.hash);
  await expect(receiptOf(hash)).rejects.toThrow();
  await chain.mine();
  await expect(receiptOf(hash)).rejects.toThrow();
});

test('a transaction can return in another block of a reorganisation', async () => {
  const [, , , , payer] = chain.accounts;
  await chain.mint(payer.address, 1n);
  await chain.mine();
  const hash = await chain.transfer({ from: payer.address, to: wallet, amountUnits: 1n, suffix: id });
  await chain.mine(3);
  const before = await receiptOf(hash);
  await chain.reorg(3, [{ hash, index: 2 }]);
  const after = await receiptOf(hash);
  expect(after.blockNumber).toBe(before.blockNumber + 2n);
  expect(after.blockHash).not.toBe(before.blockHash);
  expect(await transfersOf(hash)).toEqual([usdcTransfer(payer.address, 1n)]);
});

test('a reorganisation of 250 blocks', async () => {
  await chain.mine(250);
  const gone = await chain.client.getBlock();
  await chain.reorg(250);
  expect((await chain.client.getBlock({ blockNumber: gone.number })).hash).not.toBe(gone.hash);
});

test('a block holds 2,000 transfers of one sender', async () => {
  await chain.mint(stranger, 2_000n);
  const calls = Array.from({ length: 2_000 }, (_, index) =>
    chain.transferCall({ to: wallet, amountUnits: 1n, suffix: numberToHex(index, { size: 2 }) }),
  );
  const hashes = await chain.sendMany(stranger, calls);
  await chain.mine();
  const logs = await chain.client.getLogs({ address: chain.usdc });
  expect(logs.slice(-2_000).map(({ transactionHash }) => transactionHash)).toEqual(hashes);
});
