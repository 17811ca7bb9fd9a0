import { create } from '@bufbuild/protobuf';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { KeyRing } from '../config/key-ring.ts';
import { networkOf } from '../contract/chains.ts';
import {
  type PaymentIntent,
  PaymentIntentSchema,
  PaymentIntentStatus,
} from '../contract/gen/payments/v1/payment_intent_pb.ts';
import type { Payment } from '../contract/gen/payments/v1/payment_pb.ts';
import { chainWords, laneWords, modeWords, paymentIntentStatusWords } from '../contract/gen/words.ts';
import { isNewer, numberOf } from '../contract/words.ts';
import type { NewPaymentIntentRow, PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { formatIdentifier } from '../database/identifiers.ts';
import { clientSecret } from './client-secret.ts';

/** The answer to the creation and its retries, whatever has happened since. Throws if only a newer version knows a value. */
export function createdPaymentIntent(row: NewPaymentIntentRow, clientSecretKeys: KeyRing): PaymentIntent {
  return create(PaymentIntentSchema, {
    ...frozenFields(row, clientSecretKeys),
    status: PaymentIntentStatus.REQUIRES_PAYMENT,
  });
}

/** The intent's current state with these payments, and its client secret if keys are given. Throws if a value is newer. */
export function presentPaymentIntent(
  row: PaymentIntentRow,
  payments: readonly Payment[],
  clientSecretKeys?: KeyRing,
): PaymentIntent {
  return create(PaymentIntentSchema, presentFields(row, payments, clientSecretKeys));
}

/** The fields of `presentPaymentIntent`. */
export function presentFields(
  row: PaymentIntentRow,
  payments: readonly Payment[],
  clientSecretKeys?: KeyRing,
) {
  return {
    ...frozenFields(row, clientSecretKeys),
    status: numberOf(paymentIntentStatusWords, row.status),
    createdAt: timestampFromDate(row.createdAt),
    amountReceivedUnits: BigInt(row.amountReceivedUnits),
    payments: [...payments],
    paymentsCount: row.paymentsCount,
    labels: row.labels ?? [],
    amountRefundedUnits: BigInt(row.amountRefundedUnits ?? 0),
    ...momentField('succeededAt', row.succeededAt),
    ...momentField('canceledAt', row.canceledAt),
    ...momentField('expiredAt', row.expiredAt),
  };
}

/** The fields that are fixed at creation; with the client secret if its keys are given. */
function frozenFields(row: NewPaymentIntentRow, clientSecretKeys: KeyRing | undefined) {
  const id = formatIdentifier('pi', row.id);
  const network = networkOf(row.network) ?? isNewer(`network ${row.network}`);
  return {
    id,
    ...(clientSecretKeys && { clientSecret: clientSecret(clientSecretKeys, row.clientSecretVersion, id) }),
    mode: numberOf(modeWords, row.mode),
    chain: numberOf(chainWords, network.chain),
    chainId: BigInt(network.chainId),
    confirmationsRequired: network.confirmationsRequired,
    amountUnits: BigInt(row.amountUnits),
    decimals: network.decimals,
    tokenSymbol: network.tokenSymbol,
    tokenAddress: network.tokenAddress,
    expectedWallet: row.expectedWallet,
    expiresAt: timestampFromDate(row.expiresAt),
    expiresInMinutes: (row.expiresAt.getTime() - row.createdAt.getTime()) / 60_000,
    lane: numberOf(laneWords, row.lane),
    metadata: row.metadata,
  };
}

/** The field of a moment, if there is one. */
export function momentField<Name extends string>(name: Name, moment: Date | null | undefined) {
  return moment == null ? {} : { [name]: timestampFromDate(moment) };
}
