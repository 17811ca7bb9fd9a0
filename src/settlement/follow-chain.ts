// How a chain goes on behind the block that was read last, step by step. It knows no database.

import type { Tip } from './ledger/cursor.ts';
import type { Header } from './node-answers.ts';

/** Ranges are read if the last read block is this far below the final one. */
const farBehind = 32;
/** Newer blocks are read one by one, or together where there are several a second: with a part of the requests. */
const maxSingly = 4;
/** Blocks or ranges in one pass, before confirmations and expiry run. */
const maxStepsAtOnce = 32;
/** Time limit of the same, for a node with a low rate limit. */
const maxReadingMs = 5_000;

export type ChainStep =
  /** The next block, the child of the one that was read last. */
  | { kind: 'block'; header: Header }
  /** The newest blocks, up to this one at most, that are read together. */
  | { kind: 'newest'; last: Header }
  /** Final blocks, up to this one at most, that can be read together. */
  | { kind: 'range'; to: number }
  /** The block that was read last is not on the chain. */
  | { kind: 'reorg' };

interface ChainView {
  head: Header;
  /** Number of the newest final block. */
  final: number;
  /** When the pass began, by `performance.now()`. */
  startedAtMs: number;
  /** The block that was read last: whoever takes a step has moved it before asking for the next. */
  tip(): Tip;
  headerAt(number: number): Promise<Header>;
  /** So many of the newest blocks are read together at most. */
  together(): number;
}

/** True if the first block is so far behind the second that the final block has to be known before anything is read. */
export function isFarBehind(first: { number: number }, second: { number: number }): boolean {
  return second.number - first.number > farBehind;
}

/** The steps of a pass to the chain's head, or until it has taken long enough. `confirmations`: how deep a payment must be. */
export async function* followChain(
  { head, final, startedAtMs, tip, headerAt, together }: ChainView,
  confirmations: number,
): AsyncGenerator<ChainStep, void> {
  if (head.number === tip().number && head.hash !== tip().hash) yield { kind: 'reorg' };
  // The newest are not read in ranges: their headers are the chain's clock.
  const rangesEnd = Math.min(final, head.number - 2 * confirmations);
  const isInRanges = rangesEnd - tip().number > farBehind;
  // One check for all ranges: they begin and end at final blocks.
  if (isInRanges && (await headerAt(tip().number)).hash !== tip().hash) yield { kind: 'reorg' };
  for (let steps = 0; tip().number < head.number; steps++) {
    if (steps >= maxStepsAtOnce || performance.now() - startedAtMs >= maxReadingMs) return;
    if (isInRanges && rangesEnd > tip().number) {
      yield { kind: 'range', to: rangesEnd };
      continue;
    }
    const ahead = Math.min(head.number - tip().number, together());
    if (ahead > maxSingly) {
      const to = tip().number + ahead;
      yield { kind: 'newest', last: to === head.number ? head : await headerAt(to) };
      continue;
    }
    const next = tip().number + 1;
    const header = next === head.number ? head : await headerAt(next);
    if (header.parentHash !== tip().hash) {
      // Many blocks may be behind now: the next pass chooses how they are read.
      yield { kind: 'reorg' };
      return;
    }
    yield { kind: 'block', header };
  }
}
