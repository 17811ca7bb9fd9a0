// Runs a background task at an interval, or immediately when woken.

import type { Logger } from 'pino';

export interface RepeaterOptions {
  /** Names the task in the log. */
  name: string;
  /** Runs the task once. Resolves with true if there is more to do now. */
  work(): Promise<boolean | undefined> | Promise<void>;
  /** Interval between runs; undefined to run only when woken. */
  intervalMs: number | undefined;
  /** Shortest time from one run to the next while there is more to do. Default: none. */
  paceMs?: number;
  /** Called after each run that succeeds. */
  onWorked?: () => void;
  /** Longest pause after a failure. */
  maxRetryMs?: number;
  logger: Logger;
}

export type Repeater = ReturnType<typeof startRepeater>;

/** Pause after the first failure; each further failure doubles it. */
const firstRetryMs = 500;

/** Starts with a run. A failure is logged and retried with growing pauses. */
export function startRepeater(options: RepeaterOptions) {
  const { name, work, intervalMs, paceMs = 0, maxRetryMs = 15_000, onWorked, logger } = options;
  let timer: NodeJS.Timeout | undefined;
  let running: Promise<void> | undefined;
  let isWoken = false;
  let isStopped = false;
  let failures = 0;

  const after = (ms: number | undefined) => {
    clearTimeout(timer);
    timer = ms === undefined || isStopped ? undefined : setTimeout(begin, ms).unref();
  };

  const begin = () => {
    if (isStopped || running !== undefined) return;
    clearTimeout(timer);
    isWoken = false;
    running = runOnce().finally(() => {
      running = undefined;
    });
  };

  const runOnce = async () => {
    try {
      const beganAtMs = performance.now();
      const hasMore = await work();
      if (failures > 0) logger.info({ work: name }, `${name}: works again`);
      failures = 0;
      onWorked?.();
      const restMs = Math.max(0, beganAtMs + paceMs - performance.now());
      after(isWoken ? 0 : hasMore ? restMs : intervalMs);
    } catch (reason) {
      logger.warn({ err: reason, work: name }, `${name}: failed, will retry`);
      after(Math.min(firstRetryMs * 2 ** failures, maxRetryMs) * (0.5 + Math.random() / 2));
      failures++;
    }
  };

  begin();
  return {
    /** Runs the task now, or once more after the current run. */
    wake() {
      isWoken = true;
      // Not during a retry pause: frequent wakes would run a statement each.
      if (failures === 0) begin();
    },
    /** Resolves when the current run has ended. There is no further run. */
    async stop() {
      isStopped = true;
      clearTimeout(timer);
      await running;
    },
  };
}
