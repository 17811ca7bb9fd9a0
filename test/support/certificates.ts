// Certificates for servers of a test, made by openssl.

import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll } from 'vitest';

export interface Certificate {
  cert: string;
  key: string;
}

/** Makes a certificate for these names, valid for a day, that is its own authority. */
export async function makeCertificate(...names: string[]): Promise<Certificate> {
  const { folder, certFile, keyFile } = await makeFiles(names.map((name) => `DNS:${name}`));
  const certificate = { cert: await readFile(certFile, 'utf8'), key: await readFile(keyFile, 'utf8') };
  await rm(folder, { recursive: true });
  return certificate;
}

/** Makes a certificate for this machine, in files that exist until the tests of the file have ended. */
export async function useCertificate(): Promise<{ certFile: string; keyFile: string; ca: Buffer }> {
  const { folder, ...files } = await makeFiles(['DNS:localhost', 'IP:127.0.0.1']);
  afterAll(() => rm(folder, { recursive: true }));
  return { ...files, ca: await readFile(files.certFile) };
}

async function makeFiles(names: readonly string[]) {
  const folder = await mkdtemp(join(tmpdir(), 'pi-cert-'));
  const [certFile, keyFile] = [join(folder, 'cert.pem'), join(folder, 'key.pem')];
  await promisify(execFile)('openssl', [
    ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '1'],
    ...['-subj', `/CN=${names[0]?.slice(4)}`, '-addext', `subjectAltName=${names.join()}`],
    ...['-keyout', keyFile, '-out', certFile],
  ]);
  return { folder, certFile, keyFile };
}
