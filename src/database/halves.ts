import { isDatabaseUnavailable, isStatementTimeout } from '../requests/unavailable.ts';
import { preparedStatement, type RunPrepared } from './prepared.ts';

/**
 * Runs `work` on the items. If a statement fails because of its items, each half is run again, down to single
 * items, so that one bad item does not hold up the others. An item that fails alone, twice, goes to `alone`.
 *
 * Nothing is halved if the database is at fault: a timeout is blamed on the statement only if the database
 * then answers another one. Errors for which `isFatal` is true are thrown at once.
 */
export async function inHalves<T>(
  items: readonly T[],
  how: {
    work: (items: readonly T[]) => Promise<void>;
    alone: (item: T, reason: unknown) => Promise<void>;
    run: RunPrepared;
    isFatal: (reason: unknown) => boolean;
    beforeRetry: () => Promise<void>;
  },
): Promise<void> {
  const attempt = async (some: readonly T[], isSecond: boolean): Promise<void> => {
    try {
      await how.work(some);
    } catch (reason) {
      if (how.isFatal(reason)) throw reason;
      if (isDatabaseUnavailable(reason) && !isStatementTimeout(reason)) throw reason;
      await how.run(ping, []);
      await how.beforeRetry();
      const [only] = some;
      if (some.length > 1) {
        const middle = some.length >> 1;
        await attempt(some.slice(0, middle), false);
        return attempt(some.slice(middle), false);
      }
      if (only === undefined) throw reason;
      return isSecond ? how.alone(only, reason) : attempt(some, true);
    }
  };
  return attempt(items, false);
}

/** Reads from the tables themselves: if one is locked, the items are not at fault. */
const ping = preparedStatement(
  'ping_tables',
  'select (select true from payment_intents limit 1), (select true from transfers limit 1)',
);
