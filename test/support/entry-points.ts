// ERC-4337: the entry points at their canonical addresses, and simple accounts that act through them.

import { randomBytes } from 'node:crypto';
import { type Abi, type Address, bytesToBigInt, encodeFunctionData, type Hex, parseEther } from 'viem';
import {
  entryPoint06Abi,
  entryPoint06Address,
  entryPoint07Abi,
  entryPoint07Address,
  entryPoint08Abi,
  entryPoint08Address,
  getUserOperationHash,
  toPackedUserOperation,
} from 'viem/account-abstraction';
import type { PrivateKeyAccount } from 'viem/accounts';
import type { ChainClient } from '../../src/embedded/chain-client.ts';
import { type Deployment, readArtifact } from '../../src/embedded/contracts.ts';

export type EntryPointVersion = '0.6' | '0.7' | '0.8';

/** A contract that acts only on its owner's signature. */
export interface SimpleAccount {
  version: EntryPointVersion;
  address: Address;
  owner: PrivateKeyAccount;
}

/** What an account does in a bundle: one call. */
export interface Operation {
  account: SimpleAccount;
  to: Address;
  data: Hex;
  /** Default: the first of a random sequence. */
  nonce?: bigint;
  /** Default: 300,000. */
  callGasLimit?: bigint;
  /** Default: 300,000. */
  verificationGasLimit?: bigint;
}

const entryPoints = {
  '0.6': { address: entryPoint06Address, package: '@account-abstraction/contracts-0.6' },
  '0.7': { address: entryPoint07Address, package: '@account-abstraction/contracts-0.7' },
  '0.8': { address: entryPoint08Address, package: '@account-abstraction/contracts' },
} as const;
const versions = Object.keys(entryPoints) as EntryPointVersion[];

/** Chosen by us. */
const factoryAddresses = {
  '0.6': '0x4337000000000000000000000000000000000006',
  '0.7': '0x4337000000000000000000000000000000000007',
  '0.8': '0x4337000000000000000000000000000000000008',
} as const;

const readFrom = (version: EntryPointVersion, contract: string) =>
  readArtifact(`${entryPoints[version].package}/artifacts/${contract}.json`);

export const entryPointAddress = (version: EntryPointVersion): Address => entryPoints[version].address;

/** The entry points, which have to be deployed before the factories. */
export const entryPointDeployments = (): Deployment[] =>
  versions.map((version) => ({
    address: entryPoints[version].address,
    artifact: readFrom(version, 'EntryPoint'),
  }));

export const factoryDeployments = (): Deployment[] =>
  versions.map((version) => ({
    address: factoryAddresses[version],
    artifact: readFrom(version, 'SimpleAccountFactory'),
    args: [entryPoints[version].address],
  }));

/** Three accounts for each entry point. */
export type SimpleAccounts = Record<EntryPointVersion, [SimpleAccount, SimpleAccount, SimpleAccount]>;
export type Owners = readonly [PrivateKeyAccount, PrivateKeyAccount, PrivateKeyAccount];

/** Creates an account for each owner with each entry point. The transactions wait for the next block. */
export async function createSimpleAccounts(
  client: ChainClient,
  [first, second, third]: Owners,
  deployer: Address,
): Promise<{ simpleAccounts: SimpleAccounts; hashes: Hex[] }> {
  const hashes: Hex[] = [];
  const accountsOf = async (version: EntryPointVersion): Promise<SimpleAccounts[EntryPointVersion]> => {
    const { abi } = readFrom(version, 'SimpleAccountFactory');
    const factory = factoryAddresses[version];
    const creator = version === '0.8' ? await unlockSenderCreator(client, factory, abi) : deployer;
    const create = async (owner: PrivateKeyAccount): Promise<SimpleAccount> => {
      const args = [owner.address, 0n];
      const address = await client.readContract({ address: factory, abi, functionName: 'getAddress', args });
      const data = encodeFunctionData({ abi, functionName: 'createAccount', args });
      hashes.push(
        await client.sendTransaction({ account: creator, to: factory, data, gas: 1_000_000n, chain: null }),
      );
      return { version, address: address as Address, owner };
    };
    return [await create(first), await create(second), await create(third)];
  };
  const simpleAccounts = {
    '0.6': await accountsOf('0.6'),
    '0.7': await accountsOf('0.7'),
    '0.8': await accountsOf('0.8'),
  };
  return { simpleAccounts, hashes };
}

/** From version 0.8 on, only the entry point's helper may create accounts. */
async function unlockSenderCreator(client: ChainClient, factory: Address, abi: Abi): Promise<Address> {
  const creator = await client.readContract({ address: factory, abi, functionName: 'senderCreator' });
  const address = creator as Address;
  await client.impersonateAccount({ address });
  await client.setBalance({ address, value: parseEther('1') });
  return address;
}

const executeAbi = [
  {
    type: 'function',
    name: 'execute',
    inputs: [
      { name: 'to', type: 'address' },
      { name: 'value', type: 'uint256' },
      { name: 'data', type: 'bytes' },
    ],
    outputs: [],
    stateMutability: 'nonpayable',
  },
] as const;

/** Returns the calldata of `handleOps` with these operations, all of one version, each signed by its owner. */
export async function handleOpsCalldata(
  operations: readonly Operation[],
  beneficiary: Address,
  chainId: number,
): Promise<Hex> {
  const version = versionOf(operations);
  const functionName = 'handleOps';
  if (version === '0.6') {
    const ops = await Promise.all(operations.map((operation) => signed06(operation, chainId)));
    return encodeFunctionData({ abi: entryPoint06Abi, functionName, args: [ops, beneficiary] });
  }
  const abi = version === '0.7' ? entryPoint07Abi : entryPoint08Abi;
  const ops = await Promise.all(operations.map((operation) => signedPacked(operation, version, chainId)));
  return encodeFunctionData({ abi, functionName, args: [ops, beneficiary] });
}

/** Returns the common version of all operations. */
export function versionOf(operations: readonly Operation[]): EntryPointVersion {
  const [version, ...others] = new Set(operations.map(({ account }) => account.version));
  if (version === undefined || others.length > 0) throw new Error('a bundle is for one entry point');
  return version;
}

async function signed06(operation: Operation, chainId: number) {
  const userOperation = { ...unsigned(operation), initCode: '0x', paymasterAndData: '0x' } as const;
  const hash = getUserOperationHash({
    userOperation,
    entryPointAddress: entryPoints['0.6'].address,
    entryPointVersion: '0.6',
    chainId,
  });
  const signature = await operation.account.owner.signMessage({ message: { raw: hash } });
  return { ...userOperation, signature };
}

async function signedPacked(operation: Operation, version: '0.7' | '0.8', chainId: number) {
  const { owner } = operation.account;
  const userOperation = unsigned(operation);
  const hash = getUserOperationHash({
    userOperation,
    entryPointAddress: entryPoints[version].address,
    entryPointVersion: version,
    chainId,
  });
  const signature =
    version === '0.7' ? await owner.signMessage({ message: { raw: hash } }) : await owner.sign({ hash });
  return toPackedUserOperation({ ...userOperation, signature });
}

/** The first nonce of a random sequence, so that operations are independent of each other. */
export const randomNonce = (): bigint => bytesToBigInt(randomBytes(24)) << 64n;

function unsigned({
  account,
  to,
  data,
  nonce = randomNonce(),
  callGasLimit = 300_000n,
  verificationGasLimit = 300_000n,
}: Operation) {
  return {
    sender: account.address,
    nonce,
    callData: encodeFunctionData({ abi: executeAbi, functionName: 'execute', args: [to, 0n, data] }),
    callGasLimit,
    verificationGasLimit,
    preVerificationGas: 50_000n,
    // The bundler pays.
    maxFeePerGas: 0n,
    maxPriorityFeePerGas: 0n,
    signature: '0x',
  } as const;
}
