import type { JsonObject } from '@bufbuild/protobuf';
import { defineEntity, type InferEntity, p } from '@mikro-orm/core';
import type { WalletAddress } from '../../contract/wallet-address.ts';
import { laneNames, modeNames, statusNames } from '../../contract/words.ts';
import { AddressType, HexType, JsonTextType } from './column-types.ts';
import { modeType } from './network.ts';
import { reportTrigger } from './report.ts';

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
  indexes: [
    { name: 'payment_intents_merchant_index', properties: ['merchantId', 'mode', 'id'] },
    {
      // What has to expire, for each network by the clock that it has.
      name: 'payment_intents_open_index',
      properties: ['network', 'expiresAt'],
      where: "status = 'requires_payment'",
    },
    {
      // Whose payment a transfer to a wallet may be.
      name: 'payment_intents_wallet_index',
      properties: ['expectedWallet', 'merchantId', 'amountUnits', 'id'],
    },
    {
      // Intents that are partly paid, or ended so: they expect what is missing.
      name: 'payment_intents_partial_index',
      expression:
        'create index payment_intents_partial_index on payment_intents ' +
        '(expected_wallet, merchant_id, (amount_units - amount_received_units), id) ' +
        "where status in ('requires_payment', 'expired', 'canceled') and amount_received_units > 0",
    },
    // Those that may need a person.
    {
      name: 'payment_intents_labels_index',
      properties: ['merchantId', 'mode', 'id'],
      where: 'labels is not null and amount_refunded_units is null',
    },
    {
      name: 'payment_intents_refunded_index',
      properties: ['merchantId', 'mode', 'id'],
      where: 'labels is not null and amount_refunded_units is not null',
    },
  ],
  uniques: [
    {
      name: 'payment_intents_idempotency_key_unique',
      properties: ['merchantId', 'mode', 'idempotencyKey'],
      where: { idempotencyKey: { $ne: null } },
    },
  ],
  triggers: [reportTrigger('payment_intents')],
  checks: [
    {
      name: 'payment_intents_amount_units_check',
      expression: `amount_units >= 1 and amount_units <= ${maxAmountUnits}`,
    },
  ],
});

export type PaymentIntentRow = InferEntity<typeof PaymentIntentEntity>;

/** What happens to an intent after its creation. Its row is created with the defaults of these columns. */
export const laterProperties = [
  'amountReceivedUnits',
  'paymentsCount',
  'amountRefundedUnits',
  'authorizationsCount',
  'eventCount',
  'labels',
  'succeededAt',
  'canceledAt',
  'expiredAt',
] as const;

/** A row as it is created. */
export type NewPaymentIntentRow = Omit<PaymentIntentRow, (typeof laterProperties)[number]>;
