// Plain data and pure functions: the clients and the reference page are built from this file too.

export interface CatalogueRow {
  httpStatus: number;
  /** The name in Connect's `Code`. */
  grpcCode: string;
  /** The message for the client, unless the refusing code has a more exact one. */
  message: string;
  httpHeaders?: Readonly<Record<string, string>>;
}

/** One row for each code. Messages are for the client and never contain anything internal. */
export const catalogue = {
  api_key_missing: {
    httpStatus: 401,
    grpcCode: 'Unauthenticated',
    message: 'No API key was given. Send your secret key in the Authorization header with the Bearer scheme.',
    httpHeaders: { 'WWW-Authenticate': 'Bearer' },
  },
  api_key_invalid: {
    httpStatus: 401,
    grpcCode: 'Unauthenticated',
    message: 'The API key is not accepted. Check that it is complete and neither expired nor revoked.',
    httpHeaders: { 'WWW-Authenticate': 'Bearer error="invalid_token"' },
  },
  client_secret_invalid: {
    httpStatus: 401,
    grpcCode: 'Unauthenticated',
    message:
      'The client secret is missing or not accepted. Send the whole client_secret of the intent in the Authorization header with the Bearer scheme.',
    httpHeaders: { 'WWW-Authenticate': 'Bearer error="invalid_token"' },
  },
  browser_forbidden: {
    httpStatus: 403,
    grpcCode: 'PermissionDenied',
    message:
      'The request comes from a browser and API keys never belong in one. Call this endpoint from your server.',
  },
  permission_denied: {
    httpStatus: 403,
    grpcCode: 'PermissionDenied',
    message: 'The session has no right to do this.',
  },
  invalid_body: {
    httpStatus: 400,
    grpcCode: 'InvalidArgument',
    message: 'The request is invalid. The details list every invalid field.',
  },
  idempotency_key_reused: {
    httpStatus: 422,
    grpcCode: 'FailedPrecondition',
    message:
      'This idempotency key was used before with a different request. Use a new key for a new request and the same request for a retry.',
  },
  idempotency_key_invalid: {
    httpStatus: 400,
    grpcCode: 'InvalidArgument',
    message: 'The idempotency key has to be 1 to 255 visible ASCII characters.',
  },
  resource_missing: {
    httpStatus: 404,
    grpcCode: 'NotFound',
    message: 'You have no resource with this id in the mode of this API key.',
  },
  invalid_state: {
    httpStatus: 409,
    grpcCode: 'FailedPrecondition',
    message: 'The state of the resource does not allow this. Retrieve it to see its present state.',
  },
  chain_unwatched: {
    httpStatus: 409,
    grpcCode: 'FailedPrecondition',
    message:
      'The service is not watching this chain at the moment and would not see payments on it. Choose another chain or send us the request id.',
  },
  cursor_expired: {
    httpStatus: 410,
    grpcCode: 'OutOfRange',
    message:
      'Some events after this cursor are no longer kept. Start again without a cursor and then retrieve the resources that you track.',
  },
  not_found: { httpStatus: 404, grpcCode: 'Unimplemented', message: 'No route matches this path.' },
  method_not_allowed: {
    httpStatus: 405,
    grpcCode: 'Unimplemented',
    message: 'This path does not accept that method. The Allow header lists the methods it accepts.',
  },
  body_too_large: {
    httpStatus: 413,
    grpcCode: 'ResourceExhausted',
    message: 'The request body is larger than 64 KiB.',
  },
  unsupported_media_type: {
    httpStatus: 415,
    grpcCode: 'Unimplemented',
    message: 'The body must be uncompressed JSON and declared as JSON in Content-Type.',
  },
  rate_limited: {
    httpStatus: 429,
    grpcCode: 'ResourceExhausted',
    message: 'Too many requests with this API key. Wait and retry with the same idempotency key.',
  },
  unavailable: {
    httpStatus: 503,
    grpcCode: 'Unavailable',
    message: 'The service cannot answer right now. Retry with the same idempotency key.',
  },
  internal: {
    httpStatus: 500,
    grpcCode: 'Internal',
    message:
      'Something went wrong on our side. Retry with the same idempotency key or send us the request id.',
  },
} as const satisfies Record<string, CatalogueRow>;

/** Every code with which this service refuses a request, over HTTP and gRPC. */
export type ErrorCode = keyof typeof catalogue;

/** True if the same request may succeed when sent again. A client may receive codes newer than itself. */
export function isRetryable(code: string): boolean {
  const { httpStatus } = Object.hasOwn(catalogue, code) ? catalogue[code as ErrorCode] : { httpStatus: 0 };
  return httpStatus === 429 || httpStatus >= 500;
}

/** One fault of one field, named as in the request: `amount_units`, not `amountUnits`. */
export interface FieldViolation {
  field: string;
  message: string;
}

/** A refusal, as sent over HTTP and gRPC. */
interface Refusal {
  code: ErrorCode;
  message: string;
  violations: readonly FieldViolation[];
  /** For `cursor_expired`: the id of the event to continue after. */
  resumeAfter?: string | undefined;
}

/** The most faults listed in one answer. More would not fit in a gRPC trailer. */
export const maxViolations = 20;

/** Returns a refusal that lists the faulty fields. Its message names the first, for logs without the list. */
export function invalidBodyOf(violations: readonly FieldViolation[]): Refusal {
  const [first, ...others] = violations;
  const listed = violations.slice(0, maxViolations);
  const unlisted = violations.length - listed.length;
  if (unlisted > 0)
    listed.push({ field: 'request', message: `has ${unlisted} more ${unlisted === 1 ? 'fault' : 'faults'}` });
  const rest = others.length > 0 ? `; and ${others.length} more` : '';
  const message = first
    ? `Invalid request: ${first.field} ${first.message}${rest}.`
    : catalogue.invalid_body.message;
  return { code: 'invalid_body', message, violations: listed };
}

/** The path of a code's entry on the reference page, relative to the public port. */
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
      ...(error.resumeAfter !== undefined ? { resume_after: error.resumeAfter } : {}),
    },
  };
}
