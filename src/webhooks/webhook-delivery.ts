import { create } from '@bufbuild/protobuf';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { EntityManager } from '@mikro-orm/postgresql';
import {
  type WebhookDelivery,
  WebhookDeliverySchema,
  WebhookDeliveryStatus,
} from '../contract/gen/payments/v1/webhook_endpoint_pb.ts';
import {
  type DeliveryStatusName,
  WebhookAttemptEntity,
  type WebhookAttemptRow,
  type WebhookDeliveryRow,
} from '../database/entities/webhook.ts';
import { formatIdentifier } from '../database/identifiers.ts';

const statusOf = {
  pending: WebhookDeliveryStatus.PENDING,
  delivered: WebhookDeliveryStatus.DELIVERED,
  failed: WebhookDeliveryStatus.FAILED,
} as const satisfies Record<DeliveryStatusName, WebhookDeliveryStatus>;

const statusNames = new Map<WebhookDeliveryStatus, DeliveryStatusName>(
  Object.entries(statusOf).map(([name, status]) => [status, name as DeliveryStatusName]),
);

/** The status as the database writes it, or undefined if the contract has none with that number. */
export function deliveryStatusName(status: WebhookDeliveryStatus): DeliveryStatusName | undefined {
  return statusNames.get(status);
}

/** Converts rows to the contract's deliveries, with their attempts. */
export async function toWebhookDeliveries(
  em: EntityManager,
  rows: readonly WebhookDeliveryRow[],
): Promise<WebhookDelivery[]> {
  const attempts =
    rows.length === 0
      ? []
      : await em
          .fork()
          .find(
            WebhookAttemptEntity,
            { $or: rows.map(({ eventId, endpointId }) => ({ eventId, endpointId })) },
            { orderBy: { number: 'asc' }, disableIdentityMap: true },
          );
  const byDelivery = Map.groupBy(attempts, keyOf);
  return rows.map((row) => toWebhookDelivery(row, byDelivery.get(keyOf(row)) ?? []));
}

const keyOf = ({ eventId, endpointId }: Pick<WebhookDeliveryRow, 'eventId' | 'endpointId'>) =>
  `${eventId} ${endpointId}`;

function toWebhookDelivery(row: WebhookDeliveryRow, attempts: readonly WebhookAttemptRow[]): WebhookDelivery {
  return create(WebhookDeliverySchema, {
    id: formatIdentifier('del', row.id),
    event: formatIdentifier('evt', row.eventId),
    webhookEndpoint: formatIdentifier('we', row.endpointId),
    status: statusOf[row.status],
    attempts: attempts.map(({ at, statusCode, durationMs, error, response }) => ({
      at: timestampFromDate(at),
      ...(statusCode != null && { statusCode }),
      durationMs,
      ...(error != null && { error }),
      // What is not UTF-8 is shown as replacement characters.
      ...(response != null && { response: Buffer.from(response).toString('utf8') }),
    })),
    ...(row.nextAttemptAt != null && { nextAttemptAt: timestampFromDate(row.nextAttemptAt) }),
    createdAt: timestampFromDate(row.createdAt),
  });
}
