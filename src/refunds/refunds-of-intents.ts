import type { EntityManager } from '@mikro-orm/postgresql';
import type { Payment } from '../contract/gen/payments/v1/payment_pb.ts';
import type { PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { RefundEntity, type RefundRow } from '../database/entities/refund.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { preparedStatement } from '../database/prepared.ts';
import { createTransfersReader, maxPayments, type ReadTransfers } from '../payment-intents/payments.ts';

/** Reads the transfers of the newest refunds of each intent, in chain order. Intents without payments cost nothing. */
export function createRefundsOfIntents(em: EntityManager): ReadTransfers<PaymentIntentRow> {
  const columns = entityColumns<RefundRow>(em, RefundEntity);
  const readTransfers = createTransfersReader(em, 'refund');
  const find = preparedStatement(
    'find_refunds_of_intents',
    `select ${columns.of('r')} from unnest($1::uuid[]) as wanted (id)
      cross join lateral (
        select * from refunds r where r.payment_intent = wanted.id order by r.id desc limit ${maxPayments}
      ) r`,
  );
  return async (run, intents) => {
    const paid = intents.filter(({ paymentsCount }) => paymentsCount > 0).map(({ id }) => id);
    const refunds = paid.length === 0 ? [] : (await run(find, [paid])).rows.map(columns.read);
    const transfers = await readTransfers(run, refunds);
    const ofIntents = new Map<string, Payment[]>();
    for (const { id, paymentIntent } of refunds) {
      const known = ofIntents.get(paymentIntent) ?? [];
      ofIntents.set(paymentIntent, known.concat(transfers.get(id) ?? []));
    }
    for (const [intent, own] of ofIntents) {
      ofIntents.set(intent, own.sort(inChainOrder).slice(-maxPayments));
    }
    return ofIntents;
  };
}

function inChainOrder(a: Payment, b: Payment): number {
  return Number(a.blockNumber - b.blockNumber) || a.logIndex - b.logIndex;
}
