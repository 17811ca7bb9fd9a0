// Rate limit of the requests to one node. Providers have different limits in different units, so the rate is
// found by trial. A refusal is not counted as a failure of the node.

import { setTimeout } from 'node:timers/promises';

/** Pause after a refusal, unless `Retry-After` is longer. Doubles with each further refusal. */
const firstPauseMs = 250;
const maxPauseMs = 1_000;
/** Each answer adds this to the rate, so that a rate in use doubles in 6 seconds. */
const growth = 1 / 8;
const minPerSecond = 1;

const paces = new Map<string, ReturnType<typeof createNodePace>>();

/** Returns the pace of the node with this address. All clients of a node in this process share it. */
export function paceOf(address: string) {
  const pace = paces.get(address) ?? createNodePace();
  paces.set(address, pace);
  return pace;
}

/** The pace is halved at a refusal and grows slowly. */
function createNodePace() {
  let perSecond = Number.POSITIVE_INFINITY;
  let nextAtMs = 0;
  let pausedUntilMs = 0;
  /** Answers since the rate was last halved. */
  let answers = 0;
  let halvedAtMs = 0;
  let pauseMs = firstPauseMs;
  /** Answers in the current second, and in the one before. */
  let [beganAtMs, count, before] = [performance.now(), 0, 0];

  const note = (now: number): void => {
    if (now - beganAtMs < 1_000) return;
    before = now - beganAtMs < 2_000 ? count : 0;
    [beganAtMs, count] = [now, 0];
  };

  return {
    /** Requests per second; infinite until the node has refused one. */
    get perSecond(): number {
      return perSecond;
    },
    /** Milliseconds until the end of the pause that the node asked for. */
    pausedMs: () => Math.max(0, pausedUntilMs - performance.now()),
    /** Resolves with the time, once the next request may be sent. */
    async turn(): Promise<number> {
      const now = performance.now();
      const atMs = Math.max(now, nextAtMs);
      nextAtMs = atMs + 1_000 / perSecond;
      if (atMs > now) await setTimeout(atMs - now);
      return performance.now();
    },
    answered() {
      note(performance.now());
      count++;
      answers++;
      pauseMs = firstPauseMs;
      perSecond += growth;
    },
    /** Notes that the node refused a request, sent at `sentAtMs`, because of the rate. */
    refused(retryAfterMs = 0, sentAtMs = performance.now()) {
      const now = performance.now();
      note(now);
      pausedUntilMs = Math.max(pausedUntilMs, now + retryAfterMs);
      nextAtMs = Math.max(nextAtMs, pausedUntilMs, now + pauseMs);
      pauseMs = Math.min(2 * pauseMs, maxPauseMs);
      // If nothing was answered, there is no rate to halve: only the pause applies.
      const reached = Math.min(perSecond, Math.max(before, count));
      // Many requests that were sent together may be refused: the rate is halved only once for them.
      if (answers === 0 || reached === 0 || sentAtMs <= halvedAtMs) return;
      answers = 0;
      halvedAtMs = now;
      perSecond = Math.max(minPerSecond, reached / 2);
    },
  };
}
