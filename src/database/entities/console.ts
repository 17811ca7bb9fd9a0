import { defineEntity, type InferEntity, p } from '@mikro-orm/core';
import { modeNames } from '../../contract/words.ts';
import { modeType } from './network.ts';

/** A person's session of the console: first a code, then the token that it was exchanged for; of both, keyed hashes. */
export const ConsoleSessionEntity = defineEntity({
  name: 'ConsoleSession',
  tableName: 'console_sessions',
  properties: {
    id: p.uuid().primary(),
    /** Whose it is, for people. */
    name: p.text(),
    /** Null for an operator, who sees all merchants; with a merchant there is a mode. */
    merchantId: p.uuid().nullable(),
    mode: p.enum(modeNames).nativeEnumName(modeType).nullable(),
    isReadOnly: p.boolean(),
    /** Version of the pepper in `API_KEY_PEPPERS` that both hashes are made with. */
    pepperVersion: p.smallint(),
    codeHash: p.blob().unique(),
    codeExpiresAt: p.datetime(3).columnType('timestamptz(3)'),
    /** How long it lasts once the code is exchanged. */
    lastsSeconds: p.integer(),
    tokenHash: p.blob().unique().nullable(),
    expiresAt: p.datetime(3).columnType('timestamptz(3)').nullable(),
    /** The last call, to the minute. */
    usedAt: p.datetime(3).columnType('timestamptz(3)').nullable(),
    createdAt: p.datetime(3).columnType('timestamptz(3)'),
    revokedAt: p.datetime(3).columnType('timestamptz(3)').nullable(),
  },
});

export type ConsoleSession = InferEntity<typeof ConsoleSessionEntity>;
