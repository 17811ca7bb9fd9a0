// What a wallet and a payer need to know of the chains. Source: the definitions of viem/chains, whose import would be
// larger than the page.

export interface ChainFacts {
  name: string;
  /** The token that pays the network's fee. */
  feeToken: string;
  rpcUrl: string;
  explorer: string;
}

const chains: Readonly<Record<number, ChainFacts>> = {
  8453: {
    name: 'Base',
    feeToken: 'ETH',
    rpcUrl: 'https://mainnet.base.org',
    explorer: 'https://basescan.org',
  },
  84532: {
    name: 'Base Sepolia',
    feeToken: 'ETH',
    rpcUrl: 'https://sepolia.base.org',
    explorer: 'https://sepolia.basescan.org',
  },
  137: {
    name: 'Polygon',
    feeToken: 'POL',
    rpcUrl: 'https://polygon.drpc.org',
    explorer: 'https://polygonscan.com',
  },
  80002: {
    name: 'Polygon Amoy',
    feeToken: 'POL',
    rpcUrl: 'https://polygon-amoy.drpc.org',
    explorer: 'https://amoy.polygonscan.com',
  },
};

/** The facts of a chain by its EIP-155 id. */
export function chainFacts(chainId: number): ChainFacts {
  const facts = chains[chainId];
  if (facts === undefined) throw new Error(`no facts about chain ${chainId}`);
  return facts;
}
