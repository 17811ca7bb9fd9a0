// Plain data and what is computed from it alone: the clients and the reference are made with it too.

export interface CatalogueRow {
  httpStatus: number;
  /** As `Code` of Connect names it. */
  grpcCode: string;
  /** True where the same request, sent again, may succeed. */
  retryable: boolean;
  /** What the client reads unless the place of the refusal has something more exact to say. */
  message: string;
  httpHeaders?: Readonly<Record<string, string>>;
}

/** One row for each code. Messages speak to the client and never carry anything internal. */
export const catalogue = {
  api_key_missing: {
    httpStatus: 401,
    grpcCode: 'Unauthenticated',
    retryable: false,
    message: 'No API key was given. Send your secret key in the Authorization header with the Bearer scheme.',
    httpHeaders: { 'WWW-Authenticate': 'Bearer' },
  },
  api_key_invalid: {
    httpStatus: 401,
    grpcCode: 'Unauthenticated',
    retryable: false,
    message: 'The API key is not accepted. Check that it is complete and neither expired nor revoked.',
    httpHeaders: { 'WWW-Authenticate': 'Bearer error="invalid_token"' },
  },
  browser_forbidden: {
    httpStatus: 403,
    grpcCode: 'PermissionDenied',
    retryable: false,
    message:
      'The request comes from a browser and API keys never belong in one. Call this endpoint from your server.',
  },
  invalid_body: {
    httpStatus: 400,
    grpcCode: 'InvalidArgument',
    retryable: false,
    message: 'The request body is not acceptable. The details name every faulty field.',
  },
  idempotency_key_reused: {
    httpStatus: 422,
    grpcCode: 'FailedPrecondition',
    retryable: false,
    message:
      'This idempotency key was used before with a different request. Use a new key for a new request and the same request for a retry.',
  },
  idempotency_key_invalid: {
    httpStatus: 400,
    grpcCode: 'InvalidArgument',
    retryable: false,
    message: 'The idempotency key has to be 1 to 255 visible ASCII characters.',
  },
  not_found: {
    httpStatus: 404,
    grpcCode: 'Unimplemented',
    retryable: false,
    message: 'There is nothing at this path.',
  },
  method_not_allowed: {
    httpStatus: 405,
    grpcCode: 'Unimplemented',
    retryable: false,
    message: 'This path does not answer that method. The Allow header lists the methods it answers.',
  },
  body_too_large: {
    httpStatus: 413,
    grpcCode: 'ResourceExhausted',
    retryable: false,
    message: 'The request body is larger than 64 KiB.',
  },
  unsupported_media_type: {
    httpStatus: 415,
    grpcCode: 'Unimplemented',
    retryable: false,
    message: 'The body has to be JSON without any content encoding. Send Content-Type application json.',
  },
  rate_limited: {
    httpStatus: 429,
    grpcCode: 'ResourceExhausted',
    retryable: true,
    message: 'Too many requests with this API key. Wait and retry with the same idempotency key.',
  },
  unavailable: {
    httpStatus: 503,
    grpcCode: 'Unavailable',
    retryable: true,
    message: 'The service cannot answer right now. Retry with the same idempotency key.',
  },
  internal: {
    httpStatus: 500,
    grpcCode: 'Internal',
    retryable: true,
    message:
      'Something went wrong on our side. Retry with the same idempotency key or tell us the request id.',
  },
} as const satisfies Record<string, CatalogueRow>;

/** Every way this service refuses a request. The same codes on both doors. */
export type ErrorCode = keyof typeof catalogue;

/** One fault of one field, in the words of the request: `amount_units`, not `amountUnits`. */
export interface FieldViolation {
  field: string;
  message: string;
}

/** A refusal, as both doors tell it. */
export interface Refusal {
  code: ErrorCode;
  message: string;
  violations: readonly FieldViolation[];
}

/** Most faults one answer lists: beyond that an answer would outgrow a gRPC trailer. */
const maxViolations = 20;

/**
 * The refusal that names every faulty field of a request at once. Its message names the first, because a log may have
 * the message alone.
 */
export function invalidBodyOf(violations: readonly FieldViolation[]): Refusal {
  const [first, ...others] = violations;
  const listed = violations.slice(0, maxViolations);
  const unlisted = violations.length - listed.length;
  if (unlisted > 0)
    listed.push({ field: 'body', message: `has ${unlisted} more ${unlisted === 1 ? 'fault' : 'faults'}` });
  const rest = others.length > 0 ? `; and ${others.length} more` : '';
  const message = first
    ? `Invalid body: ${first.field} ${first.message}${rest}.`
    : catalogue.invalid_body.message;
  return { code: 'invalid_body', message, violations: listed };
}

/** The entry of a code on the reference page, relative to the public port. */
export function docPathOf(code: ErrorCode): string {
  return `/docs#error-${code}`;
}

/** The body of a refusal on the public door. */
export function toErrorJson(error: Refusal, requestId: string, docUrl: string): object {
  return {
    error: {
      code: error.code,
      message: error.message,
      request_id: requestId,
      doc_url: docUrl,
      ...(error.violations.length > 0 ? { details: error.violations } : {}),
    },
  };
}
