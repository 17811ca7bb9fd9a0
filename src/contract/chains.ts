import type { ChainName, ModeName } from './words.ts';

/** The properties that an intent takes from its chain at creation and keeps. */
export interface Network {
  /** The reference stored in an intent's row. */
  id: number;
  mode: ModeName;
  chain: ChainName;
  /** EIP-155. */
  chainId: number;
  /** Circle's native USDC, with EIP-55 checksum. Source: Circle's list of USDC contract addresses. */
  usdcAddress: string;
  /** Blocks after which a payment counts as final, the block of the payment being the first of them. */
  confirmationsRequired: number;
}

export const usdcDecimals = 6;
export const usdcSymbol = 'USDC';

/**
 * Every network that an intent was ever created for. Append only, together with a migration that adds the row to the
 * table `networks`. A change of confirmations is a new row. New intents use the last row of their mode and chain.
 */
export const networks: readonly Network[] = [
  {
    id: 1,
    mode: 'mainnet',
    chain: 'base',
    chainId: 8453,
    usdcAddress: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913',
    confirmationsRequired: 10,
  },
  {
    id: 2,
    mode: 'mainnet',
    chain: 'polygon',
    chainId: 137,
    usdcAddress: '0x3c499c542cEF5E3811e1192ce70d8cC03d5c3359',
    confirmationsRequired: 12,
  },
  {
    id: 3,
    mode: 'testnet',
    chain: 'base',
    chainId: 84532,
    usdcAddress: '0x036CbD53842c5426634e7929541eC2318f3dCF7e',
    confirmationsRequired: 10,
  },
  {
    id: 4,
    mode: 'testnet',
    chain: 'polygon',
    chainId: 80002,
    usdcAddress: '0x41E94Eb019C0762f9Bfcf9Fb1E58725BfB0e7582',
    confirmationsRequired: 12,
  },
];

const newestNetwork = new Map(networks.map((network) => [`${network.mode} ${network.chain}`, network]));
const networkById = new Map(networks.map((network) => [network.id, network]));

/** The network for new intents of a mode and chain. */
export function networkFor(mode: ModeName, chain: ChainName): Network {
  const network = newestNetwork.get(`${mode} ${chain}`);
  if (network === undefined) throw new Error(`there is no network for ${mode} ${chain}`);
  return network;
}

/** The network with that id, or undefined if only a newer version knows it. */
export function networkOf(id: number): Network | undefined {
  return networkById.get(id);
}

/** Bridged USDC, not issued by Circle: USDC.e on Polygon and USDbC on Base. */
export const bridgedUsdcAddresses = {
  usdcE: '0x2791Bca1f2de4661ED88A30C99A7a9449Aa84174',
  usdbC: '0xd9aAEc86B65D86f6A7B5B1b0c42FFA531710b6CA',
} as const;

/** Every known USDC contract on either chain, native or bridged, in lower case. None of them is a wallet. */
export const tokenContractAddresses: ReadonlySet<string> = new Set(
  [...networks.map(({ usdcAddress }) => usdcAddress), ...Object.values(bridgedUsdcAddresses)].map((address) =>
    address.toLowerCase(),
  ),
);
