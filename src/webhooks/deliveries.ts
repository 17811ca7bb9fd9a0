// Lists and repeats deliveries and pings endpoints, for merchants and operators.

import { create } from '@bufbuild/protobuf';
import type { EntityManager } from '@mikro-orm/postgresql';
import { MAX as highestUuid } from 'uuid';
import { type Event, EventDataSchema } from '../contract/gen/payments/v1/event_pb.ts';
import type { WebhookDelivery } from '../contract/gen/payments/v1/webhook_endpoint_pb.ts';
import { createJsonCodec } from '../contract/json/json-codec.ts';
import type { DeliveryStatusName } from '../contract/words.ts';
import { EventEntity } from '../database/entities/event.ts';
import {
  WebhookDeliveryEntity,
  type WebhookDeliveryRow,
  type WebhookEndpointRow,
} from '../database/entities/webhook.ts';
import { type EntityColumns, entityColumns } from '../database/entity-columns.ts';
import { newUuid } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { pageOfScanned, scannedRows } from '../database/scanned-page.ts';
import { toEvent } from '../events/event.ts';
import { ServiceError } from '../requests/errors.ts';
import { isInFlight, newDeliveryId } from './delivery-queue.ts';
import { createEndpointReader, type Owner } from './endpoints.ts';
import { createDeliveryPresenter, type ShownDelivery } from './webhook-delivery.ts';
import { toWebhookEndpoint } from './webhook-endpoint.ts';

const dataCodec = createJsonCodec(EventDataSchema);

/** Selects the deliveries of an endpoint to list. */
export interface DeliveryFilter {
  status: DeliveryStatusName | undefined;
  /** UUID of an event: only deliveries of earlier events. */
  below: string | undefined;
  /** Page size. */
  size: number;
}

/** A page of deliveries. */
export interface DeliveryPage {
  deliveries: WebhookDelivery[];
  /** UUID of the event before which the next page begins; undefined on the last page. */
  next: string | undefined;
}

/** Most deliveries that one call makes due. */
export const maxRedelivered = 10_000;
/** Most of these in one statement, so that others do not wait for it. */
const maxRedeliveredAtOnce = 1_000;

/** Selects the deliveries of an endpoint to make due. */
export interface RedeliveryFilter {
  status: 'failed' | 'pending';
  /** Range of their creation times, in milliseconds since 1970. */
  createdFromMs: number | undefined;
  createdBeforeMs: number | undefined;
}

/** Each method throws `resource_missing` for an endpoint or event that is not the owner's. */
export interface WebhookDeliveries {
  /**
   * Records a ping event for an endpoint and returns it. It is delivered like any other event. Throws `invalid_state`
   * if the endpoint is disabled.
   */
  ping(owner: Owner, endpointId: string | undefined): Promise<Event>;
  /** Returns a page of the endpoint's deliveries, newest event first. */
  list(owner: Owner, endpointId: string | undefined, filter: DeliveryFilter): Promise<DeliveryPage>;
  /**
   * Delivers an event again to one endpoint, or to all enabled ones subscribed to its type. Pending deliveries become
   * due now; attempts in flight continue. Throws `invalid_state` if the endpoint is disabled.
   */
  redeliver(
    owner: Owner,
    eventId: string | undefined,
    endpointId: string | undefined | 'all',
  ): Promise<WebhookDelivery[]>;
  /**
   * Makes failed or pending deliveries of an endpoint due, oldest first, at most `maxRedelivered`. Returns their
   * number. Deliveries that are due or in flight are not changed. Throws `invalid_state` if the endpoint is disabled.
   */
  redeliverAll(owner: Owner, endpointId: string | undefined, filter: RedeliveryFilter): Promise<number>;
}

export function createWebhookDeliveries(em: EntityManager): WebhookDeliveries {
  const { run, read } = createPreparedStatements(em);
  const columns = entityColumns<WebhookDeliveryRow>(em, WebhookDeliveryEntity);
  const endpoints = createEndpointReader(em);
  const present = createDeliveryPresenter(em, read);

  const readShown = (found: Readonly<Record<string, unknown>>): ShownDelivery => ({
    row: columns.read(found),
    eventType: found.event_type as string,
    paymentIntent: found.payment_intent as string | null,
  });
  const { list, findTargets, redeliver, findAll, redeliverSome, findOfEvent } = statementsOf(columns);

  return {
    async ping(owner, endpointId) {
      const endpoint = await endpoints.get(owner, endpointId);
      assertEnabled(endpoint);
      const createdAt = new Date();
      const event = {
        ...owner,
        id: newUuid(createdAt.getTime()),
        type: 'webhook_endpoint.ping',
        createdAt,
        paymentIntent: null,
        refund: null,
        webhookEndpoint: endpoint.id,
        sequence: 0,
        position: null,
        traceparent: null,
        data: dataCodec.encode(create(EventDataSchema, { webhookEndpoint: toWebhookEndpoint(endpoint) })),
      };
      await em.fork().insert(EventEntity, event);
      return toEvent(event);
    },
    async list(owner, endpointId, { status, below, size }) {
      const { id } = await endpoints.get(owner, endpointId);
      const { merchantId } = owner;
      const values = [merchantId, id, below ?? null, status ?? null, size + 2];
      const { rows, next } = pageOfScanned((await read(merchantId, list, values)).rows, size);
      return { deliveries: await present(rows.map(readShown)), next: next?.event_id };
    },
    async redeliver(owner, eventId, endpointId) {
      if (eventId === undefined) throw new ServiceError('resource_missing');
      const endpoint = endpointId === 'all' ? undefined : await endpoints.get(owner, endpointId);
      const { merchantId, mode } = owner;
      const targets = await run(findTargets, [eventId, merchantId, mode, endpoint?.id ?? null]);
      if (targets.rows.length === 0) throw new ServiceError('resource_missing');
      if (endpoint !== undefined) assertEnabled(endpoint);
      const ids = targets.rows.flatMap(({ id }) => (id === null ? [] : [id]));
      if (ids.length === 0) return [];
      await run(redeliver, [eventId, ids]);
      const { rows } = await run(findOfEvent, [merchantId, eventId, ids]);
      return present(rows.map(readShown));
    },
    async redeliverAll(owner, endpointId, { status, createdFromMs, createdBeforeMs }) {
      const endpoint = await endpoints.get(owner, endpointId);
      assertEnabled(endpoint);
      const { merchantId } = owner;
      const range = [createdFromMs, createdBeforeMs].map((ms) =>
        ms === undefined ? null : new Date(ms).toISOString(),
      );
      const { rows } = await read(merchantId, findAll[status], [merchantId, endpoint.id, ...range]);
      const eventIds = rows.map(({ event_id }) => event_id);
      let count = 0;
      for (let i = 0; i < eventIds.length; i += maxRedeliveredAtOnce) {
        const some = eventIds.slice(i, i + maxRedeliveredAtOnce);
        count += (await run(redeliverSome, [merchantId, endpoint.id, some])).rowCount ?? 0;
      }
      return count;
    },
  };
}

function statementsOf(columns: EntityColumns<WebhookDeliveryRow>) {
  /** Selects deliveries with the type and intent of their events, each found by its key. */
  const shown = (deliveries: string, order: string, more = '') =>
    `select ${columns.of('d')}, e.type as event_type, e.payment_intent${more}
       from ${deliveries}
      cross join lateral (
        select e.type, coalesce(e.payment_intent, (select r.payment_intent from refunds r where r.id = e.refund)) as payment_intent
          from events e where e.id = d.event_id limit 1
      ) e
      order by ${order}`;
  const scan = {
    table: 'webhook_deliveries',
    alias: 'd',
    range: `d.merchant_id = $1 and d.endpoint_id = $2 and d.event_id < coalesce($3::uuid, '${highestUuid}')`,
    order: 'd.event_id desc',
    matching: '$4::webhook_delivery_status is null or d.status = $4',
  };
  const list = preparedStatement(
    'list_webhook_deliveries',
    shown(
      `(select * from ${scannedRows(scan)} order by d.event_id desc limit $5) d`,
      'd.event_id desc',
      ', d.matches, d.is_last_scanned',
    ),
  );
  const findTargets = preparedStatement(
    'find_webhook_endpoints_of_event',
    `select w.id from events e
       left join webhook_endpoints w on w.merchant_id = e.merchant_id and w.mode = e.mode and w.enabled
        and case when $4::uuid is not null then w.id = $4
                 when e.webhook_endpoint is null then w.event_types && array['*', e.type]
                 else w.id = e.webhook_endpoint end
      where e.id = $1 and e.merchant_id = $2 and e.mode = $3 and e.position is not null`,
  );
  const redeliver = preparedStatement(
    'redeliver_event',
    `insert into webhook_deliveries as d (merchant_id, event_id, endpoint_id, id, status, created_at, next_attempt_at)
     select e.merchant_id, e.id, w.id, ${newDeliveryId}, 'pending', now(), now()
       from events e, webhook_endpoints w
      where e.id = $1 and w.id = any ($2::uuid[]) and w.enabled
      order by w.id
         on conflict (merchant_id, event_id, endpoint_id) do update
        set status = 'pending', next_attempt_at = least(d.next_attempt_at, now()), scheduled = 0
      where ${isInFlight} is not true`,
  );
  const findWaiting = (condition: string) =>
    preparedStatement(
      'find_webhook_deliveries_to_redeliver',
      `select d.event_id from webhook_deliveries d
        where d.merchant_id = $1 and d.endpoint_id = $2 and ${condition}
          and d.created_at >= coalesce($3::timestamptz, '-infinity')
          and d.created_at < coalesce($4::timestamptz, 'infinity')
        order by d.created_at, d.event_id limit ${maxRedelivered}`,
    );
  const isWaiting = {
    failed: "d.status = 'failed'",
    pending: `d.status = 'pending' and d.next_attempt_at > now() and ${isInFlight} is not true`,
  };
  const findAll = { failed: findWaiting(isWaiting.failed), pending: findWaiting(isWaiting.pending) };
  // Skips rows that another transaction has locked. Each row is found by its whole key and updated in place; the status is
  // checked afterwards. Without statistics, any join here could read all deliveries of the endpoint for each row.
  const redeliverSome = preparedStatement(
    'redeliver_webhook_deliveries',
    `with chosen as materialized (
       select d.place
         from unnest($3::uuid[]) as wanted (event_id)
        cross join lateral (
          select d.ctid as place, d.* from webhook_deliveries d
           where d.merchant_id = $1 and d.endpoint_id = $2 and d.event_id = wanted.event_id
           limit 1 for update skip locked
        ) d
        where ${isWaiting.failed} or ${isWaiting.pending}
     )
     update webhook_deliveries d set status = 'pending', next_attempt_at = now(), scheduled = 0
      where d.ctid = any (array (select place from chosen))`,
  );
  const findOfEvent = preparedStatement(
    'find_webhook_deliveries_of_event',
    shown(
      `unnest($3::uuid[]) as wanted (endpoint_id)
      cross join lateral (
        select * from webhook_deliveries d
         where d.merchant_id = $1 and d.event_id = $2 and d.endpoint_id = wanted.endpoint_id limit 1
      ) d`,
      'd.endpoint_id',
    ),
  );
  return { list, findTargets, redeliver, findAll, redeliverSome, findOfEvent };
}

function assertEnabled({ enabled }: WebhookEndpointRow): void {
  if (enabled) return;
  throw new ServiceError('invalid_state', {
    message: 'The webhook endpoint is disabled. Enable it first, with {"enabled": true}.',
  });
}
