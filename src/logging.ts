import { type Logger, pino } from 'pino';
import type { LogLevel } from './config.ts';
import { catalogue, type ErrorCode } from './errors.ts';
import { formatIdentifier } from './identifiers.ts';
import type { RequestContext } from './request-context.ts';

/** A logger to standard output: JSON, one object a line, or readable lines where a person watches. */
export function createLogger(level: LogLevel, isTerminal: boolean): Logger {
  const options = { level, base: null, messageKey: 'message', timestamp: pino.stdTimeFunctions.isoTime };
  if (!isTerminal) return pino(options);
  return pino({
    ...options,
    transport: {
      target: 'pino-pretty',
      options: { messageKey: 'message', translateTime: 'SYS:HH:MM:ss.l', singleLine: true, ignore: 'pid,hostname' },
    },
  });
}

/** How a request ended: a code of the catalogue, `ok`, `canceled` by the client, or another gRPC code. */
export type RequestOutcome = 'ok' | 'canceled' | ErrorCode | (string & {});

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
    merchant_id: identity && formatIdentifier('mer', identity.merchantId),
    key_id: identity && formatIdentifier('key', identity.keyId),
    mode: identity?.mode,
    code: outcome,
    replayed: context.replayed,
    duration_ms: Math.round((performance.now() - context.startedAtMs) * 1000) / 1000,
  };
  if (error?.code === 'internal') {
    logger.error({ ...line, err: error.cause }, 'request failed');
  } else if (error?.code === 'unavailable') {
    logger.warn({ ...line, reason: reasonOf(error.cause) }, 'request refused');
  } else {
    logger.info(line, outcome in catalogue ? 'request refused' : 'request');
  }
}

function reasonOf(cause: unknown): string | undefined {
  return cause instanceof Error ? cause.message : undefined;
}
