import { anyOf, maxPauseMs, pause, pauseMsAfter } from './calls.ts';
import { PaymentIntentsError } from './error.ts';
import type { WatchEventsResponse as WatchedEvent } from './gen/resources.ts';
import { describe } from './metadata.ts';
import { namedOptions, readSignal } from './options.ts';
import type { OpenStream } from './protocol.ts';

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

async function* resumed(
  openStream: OpenStream,
  { after, signal, onInterruption, firstMessageMs }: Checked,
): AsyncGenerator<WatchedEvent> {
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
