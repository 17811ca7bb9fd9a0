// Implements `admin webhook …`.

import { timestampDate } from '@bufbuild/protobuf/wkt';
import type { EntityManager } from '@mikro-orm/postgresql';
import { loadConfig } from '../config/config.ts';
import type { WebhookDelivery } from '../contract/gen/payments/v1/webhook_endpoint_pb.ts';
import { webhookDeliveryStatusWords } from '../contract/gen/words.ts';
import type { DeliveryStatusName } from '../contract/words.ts';
import { nameOf } from '../contract/words.ts';
import { EventEntity } from '../database/entities/event.ts';
import { WebhookEndpointEntity, type WebhookEndpointRow } from '../database/entities/webhook.ts';
import { formatIdentifier } from '../database/identifiers.ts';
import { merchantExists } from '../merchants/administration.ts';
import { AdministrationError } from '../merchants/administration-error.ts';
import { endpointUuidOf, eventUuidOf, merchantUuidOf } from '../merchants/operator-ids.ts';
import { ServiceError } from '../requests/errors.ts';
import { createAddressPolicy } from '../webhooks/address-policy.ts';
import { createWebhookDeliveries, type RedeliveryFilter } from '../webhooks/deliveries.ts';
import {
  createEndpoint,
  createEndpointReader,
  deleteEndpoint,
  type EndpointSettings,
  maxEndpoints,
  maxOverlapHours,
  type Owner,
  ownerOf,
  rotateSecret,
  settingsViolations,
  updateEndpoint,
} from '../webhooks/endpoints.ts';
import type { Row } from './admin-output.ts';
import { formatMinute } from './admin-output.ts';
import type { Database } from './open-database.ts';

const hourMs = 3_600_000;
const shownDeliveries = 50;

export interface Output {
  json: object;
  rows: Row[];
  /** Shown once. */
  secret?: string;
  /** A remark, printed to standard error. */
  note?: string | undefined;
}

export function createWebhook(
  { orm, keyRing }: Database,
  options: { merchant: string; mode: Owner['mode']; url: string; events?: string[]; description: string },
): Promise<Output> {
  return orAdministrationError(async () => {
    const settings = {
      url: options.url,
      eventTypes: options.events ?? ['*'],
      enabled: true,
      description: options.description,
    };
    assertSettings(settings);
    const owner = await ownerNamed(orm.em, options);
    const created = await createEndpoint(orm.em, keyRing('WEBHOOK_SECRET_KEYS'), owner, settings);
    return withSecret(created.endpoint, created.secret);
  });
}

export function listWebhooks(
  { orm }: Database,
  options: { merchant: string; mode: Owner['mode'] },
): Promise<Output> {
  return orAdministrationError(async () => {
    const owner = await ownerNamed(orm.em, options);
    const found = await createEndpointReader(orm.em).list(owner, undefined, maxEndpoints);
    return { json: found.map(fieldsOf), rows: found.map(rowOf) };
  });
}

export function updateWebhook(
  { orm }: Database,
  options: {
    endpoint: string;
    url?: string;
    events?: string[];
    description?: string;
    enable?: boolean;
    disable?: boolean;
  },
): Promise<Output> {
  return orAdministrationError(async () => {
    const settings: Partial<EndpointSettings> = {
      ...(options.url !== undefined && { url: options.url }),
      ...(options.events !== undefined && { eventTypes: options.events }),
      ...(options.description !== undefined && { description: options.description }),
      ...(options.enable && { enabled: true }),
      ...(options.disable && { enabled: false }),
    };
    if (Object.keys(settings).length === 0) {
      throw new AdministrationError('name something to change: see --help');
    }
    assertSettings(settings);
    const { owner, id } = await findWebhook(orm.em, options.endpoint);
    const endpoint = await updateEndpoint(orm.em, owner, id, settings);
    return { json: fieldsOf(endpoint), rows: [rowOf(endpoint)] };
  });
}

/** Returns the URL of an endpoint, for the confirmation before it is deleted. */
export async function urlOfWebhook({ orm }: Database, endpointId: string): Promise<string> {
  return (await findWebhook(orm.em, endpointId)).url;
}

export function deleteWebhook({ orm }: Database, endpointId: string): Promise<Output> {
  return orAdministrationError(async () => {
    const { owner, id } = await findWebhook(orm.em, endpointId);
    await deleteEndpoint(orm.em, owner, id);
    return { json: { deleted: endpointId }, rows: [{ deleted: endpointId }] };
  });
}

export function rotateWebhook(
  { orm, keyRing }: Database,
  endpointId: string,
  overlapMs: number,
): Promise<Output> {
  return orAdministrationError(async () => {
    if (overlapMs > maxOverlapHours * hourMs) {
      throw new AdministrationError(`--overlap must be at most ${maxOverlapHours}h`);
    }
    const { owner, id } = await findWebhook(orm.em, endpointId);
    const rotated = await rotateSecret(orm.em, keyRing('WEBHOOK_SECRET_KEYS'), owner, id, overlapMs / hourMs);
    return withSecret(rotated.endpoint, rotated.secret);
  });
}

export function listWebhookDeliveries(
  { orm }: Database,
  endpointId: string,
  status: DeliveryStatusName | undefined,
): Promise<Output> {
  return orAdministrationError(async () => {
    const { owner, id } = await findWebhook(orm.em, endpointId);
    const filter = { status, below: undefined, size: shownDeliveries };
    return ofDeliveries((await createWebhookDeliveries(orm.em).list(owner, id, filter)).deliveries);
  });
}

export function redeliver(
  { orm }: Database,
  {
    event,
    endpoint,
    status = 'failed',
  }: { event?: string; endpoint?: string; status?: RedeliveryFilter['status'] },
): Promise<Output> {
  return orAdministrationError(async () => {
    const deliveries = createWebhookDeliveries(orm.em);
    if (event !== undefined) {
      const eventId = eventUuidOf(event);
      const found = await orm.em.fork().findOne(EventEntity, { id: eventId });
      if (found === null)
        throw new AdministrationError(`there is no event ${event}: "event list" shows them`);
      const target = endpoint === undefined ? 'all' : endpointUuidOf(endpoint);
      return ofDeliveries(await deliveries.redeliver(ownerOf(found), eventId, target));
    }
    if (endpoint === undefined) throw new AdministrationError('name --event, or --endpoint, or both');
    const { owner, id } = await findWebhook(orm.em, endpoint);
    const filter = { status, createdFromMs: undefined, createdBeforeMs: undefined };
    const count = await deliveries.redeliverAll(owner, id, filter);
    return {
      json: { webhook_endpoint: endpoint, deliveries_count: count },
      rows: [{ webhook_endpoint: endpoint, 'deliveries due now': count }],
    };
  });
}

export function pingWebhook({ orm }: Database, endpointId: string): Promise<Output> {
  return orAdministrationError(async () => {
    const { owner, id } = await findWebhook(orm.em, endpointId);
    const event = await createWebhookDeliveries(orm.em).ping(owner, id);
    const look = `webhook deliveries --endpoint ${endpointId}`;
    return { json: { event: event.id }, rows: [{ event: event.id, 'see the result with': look }] };
  });
}

async function orAdministrationError<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (reason) {
    throw reason instanceof ServiceError
      ? new AdministrationError(reason.message, { cause: reason })
      : reason;
  }
}

async function ownerNamed(
  em: EntityManager,
  options: { merchant: string; mode: Owner['mode'] },
): Promise<Owner> {
  if (!(await merchantExists(em, options.merchant))) {
    throw new AdministrationError(`there is no merchant ${options.merchant}: "merchant list" shows them`);
  }
  return { merchantId: merchantUuidOf(options.merchant), mode: options.mode };
}

async function findWebhook(
  em: EntityManager,
  endpointId: string,
): Promise<{ owner: Owner; id: string; url: string }> {
  const id = endpointUuidOf(endpointId);
  const endpoint = await em.fork().findOne(WebhookEndpointEntity, { id, deletedAt: null });
  if (endpoint === null) {
    throw new AdministrationError(
      `there is no endpoint ${endpointId}: "webhook list" shows a merchant's endpoints`,
    );
  }
  return { owner: ownerOf(endpoint), id, url: endpoint.url };
}

/** The same policy as that of the service, if both have the same environment. */
function assertSettings(settings: Partial<EndpointSettings>): void {
  const policy = createAddressPolicy(loadConfig(process.env, []).webhookAllow);
  const violations = settingsViolations(settings, policy);
  if (violations.length === 0) return;
  const options: Record<string, string> = { url: '--url', description: '--description' };
  throw new AdministrationError(
    violations.map(({ field, message }) => `${options[field] ?? '--events'} ${message}`).join('; '),
  );
}

function fieldsOf(endpoint: WebhookEndpointRow) {
  return {
    webhook_endpoint: formatIdentifier('we', endpoint.id),
    merchant_id: formatIdentifier('mer', endpoint.merchantId),
    mode: endpoint.mode,
    url: endpoint.url,
    event_types: endpoint.eventTypes,
    enabled: endpoint.enabled,
    disabled_reason: endpoint.disabledReason ?? undefined,
    description: endpoint.description ?? undefined,
    created_at: endpoint.createdAt.toISOString(),
  };
}

function rowOf(endpoint: WebhookEndpointRow): Row {
  const { webhook_endpoint, url, event_types, enabled, disabled_reason, description } = fieldsOf(endpoint);
  return {
    webhook_endpoint,
    url,
    events: event_types.join(', '),
    state: enabled ? 'enabled' : `disabled${disabled_reason === undefined ? '' : `: ${disabled_reason}`}`,
    description,
  };
}

/** A delivery as the command line shows it in JSON. */
export function deliveryFields(delivery: WebhookDelivery) {
  const { id, event, eventType, paymentIntent, webhookEndpoint, status, attempts, nextAttemptAt } = delivery;
  return {
    webhook_delivery: id,
    event,
    event_type: eventType,
    payment_intent: paymentIntent === '' ? undefined : paymentIntent,
    webhook_endpoint: webhookEndpoint,
    status: nameOf(webhookDeliveryStatusWords, status),
    attempts: attempts.map(({ at, statusCode, durationMs, error, response }) => ({
      at: at && timestampDate(at).toISOString(),
      status_code: statusCode,
      duration_ms: durationMs,
      error,
      response,
    })),
    next_attempt_at: nextAttemptAt && timestampDate(nextAttemptAt).toISOString(),
  };
}

export function deliveryRow(delivery: WebhookDelivery): Row {
  const { event, status, attempts, next_attempt_at } = deliveryFields(delivery);
  const last = attempts.at(-1);
  return {
    event,
    status,
    attempts: attempts.length,
    last: last?.error ?? (last && `${last.status_code} in ${last.duration_ms} ms`),
    'next (UTC)': next_attempt_at && formatMinute(next_attempt_at),
  };
}

function withSecret(endpoint: WebhookEndpointRow, secret: string): Output {
  return { json: { ...fieldsOf(endpoint), secret }, rows: [rowOf(endpoint)], secret };
}

function ofDeliveries(deliveries: readonly WebhookDelivery[]): Output {
  return { json: deliveries.map(deliveryFields), rows: deliveries.map(deliveryRow) };
}
