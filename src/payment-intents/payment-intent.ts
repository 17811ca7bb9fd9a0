import { create } from '@bufbuild/protobuf';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { KeyRing } from '../config/key-ring.ts';
import { chainOf, modeOf, networkOf, usdcDecimals, usdcSymbol } from '../contract/chains.ts';
import {
  Lane,
  type PaymentIntent,
  PaymentIntentSchema,
  PaymentIntentStatus,
} from '../contract/gen/payments/v1/payment_intent_pb.ts';
import type { Payment } from '../contract/gen/payments/v1/payment_pb.ts';
import type {
  LaneName,
  NewPaymentIntentRow,
  PaymentIntentRow,
  StatusName,
} from '../database/entities/payment-intent.ts';
import { formatIdentifier } from '../database/identifiers.ts';
import { clientSecret } from './client-secret.ts';

const statusOf = {
  requires_payment: PaymentIntentStatus.REQUIRES_PAYMENT,
  processing: PaymentIntentStatus.PROCESSING,
  succeeded: PaymentIntentStatus.SUCCEEDED,
  expired: PaymentIntentStatus.EXPIRED,
  canceled: PaymentIntentStatus.CANCELED,
} as const satisfies Record<StatusName, PaymentIntentStatus>;

const statusNames = new Map<PaymentIntentStatus, StatusName>(
  Object.entries(statusOf).map(([name, status]) => [status, name as StatusName]),
);

/** Returns the database's name of the status, or undefined for an unknown number. */
export function statusNameOf(status: PaymentIntentStatus): StatusName | undefined {
  return statusNames.get(status);
}

const laneOf = { sdk: Lane.SDK, manual: Lane.MANUAL } as const satisfies Record<LaneName, Lane>;

/**
 * The answer to the creation and all retries of it, whatever has happened to the intent since. Throws if only a newer
 * version knows a value of the row.
 */
export function createdPaymentIntent(row: NewPaymentIntentRow, clientSecretKeys: KeyRing): PaymentIntent {
  return create(PaymentIntentSchema, {
    ...frozenFields(row, clientSecretKeys),
    status: PaymentIntentStatus.REQUIRES_PAYMENT,
  });
}

/**
 * The current state of the intent with these payments, and with its client secret if the keys are given. Throws if
 * only a newer version knows a value of the row.
 */
export function presentPaymentIntent(
  row: PaymentIntentRow,
  payments: readonly Payment[],
  clientSecretKeys?: KeyRing,
): PaymentIntent {
  return create(PaymentIntentSchema, {
    ...frozenFields(row, clientSecretKeys),
    status: numberOf(statusOf, row.status),
    createdAt: timestampFromDate(row.createdAt),
    amountReceivedUnits: BigInt(row.amountReceivedUnits),
    payments: [...payments],
    paymentsCount: row.paymentsCount,
    labels: row.labels ?? [],
    ...momentField('succeededAt', row.succeededAt),
    ...momentField('canceledAt', row.canceledAt),
    ...momentField('expiredAt', row.expiredAt),
  });
}

/** The fields that are fixed at creation; with the client secret if its keys are given. */
function frozenFields(row: NewPaymentIntentRow, clientSecretKeys: KeyRing | undefined) {
  const id = formatIdentifier('pi', row.id);
  const network = networkOf(row.network) ?? isNewer(`network ${row.network}`);
  return {
    id,
    ...(clientSecretKeys && { clientSecret: clientSecret(clientSecretKeys, row.clientSecretVersion, id) }),
    mode: numberOf(modeOf, row.mode),
    chain: numberOf(chainOf, network.chain),
    chainId: BigInt(network.chainId),
    confirmationsRequired: network.confirmationsRequired,
    amountUnits: BigInt(row.amountUnits),
    decimals: usdcDecimals,
    tokenSymbol: usdcSymbol,
    tokenAddress: network.usdcAddress,
    expectedWallet: row.expectedWallet,
    expiresAt: timestampFromDate(row.expiresAt),
    expiresInMinutes: (row.expiresAt.getTime() - row.createdAt.getTime()) / 60_000,
    lane: numberOf(laneOf, row.lane),
    metadata: row.metadata,
  };
}

function momentField<Name extends string>(name: Name, moment: Date | null | undefined) {
  return moment == null ? {} : { [name]: timestampFromDate(moment) };
}

/**
 * Returns the contract's number for a value in the database. Throws for an unknown value written by a newer process,
 * because it must not be misread.
 */
function numberOf<Word extends string, Value>(
  values: Readonly<Partial<Record<Word, Value>>>,
  word: Word,
): Value {
  return values[word] ?? isNewer(word);
}

function isNewer(what: string): never {
  throw new Error(`the database holds ${what}, which is newer than this process`);
}
