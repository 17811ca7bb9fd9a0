// What JSON and gRPC have in common: one try of a call.

import type { Method, MethodName } from './methods.ts';
import type { CheckedRequest } from './request-fields.ts';
import type { WatchedEvent } from './watch-events.ts';

/** One try of a call. */
export interface Try {
  name: MethodName;
  method: Method;
  /** The resource that the request names. */
  id: string | undefined;
  request: CheckedRequest;
  idempotencyKey: string | undefined;
  signal: AbortSignal;
}

/** What one try has returned. */
export interface Answer {
  /** As the method's table of fields reads it. */
  resource: object;
  /** True if an earlier call with the same idempotency key had done it. */
  replayed: boolean;
}

/** Sends one try. Throws PaymentIntentsError, or the signal's reason. */
export type Send = (tried: Try) => Promise<Answer>;

/**
 * Opens one stream of events behind `after`, or from now on. It ends with PaymentIntentsError, or with the signal's
 * reason.
 */
export type OpenStream = (after: string | undefined, signal: AbortSignal) => AsyncIterable<WatchedEvent>;
