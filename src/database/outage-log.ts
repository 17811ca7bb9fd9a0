// Log lines of a database outage: one when it begins, one every 10 seconds, one when it is over. Otherwise
// each task and request that fails meanwhile would write its own.

import type { Bindings, Logger } from 'pino';
import { databaseOutageCause } from '../requests/unavailable.ts';

const summaryEveryMs = 10_000;
/** For this long, earlier answers may arrive after an outage begins, and late failures after it ends. */
const settlingMs = 2_000;

export type OutageLog = ReturnType<typeof createOutageLog>;

/** Wraps a process's logger. */
export function createOutageLog(logger: Logger) {
  let beganAtMs: number | undefined;
  let quietUntilMs = 0;
  /** The database has worked since it last failed. */
  let isWorking = false;
  let summary: NodeJS.Timeout | undefined;
  let counts: Record<string, number> = {};
  const failures = new Map<string, number>();

  const seconds = () => Math.round((performance.now() - (beganAtMs as number)) / 1_000);
  const count = (cause: string) => {
    counts[cause] = (counts[cause] ?? 0) + 1;
  };
  const summarize = () => {
    if (isWorking) return end();
    logger.warn({ seconds: seconds(), failures: counts }, 'the database cannot be reached yet');
    counts = {};
  };
  const stop = () => {
    clearInterval(summary);
    beganAtMs = undefined;
    counts = {};
  };
  const end = () => {
    logger.warn({ seconds: seconds(), failures: counts }, 'the database is reached again');
    quietUntilMs = performance.now() + settlingMs;
    stop();
  };

  /** Returns true if the line was counted, and need not be written. */
  const countIfOutage = (fields: unknown): boolean => {
    const { err, code } = Object(fields) as { err?: unknown; code?: unknown };
    const cause = databaseOutageCause(err);
    if (cause !== undefined) {
      if (beganAtMs === undefined && performance.now() >= quietUntilMs) {
        beganAtMs = performance.now();
        summary = setInterval(summarize, summaryEveryMs).unref();
        logger.warn({ err }, 'the database cannot be reached; what fails until it can is counted');
      }
      isWorking = false;
      count(cause);
      failures.set(cause, (failures.get(cause) ?? 0) + 1);
      return true;
    }
    if (code !== 'unavailable' || beganAtMs === undefined) return false;
    count('refused requests');
    return true;
  };
  /** Uses prototypes, as pino does for its child loggers. */
  const wrap = (target: Logger): Logger =>
    Object.create(target, {
      warn: {
        value(...line: unknown[]) {
          if (!countIfOutage(line[0])) Reflect.apply(target.warn, target, line);
        },
      },
      child: { value: (bindings: Bindings) => wrap(target.child(bindings)) },
    });
  return {
    /** Counts warnings about the unreachable database, and writes everything else. */
    logger: wrap(logger),
    /** How often the database was unreachable since the start, by SQLSTATE or socket error code. */
    failures,
    /** To be called when the database has worked. */
    onWorked(): void {
      isWorking = true;
      if (beganAtMs !== undefined && performance.now() >= beganAtMs + settlingMs) end();
    },
    stop,
  };
}
