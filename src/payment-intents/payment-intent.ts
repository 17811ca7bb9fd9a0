import { timingSafeEqual } from 'node:crypto';
import { create } from '@bufbuild/protobuf';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import { LRUCache } from 'lru-cache';
import { checksum } from 'ox/Address';
import type { KeyRing } from '../config/key-ring.ts';
import { networkOf, networks } from '../contract/chains.ts';
import type { PaymentIntent } from '../contract/gen/payments/v1/payment_intent_pb.ts';
import { PaymentIntentSchema, PaymentIntentStatus } from '../contract/gen/payments/v1/payment_intent_pb.ts';
import type { Payment } from '../contract/gen/payments/v1/payment_pb.ts';
import { chainWords, laneWords, modeWords, paymentIntentStatusWords } from '../contract/gen/words.ts';
import { laneNames, numberOf, statusNames, throwNewer } from '../contract/words.ts';
import type { NewPaymentIntentRow, PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { formatIdentifier, parseIdentifier } from '../database/identifiers.ts';
import type { OpenedIntent } from '../requests/request-context.ts';

/** The answer to a create, and to its retries at any time. Throws if a value is of a newer version. */
export function createdPaymentIntent(row: NewPaymentIntentRow, clientSecretKeys: KeyRing): PaymentIntent {
  return create(PaymentIntentSchema, {
    ...frozenFields(row, clientSecretKeys),
    status: PaymentIntentStatus.REQUIRES_PAYMENT,
  });
}

/** The current intent, with its client secret if keys are given. Throws if a value is of a newer version. */
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
  const network = networkOf(row.network) ?? throwNewer(`network ${row.network}`);
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

/** The field of a moment; no field if there is none. */
export function momentField<Name extends string>(name: Name, moment: Date | null | undefined) {
  return moment == null ? {} : { [name]: timestampFromDate(moment) };
}

/**
 * Returns the secret that opens an intent's checkout: `<id>_secret_<base64url of HMAC-SHA256(key, id)>`. It
 * is derived, never stored: a stolen database opens no checkout, and a retried create returns the same
 * secret. `version` is the key of the create; if the ring no longer has it, the newest is used.
 */
export function clientSecret(keys: KeyRing, version: number, id: string): string {
  const key = keys.versions.includes(version) ? version : keys.newestVersion;
  return `${id}_secret_${keys.hmac(key, id, 'base64url')}`;
}

/** An id, and the base64url of 32 bytes. */
const form = /^(pi_[0-7][0-9a-hjkmnp-tv-z]{25})_secret_([A-Za-z0-9_-]{43})$/;

/**
 * Returns the intent that a client secret opens, or undefined if it matches no key of the ring. Compares in
 * constant time and makes no query, so checking a guess costs less than refusing it.
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

// Writes the intents of a list as public JSON directly from PostgreSQL's text. A page has twenty of them:
// converting rows to messages takes 7 µs each instead of 2, more than everything else.
// `test/payment-intent-text.test.ts` checks that both ways return the same text.

/** The columns shown, and the merchant. */
const columns = [
  ...(['id', 'merchant_id', 'mode', 'status', 'network', 'amount_units', 'expected_wallet', 'lane'] as const),
  ...(['created_at', 'expires_at', 'amount_received_units', 'payments_count'] as const),
  ...(['labels', 'succeeded_at', 'canceled_at', 'expired_at', 'amount_refunded_units'] as const),
] as const;

/** The nullable ones, for which null is written as an empty text. */
const nullable: ReadonlySet<string> = new Set(columns.slice(-5));

/** A selected row: its columns as one text, and separately its metadata, which may contain any character. */
type ShownRow = { readonly shown: string; readonly metadata: string };

/**
 * The expressions to SELECT for `readShownRow`, of the table or subquery with this alias. The columns come as
 * one text: `pg` takes several times as long for seventeen columns.
 */
export function shownRow(alias: string): string {
  const texts = columns.map((column) =>
    nullable.has(column) ? `coalesce(${alias}.${column}::text, '')` : `${alias}.${column}`,
  );
  return `concat_ws('|', ${texts.join(', ')}) as shown, ${alias}.metadata::text as metadata`;
}

/** The columns in PostgreSQL's text format. */
export type ShownColumns = Readonly<Record<(typeof columns)[number] | 'metadata', string>>;

export function readShownRow({ shown, metadata }: ShownRow): ShownColumns {
  const texts = shown.split('|');
  return {
    id: texts[0] as string,
    merchant_id: texts[1] as string,
    mode: texts[2] as string,
    status: texts[3] as string,
    network: texts[4] as string,
    amount_units: texts[5] as string,
    expected_wallet: texts[6] as string,
    lane: texts[7] as string,
    created_at: texts[8] as string,
    expires_at: texts[9] as string,
    amount_received_units: texts[10] as string,
    payments_count: texts[11] as string,
    labels: texts[12] as string,
    succeeded_at: texts[13] as string,
    canceled_at: texts[14] as string,
    expired_at: texts[15] as string,
    amount_refunded_units: texts[16] as string,
    metadata,
  };
}

/** The same columns as returned by `pg`. */
export function parseShownColumns(row: ShownColumns): Record<string, unknown> {
  const orNull = (text: string) => (text === '' ? null : text);
  return {
    ...row,
    network: Number(row.network),
    expected_wallet: Buffer.from(row.expected_wallet.slice(2), 'hex'),
    payments_count: Number(row.payments_count),
    labels: row.labels === '' ? null : labelsOf(row.labels),
    succeeded_at: orNull(row.succeeded_at),
    canceled_at: orNull(row.canceled_at),
    expired_at: orNull(row.expired_at),
    amount_refunded_units: orNull(row.amount_refunded_units),
  };
}

/** The elements of an array of names, which PostgreSQL does not quote. */
const labelsOf = (array: string): string[] => (array === '{}' ? [] : array.slice(1, -1).split(','));

/** The parts of the JSON that depend on the network: before and after the amount. */
const networkTexts = new Map(
  networks.map(({ id, mode, chain, chainId, confirmationsRequired, decimals, tokenSymbol, tokenAddress }) => [
    `${id} ${mode}`,
    [
      `"mode":"${mode}","chain":"${chain}","chain_id":${chainId},"confirmations_required":${confirmationsRequired}`,
      `"decimals":${decimals},"token_symbol":"${tokenSymbol}","token_address":"${tokenAddress}"`,
    ],
  ]),
);

const statuses: ReadonlySet<string> = new Set(statusNames);
const lanes: ReadonlySet<string> = new Set(laneNames);

/** Checksummed addresses by PostgreSQL's form. Cached: a checksum takes a hash, and wallets are few. */
const addresses = new LRUCache<string, string>({
  max: 1_000,
  memoMethod: (bytea) => checksum(`0${bytea.slice(1)}`),
});

/**
 * The JSON of an intent. Undefined if the intent needs more than its columns or a column has an unknown form.
 * Then it must be converted through its message, which throws for values of a newer version.
 */
export function paymentIntentText(row: ShownColumns): string | undefined {
  const network = networkTexts.get(`${row.network} ${row.mode}`);
  const createdAt = momentOf(row.created_at);
  const expiresAt = momentOf(row.expires_at);
  const minutes = (Date.parse(expiresAt) - Date.parse(createdAt)) / 60_000;
  if (
    network === undefined ||
    !Number.isInteger(minutes) ||
    row.payments_count !== '0' ||
    !statuses.has(row.status) ||
    !lanes.has(row.lane)
  ) {
    return undefined;
  }
  const labels = row.labels === '' ? [] : labelsOf(row.labels);
  return (
    `{"id":"${formatIdentifier('pi', row.id)}","status":"${row.status}",${network[0]},` +
    `"amount_units":${row.amount_units},${network[1]},` +
    `"expected_wallet":"${addresses.memo(row.expected_wallet)}","expires_at":"${expiresAt}",` +
    `"expires_in_minutes":${minutes},"lane":"${row.lane}","metadata":${compact(row.metadata)},` +
    `"created_at":"${createdAt}","amount_received_units":${row.amount_received_units},"payments_count":0` +
    `${labels.length === 0 ? '' : `,"labels":${JSON.stringify(labels)}`}` +
    `${moment('succeeded_at', row.succeeded_at)}${moment('canceled_at', row.canceled_at)}` +
    `${moment('expired_at', row.expired_at)},"amount_refunded_units":${row.amount_refunded_units || 0}}`
  );
}

/** PostgreSQL's text format of a timestamp, with the session's time zone UTC. */
const utc = /^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,3}))?\+00$/;

/** RFC 3339 in UTC with milliseconds. */
function momentOf(text: string): string {
  const [, date, time, fraction = ''] = utc.exec(text) ?? [];
  return time === undefined ? new Date(text).toISOString() : `${date}T${time}.${fraction.padEnd(3, '0')}Z`;
}

const moment = (name: string, text: string): string => (text === '' ? '' : `,"${name}":"${momentOf(text)}"`);

/** The service writes JSON without spaces; text written by hand may have some. */
const compact = (json: string): string => (/\s/.test(json) ? JSON.stringify(JSON.parse(json)) : json);
