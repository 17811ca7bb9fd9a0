import { timingSafeEqual } from 'node:crypto';
import { create } from '@bufbuild/protobuf';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { KeyRing } from '../config/key-ring.ts';
import { networkOf } from '../contract/chains.ts';
import type { PaymentIntent } from '../contract/gen/payments/v1/payment_intent_pb.ts';
import { PaymentIntentSchema, PaymentIntentStatus } from '../contract/gen/payments/v1/payment_intent_pb.ts';
import type { Payment } from '../contract/gen/payments/v1/payment_pb.ts';
import { chainWords, laneWords, modeWords, paymentIntentStatusWords } from '../contract/gen/words.ts';
import { isNewer, numberOf } from '../contract/words.ts';
import type { NewPaymentIntentRow, PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { formatIdentifier, parseIdentifier } from '../database/identifiers.ts';
import type { OpenedIntent } from '../requests/request-context.ts';

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

/**
 * Returns the secret that opens an intent's checkout: `<id>_secret_<base64url of HMAC-SHA256(key, id)>`. It is derived
 * each time and never stored, so a stolen database opens no checkout, and a retried creation returns the same secret.
 * `version` is the key that the intent was created with; if the ring no longer has it, the newest one is used.
 */
export function clientSecret(keys: KeyRing, version: number, id: string): string {
  const key = keys.versions.includes(version) ? version : keys.newestVersion;
  return `${id}_secret_${keys.hmac(key, id, 'base64url')}`;
}

/** An id, and the base64url of 32 bytes. */
const form = /^(pi_[0-7][0-9a-hjkmnp-tv-z]{25})_secret_([A-Za-z0-9_-]{43})$/;

/**
 * Returns the intent that a client secret opens, or undefined if it matches no key of the ring. Compares in constant
 * time and makes no query: a guess costs less than its refusal.
 */
export function intentOpenedBy(keys: KeyRing, secret: string): OpenedIntent | undefined {
  const [, id, mac] = form.exec(secret) ?? [];
  if (id === undefined || mac === undefined) return undefined;
  const given = Buffer.from(mac);
  // Compares with every version, to take constant time.
  const matches = keys.versions.filter((version) =>
    timingSafeEqual(given, Buffer.from(keys.hmac(version, id, 'base64url'))),
  );
  const uuid = parseIdentifier('pi', id);
  return matches.length === 0 || uuid === undefined ? undefined : { id: uuid, typeId: id };
}
