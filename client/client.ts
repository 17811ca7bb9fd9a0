import { createCall, type WatchEvents, watchEvents } from './calls.ts';
import { PaymentIntentsError } from './error.ts';
import { type Methods, methods } from './gen/methods.ts';
import type { Payment, Transfer, WatchEventsResponse as WatchedEvent } from './gen/resources.ts';
import { createList } from './list.ts';
import { type CheckedOptions, readCallOptions } from './options.ts';
import type { Method, OpenStream, Send } from './protocol.ts';
import { type CheckedRequest, readId, readRequest } from './request-fields.ts';

/** A transfer on the chain, whether or not it is the payment of an intent. */
export type AnyTransfer = Payment | Transfer;

/**
 * Every call is retried after a temporary failure (`rate_limited`, `unavailable`, `internal`, a broken
 * connection), with its idempotency key if it has one, after the longer of Retry-After and a growing pause.
 *
 * It throws PaymentIntentsError for other failures, if its tries or time are used up, and if Retry-After
 * exceeds a minute. It throws the reason of `signal` once that is aborted, and a TypeError for an unknown
 * option. An unknown field is refused as `invalid_body` before anything is sent.
 */
export interface PaymentIntentsClient extends Methods {
  /** Over gRPC only: {@link GrpcPaymentIntentsClient}. Over JSON: a compile error, and a TypeError. */
  watchEvents(
    this: "Events are watched over gRPC: create the client with protocol 'grpc'",
    options?: WatchEvents,
  ): AsyncIterable<WatchedEvent>;
}

/** A client over gRPC. It can also stream events. */
export interface GrpcPaymentIntentsClient extends PaymentIntentsClient {
  /**
   * Watches events in the one order that every reader sees, without losing or repeating any. If the stream is
   * lost, it is reopened after the last message, with a growing pause between tries, for as long as it takes.
   *
   * Throws PaymentIntentsError for a permanent refusal, such as `cursor_expired` or `api_key_invalid`, and
   * the reason of `signal` once that is aborted.
   */
  watchEvents(options?: WatchEvents): AsyncIterable<WatchedEvent>;
}

/**
 * Returns a client that sends each try of a call with `send`. Without `openStream`, it cannot watch events,
 * although its type has `watchEvents`.
 */
export function createClient(
  options: CheckedOptions,
  send: Send,
  openStream?: OpenStream,
): GrpcPaymentIntentsClient {
  const call = createCall(options.maxTries, send);
  const all = Object.entries<Method>(methods);
  const made = all.map(([name, method]) => [name, callable(method, call, options)]);
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

/** Returns a method's function, which takes an id, a request and options, as far as the method has them. */
function callable(method: Method, call: ReturnType<typeof createCall>, options: CheckedOptions) {
  const { takesId, takesKey, isRequestOptional, lists } = method;
  const read = (given: unknown[]) => {
    const [id, ...others] = takesId ? given : [undefined, ...given];
    const [request, callOptions = {}] = method.request === undefined ? [undefined, ...others] : others;
    const checked = readCallOptions(callOptions, takesKey, options);
    try {
      const isLeftOut = request === undefined && isRequestOptional !== false;
      const named = takesId ? readId(id) : undefined;
      const filled = readRequest(method.request ?? {}, isLeftOut ? {} : request);
      return { ...checked, method, id: named, request: filled };
    } catch (refusal) {
      throw refusal instanceof PaymentIntentsError
        ? PaymentIntentsError.from(refusal, checked.idempotencyKey)
        : refusal;
    }
  };
  if (lists !== undefined) {
    return (...given: unknown[]) => {
      const asked = read(given);
      return createList(async (pageToken) => {
        const request = withToken(asked.request, pageToken);
        const { resource } = await call({ ...asked, request });
        const answer = resource as Record<string, unknown[]> & { nextPageToken: string | undefined };
        return { items: answer[lists] ?? [], nextPageToken: answer.nextPageToken };
      });
    };
  }
  return async (...given: unknown[]) => {
    const { resource, replayed } = await call(read(given));
    if (method.returns === null) return undefined;
    if (method.returns !== undefined) return (resource as Record<string, unknown>)[method.returns];
    return takesKey ? Object.assign(resource, { replayed }) : resource;
  };
}

/** Replaces `after`, which sets where the first page begins, with the page token. */
function withToken(request: CheckedRequest, pageToken: string | undefined): CheckedRequest {
  if (pageToken === undefined) return request;
  const [{ after: _, ...json }, { after: __, ...message }] = [request.json, request.message];
  return { json: { ...json, page_token: pageToken }, message: { ...message, pageToken } };
}
