import { defineEntity, type InferEntity, p } from '@mikro-orm/core';
import type { WalletAddress } from '../../contract/wallet-address.ts';
import { modeNames } from '../../contract/words.ts';
import { AddressType, HexType } from './column-types.ts';
import { modeType } from './network.ts';

/** `submitted`: can be sent. `landed`: used by a transfer. `released`: unusable. `failed`: not given out. */
const authorizationStatuses = ['submitted', 'landed', 'released', 'failed'] as const;

/** A payer's signed authorization (EIP-3009) of a transfer for an intent. The signature is not kept. */
export const AuthorizationEntity = defineEntity({
  name: 'Authorization',
  tableName: 'authorizations',
  properties: {
    id: p.uuid().primary(),
    merchantId: p.uuid(),
    mode: p.enum(modeNames).nativeEnumName(modeType),
    paymentIntent: p.uuid(),
    /** The network of the intent, which determines the chain and the token. */
    network: p.smallint(),
    fromAddress: p.type(AddressType).$type<WalletAddress>(),
    /** Chosen by the payer. The chain accepts it once. */
    nonce: p.type(HexType).$type<string>(),
    /** The wallet that is paid. */
    wallet: p.type(AddressType).$type<WalletAddress>(),
    amountUnits: p.bigint(),
    /** Blocks from this time on do not accept it. */
    validBefore: p.datetime(3).columnType('timestamptz(3)'),
    status: p.enum(authorizationStatuses).nativeEnumName('authorization_status'),
    /** The transaction hash that the facilitator reports. It is shown, but decides nothing. */
    reportedHash: p.type(HexType).$type<string>().nullable(),
    createdAt: p.datetime(3).columnType('timestamptz(3)'),
  },
});

export type AuthorizationRow = InferEntity<typeof AuthorizationEntity>;
