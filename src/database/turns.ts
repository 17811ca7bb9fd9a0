// Reads and changes take turns by merchant, each kind within its own part of the pool, so that one merchant delays neither
// creates nor other merchants.

import type { EntityManager } from '@mikro-orm/postgresql';
import type { Pool } from 'pg';
import { overloaded, usualWaits } from './batcher.ts';

const { maxWaiting, maxWaitMs } = usualWaits;

type RunInTurn = ReturnType<typeof createTurns>;
type Kind = 'reads' | 'changes';

/** The largest part of the connections that uncached reads hold together, and that changes hold together. */
const shares: Readonly<Record<Kind, number>> = { reads: 1 / 4, changes: 1 / 2 };
const turnsOfPools = { reads: new WeakMap<Pool, RunInTurn>(), changes: new WeakMap<Pool, RunInTurn>() };

/** All reads of a pool take turns together, and all changes. */
export function turnsOf(pool: Pool, kind: Kind): RunInTurn {
  const known = turnsOfPools[kind].get(pool);
  if (known !== undefined) return known;
  const turns = createTurns(Math.max(1, Math.floor(pool.options.max * shares[kind])), kind);
  turnsOfPools[kind].set(pool, turns);
  return turns;
}

/** Runs a merchant's change when it is its turn. Throws `unavailable` if its turn does not come in time. */
export async function inChangeTurn<T>(
  em: EntityManager,
  merchantId: string,
  work: () => Promise<T>,
): Promise<T> {
  return turnsOf(await em.getConnection().getNativeClient(), 'changes')(merchantId, work);
}

/**
 * Returns a function that runs the work when it is the merchant's turn. It throws `unavailable` without running it if
 * too much waits, or if it would wait too long. `slots` is how much may run at once. With several merchants, each may use all
 * but one.
 */
function createTurns(slots: number, kind: Kind) {
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
      return Promise.reject(overloaded(`${maxWaiting} ${kind} wait already`));
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
        reject(overloaded(`${kind}: no turn within ${maxWaitMs} ms`));
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
