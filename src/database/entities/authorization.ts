import { defineEntity, type InferEntity, p } from '@mikro-orm/core';
import { addressColumn, hexColumn, modeColumn } from './column-types.ts';

/** `submitted`: can be sent. `landed`: used by a transfer. `released`: unusable. `failed`: not given out. */
const authorizationStatuses = ['submitted', 'landed', 'released', 'failed'] as const;

/** A payer's signed authorization (EIP-3009) of a transfer for an intent. The signature is not kept. */
export const AuthorizationEntity = defineEntity({
  name: 'Authorization',
  tableName: 'authorizations',
  properties: {
    id: p.uuid().primary(),
    merchantId: p.uuid(),
    mode: modeColumn(),
    paymentIntent: p.uuid(),
    /** The network of the intent, which determines the chain and the token. */
    network: p.smallint(),
    fromAddress: addressColumn(),
    /** Chosen by the payer. The chain accepts it once. */
    nonce: hexColumn(),
    /** The wallet that is paid. */
    wallet: addressColumn(),
    amountUnits: p.bigint(),
    /** Blocks from this time on do not accept it. */
    validBefore: p.datetime(3),
    status: p.enum(authorizationStatuses).nativeEnumName('authorization_status'),
    /** The transaction hash that the facilitator reports. It is shown, but decides nothing. */
    reportedHash: hexColumn().nullable(),
    createdAt: p.datetime(3),
  },
});

export type AuthorizationRow = InferEntity<typeof AuthorizationEntity>;
