// Reads take turns by merchant and use only a part of the pool, and changes alike, so that those of one merchant delay
// neither creates nor those of others.

import { overloaded, usualWaits } from './batcher.ts';

const { maxWaiting, maxWaitMs } = usualWaits;

export type RunInTurn = ReturnType<typeof createTurns>;

/**
 * Returns a function that runs the work when it is the merchant's turn. It throws `unavailable` without running it if
 * too much waits, or if it would wait too long. `slots` is how much may run at once. With several merchants, each may use all
 * but one.
 */
export function createTurns(slots: number) {
  const maxOfMerchant = Math.max(1, slots - 1);
  /** By merchant, in the order of service. */
  const waiting = new Map<string, (() => void)[]>();
  const running = new Map<string, number>();
  let waitingCount = 0;
  let runningCount = 0;

  const mayBegin = (merchantId: string) =>
    runningCount < slots && (running.get(merchantId) ?? 0) < maxOfMerchant;

  const count = (merchantId: string, change: 1 | -1) => {
    runningCount += change;
    const left = (running.get(merchantId) ?? 0) + change;
    if (left > 0) running.set(merchantId, left);
    else running.delete(merchantId);
  };

  const beginNext = () => {
    for (const [merchantId, queue] of waiting) {
      if (runningCount >= slots) return;
      if (!mayBegin(merchantId)) continue;
      const begin = queue.shift();
      // After the others, if it has more.
      waiting.delete(merchantId);
      if (queue.length > 0) waiting.set(merchantId, queue);
      waitingCount--;
      count(merchantId, 1);
      begin?.();
    }
  };

  const wait = (merchantId: string): Promise<void> => {
    const queue = waiting.get(merchantId) ?? [];
    // Above the limit each merchant may have its share.
    if (waitingCount >= maxWaiting && queue.length >= maxWaiting / waiting.size) {
      return Promise.reject(overloaded(`${maxWaiting} wait for their turn already`));
    }
    return new Promise((resolve, reject) => {
      const begin = () => {
        clearTimeout(timer);
        resolve();
      };
      const timer = setTimeout(() => {
        const place = queue.indexOf(begin);
        if (place === -1) return;
        queue.splice(place, 1);
        if (queue.length === 0) waiting.delete(merchantId);
        waitingCount--;
        reject(overloaded(`no turn came within ${maxWaitMs} ms`));
      }, maxWaitMs).unref();
      queue.push(begin);
      waiting.set(merchantId, queue);
      waitingCount++;
    });
  };

  return async <Result>(merchantId: string, work: () => Promise<Result>): Promise<Result> => {
    if (mayBegin(merchantId) && !waiting.has(merchantId)) count(merchantId, 1);
    else await wait(merchantId);
    try {
      return await work();
    } finally {
      count(merchantId, -1);
      beginNext();
    }
  };
}
