// Sums of an intent's payments, or of a refund's transfers. Anybody can add to them: if there are very many,
// triggers keep the sums, grouped by every column that a query may need.

import { preparedStatement, type RunPrepared } from '../database/prepared.ts';

/** Above this number of payments, an intent's sums are kept. */
const maxUnkept = 1_000;

/** What a transfer belongs to: a column of `transfers`. */
type Owner = 'payment_intent' | 'refund';

/** A subquery: the id, unless its sums are kept. `offset 0` makes the planner check that before it reads. */
const withoutKeptSums = (id: string) =>
  `(select ${id} as id where not exists (select from payment_sums k where k.payment_intent = ${id}) offset 0)`;

/** A subquery: the sums of the transfers of this intent or refund, by state, `counts` and labels. */
export const sumsOf = (id: string, owner: Owner = 'payment_intent') => `
  (select s.state, s.counts, s.labels, s.units from payment_sums s where s.payment_intent = ${id} and s.count > 0
   union all
   select read.* from ${withoutKeptSums(id)} o cross join lateral (
     select t.state, t.counts, coalesce(t.labels, '{}'), sum(t.amount_units) from transfers t
      where t.${owner} = o.id group by t.state, t.counts, t.labels) read)`;

/** The sums of payments that are on the chain. */
export interface PaymentSums {
  /** Payments that count. */
  receivedUnits: bigint;
  /** Payments that count and are confirmed. */
  confirmedUnits: bigint;
  /** The labels of all payments. */
  labels: readonly string[];
}

/** Reads the sums of intents, which the caller has locked. Returns a function that looks one up. */
export async function readPaymentSums(
  inside: RunPrepared,
  intentIds: readonly string[],
): Promise<(intentId: string) => PaymentSums> {
  const { rows } = intentIds.length === 0 ? { rows: [] } : await inside(sumPayments, [intentIds]);
  const sums = new Map(rows.map((row) => [row.id as string, row]));
  return (id) => {
    const row = sums.get(id);
    return {
      receivedUnits: BigInt(row?.received ?? 0),
      confirmedUnits: BigInt(row?.confirmed ?? 0),
      labels: (row?.labels ?? '').split(' ').filter(Boolean),
    };
  };
}

/** Starts to keep the sums of those intents that have many payments. The caller has locked the intents. */
export async function keepSums(
  inside: RunPrepared,
  intents: Iterable<{ id: string; paymentsCount: number }>,
): Promise<void> {
  const ids = [...intents].filter(({ paymentsCount }) => paymentsCount > maxUnkept).map(({ id }) => id);
  if (ids.length > 0) await inside(keep, [ids]);
}

/** The same for all of these refunds, which the caller has locked. */
export async function keepRefundSums(inside: RunPrepared, ids: readonly string[]): Promise<void> {
  if (ids.length > 0) await inside(keepOfRefunds, [ids]);
}

const sumPayments = preparedStatement(
  'sum_payments',
  `select w.id, sum(p.units) filter (where p.counts) as received,
          sum(p.units) filter (where p.counts and p.state = 'confirmed') as confirmed,
          string_agg(array_to_string(p.labels, ' '), ' ') as labels
     from unnest($1::uuid[]) as w (id) cross join lateral ${sumsOf('w.id')} p
    where p.state <> 'reorged' group by w.id`,
);
const keepOf = (owner: Owner) =>
  preparedStatement(
    `keep_${owner}_sums`,
    `insert into payment_sums (payment_intent, state, counts, labels, count, units)
     select o.id, t.* from unnest($1::uuid[]) as w (id) cross join lateral ${withoutKeptSums('w.id')} o
      cross join lateral (
        select state, counts, coalesce(labels, '{}'), count(*), sum(amount_units) from transfers
         where ${owner} = o.id group by 1, 2, 3) t`,
  );
const keep = keepOf('payment_intent');
const keepOfRefunds = keepOf('refund');
