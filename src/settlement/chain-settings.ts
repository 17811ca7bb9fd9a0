// The settings of each chain that can be watched.

import type { Address } from 'viem';
import {
  bridgedUsdcAddresses,
  type ChainName,
  type ModeName,
  type Network,
  networks,
} from '../contract/chains.ts';

export interface ChainSettings {
  chainId: number;
  mode: ModeName;
  chain: ChainName;
  networks: readonly Network[];
  /** Contracts whose transfers are read, in lower case: USDC and the bridged tokens that are mistaken for it. */
  tokens: readonly Address[];
  /** The expected time between two blocks, which is also the polling interval. */
  blockTimeMs: number;
  /** The required depth of a payment; its own block counts. The maximum over the networks. */
  confirmations: number;
  /** Payments succeed only at or below the chain's `finalized` block. */
  needsFinality: boolean;
}

const lowerCase = (address: string) => address.toLowerCase() as Address;

/** Every chain that can be watched. */
export const chainSettings: readonly ChainSettings[] = [
  ...new Set(networks.map(({ chainId }) => chainId)),
].map((chainId) => {
  const ofChain = networks.filter((network) => network.chainId === chainId);
  const [{ mode, chain }] = ofChain as [Network];
  const native = ofChain.map(({ usdcAddress }) => lowerCase(usdcAddress));
  return {
    chainId,
    mode,
    chain,
    networks: ofChain,
    tokens: [...new Set([...native, ...Object.values(bridgedUsdcAddresses).map(lowerCase)])],
    blockTimeMs: 2_000,
    confirmations: Math.max(...ofChain.map(({ confirmationsRequired }) => confirmationsRequired)),
    needsFinality: chain === 'polygon',
  };
});

/** True for the token in which intents of the network are paid. */
export function isRightToken({ usdcAddress }: Network, token: string): boolean {
  return lowerCase(usdcAddress) === token.toLowerCase();
}
