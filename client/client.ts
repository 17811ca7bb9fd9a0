import { anyOf, type Call, createCall, maxPauseMs, pause, pauseMsAfter } from './calls.ts';
import { PaymentIntentsError } from './error.ts';
import { type Methods, methods } from './gen/methods.ts';
import type { Payment, Transfer, WatchEventsResponse as WatchedEvent } from './gen/resources.ts';
import { createList } from './list.ts';
import { describe } from './metadata.ts';
import { type CheckedOptions, namedOptions, readCallOptions, readSignal } from './options.ts';
import type { Method, OpenStream, Send } from './protocol.ts';
import { readId, readRequest } from './request-fields.ts';

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
  const call = createCall(options, send);
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
function callable(method: Method, call: Call, options: CheckedOptions) {
  const { takesId, takesKey, isRequestOptional, lists } = method;
  const read = (given: unknown[]) => {
    const [id, ...others] = takesId ? given : [undefined, ...given];
    const [request, callOptions = {}] = method.request === undefined ? [undefined, ...others] : others;
    const checked = readCallOptions(callOptions, takesKey, options);
    try {
      const isLeftOut = request === undefined && isRequestOptional !== false;
      const named = takesId ? readId(id) : undefined;
      const filled = readRequest(method.request ?? {}, isLeftOut ? {} : request);
      return { asked: { id: named, request: filled }, checked };
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

export type { WatchedEvent };

/** Where to begin watching, and when to stop. */
export interface WatchEvents {
  /**
   * Where to resume: the last `position` that you have stored, or the id of the last event that you have
   * handled. Leave it out to begin now.
   */
  after?: string | undefined;
  /** Ends the watch, which then throws the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Called each time the stream is lost, before it is reopened; for your log. */
  onInterruption?: ((error: PaymentIntentsError) => void) | undefined;
}

/** The service sends a message every 30 s. After this time without one, the connection is dead. */
const silenceMs = 65_000;

const names = ['after', 'signal', 'onInterruption'] as const;

/**
 * Watches events. Reopens a lost stream after its last message. Throws a TypeError for a wrong option.
 * `firstMessageMs` limits the wait for a stream's first message, which the service sends at once.
 */
export function watchEvents(
  openStream: OpenStream,
  options: unknown,
  firstMessageMs: number,
): AsyncIterable<WatchedEvent> {
  const { after, signal, onInterruption } = namedOptions(options, names);
  if (after != null && (typeof after !== 'string' || after === '')) {
    const given = after === '' ? 'empty; leave it out to begin now' : describe(after);
    throw new TypeError(`after must be a position or the id of an event, not ${given}`);
  }
  if (onInterruption !== undefined && typeof onInterruption !== 'function') {
    throw new TypeError(`onInterruption must be a function, not ${describe(onInterruption)}`);
  }
  return resumed(openStream, {
    after: after ?? undefined,
    signal: readSignal(signal),
    onInterruption: onInterruption as WatchEvents['onInterruption'],
    firstMessageMs,
  });
}

interface Checked extends WatchEvents {
  firstMessageMs: number;
}

async function* resumed(openStream: OpenStream, { after, signal, onInterruption, firstMessageMs }: Checked) {
  let position = after;
  for (let tried = 1; ; tried++) {
    signal?.throwIfAborted();
    const ended = new AbortController();
    const openedAtMs = performance.now();
    const stream = openStream(position, anyOf(ended.signal, signal))[Symbol.asyncIterator]();
    let failure: PaymentIntentsError;
    try {
      for (let limitMs = firstMessageMs; ; limitMs = silenceMs) {
        const { done, value } = await rejectAfter(limitMs, stream.next());
        signal?.throwIfAborted();
        if (done) throw new PaymentIntentsError('network', 'The stream has ended');
        position = value.position;
        if (value.event !== undefined) tried = 0;
        yield value;
        signal?.throwIfAborted();
      }
    } catch (reason) {
      signal?.throwIfAborted();
      failure = PaymentIntentsError.from(reason, undefined);
    } finally {
      ended.abort();
    }
    if (!failure.isRetryable) throw failure;
    onInterruption?.(failure);
    // A stream that lasted does not count as a failed try.
    if (performance.now() - openedAtMs > maxPauseMs) tried = 0;
    await pause(pauseMsAfter(tried, failure), signal);
  }
}

/** Rejects with `network` if the promise takes longer than `ms`. */
function rejectAfter<Value>(ms: number, promise: Promise<Value>): Promise<Value> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      reject(new PaymentIntentsError('network', `No message came within ${ms} ms`));
    }, ms);
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
