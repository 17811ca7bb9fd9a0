// The wrong protocol on a port gets a readable answer if the protocol allows one, and a log line.

import { once } from 'node:events';
import http from 'node:http';
import http2 from 'node:http2';
import net from 'node:net';
import { text } from 'node:stream/consumers';
import tls from 'node:tls';
import { queryObjects } from 'node:v8';
import grpc from '@grpc/grpc-js';
import { afterAll, describe, expect, test } from 'vitest';
import { answerOf, grpcCall, requestBytes } from './support/call.ts';
import { useCertificate } from './support/certificates.ts';
import { startService, type TestService } from './support/service.ts';

const { certFile, keyFile, ca } = await useCertificate();
const plain = await startService({ HEADERS_TIMEOUT: '1' });
const secure = await startService({ TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile });

afterAll(async () => {
  await Promise.all([plain.close(), secure.close()]);
});

const ports = (service: TestService) => service.server.ports;
const preface = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u0004\0\0\0\0\0';

/** Returns everything received before the connection ends. */
function talk(port: number, bytes: string): Promise<string> {
  const socket = net.connect(port, '127.0.0.1');
  socket.write(bytes);
  return text(socket);
}

function warnings(service: TestService): unknown[] {
  return service.log.filter(({ spoken }) => spoken !== undefined).map(({ message }) => message);
}

describe('plain ports', () => {
  test('HTTP/1.1 to the internal port is answered with the port for JSON', async () => {
    const body = await new Promise<string>((resolve, reject) => {
      http
        .get({ port: ports(plain).grpc, host: '127.0.0.1', agent: false }, (response) => {
          expect(response.statusCode).toBe(400);
          response.setEncoding('utf8').on('data', resolve);
        })
        .on('error', reject);
    });
    expect(JSON.parse(body).error).toMatchObject({
      code: 'invalid_body',
      message: expect.stringMatching(/speaks HTTP\/2, for gRPC .* JSON over HTTP\/1.1 is on HTTP_PORT/),
    });
    expect(warnings(plain)).toContain('a client speaks HTTP/1.1 to GRPC_PORT, which speaks HTTP/2');
  });

  test('HTTP/2 to the public port is answered with the right port', async () => {
    expect(await talk(ports(plain).http, preface)).toMatch(
      /^HTTP\/1\.1 400 [\s\S]*speaks HTTP\/1.1, and HTTP\/2 only where it has TLS/,
    );
    expect(warnings(plain)).toContain('a client speaks HTTP/2 to HTTP_PORT, which speaks HTTP/1.1');
  });

  test('HTTP/2 to the operations port is answered with the protocol that it speaks', async () => {
    expect(await talk(ports(plain).metrics, preface)).toMatch(/^HTTP\/1\.1 400 [\s\S]*speaks HTTP\/1.1/);
    expect(warnings(plain)).toContain('a client speaks HTTP/2 to METRICS_PORT, which speaks HTTP/1.1');
  });

  test.each([
    ['HTTP_PORT', 'HTTP/1.1', () => ports(plain).http],
    ['GRPC_PORT', 'HTTP/2', () => ports(plain).grpc],
  ])('TLS to %s is logged', async (variable, expected, port) => {
    const socket = tls.connect({ port: port(), host: '127.0.0.1', ca });
    await once(socket, 'error');
    expect(warnings(plain)).toContain(
      `a client speaks TLS to ${variable}, which speaks ${expected}: connect without TLS, or set TLS_CERT_FILE and TLS_KEY_FILE`,
    );
  });

  test.each([
    ['HTTP_PORT', () => ports(plain).http],
    ['GRPC_PORT', () => ports(plain).grpc],
    ['METRICS_PORT', () => ports(plain).metrics],
    ['METRICS_PORT where the others have TLS', () => ports(secure).metrics],
  ])('TLS to %s is answered with HTTP, which TLS clients can report', async (_, port) => {
    expect(await talk(port(), '\x16\x03\x01\x00\x05hello')).toMatch(
      /^HTTP\/1\.1 400 [\s\S]*This port does not speak TLS\. Use http in place of https\./,
    );
  });

  test('the log does not advise TLS for METRICS_PORT', () => {
    for (const service of [plain, secure]) {
      expect(warnings(service)).toContain(
        'a client speaks TLS to METRICS_PORT, which speaks HTTP/1.1: connect without TLS',
      );
    }
  });

  test('a silent connection is closed after HEADERS_TIMEOUT', async () => {
    const socket = net.connect(ports(plain).grpc, '127.0.0.1');
    socket.resume();
    await once(socket, 'close');
  });

  test('a connection that has sent nothing gets no answer, which could be taken for that of a later request', async () => {
    expect(await talk(ports(plain).http, '')).toBe('');
    expect(await talk(ports(plain).http, 'GET / HTTP/1.1\r\nHost: x\r\n')).toMatch(/^HTTP\/1\.1 408 /);
  });

  test('a client that stays after its answer is cut off after HEADERS_TIMEOUT', async () => {
    const open = async () => {
      const text = await (await fetch(`${plain.operationsUrl}/metrics`)).text();
      return /open_connections\{port="internal"\} (\d+)/.exec(text)?.[1];
    };
    await expect.poll(open).toBe('0');
    const socket = net.connect({ port: ports(plain).grpc, host: '127.0.0.1', allowHalfOpen: true });
    socket.resume().write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
    await once(socket, 'end');
    expect(await open()).toBe('1');
    await expect.poll(open).toBe('0');
    socket.destroy();
  });

  test('repeated mistakes are logged once and counted', async () => {
    const count = () =>
      warnings(plain).filter((message) => /an unknown protocol to GRPC_PORT/.test(String(message)));
    for (let i = 0; i < 5; i++) expect(await talk(ports(plain).grpc, '\u0001\u0002nonsense')).toBe('');
    expect(count()).toHaveLength(1);
  });

  test('gRPC still works on that port', async () => {
    const client = new grpc.Client(`127.0.0.1:${ports(plain).grpc}`, grpc.credentials.createInsecure());
    const metadata = new grpc.Metadata();
    metadata.set('authorization', `Bearer ${plain.merchant.keys.testnet.apiKey}`);
    expect(
      answerOf(await grpcCall(client, requestBytes('createPaymentIntent', { amount_units: 1 }), metadata))
        .code,
    ).toBe('ok');
    client.close();
  });
});

describe('ports with TLS', () => {
  test.each([
    ['HTTP_PORT', () => ports(secure).http],
    ['GRPC_PORT', () => ports(secure).grpc],
  ])('plain HTTP to %s is answered with a hint to use https', async (variable, port) => {
    const answer = await talk(port(), 'GET / HTTP/1.1\r\nHost: x\r\n\r\n');
    expect(answer).toMatch(/^HTTP\/1\.1 400 [\s\S]*This port speaks TLS. Use https in place of http/);
    expect(await talk(port(), preface)).toMatch(/This port speaks TLS/);
    expect(warnings(secure)).toContain(`a client speaks HTTP/1.1 to ${variable}, which speaks TLS`);
    expect(warnings(secure)).toContain(`a client speaks HTTP/2 to ${variable}, which speaks TLS`);
  });

  test('TLS still works on those ports', async () => {
    for (const port of [ports(secure).http, ports(secure).grpc]) {
      const session = http2.connect(`https://localhost:${port}`, { ca });
      await once(session, 'connect');
      session.close();
      await once(session, 'close');
    }
  });
});

test('HTTP/2 sessions are kept no longer than their connections, with and without TLS, however they end', {
  timeout: 120_000,
}, async () => {
  const connectOnce = async (url: string, end: 'close' | 'destroy') => {
    const session = http2.connect(url, { ca });
    await once(session, 'remoteSettings');
    session[end]();
    await once(session, 'close');
    // The class of a client's and a server's sessions.
    return Object.getPrototypeOf(session.constructor);
  };
  const kind = await connectOnce(plain.internalUrl, 'close');
  // Collects garbage, for seconds if this process has run many tests.
  const count = () => queryObjects(kind, { format: 'count' });
  const before = count();
  for (let i = 0; i < 20; i++) {
    await connectOnce(plain.internalUrl, 'close');
    await connectOnce(plain.internalUrl, 'destroy');
    await connectOnce(`https://localhost:${ports(secure).http}`, 'destroy');
    const socket = net.connect(ports(plain).grpc, '127.0.0.1');
    socket.write(preface);
    await once(socket, 'data');
    socket.destroy();
  }
  await expect.poll(count, { interval: 1_000, timeout: 50_000 }).toBeLessThan(before + 5);
});
