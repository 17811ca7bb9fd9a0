// The rate limit counts requests. One whose work grows with its rows counts for as many as its rows are worth.

import type { RequestContext } from './request-context.ts';

/** Rows that cost as much as a plain request. */
const rowsPerRequest = 20;

const costOf = (rows: number) => Math.max(1, rows / rowsPerRequest);

/**
 * Does the work of a request that has been counted as one, and charges the API key for its rows. Until the number of
 * rows is known, the most there can be is taken: many such requests at once are refused before they begin. A charge may
 * exceed what is left of the allowance; the key is then refused until the debt is paid back. Work that fails costs one
 * request.
 */
export async function chargedByRows<Result>(
  { charge }: RequestContext,
  mostRows: number,
  work: () => Promise<Result>,
  rowsOf: (result: Result) => number,
): Promise<Result> {
  const reserved = costOf(mostRows);
  let rows = 0;
  charge?.(reserved - 1);
  try {
    const result = await work();
    rows = rowsOf(result);
    return result;
  } finally {
    charge?.(costOf(rows) - reserved);
  }
}
