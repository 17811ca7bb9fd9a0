// How many blocks to ask a node for at once. Providers limit it, each at another number and in other words, and some limit
// the answer in place of the question: the number is found by trying.

import { NodeError } from './node-answers.ts';

/** So many ranges of a size have to be read before larger ones are tried: of a node with a limit, one question in 17 is refused. */
const growAfter = 16;

export interface RangeSize {
  /** Blocks to ask for at once. */
  readonly blocks: number;
  /** Reads a range of so many blocks, and learns from what becomes of it. */
  reading<T>(blocks: number, read: () => Promise<T>): Promise<T>;
}

/** Returns a size that begins at its maximum, is halved when a node fails, and grows again slowly. */
export function createRangeSize(max: number): RangeSize {
  let blocks = max;
  let successes = 0;
  return {
    get blocks() {
      return blocks;
    },
    async reading(count, read) {
      try {
        const found = await read();
        // Single blocks that are read again, and what is new since the last time, say nothing of longer ranges.
        if (count >= blocks && ++successes % growAfter === 0) blocks = Math.min(max, blocks * 2);
        return found;
      } catch (reason) {
        // One block is never too many.
        if (reason instanceof NodeError && count > 1) {
          successes = 0;
          blocks = Math.min(blocks, count) >> 1;
        }
        throw reason;
      }
    },
  };
}
