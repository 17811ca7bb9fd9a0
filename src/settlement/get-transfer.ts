import { create } from '@bufbuild/protobuf';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { EntityManager } from '@mikro-orm/postgresql';
import { networks } from '../contract/chains.ts';
import { type TransferCandidate, TransferCandidateSchema } from '../contract/gen/payments/v1/transfer_pb.ts';
import type { TransferService } from '../contract/gen/payments/v1/transfer_service_pb.ts';
import { paymentIntentStatusWords } from '../contract/gen/words.ts';
import { numberOf, type StatusName } from '../contract/words.ts';
import type { TransferRow } from '../database/entities/settlement.ts';
import { formatIdentifier, lowestUuid } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { byteaOf } from '../requests/filters.ts';
import type { MethodsOf } from '../requests/method.ts';
import { createFindTransfer } from './change-transfer.ts';
import { toTransfer } from './transfer.ts';

const maxCandidates = 5;
/** Intents of the wallet looked at for candidates: in each direction from the amount. */
const maxSearched = 1_000;

/** `GetTransfer`: the transfer; if it is unattributed, with the intents that it may be for. */
export function getTransfer(em: EntityManager): MethodsOf<typeof TransferService>['getTransfer'] {
  const { read } = createPreparedStatements(em);
  const find = createFindTransfer(em);

  const candidatesOf = async (row: TransferRow): Promise<TransferCandidate[]> => {
    if (row.paymentIntent != null || row.state === 'reorged') return [];
    const { rows } = await read(row.merchantId, findNearest, [
      byteaOf(row.toAddress),
      row.merchantId,
      String(row.amountUnits),
      networks.filter(({ chainId }) => chainId === row.chainId).map(({ id }) => id),
      lowestUuid(row.blockTime.getTime() + 1_000),
    ]);
    return rows.map(({ id, amount_units, status, created_at }) =>
      create(TransferCandidateSchema, {
        id: formatIdentifier('pi', id),
        amountUnits: BigInt(amount_units),
        status: numberOf(paymentIntentStatusWords, status as StatusName),
        createdAt: timestampFromDate(new Date(created_at)),
      }),
    );
  };

  return {
    ratePolicy: 'reads',
    async run(request, identity) {
      const { row, head } = await find((...of) => read(identity.merchantId, ...of), request.id, identity);
      return toTransfer(row, head, await candidatesOf(row));
    },
  };
}

/** The nearest amounts, in three ranges of the index of wallets: the same amount, the newest first; above it; and below it. */
const findNearest = preparedStatement(
  'find_nearest_payment_intents',
  `with near as (
     (select * from payment_intents
       where expected_wallet = $1 and merchant_id = $2 and amount_units = $3 and id < $5
       order by id desc limit ${maxSearched})
     union all
     (select * from payment_intents
       where expected_wallet = $1 and merchant_id = $2 and amount_units > $3
       order by amount_units limit ${maxSearched})
     union all
     (select * from payment_intents
       where expected_wallet = $1 and merchant_id = $2 and amount_units < $3
       order by amount_units desc limit ${maxSearched})
   )
   select id, amount_units, status, created_at from near
    where network = any ($4::smallint[]) and id < $5
    order by abs(amount_units - $3), status not in ('requires_payment', 'expired', 'canceled'), id desc
    limit ${maxCandidates}`,
);
