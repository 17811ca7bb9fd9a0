import { create } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError } from '@connectrpc/connect';
import type { ErrorCode, isRetryableByCode } from './error-codes.ts';
import {
  BadRequestSchema,
  ErrorInfoSchema,
  RequestInfoSchema,
  RetryInfoSchema,
} from './gen/google/rpc/error_details_pb.ts';

export type { ErrorCode };

interface CatalogueRow {
  httpStatus: number;
  grpcCode: Code;
  /** True where the same request, sent again, may succeed. */
  retryable: boolean;
  /** What the client reads unless the place of the refusal has something more exact to say. */
  message: string;
  httpHeaders?: Readonly<Record<string, string>>;
}

/**
 * The catalogue: one row a code.
 *
 * Messages speak to the client and never carry anything internal. Over gRPC `rpcText` rewrites some characters.
 */
export const catalogue = {
  api_key_missing: {
    httpStatus: 401,
    grpcCode: Code.Unauthenticated,
    retryable: false,
    message: 'No API key was given. Send your secret key in the Authorization header with the Bearer scheme.',
    httpHeaders: { 'WWW-Authenticate': 'Bearer' },
  },
  api_key_invalid: {
    httpStatus: 401,
    grpcCode: Code.Unauthenticated,
    retryable: false,
    message: 'The API key is not accepted. Check that it is complete and neither expired nor revoked.',
    httpHeaders: { 'WWW-Authenticate': 'Bearer error="invalid_token"' },
  },
  browser_forbidden: {
    httpStatus: 403,
    grpcCode: Code.PermissionDenied,
    retryable: false,
    message:
      'The request comes from a browser and API keys never belong in one. Call this endpoint from your server.',
  },
  invalid_body: {
    httpStatus: 400,
    grpcCode: Code.InvalidArgument,
    retryable: false,
    message: 'The request body is not acceptable. The details name every faulty field.',
  },
  idempotency_key_reused: {
    httpStatus: 422,
    grpcCode: Code.FailedPrecondition,
    retryable: false,
    message:
      'This idempotency key was used before with a different request. Use a new key for a new request and the same request for a retry.',
  },
  idempotency_key_invalid: {
    httpStatus: 400,
    grpcCode: Code.InvalidArgument,
    retryable: false,
    message: 'The idempotency key has to be 1 to 255 visible ASCII characters.',
  },
  not_found: {
    httpStatus: 404,
    grpcCode: Code.Unimplemented,
    retryable: false,
    message: 'There is nothing at this path.',
  },
  method_not_allowed: {
    httpStatus: 405,
    grpcCode: Code.Unimplemented,
    retryable: false,
    message: 'This path does not answer that method. The Allow header lists the methods it answers.',
  },
  body_too_large: {
    httpStatus: 413,
    grpcCode: Code.ResourceExhausted,
    retryable: false,
    message: 'The request body is larger than 64 KiB.',
  },
  unsupported_media_type: {
    httpStatus: 415,
    grpcCode: Code.Unimplemented,
    retryable: false,
    message: 'The body has to be JSON without any content encoding. Send Content-Type application json.',
  },
  rate_limited: {
    httpStatus: 429,
    grpcCode: Code.ResourceExhausted,
    retryable: true,
    message: 'Too many requests with this API key. Wait and retry with the same idempotency key.',
  },
  unavailable: {
    httpStatus: 503,
    grpcCode: Code.Unavailable,
    retryable: true,
    message: 'The service cannot answer right now. Retry with the same idempotency key.',
  },
  internal: {
    httpStatus: 500,
    grpcCode: Code.Internal,
    retryable: true,
    message:
      'Something went wrong on our side. Retry with the same idempotency key or tell us the request id.',
  },
} as const satisfies { [Code in ErrorCode]: CatalogueRow & { retryable: (typeof isRetryableByCode)[Code] } };

/** One fault of one field, in the words of the request: `amount_units`, not `amountUnits`. */
export interface FieldViolation {
  field: string;
  message: string;
}

export interface ServiceErrorOptions {
  /** Said to the client in place of the catalogue's message. */
  message?: string;
  violations?: readonly FieldViolation[];
  /** In place of the catalogue's, where HTTP has a status of its own for the fault. */
  httpStatus?: number;
  /** Seconds the client should wait before it retries. */
  retryAfterSeconds?: number;
  /** Values for the answer's HTTP headers, such as `Allow`. */
  httpHeaders?: Readonly<Record<string, string>>;
  /** What really happened: logged, never answered. */
  cause?: unknown;
}

/** A refusal from the catalogue. The only error whose words reach a client. */
export class ServiceError extends Error {
  readonly code: ErrorCode;
  readonly violations: readonly FieldViolation[];
  readonly httpStatus: number | undefined;
  readonly retryAfterSeconds: number | undefined;
  readonly httpHeaders: Readonly<Record<string, string>>;

  constructor(code: ErrorCode, options: ServiceErrorOptions = {}) {
    super(options.message ?? catalogue[code].message, { cause: options.cause });
    this.name = 'ServiceError';
    this.code = code;
    this.violations = options.violations ?? [];
    this.httpStatus = options.httpStatus;
    this.retryAfterSeconds = options.retryAfterSeconds ?? (code === 'unavailable' ? 1 : undefined);
    const row: CatalogueRow = catalogue[code];
    this.httpHeaders = {
      ...row.httpHeaders,
      ...(this.retryAfterSeconds === undefined ? {} : { 'Retry-After': String(this.retryAfterSeconds) }),
      ...options.httpHeaders,
    };
  }
}

/** Most faults one answer lists: beyond that an answer would outgrow a gRPC trailer. */
const maxViolations = 20;

/**
 * The refusal that names every faulty field of a request at once. Its message names the first, because a log may have
 * the message alone.
 */
export function invalidBody(violations: readonly FieldViolation[]): ServiceError {
  const [first, ...others] = violations;
  const listed = violations.slice(0, maxViolations);
  const unlisted = violations.length - listed.length;
  if (unlisted > 0)
    listed.push({ field: 'body', message: `has ${unlisted} more ${unlisted === 1 ? 'fault' : 'faults'}` });
  const rest = others.length > 0 ? `; and ${others.length} more` : '';
  const message = first && `Invalid body: ${first.field} ${first.message}${rest}.`;
  return new ServiceError('invalid_body', { violations: listed, ...(message && { message }) });
}

/** Anything thrown, as a refusal: what is not from the catalogue is `internal` and keeps its cause for the log. */
export function toServiceError(reason: unknown): ServiceError {
  return reason instanceof ServiceError ? reason : new ServiceError('internal', { cause: reason });
}

/** The entry of a code on the reference page, relative to the public port. */
export function docPathOf(code: ErrorCode): string {
  return `/docs#error-${code}`;
}

/** The body of a refusal on the public door. */
export function toErrorJson(error: ServiceError, requestId: string, docUrl: string): object {
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

/**
 * A message without `= / : , ; ? & + $ # @`: Connect percent-encodes those in `grpc-message`, and `@grpc/grpc-js` does
 * not decode them.
 */
function rpcText(message: string): string {
  return message
    .replace(/[:;]/g, ' -')
    .replaceAll(',', '')
    .replace(/[=/?&+$#@]/g, ' ');
}

/** A refusal on the internal door: the gRPC code, and the rest as `google.rpc` details. */
export function toConnectError(error: ServiceError, requestId: string): ConnectError {
  const connectError = new ConnectError(rpcText(error.message), catalogue[error.code].grpcCode);
  connectError.details = [
    {
      desc: ErrorInfoSchema,
      value: {
        reason: error.code.toUpperCase(),
        domain: 'payments',
        // Relative, as trailers are small, and this port does not know the address of the other.
        metadata: { doc_url: docPathOf(error.code) },
      },
    },
    ...(error.violations.length > 0
      ? [
          {
            desc: BadRequestSchema,
            value: {
              fieldViolations: error.violations.map(({ field, message }) => ({
                field,
                description: message,
              })),
            },
          },
        ]
      : []),
    ...(error.retryAfterSeconds === undefined
      ? []
      : [
          {
            desc: RetryInfoSchema,
            value: create(RetryInfoSchema, { retryDelay: durationFromMs(error.retryAfterSeconds * 1000) }),
          },
        ]),
    { desc: RequestInfoSchema, value: { requestId } },
  ];
  return connectError;
}
