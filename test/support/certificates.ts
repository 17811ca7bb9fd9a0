// Certificates for servers of a test, made by openssl.

import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

export interface Certificate {
  cert: string;
  key: string;
}

/** Makes a certificate for these names, valid for a day, that is its own authority. */
export async function makeCertificate(...names: string[]): Promise<Certificate> {
  const folder = await mkdtemp(join(tmpdir(), 'pi-cert-'));
  const [certFile, keyFile] = [join(folder, 'cert.pem'), join(folder, 'key.pem')];
  await promisify(execFile)('openssl', [
    ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '1'],
    ...['-subj', `/CN=${names[0]}`, '-addext', `subjectAltName=${names.map((name) => `DNS:${name}`).join()}`],
    ...['-keyout', keyFile, '-out', certFile],
  ]);
  const certificate = { cert: await readFile(certFile, 'utf8'), key: await readFile(keyFile, 'utf8') };
  await rm(folder, { recursive: true });
  return certificate;
}
