// A chain for a test: anvil, with Circle's USDC and the contracts through which people pay. A block is mined
// only when the test says so. Helpers that pay return a transaction hash, which waits for the next block.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  type Address,
  concatHex,
  encodeFunctionData,
  erc20Abi,
  type Hex,
  maxUint256,
  multicall3Abi,
  parseAbi,
  parseEther,
  parseGwei,
} from 'viem';
import type { PrivateKeyAccount } from 'viem/accounts';
import { type Network, networkFor } from '../../src/contract/chains.ts';
import { findAnvil, startAnvil } from '../../src/embedded/anvil.ts';
import { type ChainClient, createChainClient } from '../../src/embedded/chain-client.ts';
import { multicall3Address } from '../../src/embedded/contracts.ts';
import { accounts, delegateAddress, deployContracts, deployer, issuer, relayer } from './chain-contracts.ts';
import { entryPointAddress, handleOpsCalldata, type Operation, versionOf } from './entry-points.ts';
import { execTransactionCalldata } from './safe.ts';
import { partsCallOf, sign } from './x402.ts';

export interface ChainOptions {
  /** Default: Base Sepolia. */
  network?: Network;
  /** The number of blocks that can be reorged, whose state is kept. Default: 300. */
  reorgDepth?: number;
  /** Blocks between `latest` and `safe`, and between `safe` and `finalized`. Default: 1. */
  slotsInAnEpoch?: number;
  /** The time of block 0 in whole seconds. Default: now. */
  genesisTimestamp?: number;
}

export interface Call {
  to: Address;
  data: Hex;
}

export interface Payment {
  to: Address;
  amountUnits: bigint;
  /** Bytes after the arguments. */
  suffix?: Hex | undefined;
  /** Default: native USDC. */
  token?: Address | undefined;
}

export interface SubmittedBy {
  /** The sender of the transaction. Default: an account of the chain. */
  by?: Address | undefined;
  /** Bytes that the sender appends to the transaction's input. */
  suffix?: Hex | undefined;
  /** Default: 1,000,000, or 20,000,000 for a bundle. */
  gas?: bigint | undefined;
}

/** A chain with its helpers. */
export type TestChain = Awaited<ReturnType<typeof startChain>>;

/** Starts a chain for one test, in about 0.5 s. The caller stops it. */
export async function startChain(options: ChainOptions = {}) {
  const { network = networkFor('testnet', 'base') } = options;
  const { chainId } = network;
  const { url, stop } = await startNode(options, chainId);
  const client = createChainClient(url);
  // Anvil reads its clock twice when it starts, and stays a second behind if the second ends in between. A
  // block could then be older than an intent that was created before it.
  if (options.genesisTimestamp === undefined) await client.increaseTime({ seconds: 1 });
  const usdc = network.tokenAddress as Address;
  const contracts = await deployContracts(client, usdc);

  const ownAddresses = [...accounts.map(({ address }) => address), issuer, deployer, relayer];
  let unlocked = new Set<Address>(ownAddresses);

  /** Lets anvil send from an address, and gives the address the ETH for it. */
  async function unlock(address: Address): Promise<void> {
    if (unlocked.has(address)) return;
    unlocked.add(address);
    await client.impersonateAccount({ address });
    await fund(address);
  }

  async function fund(address: Address): Promise<void> {
    await client.setBalance({ address, value: parseEther('10000') });
  }

  /** Sends without a gas estimate, so that a transaction is mined even if it reverts. */
  async function send(from: Address, { to, data }: Call, gas = 1_000_000n): Promise<Hex> {
    await unlock(from);
    return client.sendTransaction({ account: from, to, data, gas, chain: null });
  }

  /** Sets the nonces, because concurrent transactions would otherwise get the same one. */
  async function sendMany(from: Address, calls: readonly Call[], gas = 100_000n): Promise<Hex[]> {
    await unlock(from);
    const first = await client.getTransactionCount({ address: from, blockTag: 'pending' });
    const hashes: Hex[] = [];
    for (let begin = 0; begin < calls.length; begin += 100) {
      const sent = calls
        .slice(begin, begin + 100)
        .map(({ to, data }, index) =>
          client.sendTransaction({ account: from, to, data, gas, nonce: first + begin + index, chain: null }),
        );
      hashes.push(...(await Promise.all(sent)));
    }
    return hashes;
  }

  const submit = (call: Call, { by = relayer, suffix = '0x', gas }: SubmittedBy) =>
    send(by, { to: call.to, data: concatHex([call.data, suffix]) }, gas);

  function transferCall({ to, amountUnits, suffix = '0x', token = usdc }: Payment): Call {
    const call = encodeFunctionData({ abi: erc20Abi, functionName: 'transfer', args: [to, amountUnits] });
    return { to: token, data: concatHex([call, suffix]) };
  }

  const ofIssuer = (functionName: 'pause' | 'unpause', token: Address) =>
    send(issuer, { to: token, data: encodeFunctionData({ abi: issuerAbi, functionName }) });

  return {
    network,
    url,
    client,
    usdc,
    /** Six accounts with keys. */
    accounts,
    /** Three for each version of the entry point, owned by the first three accounts. */
    simpleAccounts: contracts.simpleAccounts,
    /** Owned by the first account. */
    safe: contracts.safe,
    multicall3Address,

    /** Sends any transaction from any address. */
    send,
    /** Sends many transactions from one address, in their order. */
    sendMany,
    /** Gives an address 10,000 ETH immediately. */
    fund,

    /** Mines blocks, `timestampStep` seconds apart. The first has the time `timestamp`, if given. */
    async mine(
      blocks = 1,
      { timestampStep, timestamp }: { timestampStep?: number; timestamp?: number } = {},
    ): Promise<void> {
      if (timestamp !== undefined) await client.setNextBlockTimestamp({ timestamp: BigInt(timestamp) });
      await client.mine({ blocks, ...(timestampStep !== undefined && { interval: timestampStep }) });
    },

    /** Returns a function that resets the chain to its present state, in about 3 ms, any number of times. */
    async checkpoint(): Promise<() => Promise<void>> {
      let id = await client.snapshot();
      return async () => {
        await client.revert({ id });
        id = await client.snapshot();
        // Other accounts lose the ETH that they were given meanwhile.
        unlocked = new Set(ownAddresses);
      };
    },

    /**
     * Replaces the newest `depth` blocks by as many new ones. They are empty, except for the transactions
     * `again`: each returns in the new block of that index, 0 being the oldest.
     */
    async reorg(depth: number, again: readonly { hash: Hex; index: number }[] = []): Promise<void> {
      const transactions = await Promise.all(
        again.map(async ({ hash, index }) => [await rawTransaction(client, hash), index] as const),
      );
      await client.request<{ Method: 'anvil_reorg'; Parameters: unknown[]; ReturnType: null }>({
        method: 'anvil_reorg',
        params: [depth, transactions],
      });
    },

    /** Mints new money, as Circle. */
    mint(to: Address, amountUnits: bigint, token = usdc): Promise<Hex> {
      const data = encodeFunctionData({ abi: issuerAbi, functionName: 'mint', args: [to, amountUnits] });
      return send(issuer, { to: token, data });
    },
    /** Keeps the address from sending and receiving, as Circle. */
    blacklist(address: Address, token = usdc): Promise<Hex> {
      const data = encodeFunctionData({ abi: issuerAbi, functionName: 'blacklist', args: [address] });
      return send(issuer, { to: token, data });
    },
    /** Stops all transfers, as Circle. */
    pause: (token = usdc) => ofIssuer('pause', token),
    unpause: (token = usdc) => ofIssuer('unpause', token),

    /** The call of a transfer, for helpers that take calls. */
    transferCall,
    /** Transfers from any address that holds the money. */
    transfer: ({ from, ...payment }: Payment & { from: Address }) => send(from, transferCall(payment)),
    /** Transfers with an allowance, which the owner approves in an earlier transaction. */
    async transferFrom({
      from,
      to,
      amountUnits,
      by = relayer,
      suffix,
      token = usdc,
    }: Payment & SubmittedBy & { from: Address }) {
      const approval = { abi: erc20Abi, functionName: 'approve', args: [by, amountUnits] } as const;
      await send(from, { to: token, data: encodeFunctionData(approval) });
      const call = { abi: erc20Abi, functionName: 'transferFrom', args: [from, to, amountUnits] } as const;
      return submit({ to: token, data: encodeFunctionData(call) }, { by, suffix });
    },
    /** EIP-3009: signed by the owner of the money, submitted by somebody else, who can append bytes. */
    async transferWithAuthorization({
      from,
      to,
      amountUnits,
      by,
      suffix,
    }: Omit<Payment, 'token'> & SubmittedBy & { from: PrivateKeyAccount }) {
      const terms = {
        network: `eip155:${chainId}`,
        amount: String(amountUnits),
        asset: usdc,
        payTo: to,
        maxTimeoutSeconds: 0,
        extra: { name: 'USDC', version: '2' },
      };
      const signed = await sign(from, terms, { validBefore: maxUint256 });
      return submit({ to: usdc, data: partsCallOf(signed) }, { by, suffix });
    },
    /** Through Multicall3, which has to hold the money itself. */
    multicall(calls: readonly Call[], options: SubmittedBy = {}): Promise<Hex> {
      const targets = calls.map(({ to, data }) => ({ target: to, allowFailure: false, callData: data }));
      const data = encodeFunctionData({ abi: multicall3Abi, functionName: 'aggregate3', args: [targets] });
      return submit({ to: multicall3Address, data }, options);
    },
    /** The call of a bundle, for contracts that nest it. */
    bundleCall,
    /** ERC-4337: operations of simple accounts, of one version, submitted by a bundler, who can append bytes. */
    async bundle(
      operations: readonly Operation[],
      { by = relayer, gas = 20_000_000n, ...other }: SubmittedBy = {},
    ) {
      return submit(await bundleCall(operations, by), { by, gas, ...other });
    },
    /** A call of the Safe, signed by its owner and submitted by somebody else, who can append bytes. */
    async safeExec({ to, data }: Call, options: SubmittedBy = {}): Promise<Hex> {
      const call = await execTransactionCalldata(client, contracts.safe, { to, data }, chainId);
      return submit({ to: contracts.safe.address, data: call }, options);
    },
    /** EIP-7702: the account calls several contracts at once, in a transaction to itself. */
    async batch7702(account: PrivateKeyAccount, calls: readonly Call[], suffix: Hex = '0x'): Promise<Hex> {
      const batch = calls.map(({ to, data }) => ({ target: to, value: 0n, data }));
      const data = encodeFunctionData({ abi: batchAbi, functionName: 'executeBatch', args: [batch] });
      const nonce = await client.getTransactionCount({ address: account.address, blockTag: 'pending' });
      const authorization = await account.signAuthorization({
        address: delegateAddress,
        chainId,
        // The transaction itself takes one nonce first.
        nonce: nonce + 1,
      });
      const serializedTransaction = await account.signTransaction({
        type: 'eip7702',
        chainId,
        nonce,
        to: account.address,
        data: concatHex([data, suffix]),
        gas: 1_000_000n,
        maxFeePerGas: parseGwei('10'),
        maxPriorityFeePerGas: parseGwei('1'),
        authorizationList: [authorization],
      });
      return client.sendRawTransaction({ serializedTransaction });
    },

    stop,
  };

  async function bundleCall(operations: readonly Operation[], beneficiary: Address = relayer): Promise<Call> {
    const data = await handleOpsCalldata(operations, beneficiary, chainId);
    return { to: entryPointAddress(versionOf(operations)), data };
  }
}

const issuerAbi = parseAbi([
  'function mint(address to, uint256 amount) returns (bool)',
  'function blacklist(address account)',
  'function pause()',
  'function unpause()',
]);

const batchAbi = parseAbi(['function executeBatch((address target, uint256 value, bytes data)[] calls)']);

async function startNode(
  { reorgDepth = 300, slotsInAnEpoch = 1, genesisTimestamp }: ChainOptions,
  chainId: number,
) {
  const program = findAnvil();
  if (typeof program !== 'string') throw new Error(program.missing);
  const anvil = await startAnvil(program, [
    ...['--chain-id', String(chainId), '--no-mining', '--order', 'fifo'],
    ...['--slots-in-an-epoch', String(slotsInAnEpoch), '--prune-history', String(reorgDepth)],
    ...['--gas-limit', '1000000000', '--max-transactions', '10000'],
    ...(genesisTimestamp === undefined ? [] : ['--timestamp', String(genesisTimestamp)]),
  ]);
  // Ends anvil when this process ends in any way: `cat` reads until its input is closed.
  const watch = spawn('sh', ['-c', `cat; kill -9 ${anvil.pid}`], { stdio: ['pipe', 'ignore', 'ignore'] });
  return {
    url: `http://127.0.0.1:${anvil.port}`,
    async stop(): Promise<void> {
      watch.kill('SIGKILL');
      anvil.process.ref();
      const exited = once(anvil.process, 'exit');
      anvil.process.kill('SIGKILL');
      await exited;
    },
  };
}

/** The signed bytes of a transaction. Without a key of its sender there are none, and it cannot return. */
function rawTransaction(client: ChainClient, hash: Hex): Promise<Hex> {
  return client.request<{ Method: 'eth_getRawTransactionByHash'; Parameters: [Hex]; ReturnType: Hex }>({
    method: 'eth_getRawTransactionByHash',
    params: [hash],
  });
}
