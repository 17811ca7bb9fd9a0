import { type Address, encodeDeployData, type Hex } from 'viem';
import type { Artifact } from './artifact.ts';
import type { ChainClient } from './chain-client.ts';

export interface Deployment {
  address: Address;
  artifact: Artifact;
  args?: readonly unknown[];
}

/**
 * Puts contracts at addresses of our choice, as their constructors leave them. For one block, the code that creates a
 * contract is the code at its address, and `deployer`, an unlocked account, calls it there. Mines that block.
 */
export async function deployAt(
  client: ChainClient,
  deployer: Address,
  deployments: readonly Deployment[],
): Promise<void> {
  // All of them first: a constructor may ask whether another contract is there.
  for (const { address, artifact, args } of deployments) {
    const creation = encodeDeployData({ abi: artifact.abi, bytecode: artifact.bytecode, args: args ?? [] });
    await client.setCode({ address, bytecode: creation });
  }
  const runtimes = await Promise.all(
    deployments.map(async ({ address }) => {
      const { data } = await client.call({ account: deployer, to: address, gas: gasOfConstructor });
      if (data === undefined) throw new Error(`the constructor for ${address} returned no code`);
      return { address, code: data };
    }),
  );
  const hashes: Hex[] = [];
  for (const { address } of runtimes) {
    hashes.push(
      await client.sendTransaction({ account: deployer, to: address, gas: gasOfConstructor, chain: null }),
    );
  }
  await client.mine({ blocks: 1 });
  for (const hash of hashes) await assertSucceeded(client, hash);
  for (const { address, code } of runtimes) {
    await client.setCode({ address, bytecode: code });
    // As EIP-161 has it for a new contract.
    if ((await client.getTransactionCount({ address })) === 0) await client.setNonce({ address, nonce: 1 });
  }
}

const gasOfConstructor = 8_000_000n;

/** Throws if a mined transaction reverted. */
export async function assertSucceeded(client: ChainClient, hash: Hex): Promise<void> {
  const { status } = await client.getTransactionReceipt({ hash });
  if (status !== 'success') throw new Error(`the transaction ${hash} reverted`);
}
