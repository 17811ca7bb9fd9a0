// Every error links to its entry on the reference page, at the address that the client used.

import http2 from 'node:http2';
import https from 'node:https';
import net from 'node:net';
import { text } from 'node:stream/consumers';
import { describe, expect, test } from 'vitest';
import { catalogue } from '../src/contract/error-catalogue.ts';
import { useCertificate } from './support/certificates.ts';
import { httpRequest, startService } from './support/service.ts';
import { useService } from './support/use-service.ts';

const service = await useService();
const { certFile, keyFile, ca } = await useCertificate();

const docUrlOf = (body: string) => JSON.parse(body).error.doc_url;

/** Sends bytes and reads until the service closes the connection. */
async function exchange(bytes: string): Promise<string> {
  const socket = net.connect(service.server.ports.http, '127.0.0.1');
  socket.write(bytes);
  return (await text(socket)).replace(/^[\s\S]*?\r\n\r\n/, '');
}

test('the reference page has an anchor for every code', async () => {
  const page = await (await fetch(`${service.publicUrl}/docs`)).text();
  for (const code of Object.keys(catalogue)) expect(page).toContain(`id="error-${code}"`);
});

test.each([
  ['GET', '/nothing', {}, 'not_found'],
  ['PUT', '/v1/payment_intents', {}, 'method_not_allowed'],
  ['GET', '/v1/payment_intents', {}, 'api_key_missing'],
  ['DELETE', '/docs', {}, 'method_not_allowed'],
  ['POST', '/v1/payment_intents', {}, 'api_key_missing'],
  ['POST', '/v1/payment_intents', { Authorization: 'Bearer x' }, 'api_key_invalid'],
  ['POST', '/v1/payment_intents', { Origin: 'https://shop.example' }, 'browser_forbidden'],
])('%s %s %j links to %s', async (method, path, headers, code) => {
  const answer = await httpRequest(`${service.publicUrl}${path}`, { method, headers });
  expect(docUrlOf(answer.body)).toBe(`${service.publicUrl}/docs#error-${code}`);
});

describe('the link uses the address that the client used', () => {
  test.each<[string, Record<string, string>, string]>([
    ['a name', { Host: 'payments.example' }, 'http://payments.example/docs#error-not_found'],
    ['a port', { Host: 'payments.example:8443' }, 'http://payments.example:8443/docs#error-not_found'],
    ['a name with _', { Host: 'payments_api:8080' }, 'http://payments_api:8080/docs#error-not_found'],
    ['IPv6', { Host: '[::1]:8080' }, 'http://[::1]:8080/docs#error-not_found'],
    [
      'a proxy with TLS',
      { Host: 'payments.example', 'X-Forwarded-Proto': 'https' },
      'https://payments.example/docs#error-not_found',
    ],
    [
      'two proxies',
      { Host: 'payments.example', 'X-Forwarded-Proto': 'https, http' },
      'http://payments.example/docs#error-not_found',
    ],
    [
      'a proxy that sends other values',
      { Host: 'payments.example', 'X-Forwarded-Proto': 'javascript' },
      'http://payments.example/docs#error-not_found',
    ],
    ['a user', { Host: 'a@evil.example' }, '/docs#error-not_found'],
    ['a path', { Host: 'evil.example/x' }, '/docs#error-not_found'],
    ['a quotation mark', { Host: 'a"b' }, '/docs#error-not_found'],
    ['a port of letters', { Host: 'a:b' }, '/docs#error-not_found'],
    ['a host that is too long', { Host: 'a'.repeat(254) }, '/docs#error-not_found'],
  ])('%s', async (_, headers, expected) => {
    const { body } = await httpRequest(`${service.publicUrl}/nothing`, { method: 'GET', headers });
    expect(docUrlOf(body)).toBe(expected);
  });

  test('no Host at all: the link is relative', async () => {
    expect(docUrlOf(await exchange('GET /nothing HTTP/1.0\r\n\r\n'))).toBe('/docs#error-not_found');
  });

  test('an empty Host: the link is relative', async () => {
    const body = await exchange('GET /nothing HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n');
    expect(docUrlOf(body)).toBe('/docs#error-not_found');
  });

  test('bytes that are not HTTP', async () => {
    expect(docUrlOf(await exchange('nonsense\r\n\r\n'))).toBe('/docs#error-invalid_body');
  });

  test('a request whose body is broken after its headers were read', async () => {
    const head =
      'POST /v1/payment_intents HTTP/1.1\r\nHost: payments.example\r\nTransfer-Encoding: chunked\r\n';
    const authorization = `Authorization: Bearer ${service.merchant.keys.testnet.apiKey}\r\n`;
    const body = await exchange(`${head}${authorization}Content-Type: application/json\r\n\r\nnonsense\r\n`);
    expect(docUrlOf(body)).toBe('http://payments.example/docs#error-invalid_body');
  });
});

test('over TLS the link is https, in HTTP/1.1 and HTTP/2', async () => {
  const secure = await startService({ TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile });
  const url = `https://localhost:${secure.server.ports.http}`;
  const answers = [
    await new Promise<string>((resolve, reject) => {
      https
        .get(`${url}/nothing`, { ca, agent: false }, (response) => resolve(text(response)))
        .on('error', reject);
    }),
  ];
  const session = http2.connect(url, { ca });
  answers.push(await text(session.request({ ':path': '/nothing' })));
  session.close();
  await secure.close();
  expect(answers.map(docUrlOf)).toEqual([`${url}/docs#error-not_found`, `${url}/docs#error-not_found`]);
});

test('over gRPC the link is relative to the public port, in the metadata of ErrorInfo', async () => {
  const refused = await service.call('createPaymentIntent', {}, { door: 'grpc', apiKey: null });
  expect(refused.docUrl).toBe('/docs#error-api_key_missing');
});
