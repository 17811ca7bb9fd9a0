import { X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createSecureContext } from 'node:tls';
import { StartupError } from './startup-error.ts';

export interface TlsFiles {
  certFile: string;
  keyFile: string;
}

/**
 * Reads a certificate with its key, in PEM, and by when it has to be replaced: a sixth of its life before its end. Throws
 * StartupError if they cannot be read or do not belong together.
 */
export async function readTls({ certFile, keyFile }: TlsFiles) {
  const read = (variable: string, file: string) =>
    readFile(file).catch((cause) => {
      throw new StartupError(`${variable} cannot be read (${cause.message}): set it to a PEM file`, {
        cause,
      });
    });
  const pair = { cert: await read('TLS_CERT_FILE', certFile), key: await read('TLS_KEY_FILE', keyFile) };
  try {
    createSecureContext(pair);
  } catch (cause) {
    throw new StartupError(
      `TLS_CERT_FILE and TLS_KEY_FILE are not a usable pair (${(cause as Error).message}): set them to a certificate and its key in PEM`,
      { cause },
    );
  }
  const { validFromDate, validToDate } = new X509Certificate(pair.cert);
  const endsMs = validToDate.getTime();
  return { ...pair, endsMs, dueMs: endsMs - (endsMs - validFromDate.getTime()) / 6 };
}
