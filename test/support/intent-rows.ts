// Inserts intent rows with SQL: many at once, or rows that no request can create.

import { networkFor } from '../../src/contract/chains.ts';
import type { TestService } from './service.ts';

export interface IntentRows {
  /** UUID. */
  merchantId: string;
  count: number;
  /** When the first was created, in milliseconds since 1970. Each other one follows a millisecond later. */
  firstAtMs: number;
  /** SQL expressions of `n`, the number of the row from 0, by column. */
  columns?: Record<string, string>;
}

/** Returns the statement that inserts the rows, each with an id of its time, and its values. */
export function insertOf({ merchantId, count, firstAtMs, columns }: IntentRows): [string, unknown[]] {
  const expressions: Record<string, string> = {
    id: `(lpad(to_hex($3::bigint + n), 12, '0') || '7' || substr(md5(random()::text), 1, 3) ||
          '8' || substr(md5(random()::text), 1, 15))::uuid`,
    merchant_id: '$1::uuid',
    mode: `'testnet'`,
    status: `'requires_payment'`,
    network: `${networkFor('testnet', 'base').id}`,
    amount_units: '1000000 + n',
    expected_wallet: `'\\x${'11'.repeat(20)}'::bytea`,
    lane: `'sdk'`,
    metadata: `'{}'`,
    created_at: 'to_timestamp(($3::bigint + n) / 1000.0)',
    expires_at: `to_timestamp(($3::bigint + n) / 1000.0) + interval '30 minutes'`,
    client_secret_version: '1',
    ...columns,
  };
  const enums: Record<string, string> = {
    mode: 'payment_mode',
    status: 'payment_intent_status',
    lane: 'payment_lane',
    metadata: 'json',
  };
  const values = Object.entries(expressions).map(([column, expression]) =>
    column in enums ? `(${expression})::${enums[column]}` : expression,
  );
  return [
    `insert into payment_intents (${Object.keys(expressions).join(', ')})
     select ${values.join(', ')} from generate_series(0, $2::int - 1) as n`,
    [merchantId, count, firstAtMs],
  ];
}

export async function insertIntents(service: TestService, rows: IntentRows): Promise<void> {
  await service.query(...insertOf(rows));
}
