// Decides on which chains intents may be created: payments on an unwatched chain would not be seen.

import type { EntityManager } from '@mikro-orm/postgresql';
import { chainNamed } from '../contract/chains.ts';
import type { ChainName, ModeName } from '../contract/words.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { ServiceError } from '../requests/errors.ts';

export type WatchedChains = ReturnType<typeof createWatchedChains>;

/** Caches which chains are watched. In the modes of `allowUnwatched`, every chain is allowed. */
export function createWatchedChains(em: EntityManager, allowUnwatched: ReadonlySet<ModeName>) {
  const { run } = createPreparedStatements(em);
  let watched: ReadonlySet<string> = new Set();
  return {
    /** True if the chain is watched, or its mode is in `ALLOW_UNWATCHED`. Makes no query. */
    allows: (mode: ModeName, chain: ChainName) => allowUnwatched.has(mode) || watched.has(`${mode} ${chain}`),
    /** Reads which chains are watched. Call it at the start, and when that may have changed. */
    async refresh(): Promise<void> {
      const { rows } = await run(findWatchedChains, []);
      watched = new Set(rows.map(({ mode, chain }) => `${mode} ${chain}`));
    },
  };
}

const findWatchedChains = preparedStatement('find_watched_chains', 'select mode, chain from watched_chains');

/** The refusal to create an intent on an unwatched chain. The log names the variable to set. */
export function chainUnwatched(mode: ModeName, chain: ChainName): ServiceError {
  return new ServiceError('chain_unwatched', {
    violations: [{ field: 'chain', message: `cannot be ${chain}: it is not watched in ${mode} now` }],
    cause: new Error(
      `${mode} ${chain} has no watcher: set ${chainNamed(mode, chain).rpcVariable} on a process with the role watcher, or permit this with ALLOW_UNWATCHED`,
    ),
  });
}

/**
 * Returns the unwatched mainnet chains on which merchants expect payments: the chains of the payout wallets
 * of merchants with a valid mainnet key. If such a merchant has no payout wallet, `anyChain` is true unless
 * at least one mainnet chain is watched.
 */
export async function findUnwatchedMainnet(
  em: EntityManager,
): Promise<{ chains: ChainName[]; anyChain: boolean }> {
  const rows = await em.fork().execute<{ chain: ChainName | null }[]>(
    `select distinct w.chain
       from api_keys k
       left join payout_wallets w on w.merchant_id = k.merchant_id and w.mode = k.mode
      where k.mode = 'mainnet' and k.revoked_at is null and (k.expires_at is null or k.expires_at > now())
        and not exists (select from watched_chains c
                         where c.mode = 'mainnet' and (w.chain is null or c.chain = w.chain))
      order by 1`,
  );
  const chains = rows.flatMap(({ chain }) => chain ?? []);
  return { chains, anyChain: chains.length < rows.length };
}
