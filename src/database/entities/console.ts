import { defineEntity, type InferEntity, p } from '@mikro-orm/core';
import { modeColumn } from './column-types.ts';

/** A console session: first a code, then the token it was exchanged for. Only keyed hashes are stored. */
export const ConsoleSessionEntity = defineEntity({
  name: 'ConsoleSession',
  tableName: 'console_sessions',
  properties: {
    id: p.uuid().primary(),
    /** Whose session it is, for people to read. */
    name: p.text(),
    /** Null for an operator, who sees all merchants. Set together with `mode`. */
    merchantId: p.uuid().nullable(),
    mode: modeColumn().nullable(),
    isReadOnly: p.boolean(),
    /** Version of the pepper in `API_KEY_PEPPERS` that both hashes are made with. */
    pepperVersion: p.smallint(),
    codeHash: p.blob(),
    codeExpiresAt: p.datetime(3),
    /** How long it lasts once the code is exchanged. */
    lastsSeconds: p.integer(),
    tokenHash: p.blob().nullable(),
    expiresAt: p.datetime(3).nullable(),
    /** The last call, to the minute. */
    usedAt: p.datetime(3).nullable(),
    createdAt: p.datetime(3),
    revokedAt: p.datetime(3).nullable(),
  },
});

export type ConsoleSession = InferEntity<typeof ConsoleSessionEntity>;
