// The methods about deliveries.

import { create } from '@bufbuild/protobuf';
import type { Event } from '../contract/gen/payments/v1/event_pb.ts';
import {
  type WebhookDelivery,
  WebhookDeliveryStatus,
} from '../contract/gen/payments/v1/webhook_endpoint_pb.ts';
import {
  type ListWebhookDeliveriesRequest,
  type ListWebhookDeliveriesResponse,
  ListWebhookDeliveriesResponseSchema,
  type PingWebhookEndpointRequest,
  type RedeliverEventRequest,
  type RedeliverEventResponse,
  RedeliverEventResponseSchema,
  type RedeliverWebhookEndpointRequest,
  type RedeliverWebhookEndpointResponse,
  RedeliverWebhookEndpointResponseSchema,
} from '../contract/gen/payments/v1/webhook_endpoint_service_pb.ts';
import { webhookDeliveryStatusWords } from '../contract/gen/words.ts';
import { nameOf } from '../contract/words.ts';
import { parseIdentifier } from '../database/identifiers.ts';
import { wordViolations } from '../requests/filters.ts';
import type { Method } from '../requests/method.ts';
import { momentViolations, wholeMs } from '../requests/moments.ts';
import { pageSizeOf, pageSizeViolations, uuidCursorOf, uuidPageTokenOf } from '../requests/page-token.ts';
import { chargedByRows } from '../requests/row-cost.ts';
import { maxRedelivered, type WebhookDeliveries } from './deliveries.ts';
import { maxEndpoints, ownerOf } from './endpoints.ts';

/** `PingWebhookEndpoint`. Calls `onEvent` after the commit. */
export function pingWebhookEndpoint(
  deliveries: WebhookDeliveries,
  onEvent: () => void,
): Method<PingWebhookEndpointRequest, Event> {
  return {
    ratePolicy: 'changes',
    async run({ id }, identity) {
      const event = await deliveries.ping(ownerOf(identity), parseIdentifier('we', id));
      onEvent();
      return event;
    },
  };
}

/** `ListWebhookDeliveries`: newest event first. */
export function listWebhookDeliveries(
  deliveries: WebhookDeliveries,
): Method<ListWebhookDeliveriesRequest, ListWebhookDeliveriesResponse> {
  return {
    ratePolicy: 'reads',
    violations: ({ pageSize, status }) => [
      ...pageSizeViolations(pageSize),
      ...wordViolations({ status: [status, webhookDeliveryStatusWords] }),
    ],
    async run(request, identity, { context }) {
      const owner = ownerOf(identity);
      const filter = ['webhook_deliveries', owner.merchantId, owner.mode, request.id, request.status];
      const size = pageSizeOf(request.pageSize);
      const endpointId = parseIdentifier('we', request.id);
      const status = nameOf(webhookDeliveryStatusWords, request.status);
      const below = uuidCursorOf(request.pageToken, filter);
      const page = await chargedByRows(
        context,
        size,
        () => deliveries.list(owner, endpointId, { status, below, size }),
        (found) => rowsOf(found.deliveries),
      );
      return create(ListWebhookDeliveriesResponseSchema, {
        webhookDeliveries: page.deliveries,
        nextPageToken: uuidPageTokenOf(filter, page.next),
      });
    },
  };
}

/** `RedeliverEvent`. Calls `onDeliveries` when there are deliveries to attempt. */
export function redeliverEvent(
  deliveries: WebhookDeliveries,
  onDeliveries: () => void,
): Method<RedeliverEventRequest, RedeliverEventResponse> {
  return {
    ratePolicy: 'changes',
    async run(request, identity, { context }) {
      const { id, webhookEndpoint } = request;
      const endpointId = webhookEndpoint === '' ? 'all' : parseIdentifier('we', webhookEndpoint);
      const owner = ownerOf(identity);
      const webhookDeliveries = await chargedByRows(
        context,
        endpointId === 'all' ? maxEndpoints : 1,
        () => deliveries.redeliver(owner, parseIdentifier('evt', id), endpointId),
        rowsOf,
      );
      onDeliveries();
      return create(RedeliverEventResponseSchema, { webhookDeliveries });
    },
  };
}

/** `RedeliverWebhookEndpoint`. Calls `onDeliveries` when there are deliveries to attempt. */
export function redeliverWebhookEndpoint(
  deliveries: WebhookDeliveries,
  onDeliveries: () => void,
): Method<RedeliverWebhookEndpointRequest, RedeliverWebhookEndpointResponse> {
  const statusOf = ({ status }: RedeliverWebhookEndpointRequest) =>
    status === WebhookDeliveryStatus.UNSPECIFIED ? 'failed' : nameOf(webhookDeliveryStatusWords, status);
  return {
    ratePolicy: 'changes',
    violations(request) {
      const { createdFrom: created_from, createdBefore: created_before } = request;
      const isOne = ['failed', 'pending'].includes(statusOf(request) ?? '');
      return [
        ...(isOne ? [] : [{ field: 'status', message: 'must be "failed" or "pending"' }]),
        ...momentViolations({ created_from, created_before }),
      ];
    },
    async run(request, identity, { context }) {
      const owner = ownerOf(identity);
      const filter = {
        status: statusOf(request) === 'pending' ? 'pending' : 'failed',
        createdFromMs: wholeMs(request.createdFrom),
        createdBeforeMs: wholeMs(request.createdBefore),
      } as const;
      const deliveriesCount = await chargedByRows(
        context,
        maxRedelivered,
        () => deliveries.redeliverAll(owner, parseIdentifier('we', request.id), filter),
        (count) => count,
      );
      if (deliveriesCount > 0) onDeliveries();
      return create(RedeliverWebhookEndpointResponseSchema, { deliveriesCount });
    },
  };
}

/** The number of rows that deliveries count as in the rate limit: one, or the number of attempts if that is larger. */
function rowsOf(deliveries: readonly WebhookDelivery[]): number {
  const attempts = deliveries.reduce((sum, delivery) => sum + delivery.attempts.length, 0);
  return Math.max(deliveries.length, attempts);
}
