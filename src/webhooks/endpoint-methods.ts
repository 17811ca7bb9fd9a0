// The methods that create, read and change webhook endpoints.

import { create } from '@bufbuild/protobuf';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { EntityManager } from '@mikro-orm/postgresql';
import type { KeyRing } from '../config/key-ring.ts';
import {
  type WebhookEndpoint,
  WebhookEndpointSchema,
} from '../contract/gen/payments/v1/webhook_endpoint_pb.ts';
import {
  DeleteWebhookEndpointResponseSchema,
  ListWebhookEndpointsResponseSchema,
  type WebhookEndpointService,
} from '../contract/gen/payments/v1/webhook_endpoint_service_pb.ts';
import { modeWords } from '../contract/gen/words.ts';
import type { WebhookEndpointRow } from '../database/entities/webhook.ts';
import { formatIdentifier, parseIdentifier } from '../database/identifiers.ts';
import { inChangeTurn } from '../database/turns.ts';
import { parseIdempotencyKey } from '../requests/idempotency-key.ts';
import type { MethodsOf } from '../requests/method.ts';
import { pageSizeOf, pageSizeViolations, uuidCursorOf, uuidPageTokenOf } from '../requests/page-token.ts';
import type { RequestContext } from '../requests/request-context.ts';
import { chargedByRows } from '../requests/row-cost.ts';
import type { AddressPolicy } from './address-policy.ts';
import {
  createEndpoint,
  createEndpointReader,
  deleteEndpoint,
  type EndpointWithSecret,
  maxOverlapHours,
  rotateSecret,
  settingsViolations,
  updateEndpoint,
} from './endpoints.ts';

const defaultOverlapHours = 24;
const endpointIdOf = ({ id }: { id: string }) => parseIdentifier('we', id);

export function createEndpointMethods(em: EntityManager, keys: KeyRing, policy: AddressPolicy) {
  const endpoints = createEndpointReader(em);
  return {
    createWebhookEndpoint: {
      ratePolicy: 'changes',
      violations: (request) => settingsViolations(request, policy),
      async run(request, identity, { context, header }) {
        const idempotencyKey = parseIdempotencyKey(header.get('idempotency-key'));
        const { url, eventTypes, enabled = true, description = '' } = request;
        const settings = {
          url,
          eventTypes: eventTypes.length === 0 ? ['*'] : eventTypes,
          enabled,
          description,
        };
        const create = () => createEndpoint(em, keys, identity, settings, idempotencyKey);
        return answerWithSecret(await inChangeTurn(em, identity.merchantId, create), context);
      },
    },
    getWebhookEndpoint: {
      ratePolicy: 'reads',
      run: async (request, identity) =>
        toWebhookEndpoint(await endpoints.get(identity, endpointIdOf(request))),
    },
    /** Newest first. */
    listWebhookEndpoints: {
      ratePolicy: 'reads',
      violations: ({ pageSize }) => pageSizeViolations(pageSize),
      async run(request, identity, { context }) {
        const filter = ['webhook_endpoints', identity.merchantId, identity.mode];
        const below = uuidCursorOf(request.pageToken, filter);
        const size = pageSizeOf(request.pageSize);
        const found = await chargedByRows(
          context,
          size,
          () => endpoints.list(identity, below, size + 1),
          (rows) => rows.length,
        );
        const page = found.slice(0, size);
        return create(ListWebhookEndpointsResponseSchema, {
          webhookEndpoints: page.map((row) => toWebhookEndpoint(row)),
          nextPageToken: uuidPageTokenOf(filter, found.length > size ? page.at(-1)?.id : undefined),
        });
      },
    },
    /** Changes the given fields. */
    updateWebhookEndpoint: {
      ratePolicy: 'changes',
      violations: (request) => settingsViolations(request, policy),
      run: async (request, identity) =>
        toWebhookEndpoint(
          await inChangeTurn(em, identity.merchantId, () =>
            updateEndpoint(em, identity, endpointIdOf(request), request),
          ),
        ),
    },
    deleteWebhookEndpoint: {
      ratePolicy: 'changes',
      async run(request, identity) {
        await inChangeTurn(em, identity.merchantId, () =>
          deleteEndpoint(em, identity, endpointIdOf(request)),
        );
        return create(DeleteWebhookEndpointResponseSchema);
      },
    },
    rotateWebhookSecret: {
      ratePolicy: 'changes',
      violations: ({ overlapHours = defaultOverlapHours }) =>
        overlapHours >= 0 && overlapHours <= maxOverlapHours
          ? []
          : [{ field: 'overlap_hours', message: `must be an integer from 0 to ${maxOverlapHours}` }],
      async run(request, identity, { context, header }) {
        const idempotencyKey = parseIdempotencyKey(header.get('idempotency-key'));
        const { overlapHours = defaultOverlapHours } = request;
        const rotate = () =>
          rotateSecret(em, keys, identity, endpointIdOf(request), overlapHours, idempotencyKey);
        return answerWithSecret(await inChangeTurn(em, identity.merchantId, rotate), context);
      },
    },
  } satisfies Partial<MethodsOf<typeof WebhookEndpointService>>;
}

function answerWithSecret(
  { endpoint, secret, replayed }: EndpointWithSecret,
  context: RequestContext,
): WebhookEndpoint {
  if (replayed) context.replayed = true;
  return toWebhookEndpoint(endpoint, secret);
}

/** Converts a row to the contract's endpoint. `secret` is only set where it is returned. */
export function toWebhookEndpoint(row: WebhookEndpointRow, secret = ''): WebhookEndpoint {
  return create(WebhookEndpointSchema, {
    id: formatIdentifier('we', row.id),
    url: row.url,
    eventTypes: row.eventTypes,
    enabled: row.enabled,
    ...(row.disabledReason != null && { disabledReason: row.disabledReason }),
    ...(row.description != null && { description: row.description }),
    mode: modeWords[row.mode],
    createdAt: timestampFromDate(row.createdAt),
    secret,
  });
}
