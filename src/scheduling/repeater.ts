// Runs a background task at an interval, or immediately when woken.

import type { Logger } from 'pino';

export interface RepeaterOptions {
  /** Named in the log if the work fails. */
  name: string;
  /** Does a part of the work. Resolves with true if there is more to do at once. */
  work(): Promise<boolean>;
  /** Pause between two times without a wake; undefined if only a wake begins it. */
  intervalMs: number | undefined;
  /** Pause before the work goes on, for each millisecond that a part took: leaves the database to others. */
  restRatio?: number;
  /** Longest pause after a failure. */
  maxRetryMs?: number;
  logger: Logger;
}

export interface Repeater {
  /** Begins the work now, or again when the part that runs is done. */
  wake(): void;
  /** Resolves when the part that runs is done. No other begins. */
  stop(): Promise<void>;
}

/** Pause after a failure; each further one doubles it. */
const firstRetryMs = 500;

/** Begins at once. A failure is logged and tried again, with longer and longer pauses. */
export function startRepeater({
  name,
  work,
  intervalMs,
  restRatio = 0,
  maxRetryMs = 15_000,
  logger,
}: RepeaterOptions): Repeater {
  let timer: NodeJS.Timeout | undefined;
  let running: Promise<void> | undefined;
  let isAwaited = false;
  let isStopped = false;
  let failures = 0;

  const after = (ms: number | undefined) => {
    clearTimeout(timer);
    timer = ms === undefined || isStopped ? undefined : setTimeout(begin, ms).unref();
  };

  const begin = () => {
    if (isStopped || running !== undefined) return;
    clearTimeout(timer);
    isAwaited = false;
    running = runOnce().finally(() => {
      running = undefined;
    });
  };

  const runOnce = async () => {
    const startedAtMs = performance.now();
    try {
      const hasMore = await work();
      if (failures > 0) logger.info({ work: name }, `${name}: works again`);
      failures = 0;
      if (hasMore || isAwaited) after((performance.now() - startedAtMs) * restRatio);
      else after(intervalMs);
    } catch (reason) {
      // One line for each pause, which grows.
      logger.warn({ err: reason, work: name }, `${name}: failed; tried again soon`);
      after(Math.min(firstRetryMs * 2 ** failures, maxRetryMs) * (0.5 + Math.random() / 2));
      failures++;
    }
  };

  begin();
  return {
    wake() {
      isAwaited = true;
      // While it fails, the pause stands: a wake for each request must not become a statement for each.
      if (failures === 0) begin();
    },
    async stop() {
      isStopped = true;
      clearTimeout(timer);
      await running;
    },
  };
}
