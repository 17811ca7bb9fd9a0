import type { JsonObject } from '@bufbuild/protobuf';
import { defineEntity, type InferEntity, p, Type } from '@mikro-orm/core';
import { chainFactsFor, chainNames, modeNames } from '../../contract/chains.ts';
import { MerchantEntity } from './merchant.ts';

/** Largest amount: 2^53-1, which every JSON client holds exactly; about 9 billion USDC. */
export const maxAmountUnits = 9007199254740991n;
export const minExpiryMinutes = 5;
export const maxExpiryMinutes = 60;

const laneNames = ['sdk', 'manual'] as const;
export type LaneName = (typeof laneNames)[number];

const statusNames = ['requires_payment'] as const;
export type StatusName = (typeof statusNames)[number];

/**
 * Metadata in a `json` column, which keeps the text as it was written. `jsonb` would sort the names and
 * rewrite the numbers, and a replayed creation would no longer answer what the first one did.
 */
class MetadataType extends Type<JsonObject, string> {
  override convertToDatabaseValue(value: JsonObject): string {
    return JSON.stringify(value);
  }
  override convertToJSValue(value: string | JsonObject): JsonObject {
    return typeof value === 'string' ? JSON.parse(value) : value;
  }
  override getColumnType(): string {
    return 'json';
  }
}

/** Bytes that are hexadecimal text here: a Buffer each would cost more than the hash that fills it. */
class HexType extends Type<string | null, string | null> {
  override convertToDatabaseValue(value: string | null): string | null {
    return value == null ? null : `\\x${value}`;
  }
  override convertToJSValue(value: string | Buffer | null): string | null {
    return Buffer.isBuffer(value) ? value.toString('hex') : value;
  }
  override getColumnType(): string {
    return 'bytea';
  }
}

/**
 * A payment intent at rest. Everything about the chain and the token is frozen here when the intent is
 * created: a later change of our tables changes no intent that somebody is paying.
 *
 * The idempotency key and the fingerprint of the request live on the same row, so that one insert decides
 * who was first. What is unique is so for one merchant, or carried by the UUID itself: the table can be
 * distributed by merchant.
 */
export const PaymentIntentEntity = defineEntity({
  name: 'PaymentIntent',
  tableName: 'payment_intents',
  properties: {
    id: p.uuid().primary(),
    merchantId: () => p.manyToOne(MerchantEntity).mapToPk().fieldName('merchant_id'),
    mode: p.enum(modeNames),
    status: p.enum(statusNames),
    chain: p.enum(chainNames),
    chainId: p.integer(),
    confirmationsRequired: p.smallint(),
    amountUnits: p.bigint(),
    decimals: p.smallint(),
    tokenSymbol: p.text(),
    tokenAddress: p.text(),
    expectedWallet: p.text(),
    lane: p.enum(laneNames),
    metadata: p.type(MetadataType).$type<JsonObject>(),
    expiresInMinutes: p.smallint(),
    createdAt: p.datetime(3).columnType('timestamptz(3)'),
    expiresAt: p.datetime(3).columnType('timestamptz(3)'),
    /** Version of the key in `CLIENT_SECRET_KEYS` that the client secret is derived with. */
    clientSecretVersion: p.smallint(),
    idempotencyKey: p.text().nullable(),
    /** SHA-256 of the normalised request; there where the idempotency key is. */
    requestFingerprint: p.type(HexType).$type<string>().nullable(),
  },
  uniques: [
    {
      name: 'payment_intents_idempotency_key_unique',
      properties: ['merchantId', 'mode', 'idempotencyKey'],
      where: { idempotencyKey: { $ne: null } },
    },
  ],
  checks: [
    {
      name: 'payment_intents_amount_units_check',
      expression: `amount_units >= 1 and amount_units <= ${maxAmountUnits}`,
    },
    {
      name: 'payment_intents_expires_in_minutes_check',
      expression: `expires_in_minutes >= ${minExpiryMinutes} and expires_in_minutes <= ${maxExpiryMinutes}`,
    },
    {
      name: 'payment_intents_expires_at_check',
      expression: `expires_at = created_at + make_interval(mins => expires_in_minutes)`,
    },
    { name: 'payment_intents_token_check', expression: `token_symbol = 'USDC' and decimals = 6` },
    { name: 'payment_intents_confirmations_required_check', expression: 'confirmations_required >= 1' },
    { name: 'payment_intents_chain_facts_check', expression: chainFactsCheck() },
    { name: 'payment_intents_client_secret_version_check', expression: 'client_secret_version >= 1' },
    { name: 'payment_intents_expected_wallet_check', expression: `expected_wallet ~ '^0x[0-9a-fA-F]{40}$'` },
    { name: 'payment_intents_metadata_check', expression: `json_typeof(metadata) = 'object'` },
    {
      name: 'payment_intents_idempotency_check',
      expression: '(idempotency_key is null) = (request_fingerprint is null)',
    },
    {
      name: 'payment_intents_idempotency_key_check',
      expression: 'char_length(idempotency_key) >= 1 and char_length(idempotency_key) <= 255',
    },
    {
      name: 'payment_intents_request_fingerprint_check',
      expression: 'octet_length(request_fingerprint) = 32',
    },
  ],
});

/** Which chain id and token contract go with which mode and chain. */
function chainFactsCheck(): string {
  const rows = modeNames.flatMap((mode) =>
    chainNames.map((chain) => {
      const { chainId, usdcAddress } = chainFactsFor(mode, chain);
      return `('${mode}', '${chain}', ${chainId}, '${usdcAddress}')`;
    }),
  );
  return `(mode, chain, chain_id, token_address) in (${rows.join(', ')})`;
}

export type PaymentIntentRow = InferEntity<typeof PaymentIntentEntity>;
