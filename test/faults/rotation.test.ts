// Secrets and certificates that change while the service is in use.

import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import http2 from 'node:http2';
import { join } from 'node:path';
import tls from 'node:tls';
import { promisify } from 'node:util';
import { afterEach, expect, test } from 'vitest';
import { parseKeyRing } from '../../src/config/key-ring.ts';
import { createOrm } from '../../src/database/orm.ts';
import { createApiKey } from '../../src/merchants/administration.ts';
import { doors } from '../support/call.ts';
import { choosePorts } from '../support/listen.ts';
import { report, startLoad } from './support/load.ts';
import { endAll, startProcess, useCluster } from './support/process.ts';

const cluster = useCluster();

afterEach(endAll);

test('peppers and client secret keys rotate over two processes without a refusal', async () => {
  const added = () => `2:${randomBytes(32).toString('base64')}`;
  const [pepper, key] = [added(), added()];
  // As in docs/configuration.md, a secret is first known to every process, then used.
  const known = {
    API_KEY_PEPPERS: `${cluster.secrets.API_KEY_PEPPERS},${pepper}`,
    CLIENT_SECRET_KEYS: `${cluster.secrets.CLIENT_SECRET_KEYS},${key}`,
  };
  const used = {
    API_KEY_PEPPERS: `${pepper},${cluster.secrets.API_KEY_PEPPERS}`,
    CLIENT_SECRET_KEYS: `${key},${cluster.secrets.CLIENT_SECRET_KEYS}`,
  };
  const ports = [await choosePorts(), await choosePorts()] as const;
  const services = [await startProcess(cluster, ports[0]), await startProcess(cluster, ports[1])];
  // Each idempotency key goes to both processes, which must return the same answer, whatever their key rings.
  const load = await startLoad(cluster, {
    services: [...services],
    apiKey: cluster.apiKey,
    callers: 16,
    callersPerKey: 2,
  });
  for (const secrets of [known, used]) {
    for (const [i, service] of services.entries()) {
      await load.progress(150);
      await service.end('SIGTERM');
      services[i] = await startProcess(cluster, { ...ports[i as 0 | 1], ...secrets });
    }
  }
  await load.progress(150);
  const figures = await load.finish();
  // Without the errors of a stopped process. It closes connections that were idle for a second, also one on
  // which a request is on its way.
  const refusals = [...load.failures.keys()].filter(
    (failure) => !/^(?:ECONNREFUSED|ECONNRESET|UNAVAILABLE)$/.test(failure),
  );
  expect(refusals).toEqual([]);
  const versions = await cluster.query<{ version: number }>(
    'select distinct client_secret_version as version from payment_intents order by 1',
  );
  expect(versions.map(({ version }) => version)).toEqual([1, 2]);

  // A new key is hashed with the new pepper, and both processes accept it.
  const orm = createOrm(cluster.location, 1);
  const { apiKey } = await createApiKey(
    orm.em,
    parseKeyRing(used.API_KEY_PEPPERS),
    cluster.merchantId,
    'testnet',
    undefined,
  );
  await orm.close();
  for (const { call } of services) {
    for (const door of doors) {
      expect((await call('createPaymentIntent', { amount_units: 1 }, { door, apiKey })).code).toBe('ok');
    }
  }
  // Processes that start later need the new versions, too.
  Object.assign(cluster.secrets, used);
  report(figures);
});

test('after SIGHUP new connections get the new certificate, open ones continue, and an invalid file changes nothing', async () => {
  const [certFile, keyFile] = [join(cluster.folder, 'cert.pem'), join(cluster.folder, 'key.pem')];
  const makePair = (name: string) =>
    promisify(execFile)('openssl', [
      ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '1'],
      ...['-subj', `/CN=${name}`, '-addext', 'subjectAltName=IP:127.0.0.1'],
      ...['-keyout', keyFile, '-out', certFile],
    ]);
  await makePair('first');
  const ports = await choosePorts();
  const service = await startProcess(cluster, { ...ports, TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile });
  const nameOf = (port: string) =>
    new Promise<unknown>((resolve, reject) => {
      const socket = tls.connect({ port: Number(port), host: '127.0.0.1', rejectUnauthorized: false }, () => {
        resolve(socket.getPeerCertificate().subject.CN);
        socket.destroy();
      });
      socket.on('error', reject);
    });
  const names = () => Promise.all([nameOf(ports.HTTP_PORT), nameOf(ports.GRPC_PORT)]);
  const hangUp = async (says: RegExp) => {
    const linesBefore = service.log.length;
    service.kill('SIGHUP');
    await expect
      .poll(() => service.log.slice(linesBefore).map(({ message }) => message), {
        timeout: 5_000,
        interval: 20,
      })
      .toContainEqual(expect.stringMatching(says));
  };
  expect(await names()).toEqual(['first', 'first']);
  const session = http2.connect(`https://127.0.0.1:${ports.HTTP_PORT}`, { rejectUnauthorized: false });

  await makePair('second');
  await hangUp(/TLS files reloaded/);
  expect(await names()).toEqual(['second', 'second']);

  await writeFile(certFile, 'nonsense');
  await hangUp(/not usable; keeping the old certificate/);
  expect(await names()).toEqual(['second', 'second']);

  const status = await new Promise((resolve, reject) => {
    const stream = session.request({
      ':method': 'POST',
      ':path': '/v1/payment_intents',
      authorization: `Bearer ${cluster.apiKey}`,
      'content-type': 'application/json',
    });
    stream
      .on('response', (headers) => resolve(headers[':status']))
      .on('error', reject)
      .resume();
    stream.end('{"amount_units":1}');
  });
  expect(status).toBe(201);
  await new Promise<void>((resolve) => session.close(resolve));
});
