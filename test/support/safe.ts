// A Safe 1.4.1 with one owner, and a transaction that the owner has signed.

import {
  type Address,
  concatHex,
  encodeFunctionData,
  type Hex,
  hashTypedData,
  parseAbi,
  zeroAddress,
} from 'viem';
import type { PrivateKeyAccount } from 'viem/accounts';
import type { ChainClient } from '../../src/embedded/chain-client.ts';
import { type Deployment, deployAt, readArtifact } from '../../src/embedded/contracts.ts';

export interface Safe {
  address: Address;
  owner: PrivateKeyAccount;
}

const folder = '@safe-global/safe-contracts/build/artifacts/contracts';
/** The canonical address. */
const singletonAddress = '0x41675C099F32341bf84BFc5382aF534df5C7461a';
/** Chosen by us. */
const handlerAddress = '0x5afe000000000000000000000000000000000002';
/** Chosen by us. */
const proxyAddress = '0x5aFE000000000000000000000000000000000001';

export const safeDeployments = (): Deployment[] => [
  { address: singletonAddress, artifact: readArtifact(`${folder}/Safe.sol/Safe.json`) },
  {
    address: proxyAddress,
    artifact: readArtifact(`${folder}/proxies/SafeProxy.sol/SafeProxy.json`),
    args: [singletonAddress],
  },
];

/** Gives the Safe its owner. The transaction waits for the next block. */
export async function setUpSafe(
  client: ChainClient,
  owner: PrivateKeyAccount,
  deployer: Address,
): Promise<{ safe: Safe; hash: Hex }> {
  const data = encodeFunctionData({
    abi: safeAbi,
    functionName: 'setup',
    args: [[owner.address], 1n, zeroAddress, '0x', zeroAddress, zeroAddress, 0n, zeroAddress],
  });
  const hash = await client.sendTransaction({
    account: deployer,
    to: proxyAddress,
    data,
    gas: 500_000n,
    chain: null,
  });
  return { safe: { address: proxyAddress, owner }, hash };
}

/**
 * A Safe of all these owners that signs by ERC-1271, like an account: each owner signs the hash of what the
 * Safe signs. Mines two blocks.
 */
export async function createSigningSafe(
  client: ChainClient,
  owners: readonly PrivateKeyAccount[],
  deployer: Address,
  chainId: number,
) {
  const address = `0x5afe${owners[0]?.address.slice(6)}`.toLowerCase() as Address;
  await deployAt(client, deployer, [
    {
      address: handlerAddress,
      artifact: readArtifact(
        `${folder}/handler/CompatibilityFallbackHandler.sol/CompatibilityFallbackHandler.json`,
      ),
    },
    {
      address,
      artifact: readArtifact(`${folder}/proxies/SafeProxy.sol/SafeProxy.json`),
      args: [singletonAddress],
    },
  ]);
  const sorted = owners.toSorted((a, b) => (a.address.toLowerCase() < b.address.toLowerCase() ? -1 : 1));
  const data = encodeFunctionData({
    abi: safeAbi,
    functionName: 'setup',
    args: [
      sorted.map((owner) => owner.address),
      BigInt(owners.length),
      zeroAddress,
      '0x',
      handlerAddress,
      zeroAddress,
      0n,
      zeroAddress,
    ],
  });
  await client.sendTransaction({ account: deployer, to: address, data, gas: 1_000_000n, chain: null });
  await client.mine({ blocks: 1 });
  const signTypedData: PrivateKeyAccount['signTypedData'] = async (typedData) => {
    const signatures = await Promise.all(
      sorted.map((owner) =>
        owner.signTypedData({
          domain: { chainId, verifyingContract: address },
          types: { SafeMessage: [{ name: 'message', type: 'bytes' }] },
          primaryType: 'SafeMessage',
          message: { message: hashTypedData(typedData) },
        }),
      ),
    );
    return concatHex(signatures);
  };
  return { address, signTypedData };
}

/** Returns the calldata of `execTransaction` with the Safe's current nonce, signed by its owner. */
export async function execTransactionCalldata(
  client: ChainClient,
  { address, owner }: Safe,
  { to, data }: { to: Address; data: Hex },
  chainId: number,
): Promise<Hex> {
  const nonce = await client.readContract({ address, abi: safeAbi, functionName: 'nonce' });
  const message = {
    to,
    value: 0n,
    data,
    operation: 0,
    safeTxGas: 0n,
    baseGas: 0n,
    gasPrice: 0n,
    gasToken: zeroAddress,
    refundReceiver: zeroAddress,
    nonce,
  } as const;
  const signature = await owner.signTypedData({
    domain: { chainId, verifyingContract: address },
    types: safeTxTypes,
    primaryType: 'SafeTx',
    message,
  });
  return encodeFunctionData({
    abi: safeAbi,
    functionName: 'execTransaction',
    args: [to, 0n, data, 0, 0n, 0n, 0n, zeroAddress, zeroAddress, signature],
  });
}

const safeTxTypes = {
  SafeTx: [
    { name: 'to', type: 'address' },
    { name: 'value', type: 'uint256' },
    { name: 'data', type: 'bytes' },
    { name: 'operation', type: 'uint8' },
    { name: 'safeTxGas', type: 'uint256' },
    { name: 'baseGas', type: 'uint256' },
    { name: 'gasPrice', type: 'uint256' },
    { name: 'gasToken', type: 'address' },
    { name: 'refundReceiver', type: 'address' },
    { name: 'nonce', type: 'uint256' },
  ],
} as const;

const safeAbi = parseAbi([
  'function setup(address[] owners, uint256 threshold, address to, bytes data, address fallbackHandler, address paymentToken, uint256 payment, address paymentReceiver)',
  'function nonce() view returns (uint256)',
  'function execTransaction(address to, uint256 value, bytes data, uint8 operation, uint256 safeTxGas, uint256 baseGas, uint256 gasPrice, address gasToken, address refundReceiver, bytes signatures) payable returns (bool)',
]);
