// How fast a node is asked. Providers allow so many questions a second, each another number and in units of their own: the
// number is found by trying, and a refusal is no fault of the node.

import { setTimeout } from 'node:timers/promises';

/** After a refusal a node is not asked for so long, unless it says how long itself; twice as long after each further one. */
const firstPauseMs = 250;
const maxPauseMs = 1_000;
/** Each answer adds this to the questions a second, so that a rate that is used doubles in 6 seconds. */
const growth = 1 / 8;
const minPerSecond = 1;

export interface NodePace {
  /** Questions a second; infinite until the node has refused one. */
  readonly perSecond: number;
  /** For how long the node has asked to be left alone, in milliseconds. */
  pausedMs(): number;
  /** Resolves when the next question may be asked. */
  turn(): Promise<void>;
  /** The node has answered. */
  answered(): void;
  /** The node has refused: too many questions. */
  refused(retryAfterMs?: number): void;
}

/** Returns the pace of one node, which all that ask it share: it is halved at a refusal, and grows slowly. */
export function createNodePace(): NodePace {
  let perSecond = Number.POSITIVE_INFINITY;
  let nextAtMs = 0;
  let pausedUntilMs = 0;
  /** Answers since the rate was halved last. */
  let answers = 0;
  let pauseMs = firstPauseMs;
  /** Answers within the current second, and in the one before. */
  let [beganAtMs, count, before] = [performance.now(), 0, 0];

  const note = (now: number): void => {
    if (now - beganAtMs < 1_000) return;
    before = now - beganAtMs < 2_000 ? count : 0;
    [beganAtMs, count] = [now, 0];
  };

  return {
    get perSecond() {
      return perSecond;
    },
    pausedMs: () => Math.max(0, pausedUntilMs - performance.now()),
    async turn() {
      const now = performance.now();
      const atMs = Math.max(now, nextAtMs);
      nextAtMs = atMs + 1_000 / perSecond;
      if (atMs > now) await setTimeout(atMs - now);
    },
    answered() {
      note(performance.now());
      count++;
      answers++;
      pauseMs = firstPauseMs;
      perSecond += growth;
    },
    refused(retryAfterMs = 0) {
      const now = performance.now();
      note(now);
      pausedUntilMs = Math.max(pausedUntilMs, now + retryAfterMs);
      nextAtMs = Math.max(nextAtMs, pausedUntilMs, now + pauseMs);
      pauseMs = Math.min(2 * pauseMs, maxPauseMs);
      // A node that answers nothing has no rate: it is left alone, and asked as before when it answers again.
      const reached = Math.min(perSecond, Math.max(before, count));
      if (answers === 0 || reached === 0) return;
      answers = 0;
      perSecond = Math.max(minPerSecond, reached / 2);
    },
  };
}
