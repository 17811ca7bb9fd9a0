// The methods that create, read and change webhook endpoints.

import { create } from '@bufbuild/protobuf';
import type { EntityManager } from '@mikro-orm/postgresql';
import type { KeyRing } from '../config/key-ring.ts';
import type { WebhookEndpoint } from '../contract/gen/payments/v1/webhook_endpoint_pb.ts';
import {
  type CreateWebhookEndpointRequest,
  type DeleteWebhookEndpointRequest,
  type DeleteWebhookEndpointResponse,
  DeleteWebhookEndpointResponseSchema,
  type GetWebhookEndpointRequest,
  type ListWebhookEndpointsRequest,
  type ListWebhookEndpointsResponse,
  ListWebhookEndpointsResponseSchema,
  type RotateWebhookSecretRequest,
  type UpdateWebhookEndpointRequest,
} from '../contract/gen/payments/v1/webhook_endpoint_service_pb.ts';
import { parseIdentifier } from '../database/identifiers.ts';
import { parseIdempotencyKey } from '../requests/idempotency-key.ts';
import type { Method } from '../requests/method.ts';
import { pageSizeOf, pageSizeViolations, uuidCursorOf, uuidPageTokenOf } from '../requests/page-token.ts';
import type { RequestContext } from '../requests/request-context.ts';
import { chargedByRows } from '../requests/row-cost.ts';
import type { AddressPolicy } from './address-policy.ts';
import {
  createEndpoint,
  deleteEndpoint,
  type EndpointReader,
  type EndpointSettings,
  type EndpointWithSecret,
  maxOverlapHours,
  ownerOf,
  rotateSecret,
  settingsViolations,
  updateEndpoint,
} from './endpoints.ts';
import { toWebhookEndpoint } from './webhook-endpoint.ts';

const endpointIdOf = ({ id }: { id: string }) => parseIdentifier('we', id);

/** `CreateWebhookEndpoint`. */
export function createWebhookEndpoint(
  em: EntityManager,
  keys: KeyRing,
  policy: AddressPolicy,
): Method<CreateWebhookEndpointRequest, WebhookEndpoint> {
  const settingsOf = (request: CreateWebhookEndpointRequest): EndpointSettings => ({
    url: request.url,
    eventTypes: request.eventTypes.length === 0 ? ['*'] : request.eventTypes,
    enabled: request.enabled ?? true,
    description: request.description ?? '',
  });
  return {
    ratePolicy: 'changes',
    violations: (request) => settingsViolations(settingsOf(request), policy),
    async run(request, identity, { context, header }) {
      const idempotencyKey = parseIdempotencyKey(header.get('idempotency-key'));
      const owner = ownerOf(identity);
      return answerWithSecret(
        await createEndpoint(em, keys, owner, settingsOf(request), idempotencyKey),
        context,
      );
    },
  };
}

/** `GetWebhookEndpoint`. */
export function getWebhookEndpoint(
  endpoints: EndpointReader,
): Method<GetWebhookEndpointRequest, WebhookEndpoint> {
  return {
    ratePolicy: 'reads',
    run: async (request, identity) =>
      toWebhookEndpoint(await endpoints.get(ownerOf(identity), endpointIdOf(request))),
  };
}

/** `ListWebhookEndpoints`: newest first. */
export function listWebhookEndpoints(
  endpoints: EndpointReader,
): Method<ListWebhookEndpointsRequest, ListWebhookEndpointsResponse> {
  return {
    ratePolicy: 'reads',
    violations: ({ pageSize }) => pageSizeViolations(pageSize),
    async run(request, identity, { context }) {
      const owner = ownerOf(identity);
      const filter = ['webhook_endpoints', owner.merchantId, owner.mode];
      const below = uuidCursorOf(request.pageToken, filter);
      const size = pageSizeOf(request.pageSize);
      const found = await chargedByRows(
        context,
        size,
        () => endpoints.list(owner, below, size + 1),
        (rows) => rows.length,
      );
      const page = found.slice(0, size);
      return create(ListWebhookEndpointsResponseSchema, {
        webhookEndpoints: page.map((row) => toWebhookEndpoint(row)),
        nextPageToken: uuidPageTokenOf(filter, found.length > size ? page.at(-1)?.id : undefined),
      });
    },
  };
}

/** `UpdateWebhookEndpoint`: changes the given fields. */
export function updateWebhookEndpoint(
  em: EntityManager,
  policy: AddressPolicy,
): Method<UpdateWebhookEndpointRequest, WebhookEndpoint> {
  const settingsOf = (request: UpdateWebhookEndpointRequest): Partial<EndpointSettings> => ({
    ...(request.url !== undefined && { url: request.url }),
    ...(request.eventTypes.length > 0 && { eventTypes: request.eventTypes }),
    ...(request.enabled !== undefined && { enabled: request.enabled }),
    ...(request.description !== undefined && { description: request.description }),
  });
  return {
    ratePolicy: 'changes',
    violations: (request) => settingsViolations(settingsOf(request), policy),
    async run(request, identity) {
      const owner = ownerOf(identity);
      return toWebhookEndpoint(await updateEndpoint(em, owner, endpointIdOf(request), settingsOf(request)));
    },
  };
}

/** `DeleteWebhookEndpoint`. */
export function deleteWebhookEndpoint(
  em: EntityManager,
): Method<DeleteWebhookEndpointRequest, DeleteWebhookEndpointResponse> {
  return {
    ratePolicy: 'changes',
    async run(request, identity) {
      await deleteEndpoint(em, ownerOf(identity), endpointIdOf(request));
      return create(DeleteWebhookEndpointResponseSchema);
    },
  };
}

const defaultOverlapHours = 24;

/** `RotateWebhookSecret`. */
export function rotateWebhookSecret(
  em: EntityManager,
  keys: KeyRing,
): Method<RotateWebhookSecretRequest, WebhookEndpoint> {
  return {
    ratePolicy: 'changes',
    violations: ({ overlapHours = defaultOverlapHours }) =>
      overlapHours >= 0 && overlapHours <= maxOverlapHours
        ? []
        : [{ field: 'overlap_hours', message: `must be an integer from 0 to ${maxOverlapHours}` }],
    async run(request, identity, { context, header }) {
      const idempotencyKey = parseIdempotencyKey(header.get('idempotency-key'));
      const owner = ownerOf(identity);
      const { overlapHours = defaultOverlapHours } = request;
      return answerWithSecret(
        await rotateSecret(em, keys, owner, endpointIdOf(request), overlapHours, idempotencyKey),
        context,
      );
    },
  };
}

function answerWithSecret(
  { endpoint, secret, replayed }: EndpointWithSecret,
  context: RequestContext,
): WebhookEndpoint {
  if (replayed) context.replayed = true;
  return toWebhookEndpoint(endpoint, secret);
}
