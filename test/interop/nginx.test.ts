// The guarantees of ops/nginx.conf, with Debian's nginx in front of a real service.

import { EventEmitter, once } from 'node:events';
import http, { type ClientRequest, type IncomingMessage } from 'node:http';
import https from 'node:https';
import net from 'node:net';
import { text } from 'node:stream/consumers';
import tls from 'node:tls';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { Code, createClient } from '@connectrpc/connect';
import { createConnectTransport, createGrpcWebTransport } from '@connectrpc/connect-node';
import grpc from '@grpc/grpc-js';
import { afterAll, describe, expect, onTestFinished, test } from 'vitest';
import { loadConfig } from '../../src/config/config.ts';
import { catalogue, type ErrorCode } from '../../src/contract/error-catalogue.ts';
import {
  EventService,
  WatchEventsRequestSchema,
  type WatchEventsResponse,
  WatchEventsResponseSchema,
} from '../../src/contract/gen/payments/v1/event_service_pb.ts';
import { PaymentIntentService } from '../../src/contract/gen/payments/v1/payment_intent_service_pb.ts';
import { maxBodyBytes } from '../../src/contract/limits.ts';
import { answerOf, grpcCall, requestBytes } from '../support/call.ts';
import { choosePorts, listenInTest } from '../support/listen.ts';
import { hasNginx, type Nginx, readConfiguration, replaceAll, startNginx } from '../support/nginx.ts';
import { type HttpAnswer, httpRequest, startService, type TestService } from '../support/service.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { useService } from '../support/use-service.ts';

if (!hasNginx) console.log('skipped: no nginx is installed (apt-get install nginx)');

/** Nothing listens there. */
const silent = 'http://127.0.0.1:1';
const service = await useService({
  ...{ TRUSTED_PROXIES: '127.0.0.1/32', RATE_LIMIT_CHECKOUT: '1', ROLES: 'api' },
  ...{ RPC_URL_BASE_SEPOLIA: silent, X402_FACILITATOR_URL_BASE_SEPOLIA: silent },
});
const behind = ({ server }: TestService) => ({ http: [server.ports.http], grpc: [server.ports.grpc] });
/** An nginx in front of the service, for tests that need no other. */
const proxy = hasNginx ? await startNginx(behind(service)) : (undefined as unknown as Nginx);
if (hasNginx) afterAll(() => proxy.stop());

const bearer = () => ({ authorization: `Bearer ${service.merchant.keys.testnet.apiKey}` });
const jsonHeaders = () => ({ ...bearer(), 'content-type': 'application/json' });
const intent = '{"amount_units":1}';

interface From {
  nginx?: Nginx;
  /** The address of the client, in 127.0.0.0/8. */
  from?: string;
  headers?: Record<string, string>;
}

const send = (
  method: string,
  path: string,
  { nginx = proxy, from = '127.0.0.1', headers = {} }: From = {},
  body?: string | Uint8Array,
) =>
  httpRequest(
    nginx.publicUrl + path,
    { method, ca: nginx.ca, agent: false, family: 4, localAddress: from, headers },
    body,
  );
const post = ({ headers = jsonHeaders(), ...options }: From = {}, body: string | Uint8Array = intent) =>
  send('POST', '/v1/payment_intents', { ...options, headers }, body);

/** nginx's own refusal, in the service's form. */
function expectRefusal(
  { status, headers, body }: HttpAnswer,
  expected: { status: number; code: ErrorCode; message: string; retryAfter?: string },
): void {
  const id = headers['x-request-id'];
  expect(id).toMatch(/^req_[\da-f]{32}$/);
  const { code, message } = expected;
  expect({ status, retryAfter: headers['retry-after'], json: JSON.parse(body) }).toEqual({
    status: expected.status,
    retryAfter: expected.retryAfter,
    json: { error: { code, message, request_id: id, doc_url: `https://localhost/docs#error-${code}` } },
  });
  expect(headers).toMatchObject({ 'content-type': 'application/json', 'cache-control': 'no-store' });
}
const tooLarge = { status: 413, code: 'body_too_large', message: catalogue.body_too_large.message } as const;
const unavailable = {
  status: 503,
  code: 'unavailable',
  message: catalogue.unavailable.message,
  retryAfter: '1',
} as const;
const tooMany = {
  status: 429,
  code: 'rate_limited',
  message: 'Too many requests from this address. Wait and retry with the same idempotency key.',
  retryAfter: '1',
} as const;

/** Starts nginx in front of other processes, for the rest of the test. */
async function startInTest(...options: Parameters<typeof startNginx>): Promise<Nginx> {
  const nginx = await startNginx(...options);
  onTestFinished(async () => void (await nginx.stop()));
  return nginx;
}

/** Headers that differ from request to request, or belong to the connection. */
const ofTheExchange = [
  'connection',
  'date',
  'keep-alive',
  'ratelimit',
  'server',
  'transfer-encoding',
  'x-request-id',
];
const headersOf = ({ headers }: HttpAnswer) =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => !ofTheExchange.includes(name)));
const bodyOf = ({ body }: HttpAnswer) => body.replace(/"request_id":"\w+"/, '');

interface SlowPost {
  request: ClientRequest;
  answer: Promise<HttpAnswer>;
}

/** Sends the headers of a creation, and resolves when nginx waits for its body. */
async function beginPost(nginx: Nginx, { headers = jsonHeaders() }: From = {}): Promise<SlowPost> {
  const request = https.request(`${nginx.publicUrl}/v1/payment_intents`, {
    ...{ method: 'POST', ca: nginx.ca, agent: false, family: 4, localAddress: '127.0.0.1' },
    headers: { ...headers, 'content-length': intent.length, expect: '100-continue' },
  });
  const answer = once(request, 'response').then(async ([response]: IncomingMessage[]) => {
    const { statusCode = 0, headers } = response as IncomingMessage;
    return { status: statusCode, headers, body: await text(response as IncomingMessage) };
  });
  answer.catch(() => {});
  request.flushHeaders();
  await Promise.race([
    once(request, 'continue'),
    answer.then(({ status, body }) => Promise.reject(new Error(`answered with ${status}: ${body}`))),
  ]);
  return { request, answer };
}

/** Begins as many creations as an address may have in flight, and keeps them open until the test ends. */
async function fillAddress(nginx: Nginx, headersOf: (i: number) => Record<string, string> = jsonHeaders) {
  const slow = await Promise.all(
    Array.from({ length: mostInFlight }, (_, i) => beginPost(nginx, { headers: headersOf(i) })),
  );
  onTestFinished(() => {
    for (const { request } of slow) request.destroy();
  });
  return slow as [SlowPost, ...SlowPost[]];
}
const mostInFlight = 200;

/** Sends requests without a key on 16 connections, as fast as they are taken. */
function startFlood(nginx: Nginx, from: string) {
  const answers = new EventEmitter();
  const begin = 'GET /v1/payment_intents HTTP/1.1\r\nHost: localhost\r\n';
  const requests = `${`${begin}\r\n`.repeat(1_999)}${begin}Connection: close\r\n\r\n`;
  let refused = 0;
  let isStopped = false;
  const sendAll = async () => {
    const socket = tls.connect({
      socket: net.connect({ host: '127.0.0.1', port: nginx.publicPort, localAddress: from }),
      servername: 'localhost',
      ca: nginx.ca,
    });
    socket.write(requests);
    const received = (await text(socket)).split(/(?=HTTP\/1\.1 \d{3} )/);
    const refusals = received.filter((answer) => answer.startsWith('HTTP/1.1 429 '));
    refused += refusals.length;
    if (refusals.length > 0) answers.emit('refused', refusals[0]);
  };
  const flood = async () => {
    while (!isStopped) await sendAll();
  };
  const ended = Promise.all(Array.from({ length: 16 }, flood));
  onTestFinished(() => {
    isStopped = true;
  });
  return {
    /** Resolves with an answer, once some requests were refused. */
    firstRefusal: once(answers, 'refused').then(([answer]) => parseAnswer(answer)),
    /** Ends the flood, and resolves with the number of refusals. */
    async stop(): Promise<number> {
      isStopped = true;
      await ended;
      return refused;
    },
  };
}

/** Sends bytes to the public port, and resolves with the answer once the connection is closed. */
async function exchange(bytes: string): Promise<HttpAnswer> {
  const socket = tls.connect({
    port: proxy.publicPort,
    host: '127.0.0.1',
    servername: 'localhost',
    ca: proxy.ca,
  });
  socket.write(bytes);
  return parseAnswer(await text(socket));
}

function parseAnswer(bytes: string): HttpAnswer {
  const [head = '', body = ''] = bytes.split('\r\n\r\n');
  const [statusLine = '', ...lines] = head.split('\r\n');
  const headers = lines
    .map((line) => line.split(': '))
    .map(([name = '', value]) => [name.toLowerCase(), value]);
  return { status: Number(statusLine.split(' ')[1]), headers: Object.fromEntries(headers), body };
}

test('its figures agree with those of the service', async () => {
  const text = await readConfiguration();
  const { limits, httpPort, grpcPort, metricsPort, rateLimits } = loadConfig({});
  const valuesOf = (name: string) =>
    [...text.matchAll(new RegExp(`^ +${name} (.*);$`, 'gm'))].map(([, value]) => value);
  const seconds = (name: string) => valuesOf(name).map((value) => Number(/^(\d+)s$/.exec(value ?? '')?.[1]));
  const rest = `max_conns=${limits.maxConnections / 2} max_fails=10 fail_timeout=2s`;
  expect(valuesOf('server')).toEqual([`127.0.0.1:${httpPort} ${rest}`, `127.0.0.1:${grpcPort} ${rest}`]);
  expect(text).not.toContain(String(metricsPort));
  expect(valuesOf('client_max_body_size')).toEqual([`${maxBodyBytes / 1024}k`, '0']);
  expect(valuesOf('large_client_header_buffers')).toEqual(['2 8k', '2 8k']);
  expect(limits.maxHeaderBytes).toBe(2 * 8 * 1024);
  expect(seconds('client_header_timeout')).toEqual([
    limits.headersTimeoutMs / 1_000,
    limits.headersTimeoutMs / 1_000,
  ]);
  expect(valuesOf('http2_max_concurrent_streams')).toEqual([String(limits.maxConcurrentStreams)]);
  // The timeouts of the upstreams and of the doors.
  expect(seconds('keepalive_timeout')).toEqual([60, 60, 65, 65]);
  expect(limits.idleTimeoutMs).toBe(65_000);
  const perSecond = rateLimits.creates + rateLimits.reads + rateLimits.changes;
  expect(valuesOf('limit_req_zone')).toEqual([`$client_network zone=requests:10m rate=${perSecond}r/s`]);
  expect(valuesOf('limit_req')).toEqual([`zone=requests burst=${2 * perSecond} nodelay`]);
});

describe.runIf(hasNginx)('nginx in front of the service', () => {
  test('accepts the file', async () => {
    expect(await proxy.check()).toContain('test is successful');
  });

  describe('the public door', () => {
    test('a creation and its replay are the same as without nginx, byte for byte', async () => {
      const headers = { ...jsonHeaders(), 'idempotency-key': 'through-nginx' };
      const created = await post({ headers });
      const replayed = await post({ headers });
      const direct = await httpRequest(`${service.publicUrl}/v1/payment_intents`, { headers }, intent);
      expect([created.status, replayed.status, direct.status]).toEqual([201, 201, 201]);
      expect([replayed.body, direct.body]).toEqual([created.body, created.body]);
      const replayedOf = ({ headers }: HttpAnswer) => headers['idempotent-replayed'];
      expect([created, replayed, direct].map(replayedOf)).toEqual([undefined, 'true', 'true']);
      expect(headersOf(replayed)).toEqual(headersOf(direct));
    });

    test('a refusal by the service links to the address that the client used', async () => {
      const { status, body } = await post({ headers: { 'content-type': 'application/json' } });
      expect([status, JSON.parse(body).error.doc_url]).toEqual([
        401,
        `${proxy.publicUrl}/docs#error-api_key_missing`,
      ]);
    });

    test.each([
      ['GET', '/checkout', {}],
      ['GET', '/checkout/sdk.js', {}],
      ['GET', '/docs', {}],
      ['GET', '/docs', { 'accept-encoding': 'br' }],
      ['GET', '/nothing', { 'accept-encoding': 'gzip' }],
      ['GET', '/v1/checkout', { origin: 'https://shop.example' }],
      ['OPTIONS', '/v1/checkout', { origin: 'https://shop.example', 'access-control-request-method': 'GET' }],
      // The operations port is not reachable through nginx.
      ['GET', '/metrics', {}],
      ['GET', '/readyz', {}],
    ])(
      '%s %s %j passes unchanged, with every header',
      async (method, path, headers: Record<string, string>) => {
        const answer = await send(method, path, { headers });
        const asByNginx = { host: new URL(proxy.publicUrl).host, 'x-forwarded-proto': 'https' };
        const direct = await httpRequest(service.publicUrl + path, {
          method,
          headers: { ...headers, ...asByNginx },
        });
        expect(answer.status).toBe(direct.status);
        expect(headersOf(answer)).toEqual(headersOf(direct));
        expect(bodyOf(answer)).toEqual(bodyOf(direct));
      },
    );

    test('a body of 64 KiB reaches the service; a larger one is refused, also in chunks', async () => {
      const before = service.requestLines().length;
      expectRefusal(await post({}, '1'.repeat(maxBodyBytes + 1)), tooLarge);
      const chunked = { ...jsonHeaders(), 'transfer-encoding': 'chunked' };
      expectRefusal(await post({ headers: chunked }, '1'.repeat(maxBodyBytes + 1)), tooLarge);
      expect(service.requestLines().length).toBe(before);
      const largest = intent.padEnd(maxBodyBytes);
      expect((await post({}, largest)).status).toBe(201);
      expect((await post({ headers: chunked }, largest)).status).toBe(201);
    });

    test('refusals by nginx itself are in JSON', async () => {
      const refusal = (status: number, code: ErrorCode, message: string) => ({ status, code, message });
      expectRefusal(
        await send('GET', '/docs', { headers: { cookie: 'x'.repeat(9_000) } }),
        refusal(431, 'invalid_body', 'A header is too large.'),
      );
      expectRefusal(
        await post({ headers: { ...jsonHeaders(), 'content-length': '18', 'transfer-encoding': 'chunked' } }),
        refusal(400, 'invalid_body', 'The request is not valid HTTP.'),
      );
      expectRefusal(
        await httpRequest(`http://127.0.0.1:${proxy.publicPort}/docs`, { method: 'GET' }),
        refusal(400, 'invalid_body', 'This port speaks TLS. Use https in place of http.'),
      );
      expectRefusal(
        await send('TRACE', '/docs'),
        refusal(405, 'method_not_allowed', 'No path answers this method.'),
      );
      const coding = 'The body has a transfer coding that is not read here. Send it plain or chunked.';
      expectRefusal(
        await post({ headers: { ...jsonHeaders(), 'transfer-encoding': 'gzip' } }),
        refusal(415, 'unsupported_media_type', coding),
      );
    });

    test('the service limits by the real address of the client, whatever the client claims', async () => {
      const guess = (from: string, forwardedFor: string) =>
        send('GET', '/v1/checkout', {
          from,
          headers: { authorization: 'Bearer pi_guess', 'x-forwarded-for': forwardedFor },
        });
      const guesses = await Promise.all(
        Array.from({ length: 8 }, (_, i) => guess('127.0.0.2', `198.51.100.${i}`)),
      );
      const codes = guesses.map(({ body }) => JSON.parse(body).error.code);
      expect(new Set(codes)).toEqual(new Set(['client_secret_invalid', 'rate_limited']));
      expect((await guess('127.0.0.3', '127.0.0.2')).status).toBe(401);
    });

    test('a slow body opens no connection to the service until it is complete', async () => {
      const received: string[] = [];
      const between = await startTcpProxy(
        () => net.connect(service.server.ports.http, '127.0.0.1'),
        (client, server) => {
          received.push('');
          const index = received.length - 1;
          client.on('data', (bytes) => {
            received[index] += bytes.toString('latin1');
          });
          client.pipe(server).pipe(client);
        },
      );
      onTestFinished(() => between.close());
      const nginx = await startInTest({ ...behind(service), http: [between.port] });
      const slow = await beginPost(nginx, { headers: { ...jsonHeaders(), 'idempotency-key': 'slow' } });
      slow.request.write(intent.slice(0, 5));
      const whole = { ...jsonHeaders(), 'idempotency-key': 'whole' };
      expect((await post({ nginx, headers: whole })).status).toBe(201);
      expect(received.map((bytes) => bytes.includes('idempotency-key: whole'))).toEqual([true]);
      expect(received.join()).not.toContain('idempotency-key: slow');
      slow.request.end(intent.slice(5));
      expect((await slow.answer).status).toBe(201);
      expect(received.join()).toContain('idempotency-key: slow');
    });
  });

  describe('limits of one address', () => {
    test('requests in flight beyond the limit get 429, and another address gets its answer', async () => {
      const nginx = await startInTest(behind(service));
      const [first] = await fillAddress(nginx);
      expectRefusal(await post({ nginx }), tooMany);
      expect((await post({ nginx, from: '127.0.0.2' })).status).toBe(201);
      first.request.end(intent);
      expect((await first.answer).status).toBe(201);
      expect((await post({ nginx })).status).toBe(201);
    });

    test('IPv6 clients are limited by their /64', async () => {
      // As behind a load balancer, because this machine has a single IPv6 address.
      const nginx = await startInTest(behind(service), (configuration) =>
        replaceAll(configuration, [
          ['#set_real_ip_from 10.0.0.0/8;', 'set_real_ip_from 127.0.0.0/8;'],
          ['#real_ip_header ', 'real_ip_header '],
          ['#real_ip_recursive ', 'real_ip_recursive '],
        ]),
      );
      const headersFrom = (address: string) => ({ ...jsonHeaders(), 'x-forwarded-for': address });
      await fillAddress(nginx, (i) => headersFrom(`2001:db8:1:2:${i.toString(16)}::1`));
      expectRefusal(await post({ nginx, headers: headersFrom('2001:db8:1:2:ffff::1') }), tooMany);
      expect((await post({ nginx, headers: headersFrom('2001:db8:1:3::1') })).status).toBe(201);
    });

    test('a flood beyond the request rate gets 429, another address its answer, and the log stays small', async () => {
      // A rate that every machine exceeds.
      const nginx = await startInTest(behind(service), (configuration) =>
        replaceAll(configuration, [
          ['rate=1500r/s', 'rate=100r/s'],
          ['burst=3000', 'burst=200'],
        ]),
      );
      const flood = startFlood(nginx, '127.0.0.2');
      expectRefusal(await flood.firstRefusal, tooMany);
      expect((await post({ nginx, from: '127.0.0.3' })).status).toBe(201);
      const refused = await flood.stop();
      const { access } = await nginx.stop();
      // One refusal in a hundred is logged.
      expect(access.filter(({ status }) => status === '429').length).toBeLessThan(refused / 50);
      expect(access.filter(({ status }) => status === '201')).toHaveLength(1);
    });

    test('a page of any origin can read why nginx refused its checkout, as if the service had', async () => {
      const nginx = await startInTest(behind(service));
      await fillAddress(nginx);
      const headers = { origin: 'https://shop.example' };
      const corsOf = ({ headers }: HttpAnswer) =>
        Object.entries(headers).filter(([name]) => name.startsWith('access-control-'));
      for (const [method, path] of [
        ['GET', '/v1/checkout'] as const,
        ['POST', '/v1/checkout/pay'] as const,
      ]) {
        const direct = await httpRequest(`${service.publicUrl}${path}`, { method, headers });
        expect(corsOf(direct)).not.toEqual([]);
        const checkout = await send(method, path, { nginx, headers });
        expectRefusal(checkout, tooMany);
        expect(corsOf(checkout)).toEqual(corsOf(direct));
      }
      expect(corsOf(await send('GET', '/v1/payment_intents', { nginx, headers }))).toEqual([]);
    });
  });

  describe('the internal door', () => {
    const openClient = ({ internalAddress, ca }: Nginx) => {
      const client = new grpc.Client(internalAddress, grpc.credentials.createSsl(Buffer.from(ca)));
      onTestFinished(() => client.close());
      return client;
    };
    const metadata = () => grpc.Metadata.fromHttp2Headers(bearer());
    const transportsOf = ({ internalAddress, ca }: Nginx) => {
      const to = { baseUrl: `https://${internalAddress}`, httpVersion: '2', nodeOptions: { ca } } as const;
      return { connect: createConnectTransport(to), 'grpc-web': createGrpcWebTransport(to) };
    };

    test('gRPC passes a creation, and a refusal by the service with its details', async () => {
      const client = openClient(proxy);
      const creation = (request: object) =>
        grpcCall(client, requestBytes('createPaymentIntent', request as never), metadata());
      expect(answerOf(await creation({ amount_units: 1 }))).toMatchObject({
        code: 'ok',
        json: { amount_units: 1 },
      });
      expect(answerOf(await creation({ amount_units: 0 }))).toMatchObject({
        code: 'invalid_body',
        details: [{ field: 'amount_units' }],
      });
      expect(answerOf(await grpcCall(client, new Uint8Array(70_000), metadata())).code).toBe(
        'body_too_large',
      );
    });

    test.each(['connect', 'grpc-web'] as const)('%s passes a creation', async (protocol) => {
      const client = createClient(PaymentIntentService, transportsOf(proxy)[protocol]);
      const { amountUnits } = await client.createPaymentIntent({ amountUnits: 1n }, { headers: bearer() });
      expect(amountUnits).toBe(1n);
    });

    test('WatchEvents passes an event at once', async () => {
      const call = openClient(proxy).makeServerStreamRequest(
        `/${EventService.typeName}/${EventService.method.watchEvents.name}`,
        (message: Uint8Array) => Buffer.from(message),
        (bytes: Buffer) => fromBinary(WatchEventsResponseSchema, bytes),
        toBinary(WatchEventsRequestSchema, create(WatchEventsRequestSchema)),
        metadata(),
      );
      onTestFinished(() => call.cancel());
      call.on('error', () => {});
      const messages = (call as AsyncIterable<WatchEventsResponse>)[Symbol.asyncIterator]();
      expect((await messages.next()).value.event).toBeUndefined();
      const { id } = JSON.parse((await post()).body);
      expect((await send('POST', `/v1/payment_intents/${id}/cancel`, { headers: bearer() })).status).toBe(
        200,
      );
      const { event } = (await messages.next()).value;
      expect([event.type, event.data.paymentIntent.id]).toEqual(['payment_intent.canceled', id]);
    });

    test('without the service, every protocol gets unavailable', async () => {
      const nginx = await startInTest(await nowhere());
      const { error } = await grpcCall(
        openClient(nginx),
        requestBytes('createPaymentIntent', {}),
        metadata(),
      );
      expect(error?.code).toBe(grpc.status.UNAVAILABLE);
      for (const transport of Object.values(transportsOf(nginx))) {
        const call = createClient(PaymentIntentService, transport).createPaymentIntent({});
        await expect(call).rejects.toMatchObject({ code: Code.Unavailable });
      }
      const connect = createClient(PaymentIntentService, transportsOf(nginx).connect).createPaymentIntent({});
      await expect(connect).rejects.toMatchObject({ rawMessage: catalogue.unavailable.message });
    });
  });

  describe('processes that fail', () => {
    test('while the service is down the answer is unavailable; it is served again when it is back', async () => {
      const ports = await choosePorts();
      const open = () => startService({ ...ports }, { beside: service });
      const nginx = await startInTest({ http: [Number(ports.HTTP_PORT)], grpc: [Number(ports.GRPC_PORT)] });
      expectRefusal(await post({ nginx }), unavailable);
      const first = await open();
      expect((await post({ nginx })).status).toBe(201);
      await first.close();
      expectRefusal(await post({ nginx }), unavailable);
      const second = await open();
      onTestFinished(() => second.close());
      expect((await post({ nginx })).status).toBe(201);
    });

    test('a request goes to another process if one cannot be reached', async () => {
      const [dead = 0] = (await nowhere()).http;
      const nginx = await startInTest({ ...behind(service), http: [dead, service.server.ports.http] });
      for (let i = 0; i < 4; i++) expect((await post({ nginx })).status).toBe(201);
    });

    test('a creation that was sent is never repeated', async () => {
      let requests = 0;
      const breaks = () =>
        http.createServer((request) => {
          requests++;
          request.socket.destroy();
        });
      const urls = await Promise.all([listenInTest(breaks()), listenInTest(breaks())]);
      const nginx = await startInTest({
        ...behind(service),
        http: urls.map((url) => Number(new URL(url).port)),
      });
      expectRefusal(await post({ nginx }), unavailable);
      expect(requests).toBe(1);
      // A read is repeated.
      expectRefusal(await send('GET', '/v1/payment_intents', { nginx }), unavailable);
      expect(requests).toBe(3);
    });
  });

  test.each([['100%'], ['%zz'], ['%00'], ['../../../x']])(
    'a path that it cannot read is the mistake of the client: /v1/payment_intents/%s',
    async (end) => {
      const answer = await exchange(
        `GET /v1/payment_intents/${end} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`,
      );
      expectRefusal(answer, { status: 400, code: 'invalid_body', message: expect.any(String) });
    },
  );

  test('a request line over its limit is refused in the same form', async () => {
    const answer = await exchange(`GET /${'x'.repeat(40_000)} HTTP/1.1\r\nHost: localhost\r\n\r\n`);
    expectRefusal(answer, { status: 414, code: 'invalid_body', message: 'The request line is too long.' });
  });

  test('a probe over HTTP/1.0 needs no Host', async () => {
    expect((await exchange('GET /docs/icon.svg HTTP/1.0\r\n\r\n')).status).toBe(200);
  });

  test('the logs have no Authorization, query or secret, and the request ids of the answers', async () => {
    const query = '?idempotency_key=needle';
    const headers = { authorization: 'Bearer needle' };
    const nginx = await startInTest(behind(service));
    const answers = [
      await send('GET', `/v1/payment_intents${query}`, { nginx, headers }),
      await send('GET', `/checkout/pi_x_secret_needle${query}`, { nginx, headers }),
      await send('POST', `/v1/payment_intents${query}`, { nginx, headers }, 'x'.repeat(maxBodyBytes + 1)),
    ];
    const { access, errors } = await nginx.stop();
    expect(access.map(({ request_id }) => request_id)).toEqual(
      answers.map((answer) => answer.headers['x-request-id']),
    );
    const line = { client: '127.0.0.1', path: '/v1/payment_intents' };
    expect(access).toMatchObject([
      { ...line, method: 'GET', status: '401', upstream_status: '401' },
      { ...line, path: '(withheld)' },
      { ...line, method: 'POST', status: '413', upstream_status: '' },
    ]);
    const failing = await startInTest(await nowhere());
    await send('GET', `/v1/payment_intents${query}`, { nginx: failing, headers });
    const failed = await failing.stop();
    expect(failed.access).toMatchObject([{ ...line, status: '503', upstream_status: '502' }]);
    expect(JSON.stringify([access, errors, failed])).not.toContain('needle');
  });
});

/** Ports on which nothing listens. */
async function nowhere() {
  const { HTTP_PORT, GRPC_PORT } = await choosePorts();
  return { http: [Number(HTTP_PORT)], grpc: [Number(GRPC_PORT)] };
}
