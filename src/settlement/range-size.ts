// How many blocks to ask a node for at once. Providers limit it, each at another number and in other words, and some limit
// the answer in place of the question: the number is found by trying.

import { NodeError, type NodeFault } from './node-answers.ts';

/** So many ranges of a size have to be read before larger ones are tried: of a node with a limit, one question in 17 is refused. */
const growAfter = 16;
/** A limit is remembered so long: plans change. */
const rememberMs = 3_600_000;
/** Faults that may come of the size of a question, or of its answer. */
const ofSize: ReadonlySet<NodeFault> = new Set(['too_large', 'refused', 'late', 'malformed']);

export interface RangeSize {
  /** Blocks to ask for at once. */
  readonly blocks: number;
  /**
   * Reads a range of so many blocks, or of as many as the node serves: `read` is called again with fewer if the node refuses
   * the size. Rejects if one block is refused, or for any other fault.
   */
  reading<T>(blocks: number, read: (blocks: number) => Promise<T>): Promise<T>;
}

/** Returns a size that begins at its maximum, shrinks to what the node serves, and seldom tries more. */
export function createRangeSize(max: number): RangeSize {
  let blocks = max;
  let successes = 0;
  /** The node refused so many. */
  let refused = { blocks: Number.POSITIVE_INFINITY, atMs: 0 };
  const next = () => {
    if (performance.now() - refused.atMs > rememberMs)
      refused = { blocks: Number.POSITIVE_INFINITY, atMs: 0 };
    // In the middle between what it serves and what it refuses, once that is known.
    return Math.min(max, blocks * 2, Math.max(blocks, Math.floor((blocks + refused.blocks) / 2)));
  };
  return {
    get blocks() {
      return blocks;
    },
    async reading(wanted, read) {
      for (;;) {
        const count = Math.min(wanted, blocks);
        try {
          const found = await read(count);
          // Single blocks that are read again, and what is new since the last time, say nothing of longer ranges.
          if (count >= blocks && ++successes % growAfter === 0) blocks = next();
          return found;
        } catch (reason) {
          // One block is never too many.
          if (!(reason instanceof NodeError) || !ofSize.has(reason.fault) || count <= 1) throw reason;
          successes = 0;
          blocks = Math.min(blocks, count) >> 1;
          // Only a node that speaks of the size has a limit; what is slow or cut today is not tomorrow.
          if (reason.fault !== 'too_large') throw reason;
          refused = { blocks: count, atMs: performance.now() };
        }
      }
    },
  };
}
