// The client over JSON alone. It needs only `fetch`, so that it runs on edge runtimes too.

import { json } from './json-protocol.ts';
import { type JsonClientOptions, readOptions } from './options.ts';
import { type PaymentIntentsClient, refuseBrowsers, retryingClient } from './retrying-client.ts';

export type { Chain, Lane, Mode, PaymentIntentStatus, Token, Unknown } from './enums.ts';
export {
  PaymentIntentsError,
  type PaymentIntentsErrorCode,
  type PaymentIntentsErrorOptions,
} from './error.ts';
export type { CreateOptions, JsonClientOptions, Timeouts } from './options.ts';
export type {
  CreatePaymentIntent,
  JsonCompatible,
  JsonObject,
  JsonValue,
  PaymentIntent,
} from './payment-intent.ts';
export type { PaymentIntentsClient } from './retrying-client.ts';

/**
 * Creates a client. Throws a TypeError for an option that is missing, misspelt or wrong, and an Error in a browser,
 * where anybody could read the API key.
 */
export function createPaymentIntentsClient(options: JsonClientOptions): PaymentIntentsClient {
  refuseBrowsers();
  const checked = readOptions(options, ['json']);
  return retryingClient(checked, json(checked));
}
