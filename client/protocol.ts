// What JSON and gRPC have in common: one try of a call.

import type { WatchEventsResponse } from './gen/resources.ts';
import type { CheckedRequest } from './request-fields.ts';
import type { Fields } from './resource-fields.ts';

/** A method of the service, as the client knows it. */
export interface Method {
  /** Its name in the contract. */
  rpc: string;
  /** `{id}` stands for the id of the resource. */
  http: `${'GET' | 'POST' | 'PATCH' | 'DELETE'} /v1/${string}`;
  /** HTTP status of its answer. */
  status: 200 | 201;
  takesId: boolean;
  takesKey: boolean;
  request?: Fields;
  isRequestOptional?: boolean;
  answer: Fields;
  /** The field of its answer that holds the items of a list. */
  lists?: string;
  /** The field of its answer that the client returns, if not the whole answer; null if it returns nothing. */
  returns?: string | null;
}

/** One try of a call. */
export interface Try {
  method: Method;
  /** The id of the resource. */
  id: string | undefined;
  request: CheckedRequest;
  idempotencyKey: string | undefined;
  signal: AbortSignal;
}

/** Sends one try, and returns its answer. Throws PaymentIntentsError, or the signal's reason. */
export type Send = (tried: Try) => Promise<{
  /** As the method's table of fields reads it. */
  resource: object;
  /** True if an earlier call with the same idempotency key did the work. */
  replayed: boolean;
}>;

/**
 * Opens one stream of the events that follow `after`, or of those from now on. It throws PaymentIntentsError,
 * or the signal's reason.
 */
export type OpenStream = (
  after: string | undefined,
  signal: AbortSignal,
) => AsyncIterable<WatchEventsResponse>;
