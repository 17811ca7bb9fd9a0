// Starts a watcher in a process of its own, and waits until it has read a chain.

import { setTimeout as sleep } from 'node:timers/promises';
import type { TestChain } from '../test/support/chain.ts';
import { type PreparedDatabase, type Running, startWithOurFlags } from './setting.ts';

/** What a watcher has done since its start. */
export interface Watched {
  /** The blocks that were read one by one, in order. */
  blocks: {
    transfers: number;
    /** From the node's first answer with its header to the commit. */
    lagMs: number;
    /** Milliseconds since 1970. */
    committedAtMs: number;
  }[];
  /** Requests to its nodes, by method. */
  requests: Record<string, number>;
  /** The longest time between two turns of the event loop, since the last request for it. */
  longestGapMs: number;
  /** The most processor time of the main thread between two turns. */
  longestWorkMs: number;
}

export interface Watcher extends Running {
  watched(): Promise<Watched>;
}

/** How long the reading of a chain may take. */
const timeoutMs = 180_000;

/** Watches the chains of these variables, such as RPC_URL_BASE_SEPOLIA. Default pace: the service's. */
export async function startWatcher(
  { location }: PreparedDatabase,
  rpcUrls: Record<string, string>,
  pollMs?: number,
): Promise<Watcher> {
  const running = await startWithOurFlags('bench/watcher.ts', {
    ...rpcUrls,
    LOCATION: JSON.stringify(location),
    ...(pollMs && { POLL_MS: String(pollMs) }),
  });
  return {
    ...running,
    watched: async () => (await fetch(`http://127.0.0.1:${running.port}`)).json() as Promise<Watched>,
  };
}

interface Progress {
  /** The newest block that was read; -1 if there is none. */
  block: number;
  /** Transfers that wait for their confirmations. */
  pending: number;
  /** When this was read, by `performance.now()`. */
  atMs: number;
}

async function progressOf({ orm }: PreparedDatabase, chainId: number): Promise<Progress> {
  const [row] = await orm.em.execute<{ block: string; pending: string }[]>(
    `select coalesce((select cursor_number from watched_chains where chain_id = ?), -1) as block,
            (select count(*) from transfers where chain_id = ? and state = 'pending') as pending`,
    [chainId, chainId],
  );
  return { block: Number(row?.block), pending: Number(row?.pending), atMs: performance.now() };
}

/** Resolves with the progress once it is as wanted. Throws if that takes more than three minutes. */
export async function untilProgress(
  database: PreparedDatabase,
  { network: { chainId } }: TestChain,
  isWanted: (progress: Progress) => boolean,
): Promise<Progress> {
  for (const deadlineMs = performance.now() + timeoutMs; ; await sleep(10)) {
    const progress = await progressOf(database, chainId);
    if (isWanted(progress)) return progress;
    if (performance.now() > deadlineMs) throw new Error(`the chain is read to ${progress.block} only`);
  }
}

/** Resolves with the progress once the chain's newest block is read. */
export async function untilRead(database: PreparedDatabase, chain: TestChain): Promise<Progress> {
  const head = Number(await chain.client.getBlockNumber());
  return untilProgress(database, chain, ({ block }) => block >= head);
}
