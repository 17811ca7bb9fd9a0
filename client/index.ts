// The payment intents client for our services and merchants' backends, over JSON or gRPC.

import { createClient, type GrpcPaymentIntentsClient, type PaymentIntentsClient } from './client.ts';
import { grpc } from './grpc-protocol.ts';
import { json } from './json-protocol.ts';
import { type PaymentIntentsClientOptions, readOptions } from './options.ts';

export type { WatchEvents } from './calls.ts';
export type { GrpcPaymentIntentsClient } from './client.ts';
export type { WatchEventsResponse as WatchedEvent } from './gen/resources.ts';
export * from './json.ts';
export type { PaymentIntentsClientOptions } from './options.ts';

/**
 * Creates a client. Throws a TypeError for an option that is missing, misspelt or wrong, and an Error in a
 * browser, where anybody could read the API key.
 */
export function createPaymentIntentsClient(
  options: PaymentIntentsClientOptions & { protocol: 'grpc' },
): GrpcPaymentIntentsClient;
export function createPaymentIntentsClient(options: PaymentIntentsClientOptions): PaymentIntentsClient;
export function createPaymentIntentsClient(options: PaymentIntentsClientOptions): PaymentIntentsClient {
  const checked = readOptions(options, ['json', 'grpc']);
  if (checked.protocol === 'json') return createClient(checked, json(checked));
  const { send, openStream } = grpc(checked);
  return createClient(checked, send, openStream);
}
