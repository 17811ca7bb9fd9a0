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

/** Returns the function of a method: of its id, its request and options, as far as it takes them. */
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
   * Where to go on: the last `position` that you have stored, or the id of the last event that you have handled. Leave
   * it out to begin now.
   */
  after?: string | undefined;
  /** Ends the watch, which throws the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Called each time the stream is lost, before it is opened again; for your log. */
  onInterruption?: ((error: PaymentIntentsError) => void) | undefined;
}

/** The service sends a message every 30 s. After this time without one, the connection is dead. */
const silenceMs = 65_000;

const names = ['after', 'signal', 'onInterruption'] as const;

/**
 * Watches events. Opens the stream again behind the last message whenever it is lost. Throws a TypeError for a wrong
 * option. `firstMessageMs` is the longest time to the first message of a stream, which comes at once.
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
        const { done, value } = await within(limitMs, stream.next());
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
    // A stream that lasted was not a failed try.
    if (performance.now() - openedAtMs > maxPauseMs) tried = 0;
    await pause(pauseMsAfter(tried, failure), signal);
  }
}

/** Throws `network` if that takes too long. */
function within<Value>(ms: number, promise: Promise<Value>): Promise<Value> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      reject(new PaymentIntentsError('network', `No message came within ${ms} ms`));
    }, ms);
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
