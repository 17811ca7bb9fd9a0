// The number of blocks per request, or of receipts at once. Providers limit the range or the answer, each in
// its own way, so the size is found by trial.

import { NodeError, type NodeFault } from './node-answers.ts';

/** Larger ranges are tried after this many successes: a node with a limit refuses one request in 17. */
const growAfter = 16;
/** A limit is forgotten after this time, because plans change. */
const rememberMs = 3_600_000;
/** Faults that a request or an answer may cause by its size. */
const ofSize: ReadonlySet<NodeFault> = new Set(['too_large', 'refused', 'late', 'malformed']);

/** Returns a size that begins at its maximum, is halved after these faults, and sometimes tries to grow. */
export function createRangeSize(max: number, causes = ofSize) {
  let blocks = max;
  let successes = 0;
  let refused = { blocks: Number.POSITIVE_INFINITY, atMs: 0 };
  const next = () => {
    if (performance.now() - refused.atMs > rememberMs)
      refused = { blocks: Number.POSITIVE_INFINITY, atMs: 0 };
    // Halfway between the largest size served and the smallest refused, if that is known.
    return Math.min(max, blocks * 2, Math.max(blocks, Math.floor((blocks + refused.blocks) / 2)));
  };
  return {
    /** Blocks per request. */
    get blocks(): number {
      return blocks;
    },
    /**
     * Reads a range of `wanted` blocks, or of fewer if the node refuses the size: then `read` is called again
     * with half as many. Rejects if one block is refused, or for any other fault.
     */
    async reading<T>(wanted: number, read: (blocks: number) => Promise<T>): Promise<T> {
      for (;;) {
        const count = Math.min(wanted, blocks);
        try {
          const found = await read(count);
          // Shorter ranges say nothing about larger sizes.
          if (count >= blocks && ++successes % growAfter === 0) blocks = next();
          return found;
        } catch (reason) {
          // A single block is never too large.
          if (!(reason instanceof NodeError) || !causes.has(reason.fault) || count <= 1) throw reason;
          successes = 0;
          // Concurrent reads may have halved it meanwhile.
          blocks = Math.max(1, Math.min(blocks, count) >> 1);
          // Only `too_large` is a limit of the node. A slow or cut answer may be temporary.
          if (reason.fault !== 'too_large') throw reason;
          refused = { blocks: count, atMs: performance.now() };
        }
      }
    },
  };
}
