// Remedies for database errors: PostgreSQL's own messages name the fault, but seldom the remedy.

import { causesOf } from '../requests/errors.ts';

/** SQLSTATE: the role lacks a right. */
export const insufficientPrivilege = '42501';

/** SQLSTATE: a lock was not granted within `lock_timeout`. */
export const lockNotAvailable = '55P03';

const remedies: Record<string, string> = {
  [lockNotAvailable]:
    'another session holds a lock, such as pg_dump or a vacuum. Nothing was changed: run the command again when it has ended',
  [insufficientPrivilege]:
    'grant the role of DATABASE_URL what it lacks ("Rights" in docs/operations.md), or use a role that has it',
  '25006':
    'the database can only be read: it is a standby (DATABASE_URL has to name the primary), or default_transaction_read_only is on, as hosts set it when a disk is full',
  '53300':
    'its connections are used up: end sessions (pg_stat_activity), lower DATABASE_POOL, or raise max_connections',
  '57014': 'another session may hold a lock: pg_blocking_pids says which',
  '53100': "make room on the database's disk",
  '28000': 'check the role and the password in DATABASE_URL, and pg_hba.conf of the server',
  '28P01': 'check the role and the password in DATABASE_URL',
  '3D000': 'create the database ("From nothing" in docs/operations.md), or correct DATABASE_URL',
  ERR_TLS_CERT_ALTNAME_INVALID:
    "the certificate is for another host: use the name it is for, or sslmode=verify-ca with the server's CA",
};

/** Node.js's codes for a certificate that is not trusted. */
const untrustedCertificate =
  /^(?:DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO_\w+|CERT_\w+)$/;

/** Returns the first error with a code in a chain of causes: a SQLSTATE, or a code of the system. */
export function faultOf(error: unknown): { code: string; message: string } | undefined {
  for (const cause of causesOf(error)) {
    const inner = cause instanceof AggregateError ? cause.errors[0] : cause;
    const { code, message } = inner as { code?: unknown; message: string };
    if (typeof code === 'string') return { code, message: message.split('\n', 1)[0] as string };
  }
  return undefined;
}

/** Returns the remedy for an error, or undefined if none is known. */
export function remedyFor(error: unknown): string | undefined {
  const { code = '', message = '' } = faultOf(error) ?? {};
  if (/no encryption$/.test(message))
    return 'the server asks for TLS: add sslmode=verify-full to DATABASE_URL';
  if (untrustedCertificate.test(code)) {
    return "the server's certificate is not trusted: name its CA with sslrootcert in DATABASE_URL";
  }
  if (remedies[code] !== undefined) return remedies[code];
  if (error instanceof Error && /does not support SSL/.test(error.message)) {
    return 'turn TLS on in the server, or write sslmode=disable if you control the whole network in between';
  }
  return undefined;
}
