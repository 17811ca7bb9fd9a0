// How much intents have received, how much of it was returned, and how much can be.

import { preparedStatement, type RunPrepared } from '../database/prepared.ts';
import { sumsOf } from '../payment-intents/payment-sums.ts';

/** The money of an intent, in the token's smallest unit. */
interface ReturnedMoney {
  /** Confirmed transfers of its refunds. */
  refundedUnits: bigint;
  /** What can still be returned. Below 0 if its refunds commit more than it has received. */
  refundableUnits: bigint;
}

/** The money of each of these intents, which the caller has locked. Every intent has an entry. */
export async function readReturnedMoney(
  inside: RunPrepared,
  intentIds: readonly string[],
): Promise<ReadonlyMap<string, ReturnedMoney>> {
  if (intentIds.length === 0) return new Map();
  const { rows } = await inside(sumMoney, [intentIds]);
  return new Map(
    rows.map(({ id, confirmed, refunded, committed }) => [
      id as string,
      { refundedUnits: BigInt(refunded), refundableUnits: BigInt(confirmed) - BigInt(committed) },
    ]),
  );
}

/** Stores the refunded amounts. The refund's event in the same transaction reports them, not the intent's. */
export async function storeRefundedUnits(inside: RunPrepared, money: ReadonlyMap<string, ReturnedMoney>) {
  if (money.size === 0) return;
  await inside(storeRefunded, [[...money.keys()], [...money.values()].map((of) => String(of.refundedUnits))]);
}

/**
 * `confirmed`: confirmed payments in the intent's token, counted or not. `committed`: transfers of its refunds
 * on the chain, and the amounts of open refunds whose own transfer is not among them: a transfer of another
 * amount does not replace the one that is prepared.
 */
const sumMoney = preparedStatement(
  'sum_returned_money',
  `select w.id, paid.confirmed, coalesce(returned.refunded, 0) as refunded, coalesce(returned.committed, 0) as committed
     from unnest($1::uuid[]) as w (id)
    cross join lateral (
      select coalesce(sum(p.units), 0) as confirmed from ${sumsOf('w.id')} p
       where p.state = 'confirmed' and not 'wrong_token' = any (p.labels)
    ) paid
    cross join lateral (
      select sum(own.refunded) as refunded,
             sum(own.seen + case when own.is_sent or r.status in ('canceled', 'expired') then 0 else r.amount_units end)
               as committed
        from refunds r
       cross join lateral (
         select coalesce(sum(s.units) filter (where s.state = 'confirmed'), 0) as refunded,
                coalesce(sum(s.units), 0) as seen, coalesce(bool_or(s.counts), false) as is_sent
           from ${sumsOf('r.id', 'refund')} s where s.state <> 'reorged'
       ) own
       where r.payment_intent = w.id
    ) returned`,
);

const storeRefunded = preparedStatement(
  'store_refunded_amounts',
  `update payment_intents i set amount_refunded_units = n.refunded
     from unnest($1::uuid[], $2::bigint[]) as n (id, refunded)
    where i.id = n.id and coalesce(i.amount_refunded_units, 0) <> n.refunded`,
);
