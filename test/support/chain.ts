// A chain for a test: anvil, with Circle's USDC and the contracts through which people pay. A block is mined only when
// the test says so. Every helper returns the hash of a transaction that waits for the next block.

import { once } from 'node:events';
import { type Address, concatHex, encodeFunctionData, erc20Abi, type Hex, parseEther } from 'viem';
import { mnemonicToAccount } from 'viem/accounts';
import { bridgedUsdcAddresses, type Network, networkFor } from '../../src/contract/chains.ts';
import { findAnvil, startAnvil } from '../../src/local-chain/anvil.ts';
import { type ChainClient, createChainClient } from '../../src/local-chain/chain-client.ts';
import { assertSucceeded, deployAt } from '../../src/local-chain/deploy-at.ts';
import { multicall3 } from '../../src/local-chain/multicall3.ts';
import { initializeUsdc, readUsdcArtifacts, usdcDeployments } from '../../src/local-chain/usdc.ts';

/** Anvil's own, known to everybody. */
const mnemonic = 'test test test test test test test test test test test junk';

/** Accounts with keys, which anvil has unlocked and given 10,000 ETH each. */
const accountAt = (addressIndex: number) => mnemonicToAccount(mnemonic, { addressIndex });
const accounts = [
  accountAt(0),
  accountAt(1),
  accountAt(2),
  accountAt(3),
  accountAt(4),
  accountAt(5),
] as const;
const issuer = accountAt(6).address;
const deployer = accountAt(7).address;

export interface ChainOptions {
  /** Base Sepolia unless another is given. */
  network?: Network;
  /** Blocks that can be reorganised away; each costs memory. */
  reorgDepth?: number;
  /** `finalized` is so many blocks behind `latest`, twice; 1 unless given. */
  slotsInAnEpoch?: number;
  /** Time of block 0 in whole seconds; now unless given. */
  genesisTimestamp?: number;
}

export interface Transfer {
  from: Address;
  to: Address;
  amountUnits: bigint;
  /** Bytes after the arguments. */
  suffix?: Hex | undefined;
  /** Native USDC unless another is given. */
  token?: Address | undefined;
}

export type TestChain = Awaited<ReturnType<typeof startChain>>;

/** Starts a chain of its own for a test. Stop it. */
export async function startChain(options: ChainOptions = {}) {
  const { network = networkFor('testnet', 'base'), reorgDepth = 300, slotsInAnEpoch = 1 } = options;
  const program = findAnvil();
  if (typeof program !== 'string') throw new Error(program.missing);
  const anvil = await startAnvil(program, [
    ...['--chain-id', String(network.chainId), '--no-mining', '--order', 'fifo'],
    ...['--slots-in-an-epoch', String(slotsInAnEpoch)],
    ...['--prune-history', String(reorgDepth), '--gas-limit', '1000000000', '--max-transactions', '10000'],
    ...(options.genesisTimestamp === undefined ? [] : ['--timestamp', String(options.genesisTimestamp)]),
  ]);
  const kill = () => anvil.process.kill('SIGKILL');
  process.once('exit', kill);
  const url = `http://127.0.0.1:${anvil.port}`;
  const client = createChainClient(url);
  const usdc = network.usdcAddress as Address;
  const tokens = [usdc, bridgedUsdcAddresses.usdcE, bridgedUsdcAddresses.usdbC];
  await deployTokens(client, tokens);

  const unlocked = new Set([...accounts.map(({ address }) => address), issuer, deployer]);

  /** Lets anvil send from any address, and gives the address the ETH for it. */
  async function unlock(address: Address): Promise<void> {
    if (unlocked.has(address)) return;
    unlocked.add(address);
    await client.impersonateAccount({ address });
    await fund(address);
  }

  async function fund(address: Address): Promise<void> {
    await client.setBalance({ address, value: parseEther('10000') });
  }

  /** Any transaction. Its gas is not estimated, so that it waits for the block even if it will revert there. */
  async function send(from: Address, to: Address, data: Hex, gas = 500_000n): Promise<Hex> {
    await unlock(from);
    return client.sendTransaction({ account: from, to, data, gas, chain: null });
  }

  return {
    network,
    url,
    client,
    usdc,
    accounts,
    send,
    /** Gives an address 10,000 ETH, at once. */
    fund,
    /** Mines `blocks`, `timestampStep` seconds apart, or the first of them at `timestamp`. */
    async mine(
      blocks = 1,
      { timestampStep, timestamp }: { timestampStep?: number; timestamp?: number } = {},
    ) {
      if (timestamp !== undefined) await client.setNextBlockTimestamp({ timestamp: BigInt(timestamp) });
      await client.mine({ blocks, ...(timestampStep !== undefined && { interval: timestampStep }) });
    },
    /** New money from Circle. */
    mint(to: Address, amountUnits: bigint, token = usdc): Promise<Hex> {
      const data = encodeFunctionData({ abi: mintAbi, functionName: 'mint', args: [to, amountUnits] });
      return send(issuer, token, data);
    },
    transfer({ from, to, amountUnits, suffix = '0x', token = usdc }: Transfer): Promise<Hex> {
      const call = encodeFunctionData({ abi: erc20Abi, functionName: 'transfer', args: [to, amountUnits] });
      return send(from, token, concatHex([call, suffix]));
    },
    /** Takes the newest `depth` blocks away and puts empty ones, with other hashes, in their place. */
    async reorg(depth: number): Promise<void> {
      await client.request<{ Method: 'anvil_reorg'; Parameters: [number, []]; ReturnType: null }>({
        method: 'anvil_reorg',
        params: [depth, []],
      });
    },
    async stop(): Promise<void> {
      process.off('exit', kill);
      anvil.process.ref();
      const exited = once(anvil.process, 'exit');
      kill();
      await exited;
    },
  };
}

const mintAbi = [
  {
    type: 'function',
    name: 'mint',
    inputs: [
      { name: 'to', type: 'address' },
      { name: 'amount', type: 'uint256' },
    ],
    outputs: [{ type: 'bool' }],
    stateMutability: 'nonpayable',
  },
] as const;

async function deployTokens(client: ChainClient, tokens: Address[]): Promise<void> {
  const artifacts = readUsdcArtifacts();
  await deployAt(client, deployer, [await multicall3(), ...usdcDeployments(artifacts, tokens)]);
  const hashes: Hex[] = [];
  for (const [index, token] of tokens.entries()) {
    const symbol = ['USDC', 'USDC.e', 'USDbC'][index] as string;
    hashes.push(...(await initializeUsdc(client, artifacts, token, issuer, { name: symbol, symbol })));
  }
  await client.mine({ blocks: 1 });
  for (const hash of hashes) await assertSucceeded(client, hash);
}
