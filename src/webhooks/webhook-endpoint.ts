import { create } from '@bufbuild/protobuf';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import {
  type WebhookEndpoint,
  WebhookEndpointSchema,
} from '../contract/gen/payments/v1/webhook_endpoint_pb.ts';
import { modeWords } from '../contract/gen/words.ts';
import type { WebhookEndpointRow } from '../database/entities/webhook.ts';
import { formatIdentifier } from '../database/identifiers.ts';

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
