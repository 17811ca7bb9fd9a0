// The state of each chain, from the database and its nodes, for `chain status` and `doctor`.

import { type ChainSettings, chains } from '../contract/chains.ts';
import { WatchedChainEntity } from '../database/entities/settlement.ts';
import { findLocalChain } from '../embedded/local-chain.ts';
import { Node } from '../settlement/node.ts';
import type { Database } from './open-database.ts';

/** Checks all nodes of all chains concurrently. */
export async function chainsHealth(database: Database) {
  const em = database.orm.em.fork();
  const known = await em.find(WatchedChainEntity, {}, { orderBy: { chainId: 'asc' } });
  // By its clock, which made the lease.
  const [clock] = await em.execute<{ ms: string }[]>('select extract(epoch from now()) * 1000 as ms');
  return Promise.all(
    chains.map(async (settings) => {
      const { chainId, tokens } = settings;
      const row = known.find((one) => one.chainId === chainId);
      const urls = await urlsOf(database, settings);
      return {
        settings,
        /** Undefined if the chain is not watched. */
        row,
        /** A process holds the lease. */
        isHeld: row?.leaseUntil != null && row.leaseUntil.getTime() > Number(clock?.ms),
        nodes: await Promise.all(urls.map((url) => healthOf(new Node({ url, chainId, tokens })))),
      };
    }),
  );
}

/** The configured nodes of a chain, or the one of its local chain. */
async function urlsOf(
  { embedded, config: { chainNodes, dataDir } }: Database,
  { chainId, mode, chain }: ChainSettings,
): Promise<readonly string[]> {
  const configured = chainNodes.find((one) => one.chainId === chainId);
  if (configured !== undefined) return configured.urls;
  const local = embedded && mode === 'testnet' ? await findLocalChain(dataDir, chain) : undefined;
  return local === undefined ? [] : [local.rpcUrl];
}

async function healthOf(node: Node) {
  const startedAtMs = performance.now();
  const found = await node
    .assertChain()
    .then(() => node.header('latest'))
    .then(
      (head) => ({ head, problem: undefined }),
      (reason) => ({ head: undefined, problem: reason instanceof Error ? reason.message : String(reason) }),
    );
  return { name: node.name, ...found, tookMs: Math.round(performance.now() - startedAtMs) };
}
