// Finds leaked secrets. At its end, every test file checks its log and its database with this.

import type pg from 'pg';

/** Matches the format of an API key, a client secret or a webhook secret. */
const secret =
  /sk_(?:testnet|mainnet)_[0-9A-Za-z]{40,}|pi_[0-9a-hjkmnp-tv-z]{26}_secret_[\w-]{10,}|whsec_[\w+/-]{10,}/;

/** Returns lines and rows that contain an API key, a client secret, a webhook secret or any of the given secrets. */
export async function findLeaks(
  log: readonly object[],
  query: (sql: string) => Promise<pg.QueryResultRow[]>,
  secrets: readonly string[] = [],
): Promise<string[]> {
  const holds = (text: string) => secret.test(text) || secrets.some((known) => text.includes(known));
  const leaks = log.map((line) => JSON.stringify(line)).filter(holds);
  const tables = await query(
    `select format('%I.%I', schemaname, tablename) as name from pg_tables
      where schemaname not in ('pg_catalog', 'information_schema')`,
  );
  for (const { name } of tables) {
    for (const { row } of await query(`select t::text as row from ${name} t`)) {
      if (holds(row)) leaks.push(`${name}: ${row}`);
    }
  }
  return leaks;
}
