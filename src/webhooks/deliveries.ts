// What an operator and a merchant do with deliveries: look at them, ask for one more, try an endpoint.

import { create } from '@bufbuild/protobuf';
import type { EntityManager } from '@mikro-orm/postgresql';
import { type Event, EventDataSchema } from '../contract/gen/payments/v1/event_pb.ts';
import type { WebhookDelivery } from '../contract/gen/payments/v1/webhook_endpoint_pb.ts';
import { createJsonCodec } from '../contract/json/json-codec.ts';
import { EventEntity, type EventRow } from '../database/entities/event.ts';
import {
  type DeliveryStatusName,
  WebhookDeliveryEntity,
  WebhookEndpointEntity,
  type WebhookEndpointRow,
} from '../database/entities/webhook.ts';
import { newUuid } from '../database/identifiers.ts';
import { toEvent } from '../events/event.ts';
import { plainRefusal, ServiceError } from '../requests/errors.ts';
import { newDeliveryId } from './delivery-queue.ts';
import { getEndpoint, type Owner } from './endpoints.ts';
import { toWebhookDeliveries } from './webhook-delivery.ts';
import { toWebhookEndpoint } from './webhook-endpoint.ts';

const dataCodec = createJsonCodec(EventDataSchema);

/**
 * Records a ping for an endpoint and returns its event, which is sent like any other once it has its position. Throws
 * `invalid_state` if the endpoint is disabled.
 */
export async function pingEndpoint(
  em: EntityManager,
  owner: Owner,
  endpointId: string | undefined,
): Promise<Event> {
  const endpoint = await getEndpoint(em, owner, endpointId);
  assertEnabled(endpoint);
  const createdAt = new Date();
  const event = {
    ...owner,
    id: newUuid(createdAt.getTime()),
    type: 'webhook_endpoint.ping',
    createdAt,
    paymentIntent: null,
    webhookEndpoint: endpoint.id,
    sequence: 0,
    position: null,
    traceparent: null,
    data: dataCodec.encode(create(EventDataSchema, { webhookEndpoint: toWebhookEndpoint(endpoint) })),
  };
  await em.fork().insert(EventEntity, event);
  return toEvent(event);
}

/** Returns the deliveries to an endpoint, newest event first, below an event's id. */
export async function listDeliveries(
  em: EntityManager,
  owner: Owner,
  endpointId: string | undefined,
  {
    status,
    below,
    limit,
  }: { status: DeliveryStatusName | undefined; below: string | undefined; limit: number },
): Promise<{ deliveries: WebhookDelivery[]; eventIds: string[] }> {
  const endpoint = await getEndpoint(em, owner, endpointId);
  const rows = await em.fork().find(
    WebhookDeliveryEntity,
    {
      merchantId: owner.merchantId,
      endpointId: endpoint.id,
      ...(status !== undefined && { status }),
      ...(below !== undefined && { eventId: { $lt: below } }),
    },
    { orderBy: { eventId: 'desc' }, limit, disableIdentityMap: true },
  );
  return { deliveries: await toWebhookDeliveries(em, rows), eventIds: rows.map(({ eventId }) => eventId) };
}

/**
 * Delivers an event again to one endpoint, or to all that are enabled and want its type. A pending delivery stays as it
 * is. Throws `resource_missing` for an event or an endpoint that is not the owner's, and `invalid_state` if the endpoint
 * is disabled.
 */
export async function redeliverEvent(
  em: EntityManager,
  owner: Owner,
  eventId: string | undefined,
  endpointId: string | undefined | 'all',
): Promise<WebhookDelivery[]> {
  const fork = em.fork();
  const event =
    eventId === undefined
      ? null
      : await fork.findOne(EventEntity, { id: eventId, ...owner, position: { $ne: null } });
  if (event === null) throw plainRefusal('resource_missing');
  const endpoints =
    endpointId === 'all'
      ? await subscribersOf(fork, owner, event)
      : [await getEndpoint(em, owner, endpointId)];
  if (endpointId !== 'all') for (const endpoint of endpoints) assertEnabled(endpoint);
  const endpointIds = endpoints.map(({ id }) => id);
  if (endpointIds.length === 0) return [];
  await fork.execute(
    `insert into webhook_deliveries as d (merchant_id, event_id, endpoint_id, id, status, created_at, next_attempt_at)
     select e.merchant_id, e.id, w.id, ${newDeliveryId}, 'pending', now(), now()
       from events e, webhook_endpoints w
      where e.id = ? and w.id = any (?::uuid[]) and w.enabled
      order by w.id
         on conflict (merchant_id, event_id, endpoint_id) do update
        set status = 'pending', next_attempt_at = now(), scheduled = 0
      where d.status <> 'pending'`,
    [event.id, `{${endpointIds.join(',')}}`],
  );
  const rows = await em
    .fork()
    .find(
      WebhookDeliveryEntity,
      { merchantId: owner.merchantId, eventId: event.id, endpointId: endpointIds },
      { orderBy: { endpointId: 'asc' } },
    );
  return toWebhookDeliveries(em, rows);
}

function subscribersOf(
  em: EntityManager,
  { merchantId, mode }: Owner,
  { type, webhookEndpoint }: EventRow,
): Promise<WebhookEndpointRow[]> {
  const wanted =
    webhookEndpoint == null ? { eventTypes: { $overlap: ['*', type] } } : { id: webhookEndpoint };
  return em.find(WebhookEndpointEntity, { merchantId, mode, enabled: true, deletedAt: null, ...wanted });
}

function assertEnabled({ enabled }: WebhookEndpointRow): void {
  if (enabled) return;
  throw new ServiceError('invalid_state', {
    message: 'The webhook endpoint is disabled. Enable it first, with {"enabled": true}.',
  });
}
