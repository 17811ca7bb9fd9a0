// Fills tables as they would be after some time, with all keys and constraints active.

import type { EntityManager } from '@mikro-orm/postgresql';

/**
 * `paid` and `overdue` intents were created 10 ms apart, the overdue ones more than half an hour ago. `open`
 * ones were all created within the last minutes, and expire in an hour.
 */
const states = {
  paid: { status: 'succeeded', everyMs: 10, endedMinutesAgo: 0, minutes: 30 },
  overdue: { status: 'requires_payment', everyMs: 10, endedMinutesAgo: 31, minutes: 30 },
  open: { status: 'requires_payment', everyMs: 1, endedMinutesAgo: 0, minutes: 60 },
} as const;

export type IntentState = keyof typeof states;

const chunk = 250_000;

/** The wallet that an intent expects, in SQL: the merchants' payout wallet, or one for the intent i alone. */
const wallets = {
  payout: `'\\x${'1'.repeat(40)}'::bytea`,
  own: "decode('7' || lpad(to_hex(i), 39, '0'), 'hex')",
};

/**
 * Adds intents of these merchants (UUIDs), one after the other. Every second row has an idempotency key.
 * `ownWallets` is how many rows expect a wallet that no other row expects.
 */
export async function fillPaymentIntents(
  em: EntityManager,
  merchantIds: readonly string[],
  state: IntentState,
  rows: number,
  ownWallets = 0,
): Promise<void> {
  const { status, everyMs, endedMinutesAgo, minutes } = states[state];
  await inChunks(rows, (first, last) =>
    em.execute(
      `insert into payment_intents
       (id, merchant_id, mode, status, network, amount_units, expected_wallet, lane, metadata, created_at, expires_at,
        client_secret_version, idempotency_key, request_fingerprint, succeeded_at)
       select uuidv7(created_at - now()), (?::uuid[])[1 + i % ${merchantIds.length}], 'testnet', '${status}', 3,
              12500000, case when i <= ${ownWallets} then ${wallets.own} else ${wallets.payout} end, 'sdk',
              '{"order_id":"order-1001"}', created_at, created_at + interval '${minutes} minutes', 1,
              case when i % 2 = 0 then gen_random_uuid()::text end, case when i % 2 = 0 then sha256(i::text::bytea) end,
              ${status === 'succeeded' ? "created_at + interval '1 minute'" : 'null'}
         from (${moments(rows, first, last, everyMs, endedMinutesAgo)}) as series`,
      [uuidArray(merchantIds)],
    ),
  );
  await em.execute('vacuum analyze payment_intents');
}

/** The same for the contenders' table: intents of one merchant. */
export async function fillByHand(
  em: EntityManager,
  merchantId: string,
  state: IntentState,
  rows: number,
): Promise<void> {
  const { status, everyMs, endedMinutesAgo, minutes } = states[state];
  await inChunks(rows, (first, last) =>
    em.execute(
      `insert into payment_intents
       (id, merchant_id, mode, status, chain, chain_id, confirmations_required, amount_units, decimals, token_symbol,
        token_address, expected_wallet, lane, metadata, expires_in_minutes, created_at, expires_at,
        client_secret_version, idempotency_key, succeeded_at)
       select uuidv7(created_at - now()), ?, 'testnet', '${status}', 'base', 84532, 10, 12500000, 6, 'USDC',
              '0x036CbD53842c5426634e7929541eC2318f3dCF7e', '0x${'1'.repeat(40)}', 'sdk',
              '{"order_id":"order-1001"}', ${minutes}, created_at, created_at + interval '${minutes} minutes', 1,
              case when i % 2 = 0 then gen_random_uuid()::text end,
              ${status === 'succeeded' ? "created_at + interval '1 minute'" : 'null'}
         from (${moments(rows, first, last, everyMs, endedMinutesAgo)}) as series`,
      [merchantId],
    ),
  );
  await em.execute('vacuum analyze payment_intents');
}

/** Calls `add` with the first and the last number of each chunk of rows. */
export async function inChunks(
  rows: number,
  add: (first: number, last: number) => Promise<unknown>,
): Promise<void> {
  for (let done = 0; done < rows; done += chunk) {
    const last = Math.min(done + chunk, rows);
    await add(done + 1, last);
    if (rows >= chunk) console.error(`${last.toLocaleString('en')} rows`);
  }
}

/** A PostgreSQL array literal. */
export function uuidArray(ids: readonly string[]): string {
  return `{${ids.join(',')}}`;
}

/** About a hundred thousand random ids of the table, as UUIDs; all of them if there are fewer. */
export async function sampleIds(em: EntityManager, rows: number): Promise<string[]> {
  const percent = Math.min(100, (100 * 100_000) / rows);
  const found = await em.execute<{ id: string }[]>(
    `select id from payment_intents tablesample bernoulli (${percent}) order by random()`,
  );
  return found.map(({ id }) => id);
}

function moments(
  rows: number,
  first: number,
  last: number,
  everyMs: number,
  endedMinutesAgo: number,
): string {
  return `select i, date_trunc('milliseconds', now() - interval '${endedMinutesAgo} minutes'
                    - make_interval(secs => (${rows} - i) * ${everyMs / 1000})) as created_at
            from generate_series(${first}, ${last}) as i`;
}
