import { preparedStatement, type RunPrepared } from '../database/prepared.ts';

/** The sums of confirmed payments that count, by intent. Intents without one are missing. */
export async function confirmedUnits(
  run: RunPrepared,
  intentIds: readonly string[],
): Promise<ReadonlyMap<string, bigint>> {
  const { rows } = await run(sumConfirmed, [intentIds]);
  return new Map(rows.map((row) => [row.payment_intent as string, BigInt(row.confirmed)]));
}

const sumConfirmed = preparedStatement(
  'sum_confirmed_payments',
  `select payment_intent, sum(amount_units) as confirmed from transfers
    where payment_intent = any ($1::uuid[]) and counts and state = 'confirmed' group by payment_intent`,
);
