// What JSON and gRPC have in common: one try of a call.

import type { WatchEventsResponse } from './gen/resources.ts';
import type { CheckedRequest } from './request-fields.ts';
import type { Fields } from './resource-fields.ts';

/** A method of the service, as the client has it. */
export interface Method {
  /** Its name in the contract. */
  rpc: string;
  /** `{id}` is the id that the request names. */
  http: `${'GET' | 'POST' | 'PATCH' | 'DELETE'} /v1/${string}`;
  /** HTTP status of its answer. */
  status: 200 | 201;
  takesId: boolean;
  takesKey: boolean;
  request?: Fields;
  isRequestOptional?: boolean;
  answer: Fields;
  /** The field of its answer that it returns page by page. */
  lists?: string;
  /** The field of its answer that it returns, if not all of it; null if it returns nothing. */
  returns?: string | null;
}

/** One try of a call. */
export interface Try {
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
export type OpenStream = (
  after: string | undefined,
  signal: AbortSignal,
) => AsyncIterable<WatchEventsResponse>;
