// What a local chain has besides anvil's own: USDC, Multicall3 and the payer's money.

import type { Address } from 'viem';
import type { Network } from '../contract/chains.ts';
import type { ChainClient } from './chain-client.ts';
import { assertSucceeded, deployAt } from './deploy-at.ts';
import { multicall3 } from './multicall3.ts';
import { deployerAddress, issuerAddress, mintCall, payerAddress } from './payer.ts';
import { initializeUsdc, readUsdcArtifacts, usdcDeployments } from './usdc.ts';

/** More than anybody pays: a trillion USDC. */
const payerAmountUnits = 10n ** 18n;

/** Transactions of the issuer in `deployContracts`. */
const issuerSteps = 6;

/** Puts the contracts on a new chain and gives the payer money. Mines two blocks. */
export async function deployContracts(
  client: ChainClient,
  { tokenAddress, tokenSymbol, decimals }: Network,
): Promise<void> {
  const artifacts = readUsdcArtifacts();
  const usdc = tokenAddress as Address;
  await deployAt(client, deployerAddress, [await multicall3(), ...usdcDeployments(artifacts, [usdc])]);
  // The name as Circle has it on the test networks; it is part of the EIP-712 domain.
  const names = { name: tokenSymbol, symbol: tokenSymbol, decimals };
  const hashes = await initializeUsdc(client, artifacts, usdc, issuerAddress, names);
  hashes.push(
    await client.sendTransaction({
      account: issuerAddress,
      to: usdc,
      data: mintCall(payerAddress, payerAmountUnits),
      gas: 500_000n,
      chain: null,
    }),
  );
  await client.mine({ blocks: 1 });
  for (const hash of hashes) await assertSucceeded(client, hash);
}

/**
 * True once the last step of `deployContracts` is done. Throws if the node does not say: a call to a contract can fail
 * while a block is mined, which must not be taken for a missing contract.
 */
export async function areContractsDeployed(client: ChainClient, { tokenAddress }: Network): Promise<boolean> {
  const code = await client.getCode({ address: tokenAddress as Address });
  return code !== undefined && (await client.getTransactionCount({ address: issuerAddress })) >= issuerSteps;
}
