// The client over JSON alone. It needs only `fetch`, so it runs on edge runtimes too.

import { createClient, type PaymentIntentsClient } from './client.ts';
import { json } from './json-protocol.ts';
import { type JsonClientOptions, readOptions } from './options.ts';

export type { AnyTransfer, PaymentIntentsClient } from './client.ts';
export {
  PaymentIntentsError,
  type PaymentIntentsErrorCode,
  type PaymentIntentsErrorOptions,
} from './error.ts';
export type * from './gen/requests.ts';
export type * from './gen/resources.ts';
export type { List, Page } from './list.ts';
export type { CallOptions, CreateOptions, JsonClientOptions, Timeouts } from './options.ts';
export type * from './values.ts';

/**
 * Creates a client. Throws a TypeError for an option that is missing, misspelt or wrong, and an Error in a
 * browser, where anybody could read the API key.
 */
export function createPaymentIntentsClient(options: JsonClientOptions): PaymentIntentsClient {
  const checked = readOptions(options, ['json']);
  return createClient(checked, json(checked));
}
