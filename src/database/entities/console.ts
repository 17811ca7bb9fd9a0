import { defineEntity, type InferEntity, p } from '@mikro-orm/core';
import { modeNames } from '../../contract/words.ts';
import { JsonTextType } from './column-types.ts';
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

/** What somebody has changed: written before the change, its outcome after it. */
export const AuditEntryEntity = defineEntity({
  name: 'AuditEntry',
  tableName: 'audit_log',
  properties: {
    id: p.uuid().primary(),
    /** The id of a session, `cs_…`, of a key, or `cli`. */
    actor: p.text(),
    actorName: p.text(),
    method: p.text(),
    merchantId: p.uuid().nullable(),
    mode: p.enum(modeNames).nativeEnumName(modeType).nullable(),
    /** The id of what is changed, or was made. */
    target: p.text().nullable(),
    /** The id of the intent that the request names besides it. */
    paymentIntent: p.text().nullable(),
    /** The request, without secrets. */
    fields: p.type(JsonTextType),
    requestId: p.text(),
    /** `ok`, or the code of the refusal; null while it runs, and if the process died. */
    outcome: p.text().nullable(),
  },
  indexes: [
    { name: 'audit_log_target_index', properties: ['target', 'id'], where: 'target is not null' },
    {
      name: 'audit_log_intent_index',
      properties: ['paymentIntent'],
      where: 'payment_intent is not null',
    },
  ],
});

/** What opens an export of the console, once. */
export const ExportTicketEntity = defineEntity({
  name: 'ExportTicket',
  tableName: 'export_tickets',
  properties: {
    /** SHA-256. */
    ticketHash: p.blob().primary(),
    merchantId: p.uuid(),
    mode: p.enum(modeNames).nativeEnumName(modeType),
    fromTime: p.datetime(3).columnType('timestamptz(3)'),
    beforeTime: p.datetime(3).columnType('timestamptz(3)'),
    expiresAt: p.datetime(3).columnType('timestamptz(3)'),
  },
});

/** What somebody has seen to of what needs a person. */
export const ResolvedAttentionEntity = defineEntity({
  name: 'ResolvedAttention',
  tableName: 'resolved_attention',
  properties: {
    merchantId: p.uuid().primary(),
    mode: p.enum(modeNames).nativeEnumName(modeType).primary(),
    /** The item and how it was: see `console/attention.ts`. */
    item: p.text().primary(),
    note: p.text(),
    resolvedAt: p.datetime(3).columnType('timestamptz(3)'),
  },
});

export type ConsoleSession = InferEntity<typeof ConsoleSessionEntity>;
