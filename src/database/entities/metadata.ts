import { defineEntity, p } from '@mikro-orm/core';
import { modeNames } from '../../contract/words.ts';
import { HexType } from './column-types.ts';
import { modeType } from './network.ts';

/** An intent as it is found by a key and a value of its metadata: see `payment-intents/metadata-index.ts`. */
export const PaymentIntentMetadataEntity = defineEntity({
  name: 'PaymentIntentMetadata',
  tableName: 'payment_intent_metadata',
  properties: {
    merchantId: p.uuid().primary(),
    mode: p.enum(modeNames).nativeEnumName(modeType).primary(),
    /** The first 16 bytes of SHA-256 of the key, NUL and the value. */
    digest: p.type(HexType).$type<string>().primary(),
    paymentIntent: p.uuid().primary(),
  },
});

/** A single row: how far intents were entered. */
export const MetadataProgressEntity = defineEntity({
  name: 'MetadataProgress',
  tableName: 'metadata_progress',
  properties: {
    /** Always 1. */
    id: p.smallint().primary().autoincrement(false),
    /** The highest id of an intent that was entered. */
    position: p.uuid(),
    /** The transactions that the last statement saw, as PostgreSQL's `pg_snapshot`. */
    snapshot: p.text(),
  },
  checks: [{ name: 'metadata_progress_id_check', expression: 'id = 1' }],
});
