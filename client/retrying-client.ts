import { type CreateRequest, readCreate } from './create-request.ts';
import { PaymentIntentsError } from './error.ts';
import { type CheckedOptions, type CreateOptions, readCreateOptions } from './options.ts';
import type { CreatePaymentIntent, PaymentIntent } from './payment-intent.ts';

export interface PaymentIntentsClient {
  /**
   * Creates an intent and returns it once it is durable. A failure that may pass (`rate_limited`, `unavailable`,
   * `internal`, a broken connection) is tried again with the same idempotency key, after the server's Retry-After or a
   * growing pause.
   *
   * Throws PaymentIntentsError for anything else, when the tries or the time are used up, and if the server asks to
   * wait for more than a minute. Throws the reason of `signal` once that is aborted, and a TypeError for an option that
   * does not exist. A field that does not exist is refused as `invalid_body` before anything is sent.
   */
  createPaymentIntent<Metadata extends object>(
    create: CreatePaymentIntent<Metadata>,
    options?: CreateOptions,
  ): Promise<PaymentIntent>;
}

/** One try. Throws PaymentIntentsError, or the signal's reason. */
export type Send = (
  create: CreateRequest,
  idempotencyKey: string,
  signal: AbortSignal,
) => Promise<PaymentIntent>;

const firstPauseMs = 100;
const maxPauseMs = 5_000;
/** If the server asks for more, the call fails instead. */
const maxRetryAfterMs = 60_000;

/** Returns a client that sends each create by `send`, and again after a failure that may pass. */
export function retryingClient(options: CheckedOptions<string>, send: Send): PaymentIntentsClient {
  return {
    async createPaymentIntent(create, createOptions = {}) {
      const call = readCreateOptions(createOptions, options);
      const { idempotencyKey, signal, timeoutMs, callTimeoutMs } = call;
      const request = readCreateRequest(idempotencyKey, create);
      const startedAtMs = performance.now();
      const callTimeout = callTimeoutMs === undefined ? undefined : AbortSignal.timeout(callTimeoutMs);
      for (let tried = 1, last: PaymentIntentsError | undefined; ; tried++) {
        signal?.throwIfAborted();
        const tryTimeout = AbortSignal.timeout(timeoutMs);
        try {
          return await send(request, idempotencyKey, anyOf(tryTimeout, callTimeout, signal));
        } catch (reason) {
          signal?.throwIfAborted();
          const failure = PaymentIntentsError.from(reason, idempotencyKey);
          if (failure.code !== 'network') last = failure;
          else if (callTimeout?.aborted)
            last = timeoutError(`${callTimeoutMs} ms (callTimeoutMs)`, failure, last);
          else if (tryTimeout.aborted) last = timeoutError(`${timeoutMs} ms (timeoutMs)`, failure);
          else last = failure;
        }
        const isFinal = !last.isRetryable || tried >= options.maxTries || callTimeout?.aborted;
        if (isFinal || last.retryAfterMs > maxRetryAfterMs) throw last;
        // Half of it is random, so that clients that failed together do not retry together.
        const backOffMs = Math.min(firstPauseMs * 2 ** tried, maxPauseMs) * (0.5 + Math.random() / 2);
        const pauseMs = Math.max(backOffMs, last.retryAfterMs);
        const leftMs =
          callTimeoutMs === undefined ? Infinity : startedAtMs + callTimeoutMs - performance.now();
        if (pauseMs >= leftMs) throw last;
        await pause(pauseMs, signal);
      }
    },
  };
}

/** Reads the request. A refusal gets the idempotency key of the call. */
function readCreateRequest(idempotencyKey: string, create: unknown): CreateRequest {
  try {
    return readCreate(create);
  } catch (refusal) {
    throw refusal instanceof PaymentIntentsError
      ? PaymentIntentsError.from(refusal, idempotencyKey)
      : refusal;
  }
}

function anyOf(...signals: (AbortSignal | undefined)[]): AbortSignal {
  return AbortSignal.any(signals.filter((signal) => signal !== undefined));
}

function timeoutError(
  time: string,
  { idempotencyKey, cause }: PaymentIntentsError,
  previous?: PaymentIntentsError,
): PaymentIntentsError {
  const earlier = previous === undefined ? '' : `; the previous try: ${previous.message}`;
  return new PaymentIntentsError('network', `No answer came within ${time}${earlier}`, {
    idempotencyKey,
    cause,
  });
}

function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
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

/** Throws in a browser, where a payer could read the API key. */
export function refuseBrowsers(): void {
  if ('window' in globalThis || 'importScripts' in globalThis) {
    throw new Error(
      'The payment intents client runs on servers only: anybody could read an API key in a browser. Call your own server, and let it call this.',
    );
  }
}
