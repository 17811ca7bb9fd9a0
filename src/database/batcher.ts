// Work that arrives while the database is busy shares one statement: group commit for writes, one query for
// lookups. No library does this for PostgreSQL, whose own group commit joins the disk writes of transactions
// but not their round trips.

import { ServiceError } from '../requests/errors.ts';
import { mayHaveRun } from '../requests/unavailable.ts';

interface BatcherOptions<Item, Result> {
  /**
   * Does the work of a batch and returns one outcome for each item, in order: its result, or its own error.
   * Throws an error that concerns the whole batch. A batch that writes is durable when this resolves. With
   * `isRepeated`, an earlier run may have done some of the items.
   */
  run(batch: readonly Item[], isRepeated: boolean): Promise<readonly (Result | Error)[]>;
  /**
   * True if a batch that failed for this reason is held, and run again until its items time out: after a
   * failover the server is back in seconds. Meanwhile only one batch is tried, and the others wait.
   */
  isHeldAfter?: (reason: unknown) => boolean;
  /** Called after each batch, whether it succeeded or failed. */
  onBatch?: (size: number, durationMs: number) => void;
  /** How long a free slot waits for more items. If unset, only for those of the same event loop turn. */
  gatherMs?: number;
  /** Batches in flight at the same time. */
  slots: number;
  /**
   * A batch starts beside others only if they have at most so many items, or if it is a full one: fewer, larger
   * batches cost less. If unset, it always starts.
   */
  maxBeside?: number;
  maxBatchSize: number;
  /** Items that may wait for a slot. One more is refused immediately as `unavailable`. */
  maxWaiting?: number;
  /** Longest time an item waits or is held. Then it is refused as `unavailable`, or with its last failure. */
  maxWaitMs?: number;
}

/** Pauses between the tries of a held batch. */
const firstPauseMs = 100;
const maxPauseMs = 250;

/** How many items may wait for a slot, and how long, unless a batcher has limits of its own. */
export const usualWaits = { maxWaiting: 4_096, maxWaitMs: 3_000 };

interface Waiter<Item, Result> {
  item: Item;
  signal: AbortSignal | undefined;
  /** By `performance.now()`. */
  refusedAtMs: number;
  /** Why its last run failed, if it is held. A failure after which it may have been done is kept. */
  lastFailure: unknown;
  resolve(result: Result): void;
  reject(reason: unknown): void;
}

/**
 * While every slot is taken, items wait; a slot that becomes free takes all of them, up to `maxBatchSize`.
 * Unless `gatherMs` is given there is no timer: if a slot is free, an item is taken in the turn of the event
 * loop that brought it, together with the others of that turn.
 */
export class Batcher<Item, Result> {
  readonly #options: BatcherOptions<Item, Result> & typeof usualWaits;
  /** The longest waiting first. */
  readonly #waiting: Waiter<Item, Result>[] = [];
  #busySlots = 0;
  #itemsInFlight = 0;
  #isScheduled = false;
  #expiry: NodeJS.Timeout | undefined;
  /** The last batch failed and is held. */
  #isHolding = false;
  /** Runs until the next try of a held batch. */
  #pause: NodeJS.Timeout | undefined;
  #pauseMs = firstPauseMs;
  #endsAtMs = Number.POSITIVE_INFINITY;
  // Created once: under overload most items are refused with them.
  readonly #queueIsFull: ServiceError;
  readonly #waitedTooLong: ServiceError;

  constructor(options: BatcherOptions<Item, Result>) {
    this.#options = { ...usualWaits, ...options };
    this.#queueIsFull = overloaded(`${this.#options.maxWaiting} wait already`);
    this.#waitedTooLong = overloaded(`no slot became free within ${this.#options.maxWaitMs} ms`);
  }

  /** Returns the number of items that wait for a slot. */
  waiting(): number {
    return this.#waiting.length;
  }

  /** Returns how many of these are held. */
  held(): number {
    return this.#waiting.filter(({ lastFailure }) => lastFailure !== undefined).length;
  }

  /** Refuses the items that still wait after this time, because the process ends. */
  endWithin(ms: number): void {
    this.#endsAtMs = performance.now() + ms;
    this.#limit(this.#waiting);
    this.#expire();
  }

  /**
   * Settles when the batch that took the item has succeeded or failed. If the signal aborts before a batch
   * takes it, rejects with the signal's reason. Nothing is done for the item, unless an earlier try failed.
   */
  add(item: Item, signal?: AbortSignal): Promise<Result> {
    const { maxWaiting, maxWaitMs, gatherMs = 0 } = this.#options;
    if (this.#waiting.length >= maxWaiting) return Promise.reject(this.#queueIsFull);
    return new Promise((resolve, reject) => {
      const refusedAtMs = Math.min(performance.now() + maxWaitMs, this.#endsAtMs);
      this.#waiting.push({ item, signal, refusedAtMs, lastFailure: undefined, resolve, reject });
      this.#expiry ??= setTimeout(this.#expire, Math.max(1, refusedAtMs - performance.now())).unref();
      if (this.#isScheduled || !this.#mayRun()) return;
      this.#isScheduled = true;
      if (gatherMs === 0) setImmediate(this.#fillSlots);
      else setTimeout(this.#fillSlots, gatherMs);
    });
  }

  readonly #fillSlots = (): void => {
    this.#isScheduled = false;
    while (this.#mayRun() && this.#waiting.length > 0) {
      const batch = this.#takeBatch();
      if (batch.length === 0) continue;
      this.#busySlots++;
      this.#itemsInFlight += batch.length;
      void this.#run(batch);
    }
  };

  #mayRun(): boolean {
    const { slots, maxBatchSize, maxBeside = Number.POSITIVE_INFINITY } = this.#options;
    const isAlone =
      this.#isHolding || (this.#itemsInFlight > maxBeside && this.#waiting.length < maxBatchSize);
    return this.#pause === undefined && this.#busySlots < (isAlone ? 1 : slots);
  }

  /** Takes the next items and rejects those whose signal has aborted. */
  #takeBatch(): Waiter<Item, Result>[] {
    return this.#waiting.splice(0, this.#options.maxBatchSize).filter(({ signal, reject }) => {
      if (signal?.aborted) reject(signal.reason);
      return !signal?.aborted;
    });
  }

  async #run(batch: Waiter<Item, Result>[]): Promise<void> {
    const startedAtMs = performance.now();
    try {
      const isRepeated = batch.some(({ lastFailure }) => lastFailure !== undefined);
      const items = batch.map(({ item }) => item);
      const outcomes = await this.#options.run(items, isRepeated);
      this.#isHolding = false;
      this.#pauseMs = firstPauseMs;
      batch.forEach((waiter, i) => {
        const outcome = outcomes[i];
        if (outcome instanceof Error) waiter.reject(reasonFor(waiter, outcome));
        else waiter.resolve(outcome as Result);
      });
    } catch (reason) {
      if (this.#options.isHeldAfter?.(reason)) this.#hold(batch, reason);
      else for (const waiter of batch) waiter.reject(reasonFor(waiter, reason));
    } finally {
      this.#options.onBatch?.(batch.length, performance.now() - startedAtMs);
      this.#busySlots--;
      this.#itemsInFlight -= batch.length;
      this.#fillSlots();
    }
  }

  /** Puts the items back, to be run again after a pause. */
  #hold(batch: Waiter<Item, Result>[], reason: unknown): void {
    this.#isHolding = true;
    for (const waiter of batch) if (!mayHaveRun(waiter.lastFailure)) waiter.lastFailure = reason;
    this.#limit(batch);
    this.#waiting.unshift(...batch);
    this.#waiting.sort((a, b) => a.refusedAtMs - b.refusedAtMs);
    this.#expire();
    if (this.#pause !== undefined) return;
    this.#pause = setTimeout(() => {
      this.#pause = undefined;
      this.#fillSlots();
    }, this.#pauseMs);
    this.#pauseMs = Math.min(2 * this.#pauseMs, maxPauseMs);
  }

  #limit(waiters: readonly Waiter<Item, Result>[]): void {
    for (const waiter of waiters) waiter.refusedAtMs = Math.min(waiter.refusedAtMs, this.#endsAtMs);
  }

  /** Refuses items that have waited too long, and schedules the next check. */
  readonly #expire = (): void => {
    const now = performance.now();
    const stillWaiting = this.#waiting.findIndex(({ refusedAtMs }) => refusedAtMs > now);
    const expired = this.#waiting.splice(0, stillWaiting === -1 ? this.#waiting.length : stillWaiting);
    for (const { reject, lastFailure } of expired) reject(lastFailure ?? this.#waitedTooLong);
    const [next] = this.#waiting;
    clearTimeout(this.#expiry);
    this.#expiry = next && setTimeout(this.#expire, Math.max(1, next.refusedAtMs - now)).unref();
  };
}

/** The error for an item: that of an earlier run that may have done it, unless this one knows more. */
function reasonFor({ lastFailure }: { lastFailure: unknown }, reason: unknown): unknown {
  const isAnswer = reason instanceof ServiceError && reason.code !== 'unavailable';
  return !isAnswer && mayHaveRun(lastFailure) ? lastFailure : reason;
}

/** The error of a queue that is full or too slow. */
export function overloaded(reason: string): ServiceError {
  return new ServiceError('unavailable', { cause: new Error(reason) });
}
