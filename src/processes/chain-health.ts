// The state of each chain, from the database and its nodes, for `chain status` and `doctor`.

import type { ChainNodes } from '../config/rpc-urls.ts';
import { chains } from '../contract/chains.ts';
import { WatchedChainEntity } from '../database/entities/settlement.ts';
import { findLocalChain } from '../embedded/local-chain.ts';
import { Node } from '../settlement/node.ts';
import type { Database } from './open-database.ts';

/** Checks all nodes of all chains concurrently. */
export async function chainsHealth(database: Database) {
  const known = await database.orm.em.fork().find(WatchedChainEntity, {}, { orderBy: { chainId: 'asc' } });
  const nodes = await nodesOf(database);
  return Promise.all(
    chains.map(async (settings) => {
      const { chainId, mode, chain, tokens } = settings;
      const row = known.find((one) => one.chainId === chainId);
      const own = nodes.find((one) => one.mode === mode && one.chain === chain);
      return {
        settings,
        /** Undefined if the chain is not watched. */
        row,
        /** A process holds the lease. */
        isHeld: row?.leaseUntil != null && row.leaseUntil.getTime() > Date.now(),
        nodes: await Promise.all(
          (own?.urls ?? []).map((url) => healthOf(new Node({ url, chainId, tokens }))),
        ),
      };
    }),
  );
}

/** The configured nodes, and those of the local chains. */
async function nodesOf({ embedded, config: { chainNodes, dataDir } }: Database): Promise<ChainNodes[]> {
  const all = [...chainNodes];
  for (const chain of embedded ? chains : []) {
    if (chain.mode !== 'testnet' || all.some(({ chainId }) => chainId === chain.chainId)) continue;
    const local = await findLocalChain(dataDir, chain.chain);
    if (local !== undefined) all.push({ ...chain, urls: [local.rpcUrl] });
  }
  return all;
}

async function healthOf(node: Node) {
  const startedAtMs = performance.now();
  const asked = { name: node.name, head: undefined, problem: undefined };
  try {
    await node.assertChain();
    const head = await node.header('latest');
    return { ...asked, head, tookMs: Math.round(performance.now() - startedAtMs) };
  } catch (reason) {
    return {
      ...asked,
      tookMs: Math.round(performance.now() - startedAtMs),
      problem: reason instanceof Error ? reason.message : String(reason),
    };
  }
}
