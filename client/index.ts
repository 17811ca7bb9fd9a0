// The client with which our services and merchants' backends use payment intents, over JSON or gRPC.

import type { GrpcPaymentIntentsClient, PaymentIntentsClient } from './client.ts';
import { grpc } from './grpc-protocol.ts';
import { json } from './json-protocol.ts';
import { createClient, createGrpcClient, refuseBrowsers } from './make-client.ts';
import { type PaymentIntentsClientOptions, readOptions } from './options.ts';

export type { ApiResource, JsonObject, JsonValue } from './api-resource.ts';
export type { GrpcPaymentIntentsClient, PaymentIntentsClient } from './client.ts';
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
export type { CallOptions, CreateOptions, PaymentIntentsClientOptions, Timeouts } from './options.ts';
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
export type { WatchEvents, WatchedEvent } from './watch-events.ts';
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
export function createPaymentIntentsClient(
  options: PaymentIntentsClientOptions & { protocol: 'grpc' },
): GrpcPaymentIntentsClient;
export function createPaymentIntentsClient(options: PaymentIntentsClientOptions): PaymentIntentsClient;
export function createPaymentIntentsClient(options: PaymentIntentsClientOptions): PaymentIntentsClient {
  refuseBrowsers();
  const checked = readOptions(options, ['json', 'grpc']);
  return checked.protocol === 'grpc'
    ? createGrpcClient(checked, grpc(checked))
    : createClient(checked, json(checked));
}
