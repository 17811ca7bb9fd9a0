import { ConnectionException } from '@mikro-orm/core';
import { ServiceError } from '../requests/errors.ts';

/**
 * SQLSTATE classes and codes of a server that could not run the statement now: connection exception, insufficient
 * resources (too many connections, disk full), operator intervention (shutting down, starting up), system error,
 * serialization failure and deadlock, lock not available, a standby that is read-only.
 */
const transientSqlState = /^(?:08...|53...|57P..|57014|58...|40001|40P01|55P03|25006)$/;
/** Error codes of the socket. */
const transientErrno = new Set([
  'EADDRNOTAVAIL',
  'ECONNABORTED',
  'ECONNREFUSED',
  'ECONNRESET',
  'ENOENT',
  'ENOTFOUND',
  'EHOSTUNREACH',
  'EMFILE',
  'ENETUNREACH',
  'ENFILE',
  'EPIPE',
  'ETIMEDOUT',
  'EAI_AGAIN',
]);
/** Errors of `pg` and its pool that have no code. */
const transientMessage =
  /Connection terminated|connection timeout|timeout exceeded when trying to connect|not queryable|Client was closed/i;

/** `query_canceled`: a statement took longer than it may. */
export const statementTimeout = '57014';

/** True if a statement took longer than it may: because of itself, or because the database stands still. */
export function isStatementTimeout(reason: unknown): boolean {
  return causesOf(reason).some((error) => (error as { code?: unknown }).code === statementTimeout);
}

/** True if the database could not be reached or could not respond now, and the same call may succeed later. */
export function isDatabaseUnavailable(reason: unknown): boolean {
  for (const error of causesOf(reason)) {
    if (error instanceof ConnectionException) return true;
    const { code, severity } = error as { code?: unknown; severity?: unknown };
    // The server ended the session or refused it.
    if (severity === 'FATAL' || severity === 'PANIC') return true;
    if (typeof code === 'string' && (transientSqlState.test(code) || transientErrno.has(code))) return true;
    if (transientMessage.test(error.message)) return true;
  }
  return false;
}

/** Runs `work`, and throws `unavailable` if the database is at fault. */
export async function orUnavailable<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (reason) {
    throw isDatabaseUnavailable(reason) ? new ServiceError('unavailable', { cause: reason }) : reason;
  }
}

/** The error, and those that it came from. */
function causesOf(reason: unknown): Error[] {
  const causes: Error[] = [];
  for (let error = reason; error instanceof Error && !causes.includes(error); ) {
    causes.push(error);
    error = error.cause ?? (error as { previous?: unknown }).previous;
  }
  return causes;
}
