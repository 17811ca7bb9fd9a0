import { defineEntity, type InferEntity, p } from '@mikro-orm/core';
import { deliveryStatusNames } from '../../contract/words.ts';
import { hexColumn, modeColumn } from './column-types.ts';

/** A webhook endpoint. Deleted ones are kept, because deliveries refer to them. */
export const WebhookEndpointEntity = defineEntity({
  name: 'WebhookEndpoint',
  tableName: 'webhook_endpoints',
  properties: {
    id: p.uuid().primary(),
    merchantId: p.uuid(),
    mode: modeColumn(),
    url: p.text(),
    /** `*` is every type. */
    eventTypes: p.array().$type<string[]>(),
    enabled: p.boolean(),
    disabledReason: p.text().nullable(),
    description: p.text().nullable(),
    createdAt: p.datetime(3),
    deletedAt: p.datetime(3).nullable(),
    /** Failed attempts since the last success, and the time of the first. */
    failures: p.integer().default(0),
    failingSince: p.datetime(3).nullable(),
    idempotencyKey: p.text().nullable(),
    requestFingerprint: hexColumn().nullable(),
  },
});

export type WebhookEndpointRow = InferEntity<typeof WebhookEndpointEntity>;

/** A generation of an endpoint's secret: what it is derived from, never the secret. */
export const WebhookSecretEntity = defineEntity({
  name: 'WebhookSecret',
  tableName: 'webhook_secrets',
  properties: {
    endpointId: p.uuid().primary(),
    /** From 1. The highest is the current one. */
    generation: p.integer().primary().autoincrement(false),
    /** The version of the key in `WEBHOOK_SECRET_KEYS`. */
    keyVersion: p.smallint(),
    createdAt: p.datetime(3),
    /** When a replaced generation stops signing. */
    expiresAt: p.datetime(3).nullable(),
    /** The idempotency key of the rotation that created it. */
    idempotencyKey: p.text().nullable(),
    requestFingerprint: hexColumn().nullable(),
  },
});

/**
 * One event for one endpoint. The pending rows are the delivery queue. Index `turns`: due deliveries by
 * merchant and endpoint, for the round-robin; `failed`: those that can be redelivered.
 */
export const WebhookDeliveryEntity = defineEntity({
  name: 'WebhookDelivery',
  tableName: 'webhook_deliveries',
  properties: {
    merchantId: p.uuid().primary(),
    eventId: p.uuid().primary(),
    endpointId: p.uuid().primary(),
    /** Its public identity. */
    id: p.uuid(),
    status: p.enum(deliveryStatusNames).nativeEnumName('webhook_delivery_status'),
    createdAt: p.datetime(3),
    /** When it is due, while pending; during an attempt, when its lease expires. */
    nextAttemptAt: p.datetime(3).nullable(),
    /**
     * `nextAttemptAt` of the last claim: an attempt is in flight while both are equal and in the future. When a
     * delivery fails with its endpoint, as if it had been claimed then.
     */
    leasedUntil: p.datetime(3).nullable(),
    /** Attempts since creation or the last redelivery. */
    scheduled: p.smallint().default(0),
    /** All attempts. */
    attempts: p.integer().default(0),
  },
});

export type WebhookDeliveryRow = InferEntity<typeof WebhookDeliveryEntity>;

/** An attempt. The newest of each delivery are kept. */
export const WebhookAttemptEntity = defineEntity({
  name: 'WebhookAttempt',
  tableName: 'webhook_attempts',
  properties: {
    eventId: p.uuid().primary(),
    endpointId: p.uuid().primary(),
    number: p.integer().primary().autoincrement(false),
    at: p.datetime(3),
    durationMs: p.integer(),
    statusCode: p.smallint().nullable(),
    error: p.text().nullable(),
    /** The beginning of the response, which need not be text. */
    response: p.blob().nullable(),
  },
});

export type WebhookAttemptRow = InferEntity<typeof WebhookAttemptEntity>;
