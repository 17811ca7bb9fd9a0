// Everything that a chain is. A new one is an entry here, a value of the contract's enum, a migration for its rows in the
// table `networks`, and the variable with its node.

import type { ChainName, ModeName } from './words.ts';

export type Address = `0x${string}`;

interface ChainFacts {
  mode: ModeName;
  chain: ChainName;
  /** EIP-155. */
  chainId: number;
  /** As payers know it. */
  name: string;
  /** The environment variable with its nodes. */
  rpcVariable: string;
  /** Circle's native USDC, with EIP-55 checksum. Source: Circle's list of USDC contract addresses. */
  usdcAddress: Address;
  /** The expected time between two blocks, and how often the node is asked. */
  blockTimeMs: number;
  /** A payment counts as final only at or below the chain's own `finalized` block. */
  needsFinality: boolean;
  /** The token that pays the fee of a transaction. Source, of the two addresses, too: the definitions of viem/chains. */
  feeToken: string;
  /** A public node, for a payer's wallet that does not know the chain. */
  publicRpcUrl: string;
  explorer: string;
}

/** The properties that an intent takes from its chain at creation and keeps. */
export interface Network extends Pick<ChainFacts, 'mode' | 'chain' | 'chainId' | 'usdcAddress'> {
  /** The reference stored in an intent's row. */
  id: number;
  /** Blocks after which a payment counts as final, the block of the payment being the first of them. */
  confirmationsRequired: number;
}

type NetworkTerms = Pick<Network, 'id' | 'confirmationsRequired'>;

/** A chain that payments can be made on. */
export interface ChainSettings extends ChainFacts {
  /** The networks that intents of this chain refer to. */
  networks: readonly Network[];
  /** Contracts whose transfers are read, in lower case: USDC, and what is taken for it. */
  tokens: readonly Address[];
  /** How deep a transfer has to be, its own block being the first: the most that an intent of this chain requires. */
  confirmations: number;
}

export const usdcDecimals = 6;
export const usdcSymbol = 'USDC';

/** Bridged USDC, not issued by Circle: USDC.e on Polygon and USDbC on Base. */
export const bridgedUsdcAddresses = {
  usdcE: '0x2791Bca1f2de4661ED88A30C99A7a9449Aa84174',
  usdbC: '0xd9aAEc86B65D86f6A7B5B1b0c42FFA531710b6CA',
} as const satisfies Record<string, Address>;

/**
 * Every chain, each with the terms of the networks that an intent was ever created for: append only, together with a
 * migration that adds the row to the table `networks`. New intents take the last of their chain.
 */
export const chains: readonly ChainSettings[] = [
  chainOf([{ id: 1, confirmationsRequired: 10 }], {
    mode: 'mainnet',
    chain: 'base',
    chainId: 8453,
    name: 'Base',
    rpcVariable: 'RPC_URL_BASE',
    usdcAddress: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913',
    blockTimeMs: 2_000,
    needsFinality: false,
    feeToken: 'ETH',
    publicRpcUrl: 'https://mainnet.base.org',
    explorer: 'https://basescan.org',
  }),
  chainOf([{ id: 2, confirmationsRequired: 12 }], {
    mode: 'mainnet',
    chain: 'polygon',
    chainId: 137,
    name: 'Polygon',
    rpcVariable: 'RPC_URL_POLYGON',
    usdcAddress: '0x3c499c542cEF5E3811e1192ce70d8cC03d5c3359',
    blockTimeMs: 2_000,
    needsFinality: true,
    feeToken: 'POL',
    publicRpcUrl: 'https://polygon.drpc.org',
    explorer: 'https://polygonscan.com',
  }),
  chainOf([{ id: 3, confirmationsRequired: 10 }], {
    mode: 'testnet',
    chain: 'base',
    chainId: 84532,
    name: 'Base Sepolia',
    rpcVariable: 'RPC_URL_BASE_SEPOLIA',
    usdcAddress: '0x036CbD53842c5426634e7929541eC2318f3dCF7e',
    blockTimeMs: 2_000,
    needsFinality: false,
    feeToken: 'ETH',
    publicRpcUrl: 'https://sepolia.base.org',
    explorer: 'https://sepolia.basescan.org',
  }),
  chainOf([{ id: 4, confirmationsRequired: 12 }], {
    mode: 'testnet',
    chain: 'polygon',
    chainId: 80002,
    name: 'Polygon Amoy',
    rpcVariable: 'RPC_URL_POLYGON_AMOY',
    usdcAddress: '0x41E94Eb019C0762f9Bfcf9Fb1E58725BfB0e7582',
    blockTimeMs: 2_000,
    needsFinality: true,
    feeToken: 'POL',
    publicRpcUrl: 'https://polygon-amoy.drpc.org',
    explorer: 'https://amoy.polygonscan.com',
  }),
];

function chainOf(terms: readonly [NetworkTerms, ...NetworkTerms[]], facts: ChainFacts): ChainSettings {
  const { mode, chain, chainId, usdcAddress } = facts;
  return {
    ...facts,
    networks: terms.map((one) => ({ ...one, mode, chain, chainId, usdcAddress })),
    tokens: [usdcAddress, ...Object.values(bridgedUsdcAddresses)].map(lowerCase),
    confirmations: Math.max(...terms.map(({ confirmationsRequired }) => confirmationsRequired)),
  };
}

function lowerCase(address: string): Address {
  return address.toLowerCase() as Address;
}

/** Every network that an intent was ever created for. */
export const networks: readonly Network[] = chains
  .flatMap((chain) => chain.networks)
  .sort((a, b) => a.id - b.id);

const networkById = new Map(networks.map((network) => [network.id, network]));

/** The chain with that name in that mode. */
export function chainNamed(mode: ModeName, name: ChainName): ChainSettings {
  const found = chains.find((each) => each.mode === mode && each.chain === name);
  if (found === undefined) throw new Error(`there is no chain ${name} for ${mode}`);
  return found;
}

/** The network for new intents of a mode and chain. */
export function networkFor(mode: ModeName, chain: ChainName): Network {
  return chainNamed(mode, chain).networks.at(-1) as Network;
}

/** The network with that id, or undefined if only a newer version knows it. */
export function networkOf(id: number): Network | undefined {
  return networkById.get(id);
}

/** True for a token that an intent of that network is paid in; the others are taken for it by mistake. */
export function isRightToken({ usdcAddress }: Network, token: string): boolean {
  return lowerCase(usdcAddress) === token.toLowerCase();
}

/** Every known USDC contract on either chain, native or bridged, in lower case. None of them is a wallet. */
export const tokenContractAddresses: ReadonlySet<string> = new Set(chains.flatMap(({ tokens }) => tokens));
