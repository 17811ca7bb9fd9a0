import { preparedStatement, type RunPrepared } from './prepared.ts';
import { isDatabaseUnavailable, isStatementTimeout } from './unavailable.ts';

/**
 * Works on items, and again on each half of them if a statement fails for what is in it, down to single ones: one item that
 * cannot be worked on holds up no other. An item that fails alone, twice, is passed to `alone`.
 *
 * Nothing is halved if the database is at fault: a timeout counts as a statement's own only if the database answers
 * another statement after it. `isNobodys` tells errors that have nothing to do with the items; they are thrown.
 */
export async function inHalves<T, R>(
  items: readonly T[],
  {
    work,
    alone,
    run,
    isNobodys,
  }: {
    work: (items: readonly T[]) => Promise<R>;
    alone: (item: T, reason: unknown) => Promise<R>;
    run: RunPrepared;
    isNobodys: (reason: unknown) => boolean;
  },
): Promise<R[]> {
  const attempt = async (some: readonly T[], isSecond: boolean): Promise<R[]> => {
    try {
      return [await work(some)];
    } catch (reason) {
      if (isNobodys(reason)) throw reason;
      if (isDatabaseUnavailable(reason) && !isStatementTimeout(reason)) throw reason;
      await run(ping, []);
      const [only] = some;
      if (some.length > 1) {
        const middle = some.length >> 1;
        const first = await attempt(some.slice(0, middle), false);
        return [...first, ...(await attempt(some.slice(middle), false))];
      }
      if (only === undefined) throw reason;
      return isSecond ? [await alone(only, reason)] : attempt(some, true);
    }
  };
  return attempt(items, false);
}

/** Asks the tables: one that is locked is no fault of what was asked of it. */
const ping = preparedStatement(
  'ping_tables',
  'select (select true from payment_intents limit 1), (select true from transfers limit 1)',
);
