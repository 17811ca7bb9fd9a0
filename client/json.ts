// The client over JSON alone. It needs only `fetch`, so that it runs on edge runtimes too.

import type { PaymentIntentsClient } from './client.ts';
import { json } from './json-protocol.ts';
import { createClient, refuseBrowsers } from './make-client.ts';
import { type JsonClientOptions, readOptions } from './options.ts';

export type { ApiResource, JsonObject, JsonValue } from './api-resource.ts';
export type { PaymentIntentsClient } from './client.ts';
export type {
  Chain,
  EventType,
  Label,
  Lane,
  Mode,
  PaymentIntentStatus,
  PaymentStatus,
  Token,
  TransferStatus,
  Unknown,
  WebhookDeliveryStatus,
} from './enums.ts';
export {
  PaymentIntentsError,
  type PaymentIntentsErrorCode,
  type PaymentIntentsErrorOptions,
} from './error.ts';
export type { Event, EventData, ListEvents } from './event.ts';
export type { List, Page } from './list.ts';
export type { CallOptions, CreateOptions, JsonClientOptions, Timeouts } from './options.ts';
export type {
  AnyPaymentIntent,
  CreatePaymentIntent,
  JsonCompatible,
  ListPaymentIntents,
  Payment,
  PaymentIntent,
  PaymentIntentState,
  RetrievedPaymentIntent,
} from './payment-intent.ts';
export type { AnyTransfer, AttributeTransfer, ListTransfers, Transfer } from './transfer.ts';
export type {
  CreateWebhookEndpoint,
  ListWebhookDeliveries,
  ListWebhookEndpoints,
  RedeliverEvent,
  RedeliverWebhookEndpoint,
  RotateWebhookSecret,
  UpdateWebhookEndpoint,
  WebhookAttempt,
  WebhookDelivery,
  WebhookEndpoint,
  WebhookEndpointWithSecret,
} from './webhook-endpoint.ts';

/**
 * Creates a client. Throws a TypeError for an option that is missing, misspelt or wrong, and an Error in a browser,
 * where anybody could read the API key.
 */
export function createPaymentIntentsClient(options: JsonClientOptions): PaymentIntentsClient {
  refuseBrowsers();
  const checked = readOptions(options, ['json']);
  return createClient(checked, json(checked));
}
