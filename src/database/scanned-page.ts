// Pages of a list whose filter has no index. Each page searches a bounded number of rows, each row once.

import type { PreparedStatement, PreparedStatements } from './prepared.ts';

/** Most rows searched for one page: a few tens of milliseconds. */
const maxScanned = 10_000;

/** Rows of a merchant in the order of a key. */
interface KeyRange {
  table: string;
  alias: string;
  /** Default: `id`, which is unique. */
  key?: string;
  /** A condition within which a key is unique, if it is not by itself. */
  within?: string;
  /** If the keys are in another table: that table with its alias, and its column. */
  keysIn?: { table: string; column: string };
  isAscending?: boolean;
  /** Conditions that an index supports, in the order of the key. */
  range: string;
  limit: number | string;
}

/**
 * Returns a FROM clause with the first rows of a range. `found.key` has their order. The keys are read alone,
 * from the index by merchant, which has all their columns and costs least once the table is vacuumed. For
 * whole rows the planner may walk the primary key instead: it takes merchants and modes for evenly spread,
 * and would step over millions of other rows.
 */
export function firstRows(of: KeyRange): string {
  const { table, alias, key = 'id', within, keysIn, isAscending } = of;
  const column = keysIn?.column ?? `${alias}.${key}`;
  const order = `order by ${column}${isAscending ? '' : ' desc'}`;
  const same = `${alias}.${key} = found.key${within === undefined ? '' : ` and ${within}`}`;
  return `(select ${column} as key from ${keysIn?.table ?? `${table} ${alias}`} where ${of.range} ${order} limit ${of.limit}) found
      cross join lateral (select * from ${table} ${alias} where ${same} limit 1) ${alias}`;
}

interface Scan extends Omit<KeyRange, 'limit'> {
  /** Further conditions. */
  matching: string;
}

/**
 * Returns a FROM clause with the matching rows and, if more may follow it, the last row searched. They have
 * the columns `matches` and `is_last_scanned`, and `key`, their order. Use a `limit` of at least the page size
 * plus two.
 */
export function scannedRows({ matching, ...scan }: Scan): string {
  const { alias, isAscending } = scan;
  const order = `order by found.key${isAscending ? '' : ' desc'}`;
  return `(select * from (
       select ${alias}.*, found.key, (${matching}) is true as matches,
              row_number() over (${order}) = ${maxScanned} as is_last_scanned
         from ${firstRows({ ...scan, limit: maxScanned })}) ${alias}
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

/** The statement of a scan. It is planned for each run: a plan for a small table is slow once it is large. */
export const scanning = (text: string): PreparedStatement => ({ name: '', text });

/** Reads a page by descending id, of at most `size` rows. */
export async function readScannedPage(
  read: PreparedStatements['read'],
  merchantId: string,
  { columns, values: { list }, size, ...scan }: Scan & { columns: string; values: Values; size: number },
) {
  const { alias } = scan;
  const text = `select ${columns}, ${alias}.matches, ${alias}.is_last_scanned from ${scannedRows(scan)}
     order by ${alias}.key desc limit $${list.push(size + 2)}`;
  return pageOfScanned((await read(merchantId, scanning(text), list)).rows, size);
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
