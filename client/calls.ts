// Makes calls and follows streams, in one or more tries with pauses between them.

import { describe } from './describe.ts';
import { PaymentIntentsError } from './error.ts';
import type { WatchEventsResponse as WatchedEvent } from './gen/resources.ts';
import { type CheckedCallOptions, namedOptions, readSignal } from './options.ts';
import type { OpenStream, Send, Try } from './protocol.ts';

const firstPauseMs = 100;
const maxPauseMs = 5_000;
/** If the server asks for a longer pause, a call fails. A watch waits this long and goes on. */
const maxRetryAfterMs = 60_000;

/** What a call asks for, and how. */
type Asked = CheckedCallOptions & Pick<Try, 'method' | 'id' | 'request'>;

/** Returns a function that makes a call with `send`: it tries until it is answered or fails for good. */
export function createCall(maxTries: number, send: Send) {
  return async ({ signal, timeoutMs, callTimeoutMs, ...asked }: Asked) => {
    const startedAtMs = performance.now();
    const callTimeout = callTimeoutMs === undefined ? undefined : AbortSignal.timeout(callTimeoutMs);
    for (let tried = 1, last: PaymentIntentsError | undefined; ; tried++) {
      signal?.throwIfAborted();
      const tryTimeout = AbortSignal.timeout(timeoutMs);
      try {
        const ended = anyOf(tryTimeout, callTimeout, signal);
        return await send({ ...asked, signal: ended });
      } catch (reason) {
        signal?.throwIfAborted();
        // Next.js says by such an error that a page cannot be made at build time.
        if (typeof (reason as { digest?: unknown } | null)?.digest === 'string') throw reason;
        const failure = PaymentIntentsError.from(reason, asked.idempotencyKey);
        if (failure.code !== 'network') last = failure;
        else if (callTimeout?.aborted)
          last = timeoutError(`${callTimeoutMs} ms (callTimeoutMs)`, failure, last);
        else if (tryTimeout.aborted) last = timeoutError(`${timeoutMs} ms (timeoutMs)`, failure);
        else last = failure;
      }
      const isFinal = !last.isRetryable || tried >= maxTries || callTimeout?.aborted;
      if (isFinal || last.retryAfterMs > maxRetryAfterMs) throw last;
      const pauseMs = pauseMsAfter(tried, last);
      const leftMs = callTimeoutMs === undefined ? Infinity : startedAtMs + callTimeoutMs - performance.now();
      if (pauseMs >= leftMs) throw last;
      await pause(pauseMs, signal);
    }
  };
}

/** Returns how long to wait after `tried` tries: at least as long as the server asks, within limits. */
export function pauseMsAfter(tried: number, { retryAfterMs }: PaymentIntentsError): number {
  // Half of it is random, so that clients that failed together do not retry together.
  const backOffMs = Math.min(firstPauseMs * 2 ** tried, maxPauseMs) * (0.5 + Math.random() / 2);
  return Math.max(backOffMs, Math.min(retryAfterMs, maxRetryAfterMs));
}

/** `AbortSignal.any`, with a fallback for edge runtimes that lack it. */
function anyOf(...signals: (AbortSignal | undefined)[]): AbortSignal {
  const given = signals.filter((signal) => signal !== undefined);
  if (AbortSignal.any !== undefined) return AbortSignal.any(given);
  const either = new AbortController();
  for (const signal of given) {
    const abort = () => either.abort(signal.reason);
    if (signal.aborted) abort();
    else signal.addEventListener('abort', abort, { signal: either.signal });
  }
  return either.signal;
}

function timeoutError(
  time: string,
  { idempotencyKey, cause }: PaymentIntentsError,
  previous?: PaymentIntentsError,
): PaymentIntentsError {
  const earlier = previous === undefined ? '' : `; the previous try: ${previous.message}`;
  const options = { idempotencyKey, cause };
  return new PaymentIntentsError('network', `No answer came within ${time}${earlier}`, options);
}

/** Resolves after `ms`. Rejects with the signal's reason if the signal is aborted first. */
function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', abort);
      resolve();
    }, ms);
    signal?.addEventListener('abort', abort, { once: true });
  });
}

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
  return resumed(openStream, firstMessageMs, {
    after: after ?? undefined,
    signal: readSignal(signal),
    onInterruption: onInterruption as WatchEvents['onInterruption'],
  });
}

async function* resumed(
  openStream: OpenStream,
  firstMessageMs: number,
  { after, signal, onInterruption }: WatchEvents,
) {
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
