// Pages of a list whose filter has no index. Each page searches a bounded number of rows, each row once.

import { type PreparedStatements, preparedStatement } from './prepared.ts';

/** Most rows searched for one page: a few tens of milliseconds. */
const maxScanned = 10_000;

/**
 * A statement with at most this many values is prepared, because planning takes longer than finding one row.
 * Longer ones have thousands of combinations of filters, which would stay in every connection's memory.
 */
const maxPreparedValues = 5;

interface Scan {
  /** `name alias`. */
  table: string;
  alias: string;
  /** Conditions that the index supports, and its order. */
  range: string;
  order: string;
  /** Further conditions. */
  matching: string;
}

/**
 * Returns a FROM clause with the matching rows and, if more may follow it, the last row searched. They have
 * the columns `matches` and `is_last_scanned`. Use a `limit` of at least the page size plus two.
 */
export function scannedRows({ table, alias, range, order, matching }: Scan): string {
  return `(select * from (
       select ${alias}.*, (${matching}) is true as matches,
              row_number() over (order by ${order}) = ${maxScanned} as is_last_scanned
         from ${table} ${alias} where ${range} order by ${order} limit ${maxScanned}) ${alias}
      where ${alias}.matches or ${alias}.is_last_scanned) ${alias}`;
}

/** A condition with a `?` in place of its value. Left out if the value is undefined. */
export type Condition = readonly [sql: string, value: unknown];

/** The values of a statement, in the order of its parameters. */
export class Values {
  readonly list: unknown[];

  constructor(...list: unknown[]) {
    this.list = list;
  }

  /** Returns the conditions joined by `and`, with parameters for their values; empty if there are none. */
  and(conditions: readonly Condition[]): string {
    return conditions
      .filter(([, value]) => value !== undefined)
      .map(([sql, value]) => {
        const parameter = `$${this.list.push(value)}`;
        return sql.replaceAll('?', () => parameter);
      })
      .join(' and ');
  }
}

/** Reads a page by descending id, of at most `size` rows. */
export async function readScannedPage(
  read: PreparedStatements['read'],
  merchantId: string,
  { columns, values: { list }, size, ...scan }: Scan & { columns: string; values: Values; size: number },
) {
  const { alias } = scan;
  const text = `select ${columns}, ${alias}.matches, ${alias}.is_last_scanned from ${scannedRows(scan)}
     order by ${alias}.id desc limit $${list.push(size + 2)}`;
  const statement =
    list.length > maxPreparedValues ? { name: '', text } : preparedStatement('list_scanned', text);
  return pageOfScanned((await read(merchantId, statement, list)).rows, size);
}

/**
 * Returns the page made of the rows of `scannedRows`, in their order: at most `size` matching rows, and the
 * row after which the next page begins, undefined on the last page.
 */
export function pageOfScanned<Row extends { matches: boolean; is_last_scanned: boolean }>(
  found: readonly Row[],
  size: number,
) {
  const matching = found.filter(({ matches }) => matches);
  const rows = matching.slice(0, size);
  return {
    rows,
    next: matching.length > size ? rows.at(-1) : found.find(({ is_last_scanned }) => is_last_scanned),
  };
}
