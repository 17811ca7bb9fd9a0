import { type DestinationStream, type Logger, pino } from 'pino';
import type { LogLevel } from './config.ts';
import type { ErrorCode } from './errors.ts';
import type { RequestContext } from './request-context.ts';

/** A logger that writes JSON, one object a line. */
export function createLogger(level: LogLevel, destination: DestinationStream): Logger {
  return pino(
    {
      level,
      base: null,
      messageKey: 'message',
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { err: serializeError },
    },
    destination,
  );
}

/**
 * Standard output: JSON as it is, or readable lines where a person watches. JSON is written in blocks, a tenth of
 * a second late at the most, and whole when the process exits: a write for every line would cost a third of the
 * service's throughput. Only a process that is killed takes its last lines with it.
 */
export async function standardOutput(isTerminal: boolean): Promise<DestinationStream> {
  if (!isTerminal) return pino.destination({ dest: 1, sync: false, minLength: 8 * 1024, periodicFlush: 100 });
  const { default: pretty } = await import('pino-pretty');
  return pretty({ messageKey: 'message', translateTime: 'SYS:HH:MM:ss.l', singleLine: true, sync: true });
}

/** How a request ended: a code of the catalogue, `ok`, `canceled` by the client, or another gRPC code. */
export type RequestOutcome = 'ok' | 'canceled' | ErrorCode | (string & {});

/** Told of every request that has ended; `rpc` is undefined for a path that is nobody's. */
export type RequestObserver = (
  context: RequestContext,
  rpc: string | undefined,
  outcome: RequestOutcome,
) => void;

/**
 * One line for one request. Only what is named here is written: headers, bodies, keys, client secrets and
 * metadata never reach it. An `internal` error is written whole, and `unavailable` with its reason.
 */
export function logRequest(
  logger: Logger,
  context: RequestContext,
  rpc: string | undefined,
  outcome: RequestOutcome,
): void {
  const { identity, error } = context;
  const line = {
    request_id: context.requestId,
    door: context.door,
    rpc,
    merchant_id: identity?.merchantTypeId,
    key_id: identity?.keyTypeId,
    mode: identity?.mode,
    code: outcome,
    replayed: context.replayed,
    trace_id: traceIdOf(context),
    duration_ms: Math.round((performance.now() - context.startedAtMs) * 1000) / 1000,
  };
  const message = `${rpc ?? 'request'} ${outcome}`;
  if (error?.code === 'internal') logger.error({ ...line, err: error.cause }, message);
  else if (error?.code === 'unavailable') logger.warn({ ...line, reason: reasonOf(error.cause) }, message);
  else logger.info(line, message);
}

/** The trace that holds the request's span; none where it was not sampled, and nobody would find it. */
function traceIdOf({ trace }: RequestContext): string | undefined {
  return trace?.span.isRecording() ? trace.span.spanContext().traceId : undefined;
}

/**
 * What an error says of itself. Its other properties stay out: PostgreSQL's `detail` quotes whole rows, metadata
 * and idempotency keys included.
 */
function serializeError(error: unknown): unknown {
  if (!(error instanceof Error)) return { message: String(error) };
  const { name, message, stack, cause } = error;
  const { code, constraint, previous } = error as {
    code?: unknown;
    constraint?: unknown;
    previous?: unknown;
  };
  const inner = cause ?? previous;
  return {
    type: name,
    message,
    code,
    constraint,
    stack,
    ...(inner === undefined || inner === error ? {} : { cause: serializeError(inner) }),
  };
}

function reasonOf(cause: unknown): string | undefined {
  return cause instanceof Error ? cause.message : undefined;
}
