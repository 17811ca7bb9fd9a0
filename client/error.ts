import type { ErrorCode } from '../src/errors.ts';

/** A code of the service's catalogue, or `network` where no answer came: the intent may or may not be there. */
export type PaymentIntentsErrorCode = ErrorCode | 'network';

const retryable: ReadonlySet<string> = new Set(['rate_limited', 'unavailable', 'internal', 'network']);

export interface PaymentIntentsErrorOptions {
  idempotencyKey?: string;
  requestId?: string | undefined;
  details?: readonly { field: string; message: string }[];
  retryAfterMs?: number;
  cause?: unknown;
}

/** Why an intent was not created. Log all of it. */
export class PaymentIntentsError extends Error {
  readonly code: PaymentIntentsErrorCode;
  /** With it the call can be repeated later, and still means the same intent. */
  readonly idempotencyKey: string;
  /** Finds the request in the service's logs; undefined where no answer came. */
  readonly requestId: string | undefined;
  /** Every faulty field, in the words of the JSON. */
  readonly details: readonly { field: string; message: string }[];
  /** What the server asks to wait before the next try; 0 where it said nothing. */
  readonly retryAfterMs: number;

  constructor(code: PaymentIntentsErrorCode, message: string, options: PaymentIntentsErrorOptions = {}) {
    super(message, { cause: options.cause });
    this.name = 'PaymentIntentsError';
    this.code = code;
    this.idempotencyKey = options.idempotencyKey ?? '';
    this.requestId = options.requestId;
    this.details = options.details ?? [];
    this.retryAfterMs = options.retryAfterMs ?? 0;
  }

  /** True where the same call may succeed later. */
  get isRetryable(): boolean {
    return retryable.has(this.code);
  }

  /** Anything thrown by one try, with the key of its call. */
  static from(reason: unknown, idempotencyKey: string): PaymentIntentsError {
    if (reason instanceof PaymentIntentsError) {
      const { code, message, requestId, details, retryAfterMs, cause } = reason;
      return new PaymentIntentsError(code, message, {
        ...{ idempotencyKey, requestId, details, retryAfterMs, cause },
      });
    }
    const said = reason instanceof Error ? reason.message : String(reason);
    return new PaymentIntentsError('network', `No answer came: ${said}`, { idempotencyKey, cause: reason });
  }
}
