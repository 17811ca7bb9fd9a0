import { create } from '@bufbuild/protobuf';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import { concat, fromNumber, fromString, type Hex, padLeft } from 'ox/Hex';
import { networkOf } from '../contract/chains.ts';
import type { Payment } from '../contract/gen/payments/v1/payment_pb.ts';
import { type Refund, RefundSchema } from '../contract/gen/payments/v1/refund_pb.ts';
import { chainWords, modeWords, refundStatusWords } from '../contract/gen/words.ts';
import { numberOf, throwNewer } from '../contract/words.ts';
import type { RefundRow } from '../database/entities/refund.ts';
import { formatIdentifier } from '../database/identifiers.ts';
import { momentField } from '../payment-intents/payment-intent.ts';

/** `transfer(address,uint256)`. */
const transferSelector = '0xa9059cbb';

/** The current state of a refund. Throws if only a newer version knows a value of the row. */
export function toRefund(row: RefundRow, transfers: readonly Payment[]): Refund {
  const id = formatIdentifier('rf', row.id);
  const network = networkOf(row.network) ?? throwNewer(`network ${row.network}`);
  const chainId = BigInt(network.chainId);
  return create(RefundSchema, {
    id,
    paymentIntent: formatIdentifier('pi', row.paymentIntent),
    mode: numberOf(modeWords, row.mode),
    chain: numberOf(chainWords, network.chain),
    chainId,
    amountUnits: BigInt(row.amountUnits),
    tokenAddress: network.tokenAddress,
    destination: row.destination,
    status: numberOf(refundStatusWords, row.status),
    reason: row.reason ?? '',
    metadata: row.metadata,
    createdAt: timestampFromDate(row.createdAt),
    expiresAt: timestampFromDate(row.expiresAt),
    ...momentField('succeededAt', row.succeededAt),
    ...momentField('canceledAt', row.canceledAt),
    ...momentField('expiredAt', row.expiredAt),
    transaction: {
      chainId,
      to: network.tokenAddress,
      value: '0x0',
      data: transactionData(id, row.destination.toLowerCase() as Hex, BigInt(row.amountUnits)),
    },
    transfers: [...transfers],
    labels: row.labels ?? [],
  });
}

/** The call that returns the money, followed by the refund's id, which the token ignores. */
const transactionData = (id: string, to: Hex, amountUnits: bigint): Hex =>
  concat(transferSelector, padLeft(to, 32), fromNumber(amountUnits, { size: 32 }), fromString(id));
