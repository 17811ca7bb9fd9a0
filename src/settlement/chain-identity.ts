// Whether a node is one of the chain that was watched before, and which of its blocks are final.

import type { WatchContext } from './chain-state.ts';
import { LeaseLost } from './ledger/lease.ts';
import type { Node } from './node.ts';
import { type Header, NodeError } from './node-answers.ts';

/** Where a node has no `finalized` block: as far below its head a block counts as final. */
const finalDepth = 1_000;

export interface ChainIdentity {
  /** A chain of this machine, which may begin anew. */
  isStandIn(): Promise<boolean>;
  /** Throws if the node is one of another chain; asks it once, until `forget`. */
  assertChain(asked: Node): Promise<void>;
  /** Throws if the chain of the node that reads has another block 0 than before. One of this machine has begun anew. */
  assertGenesis(): Promise<void>;
  /** True if the node has the blocks that are held, as far as they are final for it. */
  isSameChain(candidate: Node): Promise<boolean>;
  /** Throws if the node that reads does not have the block. */
  headerAt(number: number): Promise<Header>;
  /** The final block of the node that reads, which may be known for so long. */
  finalizedNumber(maxAgeMs?: number): Promise<number>;
  /** Asks that node, or every one, for its chain again. */
  forget(asked?: Node): void;
}

export function createChainIdentity(
  { settings, ledger, logger, state }: WatchContext,
  holder: string,
  finalizedEveryMs: number,
): ChainIdentity {
  const { chainId } = settings;
  /** Nodes whose chain was asked for since they last failed. */
  const checked = new Set<Node>();

  const isStandIn = async () =>
    settings.mode === 'testnet' && (await state.node.version()).startsWith('anvil/');

  const assertChain = async (asked: Node) => {
    if (checked.has(asked)) return;
    await asked.assertChain();
    if (asked === state.node) await assertGenesis();
    checked.add(asked);
  };

  const assertGenesis = async () => {
    const progress = await ledger.progress();
    if (progress === undefined) return;
    const genesis = await headerAt(0);
    if (genesis.hash === progress.genesisHash) return;
    if (!(await isStandIn())) {
      throw new NodeError(
        'another_chain',
        `${state.node.name} has another block 0 than the chain that was watched before: its address is wrong`,
      );
    }
    state.lease ??= await ledger.acquire(holder);
    if (state.lease === undefined) throw new LeaseLost();
    await ledger.beginAnew(state.lease, genesis);
    state.cursor = genesis;
    state.finalized = undefined;
    logger.warn(
      { chain_id: chainId },
      'the chain of this machine has begun anew; it is read from its beginning',
    );
  };

  const isSameChain = async (candidate: Node): Promise<boolean> => {
    await candidate.assertChain();
    const progress = await ledger.progress();
    if (progress === undefined) return true;
    const genesis = await candidate.header(0);
    if (genesis?.hash !== progress.genesisHash) return false;
    const newest = (await candidate.header('latest'))?.number ?? 0;
    const final = (await finalizedOf(candidate))?.number ?? Math.max(0, newest - finalDepth);
    const [held] = await ledger.knownBlocks(Math.min(final, progress.cursor.number), 1);
    return held === undefined || (await candidate.header(held.number))?.hash === held.hash;
  };

  const headerAt = async (number: number): Promise<Header> => {
    const header = await state.node.header(number);
    if (header === undefined) throw new NodeError('no_answer', `${state.node.name} has no block ${number}`);
    return header;
  };

  /** Undefined if the node does not know what that is. */
  const finalizedOf = (asked: Node): Promise<Header | undefined> =>
    asked.header('finalized').catch((reason) => {
      if (reason instanceof NodeError && reason.fault === 'refused') return undefined;
      throw reason;
    });

  const finalizedNumber = async (maxAgeMs = finalizedEveryMs): Promise<number> => {
    const now = performance.now();
    if (state.finalized !== undefined && now - state.finalized.readAtMs < maxAgeMs)
      return state.finalized.number;
    const found = await finalizedOf(state.node);
    const newest = async () => (await state.node.header('latest'))?.number ?? 0;
    let head = state.headNumber ?? (await newest());
    // The chain may have grown meanwhile.
    if (found !== undefined && found.number > head) head = await newest();
    if (found !== undefined && found.number > head) {
      throw new NodeError(
        'contradiction',
        `${state.node.name} calls block ${found.number} final, and its newest one is ${head}`,
      );
    }
    const number = found?.number ?? Math.max(0, head - finalDepth);
    // What was final stays final.
    state.finalized = { number: Math.max(number, state.finalized?.number ?? 0), readAtMs: now };
    return state.finalized.number;
  };

  return {
    isStandIn,
    assertChain,
    assertGenesis,
    isSameChain,
    headerAt,
    finalizedNumber,
    forget(asked) {
      if (asked === undefined) checked.clear();
      else checked.delete(asked);
    },
  };
}
