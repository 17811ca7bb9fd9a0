import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError } from '@connectrpc/connect';
import type { CatalogueRow, ErrorCode, FieldViolation } from '../contract/error-catalogue.ts';
import { catalogue, docPathOf, invalidBodyOf } from '../contract/error-catalogue.ts';
import {
  BadRequestSchema,
  ErrorInfoSchema,
  RequestInfoSchema,
  RetryInfoSchema,
} from '../contract/gen/google/rpc/error_details_pb.ts';

interface ServiceErrorOptions {
  /** Sent to the client in place of the catalogue's message. */
  message?: string | undefined;
  violations?: readonly FieldViolation[];
  /** Replaces the catalogue's status if HTTP has its own status for the fault. */
  httpStatus?: number;
  /** Seconds the client should wait before it retries. */
  retryAfterSeconds?: number;
  /** For `cursor_expired`: the id of the event to continue after. */
  resumeAfter?: string | undefined;
  /** Values for the answer's HTTP headers, such as `Allow`. */
  httpHeaders?: Readonly<Record<string, string>>;
  /** The actual cause: logged, never sent to the client. */
  cause?: unknown;
}

/** Seconds to wait before a retry, for temporary refusals. */
const defaultRetryAfterSeconds: Partial<Record<ErrorCode, number>> = { rate_limited: 1, unavailable: 1 };

/** A refusal from the catalogue. The only error whose message reaches a client. */
export class ServiceError extends Error {
  readonly code: ErrorCode;
  readonly violations: readonly FieldViolation[];
  readonly httpStatus: number | undefined;
  readonly retryAfterSeconds: number | undefined;
  readonly resumeAfter: string | undefined;
  readonly httpHeaders: Readonly<Record<string, string>>;

  constructor(code: ErrorCode, options: ServiceErrorOptions = {}) {
    const { stackTraceLimit } = Error;
    // A refusal is not a bug and needs no stack. Capturing one would take longer than everything else here.
    Error.stackTraceLimit = 0;
    super(options.message ?? catalogue[code].message, { cause: options.cause });
    Error.stackTraceLimit = stackTraceLimit;
    this.name = 'ServiceError';
    this.code = code;
    this.violations = options.violations ?? [];
    this.httpStatus = options.httpStatus;
    this.retryAfterSeconds = options.retryAfterSeconds ?? defaultRetryAfterSeconds[code];
    this.resumeAfter = options.resumeAfter;
    const row: CatalogueRow = catalogue[code];
    this.httpHeaders = {
      ...row.httpHeaders,
      ...(this.retryAfterSeconds !== undefined && { 'Retry-After': String(this.retryAfterSeconds) }),
      ...options.httpHeaders,
    };
  }
}

/** Returns the refusal of a request with these faults. */
export function invalidBody(violations: readonly FieldViolation[]): ServiceError {
  const { code, ...options } = invalidBodyOf(violations);
  return new ServiceError(code, options);
}

/** The same for one field. `message` is the end of a sentence. */
export const invalidField = (field: string, message: string) => invalidBody([{ field, message }]);

/** Returns the refusal of a request that the state of its resource does not allow, with the reason. */
export function invalidState(message: string): ServiceError {
  return new ServiceError('invalid_state', { message });
}

/** What is wrong with a field, as the end of a sentence; no message if the field is valid. */
export type Fault = readonly [field: string, message: string | false | undefined];

export function violationsIn(...faults: readonly Fault[]): FieldViolation[] {
  return faults.flatMap(([field, message]) => (message ? [{ field, message }] : []));
}

/** Throws the refusal of a request with these faults. Does nothing if there are none. */
export function refuseInvalid(violations: readonly FieldViolation[]): void {
  if (violations.length > 0) throw invalidBody(violations);
}

/** Converts anything thrown to a refusal. What is not in the catalogue becomes `internal`, with its cause. */
export function toServiceError(reason: unknown): ServiceError {
  return reason instanceof ServiceError ? reason : new ServiceError('internal', { cause: reason });
}

/** Converts a refusal for the internal door: the gRPC code, and the rest as `google.rpc` details. */
export function toConnectError(error: ServiceError, requestId: string): ConnectError {
  const { code, message, violations, resumeAfter, retryAfterSeconds } = error;
  const { stackTraceLimit } = Error;
  // As in ServiceError: the stack is not needed.
  Error.stackTraceLimit = 0;
  const connectError = new ConnectError(message, Code[catalogue[code].grpcCode]);
  Error.stackTraceLimit = stackTraceLimit;
  // Relative, because trailers should be small and this port does not know the public port's address.
  const metadata = {
    doc_url: docPathOf(code),
    ...(resumeAfter !== undefined && { resume_after: resumeAfter }),
  };
  const info = { reason: code.toUpperCase(), domain: 'payments', metadata };
  const fieldViolations = violations.map((each) => ({ field: each.field, description: each.message }));
  const retryDelay = durationFromMs((retryAfterSeconds ?? 0) * 1000);
  connectError.details = [
    { desc: ErrorInfoSchema, value: info },
    ...(fieldViolations.length > 0 ? [{ desc: BadRequestSchema, value: { fieldViolations } }] : []),
    ...(retryAfterSeconds === undefined ? [] : [{ desc: RetryInfoSchema, value: { retryDelay } }]),
    { desc: RequestInfoSchema, value: { requestId } },
  ];
  return connectError;
}

/** The error and its causes; MikroORM names the cause `previous`. */
export function causesOf(reason: unknown): Error[] {
  const causes: Error[] = [];
  for (let error = reason; error instanceof Error && !causes.includes(error); ) {
    causes.push(error);
    error = error.cause ?? (error as { previous?: unknown }).previous;
  }
  return causes;
}
