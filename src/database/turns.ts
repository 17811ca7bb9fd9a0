// Turns, so that no merchant delays the others. Reads and changes take turns by merchant, each kind in its
// own part of the pool, so that creates have the rest. Payments by a signature take turns by intent.

import type { EntityManager } from '@mikro-orm/postgresql';
import type { Pool } from 'pg';
import { ServiceError } from '../requests/errors.ts';
import { overloaded, usualWaits } from './batcher.ts';

const { maxWaiting, maxWaitMs } = usualWaits;

const tooManyReads =
  'Too many of your reads at once, with all keys together. Wait for answers before you send more.';

type RunInTurn = ReturnType<typeof createTurns>;
type Kind = 'reads' | 'changes';

/** The largest part of the pool that uncached reads may hold together, and that changes may. */
const shares: Readonly<Record<Kind, number>> = { reads: 1 / 4, changes: 1 / 2 };
const turnsOfPools = { reads: new WeakMap<Pool, RunInTurn>(), changes: new WeakMap<Pool, RunInTurn>() };

/**
 * Runs a merchant's work when it is the merchant's turn. Throws `unavailable` if that takes too long, or
 * `rate_limited` if the merchant's own reads are in the way. All reads of a pool share their turns, and so do all
 * changes.
 */
export async function inTurn<T>(em: EntityManager, kind: Kind, merchantId: string, work: () => Promise<T>) {
  const pool: Pool = await em.getConnection().getNativeClient();
  let turns = turnsOfPools[kind].get(pool);
  if (turns === undefined) {
    turns = createTurns(Math.max(1, Math.floor(pool.options.max * shares[kind])), kind);
    turnsOfPools[kind].set(pool, turns);
  }
  return turns(merchantId, work);
}

/**
 * Returns a function that runs the work when it is the turn of its key, such as a merchant. It throws
 * `unavailable`, or `rate_limited` for reads of a key that uses its whole share, without running the work if too
 * much waits, or if it waits too long. At most `slots` run at once. If there are several, one key may use all but one.
 */
export function createTurns(slots: number, kind: string) {
  const maxOfKey = Math.max(1, slots - 1);
  /** By key, in the order of service. */
  const waiting = new Map<string, (() => void)[]>();
  const running = new Map<string, number>();
  let waitingCount = 0;
  let runningCount = 0;

  /** A change may wait for a lock that is not its merchant's fault, so it is never `rate_limited`. */
  const refusal = (key: string, reason: string) =>
    kind === 'reads' && running.get(key) === maxOfKey
      ? new ServiceError('rate_limited', { message: tooManyReads })
      : overloaded(`${kind}: ${reason}`);

  const mayBegin = (key: string) => runningCount < slots && (running.get(key) ?? 0) < maxOfKey;

  const count = (key: string, change: 1 | -1) => {
    runningCount += change;
    const left = (running.get(key) ?? 0) + change;
    if (left > 0) running.set(key, left);
    else running.delete(key);
  };

  const beginNext = () => {
    for (const [key, queue] of waiting) {
      if (runningCount >= slots) return;
      if (!mayBegin(key)) continue;
      const begin = queue.shift();
      // If the key has more, it goes to the end.
      waiting.delete(key);
      if (queue.length > 0) waiting.set(key, queue);
      waitingCount--;
      count(key, 1);
      begin?.();
    }
  };

  const wait = (key: string): Promise<void> => {
    const queue = waiting.get(key) ?? [];
    // Above the limit, each key may still have its share.
    if (waitingCount >= maxWaiting && queue.length >= maxWaiting / waiting.size) {
      return Promise.reject(refusal(key, `${maxWaiting} wait already`));
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
        if (queue.length === 0) waiting.delete(key);
        waitingCount--;
        reject(refusal(key, `no turn within ${maxWaitMs} ms`));
      }, maxWaitMs).unref();
      queue.push(begin);
      waiting.set(key, queue);
      waitingCount++;
    });
  };

  return async <Result>(key: string, work: () => Promise<Result>): Promise<Result> => {
    if (mayBegin(key) && !waiting.has(key)) count(key, 1);
    else await wait(key);
    try {
      return await work();
    } finally {
      count(key, -1);
      beginNext();
    }
  };
}
