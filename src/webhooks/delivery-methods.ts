// The methods about deliveries: each a few lines around deliveries.ts.

import { create } from '@bufbuild/protobuf';
import type { EntityManager } from '@mikro-orm/postgresql';
import type { Event } from '../contract/gen/payments/v1/event_pb.ts';
import { WebhookDeliveryStatus } from '../contract/gen/payments/v1/webhook_endpoint_pb.ts';
import {
  type ListWebhookDeliveriesRequest,
  type ListWebhookDeliveriesResponse,
  ListWebhookDeliveriesResponseSchema,
  type PingWebhookEndpointRequest,
  type RedeliverEventRequest,
  type RedeliverEventResponse,
  RedeliverEventResponseSchema,
} from '../contract/gen/payments/v1/webhook_endpoint_service_pb.ts';
import { parseIdentifier } from '../database/identifiers.ts';
import { orUnavailable } from '../database/unavailable.ts';
import { refuseInvalid } from '../requests/errors.ts';
import { unknownFieldViolations } from '../requests/fields.ts';
import type { Method } from '../requests/method.ts';
import { pageSizeOf, pageSizeViolations, uuidCursorOf, uuidPageTokenOf } from '../requests/page-token.ts';
import { identityOf } from '../requests/request-context.ts';
import { listDeliveries, pingEndpoint, redeliverEvent as redeliver } from './deliveries.ts';
import { ownerOf } from './endpoints.ts';
import { deliveryStatusName } from './webhook-delivery.ts';

/** `PingWebhookEndpoint`. Calls `onEvent` when the event is durable. */
export function pingWebhookEndpoint(
  em: EntityManager,
  onEvent: () => void,
): Method<PingWebhookEndpointRequest, Event> {
  return {
    ratePolicy: 'changes',
    async run({ id }, { values }) {
      const event = await orUnavailable(() =>
        pingEndpoint(em, ownerOf(identityOf(values)), parseIdentifier('we', id)),
      );
      onEvent();
      return event;
    },
  };
}

/** `ListWebhookDeliveries`: newest event first. */
export function listWebhookDeliveries(
  em: EntityManager,
): Method<ListWebhookDeliveriesRequest, ListWebhookDeliveriesResponse> {
  const violations = (request: ListWebhookDeliveriesRequest) => [
    ...unknownFieldViolations(request),
    ...pageSizeViolations(request.pageSize),
    ...(request.status === WebhookDeliveryStatus.UNSPECIFIED ||
    deliveryStatusName(request.status) !== undefined
      ? []
      : [{ field: 'status', message: 'must be "pending" or "delivered" or "failed"' }]),
  ];
  return {
    ratePolicy: 'reads',
    violations,
    async run(request, { values }) {
      refuseInvalid(violations(request));
      const owner = ownerOf(identityOf(values));
      const filter = ['webhook_deliveries', owner.merchantId, owner.mode, request.id, request.status];
      const size = pageSizeOf(request.pageSize);
      const { deliveries, eventIds } = await orUnavailable(() =>
        listDeliveries(em, owner, parseIdentifier('we', request.id), {
          status: deliveryStatusName(request.status),
          below: uuidCursorOf(request.pageToken, filter),
          limit: size + 1,
        }),
      );
      return create(ListWebhookDeliveriesResponseSchema, {
        webhookDeliveries: deliveries.slice(0, size),
        nextPageToken: uuidPageTokenOf(filter, deliveries.length > size ? eventIds[size - 1] : undefined),
      });
    },
  };
}

/** `RedeliverEvent`. Calls `onDeliveries` when there are deliveries to attempt. */
export function redeliverEvent(
  em: EntityManager,
  onDeliveries: () => void,
): Method<RedeliverEventRequest, RedeliverEventResponse> {
  return {
    ratePolicy: 'changes',
    async run(request, { values }) {
      const { id, webhookEndpoint } = request;
      const endpointId = webhookEndpoint === '' ? 'all' : parseIdentifier('we', webhookEndpoint);
      const webhookDeliveries = await orUnavailable(() =>
        redeliver(em, ownerOf(identityOf(values)), parseIdentifier('evt', id), endpointId),
      );
      onDeliveries();
      return create(RedeliverEventResponseSchema, { webhookDeliveries });
    },
  };
}
