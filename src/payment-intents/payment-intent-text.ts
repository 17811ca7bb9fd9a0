// An intent as public JSON, written straight from its row. A page of a list has twenty of them: by way of messages they
// would cost several times what everything else does. `test/payment-intent-text.test.ts` holds both ways to the same text.

import { networks, usdcDecimals, usdcSymbol } from '../contract/chains.ts';
import { PaymentIntentSchema } from '../contract/gen/payments/v1/payment_intent_pb.ts';
import type { Payment } from '../contract/gen/payments/v1/payment_pb.ts';
import { createJsonCodec } from '../contract/json/json-codec.ts';
import type { PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { formatIdentifier } from '../database/identifiers.ts';
import { presentPaymentIntent } from './payment-intent.ts';

const codec = createJsonCodec(PaymentIntentSchema);

/** What the JSON has of an intent's network: before and behind the amount. */
const networkTexts = new Map(
  networks.map(({ id, mode, chain, chainId, confirmationsRequired, usdcAddress }) => [
    `${id} ${mode}`,
    [
      `"mode":"${mode}","chain":"${chain}","chain_id":${chainId},"confirmations_required":${confirmationsRequired}`,
      `"decimals":${usdcDecimals},"token_symbol":"${usdcSymbol}","token_address":"${usdcAddress}"`,
    ],
  ]),
);

const knownStatuses = new Set<string>(['requires_payment', 'processing', 'succeeded', 'expired', 'canceled']);
const knownLanes = new Set<string>(['sdk', 'manual']);

/**
 * The JSON of an intent without its client secret, as `presentPaymentIntent` and the codec make it. Throws if the row has
 * a value that only a newer version knows.
 */
export function paymentIntentText(row: PaymentIntentRow, payments: readonly Payment[]): string {
  const network = networkTexts.get(`${row.network} ${row.mode}`);
  const isPlain = network !== undefined && knownStatuses.has(row.status) && knownLanes.has(row.lane);
  // Rare, and then it may cost more.
  if (!isPlain || row.paymentsCount > 0) return codec.encode(presentPaymentIntent(row, payments));
  const { createdAt, expiresAt, labels, succeededAt, canceledAt, expiredAt } = row;
  const minutes = (expiresAt.getTime() - createdAt.getTime()) / 60_000;
  return (
    `{"id":"${formatIdentifier('pi', row.id)}","status":"${row.status}",${network[0]},"amount_units":${row.amountUnits},` +
    `${network[1]},"expected_wallet":"${row.expectedWallet}","expires_at":"${expiresAt.toISOString()}",` +
    `"expires_in_minutes":${minutes},"lane":"${row.lane}","metadata":${JSON.stringify(row.metadata)},` +
    `"created_at":"${createdAt.toISOString()}","amount_received_units":${row.amountReceivedUnits},` +
    `"payments_count":${row.paymentsCount}${labels == null || labels.length === 0 ? '' : `,"labels":${JSON.stringify(labels)}`}` +
    `${moment('succeeded_at', succeededAt)}${moment('canceled_at', canceledAt)}${moment('expired_at', expiredAt)}}`
  );
}

function moment(name: string, at: Date | null | undefined): string {
  return at == null ? '' : `,"${name}":"${at.toISOString()}"`;
}
