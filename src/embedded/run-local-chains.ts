// The local chains of the embedded mode: one for each test network without a configured node.

import type { EntityManager } from '@mikro-orm/postgresql';
import type { Logger } from 'pino';
import type { ChainFacilitator, Config } from '../config/config.ts';
import type { ChainNodes } from '../config/rpc-urls.ts';
import { chainNamed, networkFor } from '../contract/chains.ts';
import { type ChainName, chainNames } from '../contract/words.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { findAnvil } from './anvil.ts';
import type { LocalFacilitator } from './facilitator.ts';

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

/** What is told of the chains that have started. */
interface LocalChainsServer {
  watch(nodes: readonly ChainNodes[], pollMs?: number): Promise<void>;
  addFacilitator(nodes: ChainNodes, facilitator: ChainFacilitator): void;
}

/**
 * Runs the chains and lets the server watch them. Returns a function that ends them; call it after the server has stopped.
 */
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
  const facilitators: LocalFacilitator[] = [];
  // In the background, because loading viem takes a while.
  const starting = import('./start-local-chains.ts').then(({ startLocalChains }) =>
    startLocalChains({ dataDir, chains, isBusy, logger }),
  );
  const runFacilitator = async (nodes: ChainNodes): Promise<void> => {
    const { startFacilitator } = await import('./facilitator.ts');
    const { chainId, chain, urls } = nodes;
    const facilitator = await startFacilitator(networkFor('testnet', chain), urls[0]);
    facilitators.push(facilitator);
    server.addFacilitator(nodes, { chainId, url: facilitator.url, token: undefined });
  };
  const running = starting
    .then(async (started) => {
      if ('missing' in started) {
        logger.warn(`no local chains: ${started.missing}`);
        return;
      }
      const nodes = chains.flatMap((name) => {
        const url = started.rpcUrls[name];
        return url === undefined ? [] : [{ ...chainNamed('testnet', name), urls: [url] as const }];
      });
      await server.watch(nodes, pollMs);
      logger.info(
        { chains: started.rpcUrls },
        'local chains in place of the test networks: their money is worth nothing',
      );
      await Promise.all(nodes.map(runFacilitator)).catch((reason) => {
        if (!isMissingPackage(reason)) throw reason;
        logger.warn('no facilitator: the development dependencies of x402 are not installed');
      });
    })
    .catch((reason) => logger.error({ err: reason }, 'could not run the local chains'));
  return async () => {
    await running;
    for (const facilitator of facilitators) await facilitator.stop();
    const started = await starting.catch(() => undefined);
    if (started !== undefined && 'stop' in started) await started.stop();
  };
}

function isMissingPackage(reason: unknown): boolean {
  return (reason as { code?: string }).code === 'ERR_MODULE_NOT_FOUND';
}

/** An intent waits for its payment or its end, or a payment for its confirmations. */
const findAwaited = preparedStatement(
  'find_awaited',
  `select exists (select from payment_intents where network = $1 and status = 'requires_payment')
       or exists (select from transfers where chain_id = $2 and state = 'pending') as is_awaited`,
);
