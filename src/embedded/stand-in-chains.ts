// The chains of the embedded mode: where no node is configured for a test network, one runs on this machine.

import type { EntityManager } from '@mikro-orm/postgresql';
import type { Logger } from 'pino';
import type { Config } from '../config/config.ts';
import type { ChainNodes } from '../config/rpc-urls.ts';
import { chainNamed, networkFor } from '../contract/chains.ts';
import { type ChainName, chainNames } from '../contract/words.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { findAnvil } from './anvil.ts';

/** A block each second is looked for each second. */
const pollMs = 1_000;

export interface StandIns {
  /** The chains that are run on this machine. */
  chains: readonly ChainName[];
  /** Why there are none, although there should be. */
  missing: string | undefined;
}

/** The test networks that this process has to run itself. Starts nothing. */
export function standInsOf({ databaseUrl, roles, chainNodes }: Config): StandIns {
  const chains =
    databaseUrl === undefined && roles.has('watcher')
      ? chainNames.filter(
          (name) => !chainNodes.some(({ mode, chain }) => mode === 'testnet' && chain === name),
        )
      : [];
  const anvil = chains.length === 0 ? undefined : findAnvil();
  return typeof anvil === 'object' ? { chains: [], missing: anvil.missing } : { chains, missing: undefined };
}

/** Runs the chains and has the server watch them. Returns a function that ends them; call it when the server has stopped. */
export function runStandIns(
  { chains }: StandIns,
  { dataDir }: Config,
  em: EntityManager,
  server: { watch(nodes: readonly ChainNodes[], pollMs?: number): Promise<void> },
  logger: Logger,
): () => Promise<void> {
  if (chains.length === 0) return async () => {};
  const { run } = createPreparedStatements(em);
  const isBusy = async (chain: ChainName) => {
    const { id, chainId } = networkFor('testnet', chain);
    const { rows } = await run(findAwaited, [id, chainId]);
    return rows[0]?.is_awaited === true;
  };
  // After the start: viem takes a while to load, and nobody has to wait for the chains.
  const starting = import('./start-local-chains.ts').then(({ startLocalChains }) =>
    startLocalChains({ dataDir, chains, isBusy, logger }),
  );
  const running = starting
    .then(async (started) => {
      if ('missing' in started) {
        logger.warn(`there is no chain on this machine: ${started.missing}`);
        return;
      }
      await server.watch(
        chains.flatMap((name) => {
          const url = started.rpcUrls[name];
          return url === undefined ? [] : [{ ...chainNamed('testnet', name), urls: [url] as const }];
        }),
        pollMs,
      );
      logger.info(
        { chains: started.rpcUrls },
        'local stand-ins for the test networks: their money is worth nothing',
      );
    })
    .catch((reason) => logger.error({ err: reason }, 'the chains of this machine cannot be run'));
  return async () => {
    await running;
    const started = await starting.catch(() => undefined);
    if (started !== undefined && 'stop' in started) await started.stop();
  };
}

/** An intent waits for its payment or its end, or a payment for its confirmations. */
const findAwaited = preparedStatement(
  'find_awaited',
  `select exists (select from payment_intents where network = $1 and status = 'requires_payment')
       or exists (select from transfers where chain_id = $2 and state = 'pending') as is_awaited`,
);
