// Round-robin over waiting rows by an index: the cost of a turn does not depend on how many rows wait.

import { MAX as highestUuid } from 'uuid';

interface Ring {
  /** Name of the query. */
  name: string;
  /** A column of UUIDs. */
  column: string;
  /** SQL of the value after which the ring begins. */
  begin: string;
  /** `table alias`. */
  from: string;
  /** Conditions that the index supports. */
  where: string;
  /** The index's order from the column on, which forces the planner to use this index. */
  order: string;
}

/**
 * Returns a recursive query that visits the distinct values of a column as a ring: from the first after
 * `begin`, around, to `begin`. It skips equal rows. Its first row, with `place` 0, is `begin` itself.
 */
export function ring({ name, column, begin, from, where, order }: Ring): string {
  const alias = from.split(' ').at(-1);
  const next = (lap: string, condition: string) =>
    `(select ${alias}.${column}, ${lap} as lap from ${from}
       where ${where} and ${condition} order by ${order} limit 1)`;
  return `${name} (${column}, lap, place) as (
       select ${begin}, 0, 0
       union all
       select n.${column}, n.lap, r.place + 1
         from ${name} r
        cross join lateral (
          ${next('r.lap', `${alias}.${column} > r.${column} and ${alias}.${column} <= case r.lap when 0 then '${highestUuid}' else ${begin} end`)}
          union all
          ${next('1', `r.lap = 0 and ${alias}.${column} <= ${begin}`)}
          limit 1
        ) n
     )`;
}
