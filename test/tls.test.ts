import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import http2 from 'node:http2';
import https from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import grpc from '@grpc/grpc-js';
import { afterAll, expect, test } from 'vitest';
import { answerOf, grpcCall, requestBytes } from './support/call.ts';
import { useService } from './support/use-service.ts';

const folder = await mkdtemp(join(tmpdir(), 'pi-tls-'));
const [certFile, keyFile] = [join(folder, 'cert.pem'), join(folder, 'key.pem')];
await promisify(execFile)('openssl', [
  ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '1'],
  ...['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1'],
  ...['-keyout', keyFile, '-out', certFile],
]);
const ca = await readFile(certFile);
const service = await useService({ TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile });

afterAll(async () => {
  await rm(folder, { recursive: true });
});

const path = '/v1/payment_intents';
const headers = () => ({
  authorization: `Bearer ${service.merchant.keys.testnet.apiKey}`,
  'content-type': 'application/json',
});

test('the public door speaks HTTP/1.1 under TLS', async () => {
  const status = await new Promise((resolve, reject) => {
    const { http: port } = service.server.ports;
    https
      .request({ port, path, method: 'POST', ca, agent: false, headers: headers() }, (response) => {
        response.resume().on('end', () => resolve(response.statusCode));
      })
      .on('error', reject)
      .end('{"amount_units":1}');
  });
  expect(status).toBe(201);
});

test.each([
  ['{"amount_units":1}', 201],
  ['{"amount_units":0}', 400],
  ['', 400],
  [`"${'x'.repeat(70_000)}"`, 413],
])('the public door speaks HTTP/2 under TLS', async (body, expected) => {
  const session = http2.connect(`https://localhost:${service.server.ports.http}`, { ca });
  const status = await new Promise((resolve, reject) => {
    const stream = session.request({ ':method': 'POST', ':path': path, ...headers() });
    stream.on('response', (response) => {
      stream.resume().on('close', () => resolve(response[':status']));
    });
    stream.on('error', reject);
    stream.end(body);
  });
  session.close();
  expect(status).toBe(expected);
});

test('the internal door speaks gRPC under TLS', async () => {
  const client = new grpc.Client(`localhost:${service.server.ports.grpc}`, grpc.credentials.createSsl(ca));
  const metadata = new grpc.Metadata();
  metadata.set('authorization', headers().authorization);
  expect(
    answerOf(await grpcCall(client, requestBytes('createPaymentIntent', { amount_units: 1 }), metadata)).code,
  ).toBe('ok');
  client.close();
});
