import { create } from '@bufbuild/protobuf';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { EntityManager } from '@mikro-orm/postgresql';
import {
  type WebhookDelivery,
  WebhookDeliverySchema,
} from '../contract/gen/payments/v1/webhook_endpoint_pb.ts';
import { webhookDeliveryStatusWords } from '../contract/gen/words.ts';
import {
  WebhookAttemptEntity,
  type WebhookAttemptRow,
  type WebhookDeliveryRow,
} from '../database/entities/webhook.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { formatIdentifier } from '../database/identifiers.ts';
import { type PreparedStatements, preparedStatement } from '../database/prepared.ts';
import { maxKeptAttempts } from './delivery-queue.ts';

/** A delivery with the type and the intent of its event. */
export interface ShownDelivery {
  row: WebhookDeliveryRow;
  eventType: string;
  /** UUID. */
  paymentIntent: string | null;
}

/** Returns a function that reads the attempts of deliveries and converts both to the contract's deliveries. */
export function createDeliveryPresenter(em: EntityManager, read: PreparedStatements['read']) {
  const columns = entityColumns<WebhookAttemptRow>(em, WebhookAttemptEntity);
  // Each delivery is found by its key: a join planned while the table was small would read all of a large one.
  const findAttempts = preparedStatement(
    'find_webhook_attempts',
    `select ${columns.of('a')}
       from unnest($1::uuid[], $2::uuid[]) as wanted (event_id, endpoint_id)
      cross join lateral (
        select * from webhook_attempts a
         where a.event_id = wanted.event_id and a.endpoint_id = wanted.endpoint_id
         order by a.number desc limit ${maxKeptAttempts}
      ) a
      order by a.number`,
  );
  return async (shown: readonly ShownDelivery[]): Promise<WebhookDelivery[]> => {
    const [first] = shown;
    if (first === undefined) return [];
    const found = await read(first.row.merchantId, findAttempts, [
      shown.map(({ row }) => row.eventId),
      shown.map(({ row }) => row.endpointId),
    ]);
    const byDelivery = Map.groupBy(found.rows.map(columns.read), keyOf);
    return shown.map((delivery) => toWebhookDelivery(delivery, byDelivery.get(keyOf(delivery.row)) ?? []));
  };
}

const keyOf = ({ eventId, endpointId }: Pick<WebhookDeliveryRow, 'eventId' | 'endpointId'>) =>
  `${eventId} ${endpointId}`;

function toWebhookDelivery(
  { row, eventType, paymentIntent }: ShownDelivery,
  attempts: readonly WebhookAttemptRow[],
): WebhookDelivery {
  return create(WebhookDeliverySchema, {
    id: formatIdentifier('del', row.id),
    event: formatIdentifier('evt', row.eventId),
    webhookEndpoint: formatIdentifier('we', row.endpointId),
    status: webhookDeliveryStatusWords[row.status],
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
