// Work that arrives while the database is busy shares one statement: group commit for writes, one query for
// lookups. No library does this for PostgreSQL, whose own group commit joins the disk writes of transactions but
// not their round trips.

import { ServiceError } from '../requests/errors.ts';

export interface BatcherOptions<Item, Result> {
  /**
   * Does the work of a batch and returns one outcome for each item, in order: its result, or its own error. Throws an
   * error that concerns the whole batch. A batch that writes is durable when this resolves.
   */
  run(batch: readonly Item[]): Promise<readonly (Result | Error)[]>;
  /** Called after each batch, whether it succeeded or failed. */
  onBatch?: (size: number, durationMs: number) => void;
  /** How long a free slot waits for more items. Without it, for those of the same turn of the event loop. */
  gatherMs?: number;
  /** Batches in flight at the same time. */
  slots: number;
  maxBatchSize: number;
  /** Items that may wait for a slot. One more is refused immediately as `unavailable`. */
  maxWaiting: number;
  /** Longest time an item waits for a slot. After it, the item is refused as `unavailable` and was not processed. */
  maxWaitMs: number;
}

/** How many reads may wait for a slot, and how long. */
export const waitingReads = { maxWaiting: 4_096, maxWaitMs: 3_000 } as const;

export interface Batcher<Item, Result> {
  /**
   * Settles when the batch that took the item has succeeded or failed. Rejects with the signal's reason, and nothing is
   * done for the item, if the signal aborts before a batch takes it.
   */
  add(item: Item, signal?: AbortSignal): Promise<Result>;
  /** Returns the number of items that wait for a slot. */
  waiting(): number;
}

interface Waiter<Item, Result> {
  item: Item;
  signal: AbortSignal | undefined;
  /** By `performance.now()`. */
  refusedAtMs: number;
  resolve(result: Result): void;
  reject(reason: unknown): void;
}

/**
 * While every slot is taken, items wait; a slot that becomes free takes all of them, up to `maxBatchSize`. Unless
 * `gatherMs` is given there is no timer: if a slot is free, an item is taken in the turn of the event loop that
 * brought it, together with the others of that turn.
 */
export function createBatcher<Item, Result>(options: BatcherOptions<Item, Result>): Batcher<Item, Result> {
  const { slots, maxBatchSize, maxWaiting, maxWaitMs, gatherMs = 0 } = options;
  const waiting: Waiter<Item, Result>[] = [];
  let busySlots = 0;
  let isScheduled = false;
  let expiry: NodeJS.Timeout | undefined;
  // Made once: under overload they are what most items get.
  const queueIsFull = overloaded(`${maxWaiting} wait already`);
  const waitedTooLong = overloaded(`no slot became free within ${maxWaitMs} ms`);

  const fillSlots = () => {
    isScheduled = false;
    while (busySlots < slots && waiting.length > 0) {
      const batch = takeBatch();
      if (batch.length === 0) continue;
      busySlots++;
      void runBatch(batch);
    }
  };

  /** Takes the next items and rejects those whose signal has aborted. */
  const takeBatch = () =>
    waiting.splice(0, maxBatchSize).filter(({ signal, reject }) => {
      if (signal?.aborted) reject(signal.reason);
      return !signal?.aborted;
    });

  const runBatch = async (batch: Waiter<Item, Result>[]) => {
    const startedAtMs = performance.now();
    try {
      const outcomes = await options.run(batch.map(({ item }) => item));
      batch.forEach(({ resolve, reject }, i) => {
        const outcome = outcomes[i];
        if (outcome instanceof Error) reject(outcome);
        else resolve(outcome as Result);
      });
    } catch (reason) {
      for (const { reject } of batch) reject(reason);
    } finally {
      options.onBatch?.(batch.length, performance.now() - startedAtMs);
      busySlots--;
      fillSlots();
    }
  };

  /** Refuses items that have waited too long, and schedules the next check. */
  const expire = () => {
    const now = performance.now();
    const stillWaiting = waiting.findIndex(({ refusedAtMs }) => refusedAtMs > now);
    const expired = waiting.splice(0, stillWaiting === -1 ? waiting.length : stillWaiting);
    for (const { reject } of expired) reject(waitedTooLong);
    const [next] = waiting;
    expiry = next && setTimeout(expire, Math.max(1, next.refusedAtMs - now)).unref();
  };

  return {
    waiting: () => waiting.length,
    add(item, signal) {
      if (waiting.length >= maxWaiting) {
        return Promise.reject(queueIsFull);
      }
      return new Promise((resolve, reject) => {
        waiting.push({ item, signal, refusedAtMs: performance.now() + maxWaitMs, resolve, reject });
        if (expiry === undefined) expiry = setTimeout(expire, maxWaitMs).unref();
        if (isScheduled || busySlots >= slots) return;
        isScheduled = true;
        if (gatherMs === 0) setImmediate(fillSlots);
        else setTimeout(fillSlots, gatherMs);
      });
    },
  };
}

function overloaded(reason: string): ServiceError {
  return new ServiceError('unavailable', { cause: new Error(reason) });
}
