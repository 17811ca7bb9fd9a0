// Group commit: what arrives while the database is busy is written together. No library does this for
// PostgreSQL, whose own group commit joins the disk writes of transactions but not their round trips.

import { ServiceError } from '../errors.ts';

export interface GroupCommitOptions<Item, Result> {
  /**
   * Writes a batch durably and answers one outcome for each item, in order: its result, or the error that
   * concerns it alone. Throws what concerns the whole batch.
   */
  commit(batch: readonly Item[]): Promise<readonly (Result | Error)[]>;
  /** Batches written at the same time. */
  slots: number;
  maxBatchSize: number;
  /** Items that wait for a slot; one more is refused as `unavailable`, at once. */
  maxWaiting: number;
}

export interface GroupCommit<Item, Result> {
  /** Settles when the batch that took the item is durable, or failed. */
  add(item: Item): Promise<Result>;
}

interface Waiter<Item, Result> {
  item: Item;
  resolve(result: Result): void;
  reject(reason: unknown): void;
}

/**
 * While every slot is taken, items wait; a slot that becomes free takes all of them, up to `maxBatchSize`. There
 * is no timer: where a slot is free, an item is written in the turn of the event loop that brought it,
 * together with what else came in that turn.
 */
export function createGroupCommit<Item, Result>(
  options: GroupCommitOptions<Item, Result>,
): GroupCommit<Item, Result> {
  const { slots, maxBatchSize, maxWaiting } = options;
  const waiting: Waiter<Item, Result>[] = [];
  let busySlots = 0;
  let isScheduled = false;

  const fillSlots = () => {
    isScheduled = false;
    while (busySlots < slots && waiting.length > 0) {
      busySlots++;
      void commitBatch(waiting.splice(0, maxBatchSize));
    }
  };

  const commitBatch = async (batch: Waiter<Item, Result>[]) => {
    try {
      const outcomes = await options.commit(batch.map(({ item }) => item));
      batch.forEach(({ resolve, reject }, i) => {
        const outcome = outcomes[i];
        if (outcome instanceof Error) reject(outcome);
        else resolve(outcome as Result);
      });
    } catch (reason) {
      for (const { reject } of batch) reject(reason);
    } finally {
      busySlots--;
      fillSlots();
    }
  };

  return {
    add(item) {
      if (waiting.length >= maxWaiting) {
        return Promise.reject(new ServiceError('unavailable', { cause: new Error('too many creates wait') }));
      }
      return new Promise((resolve, reject) => {
        waiting.push({ item, resolve, reject });
        if (isScheduled || busySlots >= slots) return;
        isScheduled = true;
        setImmediate(fillSlots);
      });
    },
  };
}
