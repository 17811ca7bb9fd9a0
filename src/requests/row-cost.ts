// The rate limit counts requests. A request whose work grows with its rows counts as several.

import type { RequestContext } from './request-context.ts';

/** Rows that cost as much as one plain request. */
const rowsPerRequest = 20;

/** More than the metadata of most intents, and more than the event data of an intent with one payment. */
const charactersPerRow = 2_048;

/** The number of rows that a stored text counts as. */
export const rowsOfText = (text: string) => text.length / charactersPerRow;

const costOf = (rows: number) => Math.max(1, rows / rowsPerRequest);

/** Charges the caller for a number of rows that is known before they are read, beyond the request itself. */
export function chargeRows({ charge }: RequestContext, rows: number): void {
  const cost = costOf(rows);
  if (cost > 1) charge?.(cost - 1);
}

/**
 * Runs the work of a request that was counted as one, and charges its rows. The maximum is charged until the
 * actual number is known, so that many concurrent requests are refused before they start. A charge may exceed
 * the quota; then the caller is refused until the debt is paid back. Failed work costs one request.
 */
export async function chargedByRows<Result>(
  { charge }: RequestContext,
  mostRows: number,
  work: () => Promise<Result>,
  rowsOf: (result: Result) => number,
): Promise<Result> {
  const reserved = costOf(mostRows);
  let rows = 0;
  if (reserved > 1) charge?.(reserved - 1);
  try {
    const result = await work();
    rows = rowsOf(result);
    return result;
  } finally {
    const cost = costOf(rows);
    if (cost !== reserved) charge?.(cost - reserved);
  }
}
