import { Chain, Mode } from './gen/payments/v1/payment_intent_pb.ts';

export const modeNames = ['testnet', 'mainnet'] as const;
/** A mode as the database, the JSON and the command line write it. */
export type ModeName = (typeof modeNames)[number];

export const chainNames = ['base', 'polygon'] as const;
/** A chain as the database, the JSON and the command line write it. */
export type ChainName = (typeof chainNames)[number];

export const modeOf = { testnet: Mode.TESTNET, mainnet: Mode.MAINNET } as const satisfies Record<
  ModeName,
  Mode
>;
export const chainOf = { base: Chain.BASE, polygon: Chain.POLYGON } as const satisfies Record<
  ChainName,
  Chain
>;

/** What an intent takes from its chain when it is created and keeps from then on. */
export interface ChainFacts {
  /** EIP-155. */
  chainId: number;
  /** Circle's native USDC, EIP-55. Source: Circle's list of USDC contract addresses. */
  usdcAddress: string;
  /** Blocks on top of the payment's before it counts as final. */
  confirmationsRequired: number;
}

export const usdcDecimals = 6;
export const usdcSymbol = 'USDC';

const chainFacts: Record<ModeName, Record<ChainName, ChainFacts>> = {
  mainnet: {
    base: {
      chainId: 8453,
      usdcAddress: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913',
      confirmationsRequired: 10,
    },
    polygon: {
      chainId: 137,
      usdcAddress: '0x3c499c542cEF5E3811e1192ce70d8cC03d5c3359',
      confirmationsRequired: 12,
    },
  },
  testnet: {
    base: {
      chainId: 84532,
      usdcAddress: '0x036CbD53842c5426634e7929541eC2318f3dCF7e',
      confirmationsRequired: 10,
    },
    polygon: {
      chainId: 80002,
      usdcAddress: '0x41E94Eb019C0762f9Bfcf9Fb1E58725BfB0e7582',
      confirmationsRequired: 12,
    },
  },
};

/** The facts of a chain's main or test network. */
export function chainFactsFor(mode: ModeName, chain: ChainName): ChainFacts {
  return chainFacts[mode][chain];
}

/** Bridged USDC, which is not Circle's: USDC.e on Polygon and USDbC on Base. */
export const bridgedUsdcAddresses = {
  usdcE: '0x2791Bca1f2de4661ED88A30C99A7a9449Aa84174',
  usdbC: '0xd9aAEc86B65D86f6A7B5B1b0c42FFA531710b6CA',
} as const;

/** Every USDC contract we know of on either chain, native or bridged, in lower case: no wallet. */
export const tokenContractAddresses: ReadonlySet<string> = new Set(
  [
    ...modeNames.flatMap((mode) => chainNames.map((chain) => chainFacts[mode][chain].usdcAddress)),
    ...Object.values(bridgedUsdcAddresses),
  ].map((address) => address.toLowerCase()),
);
