// Transfers that look like a refund's and lack its id: a wallet that cannot append it may have sent the money already.

import type { EntityManager } from '@mikro-orm/postgresql';
import { networkChains } from '../database/entities/network.ts';
import { formatIdentifier, idViolations, parseIdentifier } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import type { Identity } from '../requests/request-context.ts';
import { type ConsoleMethod, merchantOf } from './rights.ts';

/** `FindRefundTransfers`: at most ten, newest first. */
export function findRefundTransfers(em: EntityManager): ConsoleMethod<'findRefundTransfers'> {
  const { read } = createPreparedStatements(em);
  return {
    ratePolicy: 'reads',
    violations: ({ refund }) => idViolations({ refund: [refund, 'rf'] }),
    async run(request, caller) {
      const { merchantId, mode } = merchantOf(caller);
      const values = [parseIdentifier('rf', request.refund), merchantId, mode];
      const { rows } = await read(merchantId, findOfRefund, values);
      return { transactionHashes: rows.map(({ hash }) => hash) };
    },
  };
}

/** Returns the intent with a refund that a transaction has made, or seems to have made. */
export function createFindRefunded(em: EntityManager) {
  const { read } = createPreparedStatements(em);
  return async (transaction: string, { merchantId, mode }: Identity): Promise<string | undefined> => {
    const { rows } = await read(merchantId, findIntentOf, [transaction, merchantId, mode]);
    return rows[0] && formatIdentifier('pi', rows[0].intent);
  };
}

/** Also since an earlier one of this kind was prepared, which may have been canceled after it was sent. */
const looksLikeIt = `t.merchant_id = r.merchant_id and t.is_refund and t.refund is null and t.state <> 'reorged'
    and t.to_address = r.destination and t.from_address = r.wallet and t.amount_units = r.amount_units
    and t.created_at >= (select min(o.created_at) from refunds o where o.payment_intent = r.payment_intent
                            and o.destination = r.destination and o.amount_units = r.amount_units)
    and n.id = r.network and n.chain_id = t.chain_id`;
const findOfRefund = preparedStatement(
  'find_plain_transfers_of_refund',
  `select '0x' || encode(t.transaction_hash, 'hex') as hash
     from refunds r cross join transfers t join ${networkChains} on ${looksLikeIt}
    where r.id = $1 and r.merchant_id = $2 and r.mode = $3 and r.status = 'requires_transfer'
    order by t.id desc limit 10`,
);
const findIntentOf = preparedStatement(
  'find_refunded_intent',
  `(select r.payment_intent as intent from transfers t join refunds r on r.id = t.refund
     where t.transaction_hash = $1 and r.merchant_id = $2 and r.mode = $3 limit 1)
   union all
   (select r.payment_intent
      from (select * from transfers where transaction_hash = $1 and merchant_id = $2 limit 100) t
     cross join lateral (
       select * from refunds r where r.merchant_id = $2 and r.mode = $3 and r.status = 'requires_transfer'
     ) r
     join ${networkChains} on ${looksLikeIt}
     limit 1)
   limit 1`,
);
