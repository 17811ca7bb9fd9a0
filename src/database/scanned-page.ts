// Pages of a list with a filter that no index has: so many rows are looked through for each, and read once.

/** Most rows that one page looks through for those that match: some tens of milliseconds. */
const maxScanned = 10_000;

export interface Scan {
  /** `name alias`. */
  table: string;
  alias: string;
  /** What the index finds, and its order. */
  range: string;
  order: string;
  /** What has to hold besides. */
  matching: string;
}

/**
 * Returns a FROM clause with the rows that match and, if there may be more behind it, the last row that was looked
 * through. They have the columns `matches` and `is_last_scanned`. Read with `limit` at least two above the page's size.
 */
export function scannedRows({ table, alias, range, order, matching }: Scan): string {
  return `(select * from (
       select ${alias}.*, (${matching}) is true as matches,
              row_number() over (order by ${order}) = ${maxScanned} as is_last_scanned
         from ${table} ${alias} where ${range} order by ${order} limit ${maxScanned}) ${alias}
      where ${alias}.matches or ${alias}.is_last_scanned) ${alias}`;
}

export interface ScannedPage<Row> {
  /** At most `size` rows that match. */
  rows: Row[];
  /** The row behind which the next page begins, unless this is the last page. */
  next: Row | undefined;
}

/** Returns the page that the rows of `scannedRows` make, in their order. */
export function pageOfScanned<Row extends { matches: boolean; is_last_scanned: boolean }>(
  found: readonly Row[],
  size: number,
): ScannedPage<Row> {
  const matching = found.filter(({ matches }) => matches);
  const rows = matching.slice(0, size);
  return {
    rows,
    next: matching.length > size ? rows.at(-1) : found.find(({ is_last_scanned }) => is_last_scanned),
  };
}
