// Makes a call in one or more tries, with pauses between them.

import { PaymentIntentsError } from './error.ts';
import type { CheckedCallOptions, CheckedOptions } from './options.ts';
import type { Answer, Method, Send, Try } from './protocol.ts';

/** What a call asks for. */
export type CallTarget = Pick<Try, 'id' | 'request'>;

/** Makes a call: tries until it is answered or fails for good. */
export type Call = (method: Method, asked: CallTarget, options: CheckedCallOptions) => Promise<Answer>;

const firstPauseMs = 100;
export const maxPauseMs = 5_000;
/** If the server asks for a longer pause, a call fails. A watch waits this long and goes on. */
const maxRetryAfterMs = 60_000;

/** Returns a function that makes calls with `send`, and retries them after a temporary failure. */
export function createCall({ maxTries }: Pick<CheckedOptions, 'maxTries'>, send: Send): Call {
  return async (method, asked, { idempotencyKey, signal, timeoutMs, callTimeoutMs }) => {
    const startedAtMs = performance.now();
    const callTimeout = callTimeoutMs === undefined ? undefined : AbortSignal.timeout(callTimeoutMs);
    for (let tried = 1, last: PaymentIntentsError | undefined; ; tried++) {
      signal?.throwIfAborted();
      const tryTimeout = AbortSignal.timeout(timeoutMs);
      try {
        const ended = anyOf(tryTimeout, callTimeout, signal);
        return await send({ method, ...asked, idempotencyKey, signal: ended });
      } catch (reason) {
        signal?.throwIfAborted();
        const failure = PaymentIntentsError.from(reason, idempotencyKey);
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
export function anyOf(...signals: (AbortSignal | undefined)[]): AbortSignal {
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
export function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
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
