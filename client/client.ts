import { type Call, createCall } from './calls.ts';
import { PaymentIntentsError } from './error.ts';
import { type Methods, methods } from './gen/methods.ts';
import type { Payment, Transfer } from './gen/resources.ts';
import { createList } from './list.ts';
import { type CheckedOptions, readCallOptions } from './options.ts';
import type { Method, OpenStream, Send } from './protocol.ts';
import { readId, readRequest } from './request-fields.ts';
import { type WatchEvents, type WatchedEvent, watchEvents } from './watch-events.ts';

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

/**
 * Returns a client that sends each try of a call by `send`. Without `openStream` it cannot watch events, whatever its
 * type says.
 */
export function createClient(
  options: CheckedOptions,
  send: Send,
  openStream?: OpenStream,
): GrpcPaymentIntentsClient {
  const call = createCall(options, send);
  const made = Object.entries<Method>(methods).map(([name, method]) => [
    name,
    callable(method, call, options),
  ]);
  return {
    ...(Object.fromEntries(made) as Methods),
    watchEvents(watch = {}) {
      if (openStream !== undefined) return watchEvents(openStream, watch, options.timeoutMs);
      throw new TypeError(
        "watchEvents needs gRPC: create the client with protocol: 'grpc' and the address of the internal port, or follow events with listEvents",
      );
    },
  };
}

/** Returns the function of a method: of its id, its request and options, as far as it takes them. */
function callable(method: Method, call: Call, options: CheckedOptions) {
  const { takesId, takesKey, isRequestOptional, lists } = method;
  const read = (given: unknown[]) => {
    const [id, ...others] = takesId ? given : [undefined, ...given];
    const [request, callOptions = {}] = method.request === undefined ? [undefined, ...others] : others;
    const checked = readCallOptions(callOptions, takesKey, options);
    try {
      const isLeftOut = request === undefined && isRequestOptional !== false;
      return {
        asked: {
          id: takesId ? readId(id) : undefined,
          request: readRequest(method.request ?? {}, isLeftOut ? {} : request),
        },
        checked,
      };
    } catch (refusal) {
      throw refusal instanceof PaymentIntentsError
        ? PaymentIntentsError.from(refusal, checked.idempotencyKey)
        : refusal;
    }
  };
  if (lists !== undefined) {
    return (...given: unknown[]) => {
      const { asked, checked } = read(given);
      return createList(call, { ...method, lists }, asked, checked);
    };
  }
  return async (...given: unknown[]) => {
    const { asked, checked } = read(given);
    const { resource, replayed } = await call(method, asked, checked);
    if (method.returns === null) return undefined;
    if (method.returns !== undefined) return (resource as Record<string, unknown>)[method.returns];
    return takesKey ? Object.assign(resource, { replayed }) : resource;
  };
}
