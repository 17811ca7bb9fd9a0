import type { Methods } from './gen/methods.ts';
import type { Payment, Transfer } from './gen/resources.ts';
import type { WatchEvents, WatchedEvent } from './watch-events.ts';

/** A transfer on the chain, whether or not it is the payment of an intent. */
export type AnyTransfer = Payment | Transfer;

/**
 * Every call is tried again after a failure that may pass (`rate_limited`, `unavailable`, `internal`, a broken
 * connection), with the same idempotency key if it has one, after the server's Retry-After or a growing pause.
 *
 * It throws PaymentIntentsError for anything else, when the tries or the time are used up, and if the server asks to
 * wait for more than a minute. It throws the reason of `signal` once that is aborted, and a TypeError for an option that
 * does not exist. A field that does not exist is refused as `invalid_body` before anything is sent.
 */
export interface PaymentIntentsClient extends Methods {
  /** Only over gRPC: see {@link GrpcPaymentIntentsClient}. Over JSON it does not compile, and throws a TypeError. */
  watchEvents(
    this: "Events are watched over gRPC: create the client with protocol 'grpc'",
    options?: WatchEvents,
  ): AsyncIterable<WatchedEvent>;
}

/** A client over gRPC, which has a stream of events besides. */
export interface GrpcPaymentIntentsClient extends PaymentIntentsClient {
  /**
   * Watches events, in the order that every reader sees, without losing or repeating one. Whenever the stream is lost it
   * is opened again behind the last message, after a growing pause, for as long as it takes.
   *
   * Throws PaymentIntentsError for a refusal that stays, such as `cursor_expired` and `api_key_invalid`, and the reason
   * of `signal` once that is aborted.
   */
  watchEvents(options?: WatchEvents): AsyncIterable<WatchedEvent>;
}
