// Checks that a node is on the watched chain, and which of its blocks are final.

import type { ChainIdentity, WatchContext } from './chain-state.ts';
import { LeaseLost } from './ledger/lease.ts';
import type { Node } from './node.ts';
import { type Header, NodeError } from './node-answers.ts';

/** If a node has no `finalized` block, blocks at least this far below its head count as final. */
const finalDepth = 1_000;

export function createChainIdentity(
  { settings, ledger, logger, state }: Omit<WatchContext, 'identity'>,
  holder: string,
  finalizedEveryMs: number,
): ChainIdentity {
  const { chainId } = settings;
  /** Nodes whose chain was checked since they last failed. */
  const checked = new Set<Node>();

  const isLocalChain = async () =>
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
    if (!(await isLocalChain())) {
      throw new NodeError(
        'another_chain',
        `${state.node.name} has another block 0 than the watched chain: check its address`,
      );
    }
    state.lease ??= await ledger.acquire(holder);
    if (state.lease === undefined) throw new LeaseLost();
    await ledger.revertTo(state.lease, genesis);
    state.cursor = genesis;
    state.finalized = undefined;
    logger.warn({ chain_id: chainId }, 'the local chain was restarted; reading it from block 0');
  };

  const isSameChain = async (candidate: Node): Promise<boolean> => {
    await candidate.assertChain();
    const progress = await ledger.progress();
    if (progress === undefined) return true;
    const genesis = await candidate.header(0);
    if (genesis?.hash !== progress.genesisHash) return false;
    const newest = (await candidate.header('latest'))?.number ?? 0;
    const final = (await finalizedOf(candidate))?.number ?? Math.max(0, newest - finalDepth);
    const [recorded] = await ledger.knownBlocks(Math.min(final, progress.cursor.number), 1);
    return recorded === undefined || (await candidate.header(recorded.number))?.hash === recorded.hash;
  };

  const headerAt = async (number: number): Promise<Header> => {
    const header = await state.node.header(number);
    if (header === undefined)
      throw new NodeError('no_answer', `${state.node.name} does not have block ${number}`);
    return header;
  };

  /** Undefined if the node does not support the `finalized` tag. */
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
    // The head may be older than the final block: ask again.
    if (found !== undefined && found.number > head) head = await newest();
    if (found !== undefined && found.number > head) {
      throw new NodeError(
        'contradiction',
        `${state.node.name} reports block ${found.number} as final, but its newest block is ${head}`,
      );
    }
    const number = found?.number ?? Math.max(0, head - finalDepth);
    // Finality never goes backwards.
    state.finalized = { number: Math.max(number, state.finalized?.number ?? 0), readAtMs: now };
    return state.finalized.number;
  };

  return {
    isLocalChain,
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
