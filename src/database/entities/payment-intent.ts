import type { JsonObject } from '@bufbuild/protobuf';
import { defineEntity, type InferEntity, p } from '@mikro-orm/core';
import type { WalletAddress } from '../../contract/wallet-address.ts';
import { laneNames, modeNames, statusNames } from '../../contract/words.ts';
import { AddressType, HexType, JsonTextType } from './column-types.ts';
import { modeType } from './network.ts';

/** Largest amount: 2^53-1, which every JSON client holds exactly; about 9 billion USDC. */
export const maxAmountUnits = 9007199254740991n;
export const minExpiryMinutes = 5;
export const maxExpiryMinutes = 60;

/**
 * A payment intent at rest. Everything about the chain and the token follows from `network`, whose row never changes,
 * so a later release cannot change an open intent.
 *
 * The idempotency key and the fingerprint of the request live on the same row, so that one insert decides who was
 * first. Unique constraints cover one merchant, or the UUID itself: the table can be distributed by merchant.
 *
 * Every constraint slows inserts (`npm run bench -- --schema`). The table has types, NOT NULL and one check. It has no
 * foreign keys, because each insert would lock the one row of its merchant; instead, merchants and networks cannot be
 * deleted. The rules that only the code enforces are in `payment-intents/intent-rules.ts`, and `doctor` checks the rows against them.
 *
 * Its indexes are in the migrations: `open`, what has to expire, for each network by the clock that it has; `wallet`, whose
 * payment a transfer to a wallet may be; `partial`, intents that are partly paid, or ended so: they expect what is missing;
 * `labels` and `refunded`, those that may need a person.
 */
export const PaymentIntentEntity = defineEntity({
  name: 'PaymentIntent',
  tableName: 'payment_intents',
  properties: {
    id: p.uuid().primary(),
    merchantId: p.uuid(),
    /** The network's mode, repeated for indexes: intents are unique and listed per merchant and mode. */
    mode: p.enum(modeNames).nativeEnumName(modeType),
    status: p.enum(statusNames).nativeEnumName('payment_intent_status'),
    /** The id of one of the `networks`. */
    network: p.smallint(),
    amountUnits: p.bigint(),
    expectedWallet: p.type(AddressType).$type<WalletAddress>(),
    lane: p.enum(laneNames).nativeEnumName('payment_lane'),
    metadata: p.type(JsonTextType).$type<JsonObject>(),
    createdAt: p.datetime(3).columnType('timestamptz(3)'),
    /** Whole minutes after `createdAt`. */
    expiresAt: p.datetime(3).columnType('timestamptz(3)'),
    /** Version of the key in `CLIENT_SECRET_KEYS` that the client secret is derived with. */
    clientSecretVersion: p.smallint(),
    idempotencyKey: p.text().nullable(),
    /** SHA-256 of the normalised request; set if the idempotency key is. */
    requestFingerprint: p.type(HexType).$type<string>().nullable(),
    /** Sum of the payments that count. */
    amountReceivedUnits: p.bigint().defaultRaw('0'),
    paymentsCount: p.integer().default(0),
    /** Sum of the confirmed transfers of its refunds. */
    amountRefundedUnits: p.bigint().nullable(),
    /** The number of its signed authorizations. Each that is stored changes the row, and who has read it notices. */
    authorizationsCount: p.integer().nullable(),
    /** The number of its events: each change of the row adds one, and is made only on the number that it has read. */
    eventCount: p.integer().default(0),
    labels: p.array().$type<string[]>().nullable(),
    succeededAt: p.datetime(3).columnType('timestamptz(3)').nullable(),
    canceledAt: p.datetime(3).columnType('timestamptz(3)').nullable(),
    expiredAt: p.datetime(3).columnType('timestamptz(3)').nullable(),
  },
});

export type PaymentIntentRow = InferEntity<typeof PaymentIntentEntity>;

/** What happens to an intent after its creation. Its row is created with the defaults of these columns. */
export const laterProperties = [
  ...(['amountReceivedUnits', 'paymentsCount', 'amountRefundedUnits', 'authorizationsCount'] as const),
  ...(['eventCount', 'labels', 'succeededAt', 'canceledAt', 'expiredAt'] as const),
] as const;

/** A row as it is created. */
export type NewPaymentIntentRow = Omit<PaymentIntentRow, (typeof laterProperties)[number]>;
