// The methods that list and repeat deliveries.

import { create } from '@bufbuild/protobuf';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { EntityManager } from '@mikro-orm/postgresql';
import type { QueryResultRow } from 'pg';
import { MAX as highestUuid } from 'uuid';
import {
  type WebhookDelivery,
  WebhookDeliverySchema,
  WebhookDeliveryStatus,
} from '../contract/gen/payments/v1/webhook_endpoint_pb.ts';
import {
  ListWebhookDeliveriesResponseSchema,
  RedeliverEventResponseSchema,
  RedeliverWebhookEndpointResponseSchema,
  type WebhookEndpointService,
} from '../contract/gen/payments/v1/webhook_endpoint_service_pb.ts';
import { webhookDeliveryStatusWords } from '../contract/gen/words.ts';
import { nameOf, numberOf } from '../contract/words.ts';
import type { WebhookAttemptRow, WebhookDeliveryRow } from '../database/entities/webhook.ts';
import { WebhookAttemptEntity, WebhookDeliveryEntity } from '../database/entities/webhook.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { formatIdentifier, parseIdentifier } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { pageOfScanned, scannedRows, scanning } from '../database/scanned-page.ts';
import { ServiceError } from '../requests/errors.ts';
import { wordViolations } from '../requests/filters.ts';
import type { MethodsOf } from '../requests/method.ts';
import { isoOf, momentViolations, wholeMs } from '../requests/moments.ts';
import { pageSizeOf, pageSizeViolations, uuidCursorOf, uuidPageTokenOf } from '../requests/page-token.ts';
import { chargedByRows } from '../requests/row-cost.ts';
import { isInFlight, maxKeptAttempts, newDeliveryId } from './delivery-queue.ts';
import { assertEnabled, createEndpointReader, maxEndpoints } from './endpoints.ts';

/** Maximum deliveries that one call makes due. */
const maxRedelivered = 10_000;
/** Maximum of these in one statement, so that others do not wait for it. */
const maxRedeliveredAtOnce = 1_000;

export function createDeliveryMethods(em: EntityManager, onDeliveries: () => void) {
  const { run, read } = createPreparedStatements(em);
  const { columns, present } = createDeliveryPresenter(em);
  const { list, findTargets, redeliver, findAll, redeliverSome, findOfEvent } = statementsOf(columns);
  const endpoints = createEndpointReader(em);
  return {
    /** Newest event first. */
    listWebhookDeliveries: {
      ratePolicy: 'reads',
      violations: ({ pageSize, status }) => [
        ...pageSizeViolations(pageSize),
        ...wordViolations({ status: [status, webhookDeliveryStatusWords] }),
      ],
      async run(request, identity, { context }) {
        const { merchantId, mode } = identity;
        const filter = ['webhook_deliveries', merchantId, mode, request.id, request.status];
        const size = pageSizeOf(request.pageSize);
        const status = nameOf(webhookDeliveryStatusWords, request.status) ?? null;
        const below = uuidCursorOf(request.pageToken, filter) ?? highestUuid;
        const work = async () => {
          const { id } = await endpoints.get(identity, request.id);
          const found = await read(merchantId, list, [merchantId, id, below, status, size + 2]);
          const { rows, next } = pageOfScanned(found.rows, size);
          return { deliveries: await present(rows), next: next?.event_id };
        };
        const page = await chargedByRows(context, size, work, ({ deliveries }) => rowsOf(deliveries));
        return create(ListWebhookDeliveriesResponseSchema, {
          webhookDeliveries: page.deliveries,
          nextPageToken: uuidPageTokenOf(filter, page.next),
        });
      },
    },
    /** To one endpoint, or to all enabled ones subscribed to its type. Attempts in flight continue. */
    redeliverEvent: {
      ratePolicy: 'changes',
      async run(request, identity, { context }) {
        const { merchantId, mode } = identity;
        const isToAll = request.webhookEndpoint === '';
        const work = async () => {
          const eventId = parseIdentifier('evt', request.id);
          if (eventId === undefined) throw new ServiceError('resource_missing');
          const endpoint = isToAll ? undefined : await endpoints.get(identity, request.webhookEndpoint);
          const targets = await run(findTargets, [eventId, merchantId, mode, endpoint?.id ?? null]);
          if (targets.rows.length === 0) throw new ServiceError('resource_missing');
          if (endpoint !== undefined) assertEnabled(endpoint);
          const ids = targets.rows.flatMap(({ id }) => (id === null ? [] : [id]));
          if (ids.length === 0) {
            if (isToAll) return [];
            throw new ServiceError('resource_missing', { message: 'This ping is for another endpoint.' });
          }
          await run(redeliver, [eventId, ids]);
          const { rows } = await run(findOfEvent, [merchantId, eventId, ids]);
          // Retention has removed the event meanwhile.
          if (rows.length === 0) throw new ServiceError('resource_missing');
          return present(rows);
        };
        const webhookDeliveries = await chargedByRows(context, isToAll ? maxEndpoints : 1, work, rowsOf);
        onDeliveries();
        return create(RedeliverEventResponseSchema, { webhookDeliveries });
      },
    },
    /** Oldest first, at most `maxRedelivered`. Deliveries that are due or in flight are not changed. */
    redeliverWebhookEndpoint: {
      ratePolicy: 'changes',
      violations: ({ status, createdFrom: created_from, createdBefore: created_before }) => [
        ...(['failed', 'pending'].includes(redeliveredStatus(status) ?? '')
          ? []
          : [{ field: 'status', message: 'must be "pending" or "failed"' }]),
        ...momentViolations({ created_from, created_before }),
      ],
      async run({ id, status, createdFrom, createdBefore }, identity, { context }) {
        const { merchantId } = identity;
        const work = async () => {
          const endpoint = await endpoints.get(identity, id);
          assertEnabled(endpoint);
          const find = redeliveredStatus(status) === 'pending' ? findAll.pending : findAll.failed;
          const range = [isoOf(wholeMs(createdFrom)), isoOf(wholeMs(createdBefore))];
          const { rows } = await read(merchantId, find, [merchantId, endpoint.id, ...range]);
          const eventIds = rows.map(({ event_id }) => event_id);
          let count = 0;
          for (let i = 0; i < eventIds.length; i += maxRedeliveredAtOnce) {
            const some = eventIds.slice(i, i + maxRedeliveredAtOnce);
            count += (await run(redeliverSome, [merchantId, endpoint.id, some])).rowCount ?? 0;
          }
          return count;
        };
        const deliveriesCount = await chargedByRows(context, maxRedelivered, work, (count) => count);
        if (deliveriesCount > 0) onDeliveries();
        return create(RedeliverWebhookEndpointResponseSchema, { deliveriesCount });
      },
    },
  } satisfies Partial<MethodsOf<typeof WebhookEndpointService>>;
}

/** The status of the deliveries to be made due, undefined for an unknown number. */
const redeliveredStatus = (status: WebhookDeliveryStatus) =>
  status === WebhookDeliveryStatus.UNSPECIFIED ? 'failed' : nameOf(webhookDeliveryStatusWords, status);

/** The rows that deliveries count as in the rate limit: their number, or that of their attempts if larger. */
function rowsOf(deliveries: readonly WebhookDelivery[]): number {
  const attempts = deliveries.reduce((sum, delivery) => sum + delivery.attempts.length, 0);
  return Math.max(deliveries.length, attempts);
}

function statementsOf(columns: string) {
  /** Selects deliveries with the type and intent of their events, each found by its key. */
  const shown = (deliveries: string, order: string, more = '') =>
    `select ${columns}, e.type as event_type, e.payment_intent${more}
       from ${deliveries}
      cross join lateral (
        select e.type, coalesce(e.payment_intent, (select r.payment_intent from refunds r where r.id = e.refund)) as payment_intent
          from events e where e.id = d.event_id limit 1
      ) e
      order by ${order}`;
  const within = 'd.merchant_id = $1 and d.endpoint_id = $2';
  const scan = {
    table: 'webhook_deliveries',
    alias: 'd',
    key: 'event_id',
    within,
    range: `${within} and d.event_id < $3`,
    matching: '$4::webhook_delivery_status is null or d.status = $4',
  };
  const list = scanning(
    shown(
      `(select * from ${scannedRows(scan)} order by d.key desc limit $5) d`,
      'd.event_id desc',
      ', d.matches, d.is_last_scanned',
    ),
  );
  const findTargets = preparedStatement(
    'find_webhook_endpoints_of_event',
    `select w.id from events e
       left join webhook_endpoints w on w.merchant_id = e.merchant_id and w.mode = e.mode and w.enabled
        and ($4::uuid is null or w.id = $4)
        and case when e.webhook_endpoint is not null then w.id = e.webhook_endpoint
                 else $4 is not null or w.event_types && array['*', e.type] end
      where e.id = $1 and e.merchant_id = $2 and e.mode = $3 and e.position is not null`,
  );
  const redeliver = preparedStatement(
    'redeliver_event',
    `insert into webhook_deliveries as d (merchant_id, event_id, endpoint_id, id, status, created_at, next_attempt_at)
     select e.merchant_id, e.id, w.id, ${newDeliveryId}, 'pending', now(), now()
       from events e, webhook_endpoints w
      where e.id = $1 and w.id = any ($2::uuid[]) and w.enabled
      order by w.id for key share of e
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
  // Skips rows locked by others. Finds each row by its whole key, checks its status afterwards and updates it
  // in place. Without statistics, a join could read all deliveries of the endpoint for each row.
  const redeliverSome = preparedStatement(
    'redeliver_webhook_deliveries',
    `with chosen as materialized (
       select d.place
         from unnest($3::uuid[]) as wanted (event_id)
        cross join lateral (
          select from events e where e.id = wanted.event_id limit 1 for key share skip locked
        ) e
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

/**
 * Converts deliveries to contract messages. Their rows have the columns of `webhook_deliveries d`, and their
 * event's `event_type` and `payment_intent` (a UUID).
 */
export function createDeliveryPresenter(em: EntityManager) {
  const { read } = createPreparedStatements(em);
  const columns = entityColumns<WebhookDeliveryRow>(em, WebhookDeliveryEntity);
  const attemptColumns = entityColumns<WebhookAttemptRow>(em, WebhookAttemptEntity);
  // Finds each delivery by its key: a join planned while the table was small would read all of a large one.
  const findAttempts = preparedStatement(
    'find_webhook_attempts',
    `select ${attemptColumns.of('a')}
       from unnest($1::uuid[], $2::uuid[]) as wanted (event_id, endpoint_id)
      cross join lateral (
        select * from webhook_attempts a
         where a.event_id = wanted.event_id and a.endpoint_id = wanted.endpoint_id
         order by a.number desc limit ${maxKeptAttempts}
      ) a
      order by a.number`,
  );
  return {
    /** The columns of a delivery, to be selected with the two of its event. */
    columns: columns.of('d'),
    /** Reads the attempts of deliveries, and returns both as messages. */
    async present(found: readonly QueryResultRow[]): Promise<WebhookDelivery[]> {
      const [first] = found;
      if (first === undefined) return [];
      const ids = [found.map(({ event_id }) => event_id), found.map(({ endpoint_id }) => endpoint_id)];
      const attempts = (await read(first.merchant_id, findAttempts, ids)).rows.map(attemptColumns.read);
      const byDelivery = Map.groupBy(attempts, keyOf);
      return found.map((each) => {
        const row = columns.read(each);
        return toWebhookDelivery(row, byDelivery.get(keyOf(row)) ?? [], each);
      });
    },
  };
}

const keyOf = ({ eventId, endpointId }: Pick<WebhookDeliveryRow, 'eventId' | 'endpointId'>) =>
  `${eventId} ${endpointId}`;

function toWebhookDelivery(
  row: WebhookDeliveryRow,
  attempts: readonly WebhookAttemptRow[],
  { event_type: eventType, payment_intent: paymentIntent }: QueryResultRow,
): WebhookDelivery {
  return create(WebhookDeliverySchema, {
    id: formatIdentifier('del', row.id),
    event: formatIdentifier('evt', row.eventId),
    webhookEndpoint: formatIdentifier('we', row.endpointId),
    status: numberOf(webhookDeliveryStatusWords, row.status),
    attempts: attempts.map(({ at, statusCode, durationMs, error, response }) => ({
      at: timestampFromDate(at),
      ...(statusCode != null && { statusCode }),
      durationMs,
      ...(error != null && { error }),
      // Bytes that are not UTF-8 become replacement characters.
      ...(response != null && { response: Buffer.from(response).toString('utf8') }),
    })),
    ...(row.nextAttemptAt != null && { nextAttemptAt: timestampFromDate(row.nextAttemptAt) }),
    createdAt: timestampFromDate(row.createdAt),
    eventType,
    ...(paymentIntent !== null && { paymentIntent: formatIdentifier('pi', paymentIntent) }),
  });
}
