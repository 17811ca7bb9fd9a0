// Everything about the chains. A new one needs an entry here, a value of the contract's enum, a migration for
// its rows in the table `networks` and for the check of `payout_wallets`, and a colour in the console's bars.

import type { Token } from './gen/words.ts';
import type { ChainName, ModeName } from './words.ts';

type Address = `0x${string}`;

interface ChainFacts {
  mode: ModeName;
  chain: ChainName;
  /** EIP-155. */
  chainId: number;
  /** The hash of block 0. Source: the genesis files of Base and of Polygon's Bor. */
  genesisHash: `0x${string}`;
  /** As payers know it. */
  name: string;
  /** The environment variable with its nodes. */
  rpcVariable: string;
  /** Contracts of the tokens of intents, with EIP-55 checksum. Source: Circle's lists of addresses. */
  tokenAddresses: Readonly<Partial<Record<Token, Address>>>;
  /** The usual time between two blocks. Numbers of blocks elsewhere are calculated from it. */
  blockTimeMs: number;
  /**
   * A payment counts as final only once its block is this much older than the newest one, whatever its
   * confirmations: Base's sequencer has taken back 16 s of blocks (https://github.com/base/base/issues/3793).
   */
  minDepthMs: number;
  /** A payment counts as final only at or below the chain's own `finalized` block. */
  needsFinality: boolean;
  /** The token of transaction fees. Source, also of the next two: the definitions of viem/chains. */
  feeToken: string;
  /** A public node, for a payer's wallet that does not know the chain. */
  publicRpcUrl: string;
  explorer: string;
}

/** The properties that an intent takes from its chain at creation and keeps. */
export interface Network extends Pick<ChainFacts, 'mode' | 'chain' | 'chainId'> {
  /** The reference stored in an intent's row. */
  id: number;
  /** The token in which its intents are paid. */
  tokenSymbol: Token;
  tokenAddress: Address;
  decimals: number;
  /** Blocks after which a payment counts as final. The block of the payment is the first of them. */
  confirmationsRequired: number;
}

/** In USDC unless another token is named. */
type NetworkTerms = Pick<Network, 'id' | 'confirmationsRequired'> & Partial<Pick<Network, 'tokenSymbol'>>;

/** A chain that payments can be made on. */
export interface ChainSettings extends ChainFacts {
  /** The networks that intents of this chain refer to. */
  networks: readonly Network[];
  networkIds: readonly number[];
  /** Contracts whose transfers are read, in lower case: tokens of intents, and tokens mistaken for them. */
  tokens: readonly Address[];
  /** Blocks that make a transfer final, its own included: the most that the chain's networks require. */
  confirmations: number;
}

const decimalsOf: Readonly<Record<Token, number>> = { USDC: 6 };

/** Bridged USDC, not issued by Circle: USDC.e on Polygon and USDbC on Base. */
export const bridgedUsdcAddresses = {
  usdcE: '0x2791Bca1f2de4661ED88A30C99A7a9449Aa84174',
  usdbC: '0xd9aAEc86B65D86f6A7B5B1b0c42FFA531710b6CA',
} as const satisfies Record<string, Address>;

/** In both modes. 200 ms since Denim: https://docs.base.org/base-chain/specs/upgrades/denim/overview */
const baseTimes = { blockTimeMs: 200, minDepthMs: 20_000, needsFinality: false } as const;
const polygonTimes = { blockTimeMs: 1_500, minDepthMs: 0, needsFinality: true } as const;
const onBase = { chain: 'base', feeToken: 'ETH', ...baseTimes } as const;
const onPolygon = { chain: 'polygon', feeToken: 'POL', ...polygonTimes } as const;

/**
 * Every chain, with the terms of the networks that intents were ever created for: append only, together with
 * a migration that adds the row to the table `networks`. New intents take the last of their chain and token.
 */
export const chains: readonly ChainSettings[] = [
  chainOf([{ id: 1, confirmationsRequired: 10 }], {
    ...onBase,
    mode: 'mainnet',
    chainId: 8453,
    genesisHash: '0xf712aa9241cc24369b143cf6dce85f0902a9731e70d66818a3a5845b296c73dd',
    name: 'Base',
    rpcVariable: 'RPC_URL_BASE',
    tokenAddresses: { USDC: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913' },
    publicRpcUrl: 'https://mainnet.base.org',
    explorer: 'https://basescan.org',
  }),
  chainOf([{ id: 2, confirmationsRequired: 12 }], {
    ...onPolygon,
    mode: 'mainnet',
    chainId: 137,
    genesisHash: '0xa9c28ce2141b56c474f1dc504bee9b01eb1bd7d1a507580d5519d4437a97de1b',
    name: 'Polygon',
    rpcVariable: 'RPC_URL_POLYGON',
    tokenAddresses: { USDC: '0x3c499c542cEF5E3811e1192ce70d8cC03d5c3359' },
    publicRpcUrl: 'https://polygon.drpc.org',
    explorer: 'https://polygonscan.com',
  }),
  chainOf([{ id: 3, confirmationsRequired: 10 }], {
    ...onBase,
    mode: 'testnet',
    chainId: 84532,
    genesisHash: '0x0dcc9e089e30b90ddfc55be9a37dd15bc551aeee999d2e2b51414c54eaf934e4',
    name: 'Base Sepolia',
    rpcVariable: 'RPC_URL_BASE_SEPOLIA',
    tokenAddresses: { USDC: '0x036CbD53842c5426634e7929541eC2318f3dCF7e' },
    publicRpcUrl: 'https://sepolia.base.org',
    explorer: 'https://sepolia.basescan.org',
  }),
  chainOf([{ id: 4, confirmationsRequired: 12 }], {
    ...onPolygon,
    mode: 'testnet',
    chainId: 80002,
    genesisHash: '0x7202b2b53c5a0836e773e319d18922cc756dd67432f9a1f65352b61f4406c697',
    name: 'Polygon Amoy',
    rpcVariable: 'RPC_URL_POLYGON_AMOY',
    tokenAddresses: { USDC: '0x41E94Eb019C0762f9Bfcf9Fb1E58725BfB0e7582' },
    publicRpcUrl: 'https://polygon-amoy.drpc.org',
    explorer: 'https://amoy.polygonscan.com',
  }),
];

function chainOf(terms: readonly [NetworkTerms, ...NetworkTerms[]], facts: ChainFacts): ChainSettings {
  const { mode, chain, chainId, tokenAddresses } = facts;
  const networkOfTerms = ({ tokenSymbol = 'USDC', ...own }: NetworkTerms): Network => {
    const tokenAddress = tokenAddresses[tokenSymbol];
    if (tokenAddress === undefined) throw new Error(`${chain} has no address of ${tokenSymbol}`);
    const token = { tokenSymbol, tokenAddress, decimals: decimalsOf[tokenSymbol] };
    return { ...own, ...token, mode, chain, chainId };
  };
  return {
    ...facts,
    networks: terms.map(networkOfTerms),
    networkIds: terms.map(({ id }) => id),
    tokens: [...Object.values(tokenAddresses), ...Object.values(bridgedUsdcAddresses)].map(lowerCase),
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

/** Returns the chain with that name in that mode. */
export function chainNamed(mode: ModeName, name: ChainName): ChainSettings {
  const found = chains.find((each) => each.mode === mode && each.chain === name);
  if (found === undefined) throw new Error(`there is no chain ${name} for ${mode}`);
  return found;
}

/** Returns the network for new intents of a mode and chain in that token; undefined if there is none. */
export function networkIn(mode: ModeName, chain: ChainName, token: Token): Network | undefined {
  return chainNamed(mode, chain).networks.findLast(({ tokenSymbol }) => tokenSymbol === token);
}

/** The same for USDC, which every chain has. */
export function networkFor(mode: ModeName, chain: ChainName): Network {
  return networkIn(mode, chain, 'USDC') as Network;
}

/** Returns the network with that id, or undefined if only a newer version knows it. */
export function networkOf(id: number): Network | undefined {
  return networkById.get(id);
}

/** True for the token that intents of the network are paid in. Others are paid by mistake. */
export function isRightToken({ tokenAddress }: Network, token: string): boolean {
  return lowerCase(tokenAddress) === token.toLowerCase();
}

/** The environment variable with the facilitator that sends signed payments of a chain. */
export const facilitatorVariableOf = ({ rpcVariable }: Pick<ChainSettings, 'rpcVariable'>): string =>
  rpcVariable.replace('RPC_URL', 'X402_FACILITATOR_URL');

/** About how many blocks a chain has in that time. */
export function blocksIn({ blockTimeMs }: Pick<ChainSettings, 'blockTimeMs'>, ms: number): number {
  return Math.ceil(ms / blockTimeMs);
}

/** Every known token contract, native or bridged, in lower case. None of them is a wallet. */
export const tokenContractAddresses: ReadonlySet<string> = new Set(chains.flatMap(({ tokens }) => tokens));
