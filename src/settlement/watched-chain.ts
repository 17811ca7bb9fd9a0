// What is settled on each chain, and what its blocks are believed to be.

import type { Address } from 'viem';
import { bridgedUsdcAddresses, type Network, networks } from '../contract/chains.ts';
import type { ChainName, ModeName } from '../contract/words.ts';

/** A chain, with everything that its watcher has to know of it. */
export interface ChainSettings {
  chainId: number;
  mode: ModeName;
  chain: ChainName;
  /** The networks that intents of this chain refer to. */
  networks: readonly Network[];
  /** Contracts whose transfers are read, in lower case: USDC, and what is taken for it. */
  tokens: readonly Address[];
  /** The expected time between two blocks, and how often the node is asked. */
  blockTimeMs: number;
  /** How deep a transfer has to be, its own block being the first: the most that an intent of this chain requires. */
  confirmations: number;
  /** A payment counts as final only at or below the chain's own `finalized` block. */
  needsFinality: boolean;
}

const lowerCase = (address: string) => address.toLowerCase() as Address;

/** Every chain that can be watched. */
export const chains: readonly ChainSettings[] = [...new Set(networks.map(({ chainId }) => chainId))].map(
  (chainId) => {
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
  },
);

/** True for a token that an intent of that network is paid in; the others are taken for it by mistake. */
export function isRightToken({ usdcAddress }: Network, token: string): boolean {
  return lowerCase(usdcAddress) === token.toLowerCase();
}
