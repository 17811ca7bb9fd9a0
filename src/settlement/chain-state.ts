// State shared by the parts of a watcher, and checks of the chain itself: whether a node is on it, and which
// of its blocks are final.

import type { Logger } from 'pino';
import type { Hash } from 'viem';
import { blocksIn, type ChainSettings } from '../contract/chains.ts';
import type { ChainMetrics } from '../telemetry/chain-metrics.ts';
import type { Tip } from './ledger/cursor.ts';
import { LeaseLost } from './ledger/lease.ts';
import type { Ledger } from './ledger/ledger.ts';
import type { Node } from './node.ts';
import { type Header, NodeError } from './node-answers.ts';

/** Valid while the lease is held. */
export interface ChainState {
  /** The reader and the node that confirms. Fixed for the duration of one pass. */
  node: Node;
  confirmer: Node;
  lease: bigint | undefined;
  /** From the chain's settings; 0 for a local chain, which has no reorganisations of its own. */
  minDepthMs: number;
  /** The last block read. */
  cursor: Tip | undefined;
  /** The reader's newest block. */
  headNumber: number | undefined;
  finalized: { number: number; readAtMs: number } | undefined;
  /** The newest block that was read, and final for the reader then. */
  finalRead: number;
  /** Blocks up to this one may have been read from another node than the present reader. */
  readBefore: number;
  /** Blocks with transfers due for confirmation that a node denied at the last attempt. */
  deniedIn: Set<number>;
  /** Blocks that a node could not answer for, and when to ask again. Negative: they only failed together. */
  unanswered: Map<number, number>;
  /** The ancestor that the node reported when a reorganisation was first seen. */
  suspected: string | undefined;
  /** Authorizations that could not be released, by id, and when to look at them again. */
  later: Map<string, number>;
}

interface Watched {
  settings: ChainSettings;
  /** The first that works is the reader, another one confirms. All are asked before a payment is reverted. */
  nodes: readonly [Node, ...Node[]];
  ledger: Ledger;
  logger: Logger;
  observer: Partial<ChainMetrics>;
  state: ChainState;
  /**
   * How much later a denied payment must be denied again to be reverted, how often reverted payments are
   * looked for, and how long a block is left alone after a node twice failed to answer for it.
   */
  deniedAgainMs: number;
}

export interface WatchContext extends Watched {
  identity: ReturnType<typeof createChainIdentity>;
}

type FinalBlock = { number: number; timeMs: number; readAtMs: number };

/** If a node has no `finalized` block, blocks that are about this old count as final. */
const finalAfterMs = 2_000_000;

const unlessRefused = <T>(answer: Promise<T>): Promise<T | undefined> =>
  answer.catch((reason) => {
    // A node may report a pruned block as out of range.
    if (reason instanceof NodeError && ['refused', 'too_large'].includes(reason.fault)) return undefined;
    throw reason;
  });

/** Undefined if the node does not support the `finalized` tag, or has pruned the block. */
const headerIfAny = (asked: Node, block: 'finalized' | 0): Promise<Header | undefined> =>
  unlessRefused(asked.header(block));

/** Returns a cached look-up of a node's newest final block, with a time that shows if the node is current. */
function createFinalOf(maxAgeMs: number, finalDepth: number): (asked: Node) => Promise<FinalBlock> {
  const known = new WeakMap<Node, FinalBlock>();
  return async (asked) => {
    const now = performance.now();
    const before = known.get(asked);
    if (before !== undefined && now - before.readAtMs < maxAgeMs) return before;
    const final = await headerIfAny(asked, 'finalized');
    const newest = final ?? (await asked.header('latest'));
    const number = final?.number ?? Math.max(0, (newest?.number ?? 0) - finalDepth);
    const found = { number, timeMs: newest?.time.getTime() ?? 0, readAtMs: now };
    known.set(asked, found);
    return found;
  };
}

function anotherGenesis({ name }: Node, isLocal: boolean, { mode, chain }: ChainSettings): NodeError {
  const remedy = isLocal
    ? 'set the RPC_URL of the real network again, or use another DATA_DIR for the local chain'
    : `check its address. To leave a local chain for a real network, run "admin chain unwatch --mode ${mode} --chain ${chain}"`;
  return new NodeError(
    'another_chain',
    `${name} has another block 0 than the chain watched so far: ${remedy}`,
  );
}

export function createChainIdentity({ settings, ledger, logger, state }: Watched, finalizedEveryMs: number) {
  const { chainId } = settings;
  /** Nodes whose chain was checked since they last failed. */
  const checked = new Set<Node>();
  const finalDepth = blocksIn(settings, finalAfterMs);
  const finalOf = createFinalOf(finalizedEveryMs, finalDepth);

  const identity = {
    /** True for the local chain of the embedded mode, whose history may restart. */
    async isLocalChain(): Promise<boolean> {
      if (settings.mode !== 'testnet') return false;
      const version = await unlessRefused(state.node.version());
      return version?.startsWith('anvil/') === true;
    },
    finalOf,
    /** The hash of a node's block 0; if pruned, that of the real network, which has the node's chain id. */
    async genesisOf(asked: Node): Promise<Hash> {
      return (await headerIfAny(asked, 0))?.hash ?? settings.genesisHash;
    },
    /** The number of the newest block that is final for the reader and for the node that confirms. */
    async commonFinal(): Promise<number> {
      const own = await identity.finalizedNumber();
      const { node, confirmer } = state;
      return node === confirmer ? own : Math.min(own, (await finalOf(confirmer)).number);
    },
    /** Throws if the node is on another chain. Asks each node once, until `forget`. */
    async assertChain(asked: Node): Promise<void> {
      if (checked.has(asked)) return;
      await asked.assertChain();
      if (asked === state.node) await identity.assertGenesis();
      checked.add(asked);
    },
    /** Throws if the reader has another block 0 than the watched chain. Restarts the watch if it is local. */
    async assertGenesis(): Promise<void> {
      const progress = await ledger.progress();
      if (progress === undefined) return;
      if ((await identity.genesisOf(state.node)) === progress.genesisHash) return;
      // Payments of the real network must survive a local chain in its place.
      const isLocal = await identity.isLocalChain();
      if (progress.genesisHash === settings.genesisHash || !isLocal) {
        throw anotherGenesis(state.node, isLocal, settings);
      }
      const genesis = await identity.headerAt(0);
      state.lease ??= await ledger.acquire();
      if (state.lease === undefined) throw new LeaseLost();
      await ledger.revertTo(state.lease, genesis);
      state.cursor = genesis;
      state.finalized = undefined;
      logger.warn({ chain_id: chainId }, 'the local chain was restarted; reading it from block 0');
    },
    /** True if the node has the newest recorded block that is final for it. */
    async isSameChain(candidate: Node): Promise<boolean> {
      await candidate.assertChain();
      const progress = await ledger.progress();
      if (progress === undefined) return true;
      if ((await identity.genesisOf(candidate)) !== progress.genesisHash) return false;
      const { number } = await finalOf(candidate);
      const [recorded] = await ledger.knownBlocks(Math.min(number, progress.cursor.number), 1);
      return recorded === undefined || (await candidate.header(recorded.number))?.hash === recorded.hash;
    },
    /** Throws if the reader does not have the block. */
    async headerAt(number: number): Promise<Header> {
      const header = await state.node.header(number);
      if (header === undefined)
        throw new NodeError('no_answer', `${state.node.name} does not have block ${number}`);
      return header;
    },
    /** The reader's final block, from the cache if that is no older than `maxAgeMs`. */
    async finalizedNumber(maxAgeMs = finalizedEveryMs): Promise<number> {
      const now = performance.now();
      if (state.finalized !== undefined && now - state.finalized.readAtMs < maxAgeMs)
        return state.finalized.number;
      const found = await headerIfAny(state.node, 'finalized');
      const newest = async () => (await state.node.header('latest'))?.number ?? 0;
      let head = state.headNumber ?? (await newest());
      // The known head may be older than the final block: ask again.
      if (found !== undefined && found.number > head) head = await newest();
      if (found !== undefined && found.number > head) {
        throw new NodeError(
          'contradiction',
          `${state.node.name} reports block ${found.number} as final, but its newest block is ${head}`,
        );
      }
      const number = found?.number ?? Math.max(0, head - finalDepth);
      // Not the highest so far: a single wrong answer would be believed forever.
      state.finalized = { number, readAtMs: now };
      return number;
    },
    /** Makes `assertChain` ask this node, or every node, again. */
    forget(asked?: Node): void {
      if (asked === undefined) checked.clear();
      else checked.delete(asked);
    },
  };
  return identity;
}
