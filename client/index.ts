// The client with which our services and merchants' backends use payment intents, over JSON or gRPC.

import type { GrpcPaymentIntentsClient, PaymentIntentsClient } from './client.ts';
import { grpc } from './grpc-protocol.ts';
import { json } from './json-protocol.ts';
import { createClient, createGrpcClient, refuseBrowsers } from './make-client.ts';
import { type PaymentIntentsClientOptions, readOptions } from './options.ts';

export type { GrpcPaymentIntentsClient } from './client.ts';
export * from './json.ts';
export type { PaymentIntentsClientOptions } from './options.ts';
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
