import { defineEntity, type InferEntity, p } from '@mikro-orm/core';
import { laneNames, statusNames } from '../../contract/words.ts';
import { addressColumn, hexColumn, jsonColumn, modeColumn } from './column-types.ts';

/** Largest amount: 2^53-1, which every JSON client holds exactly; about 9 billion USDC. */
export const maxAmountUnits = 9007199254740991n;
export const minExpiryMinutes = 5;
export const maxExpiryMinutes = 60;

/**
 * A payment intent at rest. Everything about the chain and the token follows from `network`, whose row never
 * changes, so a later release cannot change an open intent.
 *
 * The row has the idempotency key and the request's fingerprint, so that one insert decides who was first.
 * Unique constraints cover one merchant, or the UUID: the table can be distributed by merchant.
 *
 * Every constraint slows inserts (`npm run bench -- --schema`). The table has types, NOT NULL and one check.
 * With foreign keys each insert would lock its merchant's row; instead, merchants and networks cannot be
 * deleted. Only code enforces the rules in `payment-intents/intent-rules.ts`; `doctor` checks the rows.
 *
 * Its indexes are in the migrations: `open`, intents to expire, by network, because each has its own clock;
 * `wallet`, intents that a transfer may pay; `partial`, intents that are or ended partly paid, and expect the
 * rest; `labels` and `refunded`, intents that may need a person.
 */
export const PaymentIntentEntity = defineEntity({
  name: 'PaymentIntent',
  tableName: 'payment_intents',
  properties: {
    id: p.uuid().primary(),
    merchantId: p.uuid(),
    /** The network's mode, repeated for indexes: intents are unique and listed per merchant and mode. */
    mode: modeColumn(),
    status: p.enum(statusNames).nativeEnumName('payment_intent_status'),
    /** The id of one of the `networks`. */
    network: p.smallint(),
    amountUnits: p.bigint(),
    expectedWallet: addressColumn(),
    lane: p.enum(laneNames).nativeEnumName('payment_lane'),
    metadata: jsonColumn(),
    createdAt: p.datetime(3),
    /** Whole minutes after `createdAt`. */
    expiresAt: p.datetime(3),
    /** Version of the key in `CLIENT_SECRET_KEYS` that the client secret is derived with. */
    clientSecretVersion: p.smallint(),
    idempotencyKey: p.text().nullable(),
    /** SHA-256 of the normalised request; set if the idempotency key is. */
    requestFingerprint: hexColumn().nullable(),
    /** Sum of the payments that count. */
    amountReceivedUnits: p.bigint().defaultRaw('0'),
    paymentsCount: p.integer().default(0),
    /** Sum of the confirmed transfers of its refunds. */
    amountRefundedUnits: p.bigint().nullable(),
    /** The number of its signed authorizations. If it has changed, a row read before is out of date. */
    authorizationsCount: p.integer().nullable(),
    /** The number of its events. A change with events is stored only if this is the number it read. */
    eventCount: p.integer().default(0),
    labels: p.array().$type<string[]>().nullable(),
    succeededAt: p.datetime(3).nullable(),
    canceledAt: p.datetime(3).nullable(),
    expiredAt: p.datetime(3).nullable(),
  },
});

export type PaymentIntentRow = InferEntity<typeof PaymentIntentEntity>;

/** What happens to an intent after its creation. A new row has the defaults of these columns. */
export const laterProperties = [
  ...(['amountReceivedUnits', 'paymentsCount', 'amountRefundedUnits', 'authorizationsCount'] as const),
  ...(['eventCount', 'labels', 'succeededAt', 'canceledAt', 'expiredAt'] as const),
] as const;

/** A row at its creation. */
export type NewPaymentIntentRow = Omit<PaymentIntentRow, (typeof laterProperties)[number]>;
