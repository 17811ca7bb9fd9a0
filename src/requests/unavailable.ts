import { ConnectionException, DriverException } from '@mikro-orm/core';
import { causesOf, ServiceError } from './errors.ts';

/**
 * SQLSTATE classes and codes of a server that could not run the statement now: connection exception,
 * insufficient resources (too many connections, disk full), operator intervention (canceled, shutting down,
 * starting up), system error, serialization failure, deadlock, lock not available, a read-only standby.
 */
const transientSqlState = /^(?:08...|53...|57P..|57014|58...|40001|40P01|55P03|25006)$/;
/** Error codes of the socket. */
const transientErrno =
  /^E(?:ADDRNOTAVAIL|AGAIN|AI_AGAIN|CONN(?:ABORTED|REFUSED|RESET)|HOSTUNREACH|MFILE|NETUNREACH|NFILE|NOENT|NOTFOUND|PIPE|TIMEDOUT)$/;
/** Errors of `pg` and its pool that have no code. */
const transientMessage =
  /Connection terminated|connection timeout|timeout exceeded when trying to connect|timeout expired|not queryable|Client was closed|error establishing an SSL connection/i;

/** `read_only_sql_transaction`: a statement that writes, on a standby. */
export const readOnly = '25006';
/** `query_canceled`: a statement exceeded its time limit. */
export const statementTimeout = '57014';

/** True if a statement exceeded its time limit: because of itself, or because the database hangs. */
export function isStatementTimeout(reason: unknown): boolean {
  return causesOf(reason).some((error) => codeOf(error) === statementTimeout);
}

/** True if the database could not be reached or answer now, and the same call may succeed later. */
export function isDatabaseUnavailable(reason: unknown): boolean {
  return causesOf(reason).some(
    (error) =>
      error instanceof ConnectionException ||
      isFatal(error) ||
      showsServerGone(error) ||
      transientSqlState.test(codeOf(error) ?? ''),
  );
}

/**
 * SQLSTATEs of a server that was gone, or did not accept writes: connection exception, too many connections,
 * shutting down or starting up, a standby.
 */
const serverGone = /^(?:08...|53300|57P0[123]|25006)$/;

/**
 * True if the server or the connection to it was gone: the same statement may succeed soon, perhaps on
 * another host. It is unknown whether it ran. False for a statement that was refused or took too long.
 */
export function isServerGone(reason: unknown): boolean {
  return !isStatementTimeout(reason) && causesOf(reason).some(showsServerGone);
}

/** Codes of a failed attempt to connect, and of a server that refused the statement. */
const neverRan =
  /^(?:ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|ENOTFOUND|EADDRNOTAVAIL|EAGAIN|EAI_AGAIN|ENOENT|EMFILE|ENFILE|08001|53300|57P03|25006)$/;
const neverSent =
  /trying to connect|connection timeout|timeout expired|not queryable|error establishing an SSL connection/i;

/** True if a statement that failed for this reason was sent, and so may have run. */
export function mayHaveRun(reason: unknown): boolean {
  return (
    isStatementTimeout(reason) ||
    causesOf(reason).some(
      (error) =>
        showsServerGone(error) && !neverRan.test(codeOf(error) ?? '') && !neverSent.test(error.message),
    )
  );
}

/** Returns the error of a server that no longer accepts writes. */
export function serverGoneError(message: string): Error {
  return Object.assign(new Error(message), { code: readOnly });
}

/** Returns the error after a part was stored: `transaction_resolution_unknown`, whatever failed then. */
export function mayBeStoredError(cause: unknown): Error {
  return Object.assign(new Error('a part was stored before this failed', { cause }), { code: '08007' });
}

/** Errors of sockets to the database: other sockets have the same errors. MikroORM throws copies of them. */
const databaseErrors = new WeakSet<Error>();

export function noteDatabaseError(error: unknown): void {
  if (error instanceof Error) databaseErrors.add(error);
}

/** Returns why the database was gone: a SQLSTATE, its socket's code or `connection lost`, or undefined. */
export function databaseOutageCause(reason: unknown): string | undefined {
  if (isStatementTimeout(reason)) return undefined;
  const found = causesOf(reason).find(
    (error) =>
      showsServerGone(error) &&
      (databaseErrors.has(error) ||
        error instanceof DriverException ||
        !transientErrno.test(codeOf(error) ?? '')),
  );
  return found && (codeOf(found) ?? 'connection lost');
}

/** True if the server or a pooler ended or refused a session, whatever the code. Statements may have run. */
function isFatal(error: Error & { severity?: unknown }): boolean {
  return error.severity === 'FATAL' || error.severity === 'PANIC';
}

/** SQLSTATEs of a session that is refused because of its role, password or database. */
const refusedForGood = /^(?:28...|3D000|42...)$/;

function showsServerGone(error: Error): boolean {
  const code = codeOf(error) ?? '';
  return (
    serverGone.test(code) ||
    transientErrno.test(code) ||
    transientMessage.test(error.message) ||
    (isFatal(error) && !refusedForGood.test(code))
  );
}

function codeOf({ code }: Error & { code?: unknown }): string | undefined {
  return typeof code === 'string' ? code : undefined;
}

/** Runs `work`, and throws `unavailable` if the database is at fault. */
export async function orUnavailable<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (reason) {
    throw unavailableOr(reason);
  }
}

/** Returns `unavailable` if the database is at fault, or else the reason. A refusal stays as it is. */
export function unavailableOr(reason: unknown): unknown {
  if (reason instanceof ServiceError) return reason;
  return isDatabaseUnavailable(reason) ? new ServiceError('unavailable', { cause: reason }) : reason;
}
