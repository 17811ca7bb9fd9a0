import { catalogue, type ErrorCode, isRetryable } from '../src/contract/error-catalogue.ts';
import type { Unknown } from './values.ts';

/**
 * Why a call failed:
 *
 * - a code of the service's catalogue, such as `invalid_body` or `rate_limited`;
 * - `network`: no answer came, so the service may or may not have done what was asked;
 * - `unexpected_answer`: something other than the service answered, such as a proxy, or a server at a
 *   wrong `baseUrl`. If its status is 429, the code is `rate_limited`; from 500 on, it is `unavailable`;
 * - `unknown:` followed by a code that is newer than this client.
 */
export type PaymentIntentsErrorCode = ErrorCode | 'network' | 'unexpected_answer' | Unknown;

export interface PaymentIntentsErrorOptions {
  idempotencyKey?: string | undefined;
  httpStatus?: number | undefined;
  requestId?: string | undefined;
  docUrl?: string | undefined;
  details?: readonly { field: string; message: string }[] | undefined;
  retryAfterMs?: number | undefined;
  resumeAfter?: string | undefined;
  /** Default: depends on the code. */
  isRetryable?: boolean | undefined;
  cause?: unknown;
}

/** A process that both imports and requires the package has two copies. `instanceof` works across both. */
const brand = Symbol.for('payment-intents-client.PaymentIntentsError');

/** Why a call failed. Safe to log in full: it holds no secret. */
export class PaymentIntentsError extends Error {
  /** Why the call failed. */
  readonly code: PaymentIntentsErrorCode;
  /** True if the same call, with the same idempotency key, may succeed after the client's own tries. */
  readonly isRetryable: boolean;
  /** To repeat the call later and get the same answer. Empty if the call is safe to repeat without a key. */
  readonly idempotencyKey: string;
  /** HTTP status of the answer; undefined if no answer came, and for the service's own refusals over gRPC. */
  readonly httpStatus: number | undefined;
  /** Finds the request in the service's logs; undefined if the service did not answer. */
  readonly requestId: string | undefined;
  /** The reference's page about this code, if the service sent one; over gRPC a path on the public port. */
  readonly docUrl: string | undefined;
  /** The faulty fields, by their names in the JSON (`amount_units`); unknown ones as you wrote them. */
  readonly details: readonly { field: string; message: string }[];
  /** How long the server asks to wait before the next try, in milliseconds; 0 if it does not ask. */
  readonly retryAfterMs: number;
  /** For `cursor_expired`: the id of the event to resume `after`, if the service knows one. */
  readonly resumeAfter: string | undefined;

  constructor(code: PaymentIntentsErrorCode, message: string, options: PaymentIntentsErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'PaymentIntentsError';
    this.code = code;
    this.isRetryable = options.isRetryable ?? (code === 'network' || isRetryable(code));
    this.idempotencyKey = options.idempotencyKey ?? '';
    this.httpStatus = options.httpStatus;
    this.requestId = options.requestId;
    this.docUrl = options.docUrl;
    this.details = options.details ?? [];
    this.retryAfterMs = options.retryAfterMs ?? 0;
    this.resumeAfter = options.resumeAfter;
    Object.defineProperty(this, brand, { value: true });
  }

  /** For loggers that write JSON, which leave out an error's message otherwise. */
  toJSON(): object {
    return { ...this, message: this.message };
  }

  /** Returns the error for anything thrown by one try, with the idempotency key of its call. */
  static from(reason: unknown, idempotencyKey: string | undefined): PaymentIntentsError {
    if (reason instanceof PaymentIntentsError) {
      const options = { ...reason, idempotencyKey, cause: reason.cause };
      return new PaymentIntentsError(reason.code, reason.message, options);
    }
    const options = { idempotencyKey, cause: reason };
    return new PaymentIntentsError('network', `No answer came: ${rootOf(reason)}`, options);
  }

  /** Also true for an error from the package's other module format. */
  static override [Symbol.hasInstance](value: unknown): value is PaymentIntentsError {
    // biome-ignore lint/complexity/noThisInStatic: a subclass inherits this and means itself.
    if (this !== PaymentIntentsError) return Function.prototype[Symbol.hasInstance].call(this, value);
    return typeof value === 'object' && value !== null && brand in value;
  }
}

/** Returns the code for a word that the service sent: `unknown:…` if it is newer than this client. */
export function codeOf(word: string): PaymentIntentsErrorCode {
  return Object.hasOwn(catalogue, word) ? (word as ErrorCode) : `unknown:${word}`;
}

/** For OpenSSL's "wrong version number": the other side does not speak TLS. */
const noTls = 'this port does not speak TLS; use http in place of https in baseUrl';

/** Returns the messages of the root causes: of "fetch failed", or of each of several attempts to connect. */
export function rootOf(reason: unknown): string {
  const messages: string[] = [];
  const seen = new Set<unknown>();
  const visit = (error: unknown) => {
    if (seen.has(error)) return;
    seen.add(error);
    // Not by `instanceof`: Jest's errors are of another realm.
    const { message, name, cause, code, errors } = (error ?? {}) as Record<string, unknown>;
    if (typeof message !== 'string') messages.push(String(error));
    else if (Array.isArray(errors) && errors.length > 0) errors.forEach(visit);
    else if (cause !== undefined && cause !== null) visit(cause);
    else messages.push(code === 'ERR_SSL_WRONG_VERSION_NUMBER' ? noTls : message || String(name));
  };
  visit(reason);
  return [...new Set(messages)].join('; ');
}
