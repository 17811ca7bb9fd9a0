// The client with which our services and merchants' backends use payment intents, over JSON or gRPC.

import type { GrpcPaymentIntentsClient, PaymentIntentsClient } from './client.ts';
import { grpc } from './grpc-protocol.ts';
import { json } from './json-protocol.ts';
import { createClient, createGrpcClient, refuseBrowsers } from './make-client.ts';
import { type PaymentIntentsClientOptions, readOptions } from './options.ts';

export type {
  Chain,
  Lane,
  Mode,
  PaymentIntentStatus,
  PaymentStatus,
  Token,
  TransferStatus,
  WebhookDeliveryStatus,
} from '../src/contract/gen/words.ts';
export type { ApiResource, JsonCompatible, JsonObject, JsonValue } from './api-resource.ts';
export type { AnyTransfer, GrpcPaymentIntentsClient, PaymentIntentsClient } from './client.ts';
export type { EventType, Label, Unknown } from './enums.ts';
export {
  PaymentIntentsError,
  type PaymentIntentsErrorCode,
  type PaymentIntentsErrorOptions,
} from './error.ts';
export type {
  AttributeTransfer,
  CreatePaymentIntent,
  CreateWebhookEndpoint,
  ListEvents,
  ListPaymentIntents,
  ListTransfers,
  ListWebhookDeliveries,
  ListWebhookEndpoints,
  RedeliverEvent,
  RedeliverWebhookEndpoint,
  RotateWebhookSecret,
  UpdateWebhookEndpoint,
} from './gen/requests.ts';
export type {
  AnyPaymentIntent,
  Event,
  EventData,
  Payment,
  PaymentIntent,
  PaymentIntentState,
  RetrievedPaymentIntent,
  Transfer,
  WebhookAttempt,
  WebhookDelivery,
  WebhookEndpoint,
  WebhookEndpointWithSecret,
} from './gen/resources.ts';
export type { List, Page } from './list.ts';
export type { CallOptions, CreateOptions, PaymentIntentsClientOptions, Timeouts } from './options.ts';
export type { WatchEvents, WatchedEvent } from './watch-events.ts';

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
