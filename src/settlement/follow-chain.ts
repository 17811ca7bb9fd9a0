// The steps from the last block read to the head of a chain. They do not depend on the database.

import type { Tip } from './ledger/cursor.ts';
import type { Header } from './node-answers.ts';

/** Ranges are read if the last read block is this far below the final one. */
const farBehind = 32;
/** Newer blocks are read one by one. More than this many are read together, which takes fewer requests. */
const maxSingly = 4;
/** Blocks or ranges in one pass, before confirmations and expiry run. */
const maxStepsAtOnce = 32;
/** Time limit of one pass, for a node with a low rate limit. */
const maxReadingMs = 5_000;

export type ChainStep =
  /** The next block, a child of the last block read. */
  | { kind: 'block'; header: Header }
  /** The newest blocks, at most up to this one, which are read together. */
  | { kind: 'newest'; header: Header }
  /** Final blocks, at most up to this one, which can be read together. */
  | { kind: 'range'; to: number }
  /** The last block read is not on the chain. */
  | { kind: 'reorg' };

interface ChainView {
  head: Header;
  /** Number of the newest final block. */
  final: number;
  /** When the pass began, by `performance.now()`. */
  startedAtMs: number;
  /** The last block read. The caller moves it after each step, before it asks for the next one. */
  tip(): Tip;
  headerAt(number: number): Promise<Header>;
  /** How many of the newest blocks are read together at most. */
  together(): number;
}

/** True if the first block is so far behind the second that reading needs to know the final block. */
export function isFarBehind(first: { number: number }, second: { number: number }): boolean {
  return second.number - first.number > farBehind;
}

/** The steps of a pass, up to the chain's head or a limit. `confirmations` is how deep a payment must be. */
export async function* followChain(
  { head, final, startedAtMs, tip, headerAt, together }: ChainView,
  confirmations: number,
): AsyncGenerator<ChainStep, void> {
  if (head.number === tip().number && head.hash !== tip().hash) yield { kind: 'reorg' };
  // The newest blocks are not read in ranges: their headers are the chain's clock.
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
      yield { kind: 'newest', header: to === head.number ? head : await headerAt(to) };
      continue;
    }
    const next = tip().number + 1;
    const header = next === head.number ? head : await headerAt(next);
    if (header.parentHash !== tip().hash) {
      // After a revert many blocks may be unread: the next pass chooses how to read them.
      yield { kind: 'reorg' };
      return;
    }
    yield { kind: 'block', header };
  }
}
