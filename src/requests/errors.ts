import { create } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError } from '@connectrpc/connect';
import {
  type CatalogueRow,
  catalogue,
  docPathOf,
  type ErrorCode,
  type FieldViolation,
  invalidBodyOf,
} from '../contract/error-catalogue.ts';
import {
  BadRequestSchema,
  ErrorInfoSchema,
  RequestInfoSchema,
  RetryInfoSchema,
} from '../contract/gen/google/rpc/error_details_pb.ts';

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

const noHeaders = {};

/** Seconds to wait before the next try, of what passes by itself. */
const defaultRetryAfterSeconds: Partial<Record<ErrorCode, number>> = { rate_limited: 1, unavailable: 1 };

/** A refusal from the catalogue. The only error whose words reach a client. */
export class ServiceError extends Error {
  readonly code: ErrorCode;
  readonly violations: readonly FieldViolation[];
  readonly httpStatus: number | undefined;
  readonly retryAfterSeconds: number | undefined;
  readonly httpHeaders: Readonly<Record<string, string>>;

  constructor(code: ErrorCode, options: ServiceErrorOptions = {}) {
    const { stackTraceLimit } = Error;
    // A refusal is no fault of the code: nobody reads its stack, and to capture it takes longer than all else.
    Error.stackTraceLimit = 0;
    super(options.message ?? catalogue[code].message, { cause: options.cause });
    Error.stackTraceLimit = stackTraceLimit;
    this.name = 'ServiceError';
    this.code = code;
    this.violations = options.violations ?? [];
    this.httpStatus = options.httpStatus;
    this.retryAfterSeconds = options.retryAfterSeconds ?? defaultRetryAfterSeconds[code];
    const row: CatalogueRow = catalogue[code];
    this.httpHeaders =
      this.retryAfterSeconds === undefined && options.httpHeaders === undefined
        ? (row.httpHeaders ?? noHeaders)
        : {
            ...row.httpHeaders,
            ...(this.retryAfterSeconds !== undefined && { 'Retry-After': String(this.retryAfterSeconds) }),
            ...options.httpHeaders,
          };
  }
}

const plainRefusals = new Map<ErrorCode, ServiceError>();

/**
 * The refusal with the catalogue's words and nothing else, the same object each time: to make an error takes longer than
 * to decide most of these.
 */
export function plainRefusal(code: ErrorCode): ServiceError {
  let refusal = plainRefusals.get(code);
  if (refusal === undefined) {
    refusal = new ServiceError(code);
    plainRefusals.set(code, refusal);
  }
  return refusal;
}

/** The refusal of a request with these faults. */
export function invalidBody(violations: readonly FieldViolation[]): ServiceError {
  const { code, ...options } = invalidBodyOf(violations);
  return new ServiceError(code, options);
}

/** Anything thrown, as a refusal: what is not from the catalogue is `internal` and keeps its cause for the log. */
export function toServiceError(reason: unknown): ServiceError {
  return reason instanceof ServiceError ? reason : new ServiceError('internal', { cause: reason });
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

/** The gRPC code of a refusal. */
export function grpcCodeOf(code: ErrorCode): Code {
  return Code[catalogue[code].grpcCode];
}

/** A refusal on the internal door: the gRPC code, and the rest as `google.rpc` details. */
export function toConnectError(error: ServiceError, requestId: string): ConnectError {
  const { stackTraceLimit } = Error;
  // As in ServiceError: nobody reads it.
  Error.stackTraceLimit = 0;
  const connectError = new ConnectError(rpcText(error.message), grpcCodeOf(error.code));
  Error.stackTraceLimit = stackTraceLimit;
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
