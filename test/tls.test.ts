import { X509Certificate } from 'node:crypto';
import http2 from 'node:http2';
import https from 'node:https';
import grpc from '@grpc/grpc-js';
import { expect, onTestFinished, test, vi } from 'vitest';
import { readTls } from '../src/config/config.ts';
import { diagnose } from '../src/processes/doctor.ts';
import { answerOf, grpcCall, requestBytes } from './support/call.ts';
import { useCertificate } from './support/certificates.ts';
import { useService } from './support/use-service.ts';

const { certFile, keyFile, ca } = await useCertificate();
const service = await useService({ TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile });

const path = '/v1/payment_intents';
const headers = () => ({
  authorization: `Bearer ${service.merchant.keys.testnet.apiKey}`,
  'content-type': 'application/json',
});

test('doctor wants a certificate that lasts for 14 days', async () => {
  const endsMs = Date.parse(new X509Certificate(ca).validTo);
  const clock = vi.spyOn(Date, 'now');
  onTestFinished(() => clock.mockRestore());
  const isOk = async (days: number) => {
    clock.mockReturnValue(endsMs - days * 86_400_000);
    for await (const { check, ok } of diagnose({ TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile }))
      if (check === 'TLS') return ok;
  };
  expect([await isOk(14), await isOk(13)]).toEqual([true, false]);
});

test('a certificate is due to be replaced when a sixth of its life is left', async () => {
  const { endsMs, dueMs } = await readTls({ certFile, keyFile });
  // It is valid for a day.
  expect(endsMs - dueMs).toBe(4 * 3_600_000);
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
