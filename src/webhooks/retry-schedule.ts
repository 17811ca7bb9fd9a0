// When a delivery that failed is tried again.

import type { AttemptResult } from './sender.ts';

/** Delays of the retries, in seconds. After the last one the delivery has failed. */
const retryAfterSeconds = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400];

/** The state of a delivery after an attempt. Retries have 10% of jitter, so that those of one outage do not come together. */
export function outcomeOf(
  { scheduled }: { scheduled: number },
  { error }: Pick<AttemptResult, 'error'>,
): { status: 'pending' | 'delivered' | 'failed'; retryAfterMs: number | undefined } {
  if (error === undefined) return { status: 'delivered', retryAfterMs: undefined };
  const seconds = retryAfterSeconds[scheduled];
  if (seconds === undefined) return { status: 'failed', retryAfterMs: undefined };
  return { status: 'pending', retryAfterMs: Math.round(seconds * 1000 * (0.9 + Math.random() / 5)) };
}
