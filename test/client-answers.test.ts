// How the client handles what a network, a proxy or the wrong server does to its calls: what it repeats, what it gives up,
// and what its errors say.

import { readFile } from 'node:fs/promises';
import http from 'node:http';
import http2 from 'node:http2';
import { createServer } from 'node:net';
import { inspect } from 'node:util';
import { create } from '@bufbuild/protobuf';
import { Code } from '@connectrpc/connect';
import { connectNodeAdapter } from '@connectrpc/connect-node';
import { describe, expect, test, vi } from 'vitest';
import { createPaymentIntentsClient, type PaymentIntentsError } from '../client/index.ts';
import { createPaymentIntentsClient as createJsonClient } from '../client/json.ts';
import { PaymentIntentSchema } from '../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { PaymentIntentService } from '../src/contract/gen/payments/v1/payment_intent_service_pb.ts';
import { type ClientChange, clientOf, errorOf, type Protocol, portOf, protocols } from './support/clients.ts';
import { listen, listenInTest } from './support/listen.ts';
import { startLossyNetwork } from './support/lossy-network.ts';
import { startService } from './support/service.ts';
import { useService } from './support/use-service.ts';

const service = await useService();
const amountUnits = 1;

interface Answer {
  status: number;
  headers?: Record<string, string>;
  body?: string;
}

type Handler = (request: http.IncomingMessage, response: http.ServerResponse) => void;
const serve = (protocol: Protocol, handle: Handler) =>
  listenInTest(protocol === 'json' ? http.createServer(handle) : http2.createServer(handle as never));

/** A server that gives the same answer to every request of either protocol, and records the requests. */
async function startAnswering(protocol: Protocol, answer: Answer) {
  const asked: { path: string; headers: http.IncomingHttpHeaders }[] = [];
  const baseUrl = await serve(protocol, (request, response) => {
    asked.push({ path: request.url ?? '', headers: request.headers });
    response.writeHead(answer.status, answer.headers).end(answer.body);
  });
  return { asked, baseUrl };
}

async function errorAt(
  protocol: Protocol,
  baseUrl: string,
  change: ClientChange = {},
): Promise<PaymentIntentsError> {
  const client = clientOf(service, protocol, { baseUrl, maxTries: 1, ...change });
  const error = await errorOf(client.createPaymentIntent({ amountUnits }));
  expect(inspect(error, { depth: 20, showHidden: true })).not.toContain(service.merchant.keys.testnet.apiKey);
  expect(JSON.parse(JSON.stringify(error)).message).toBe(error.message);
  return error;
}

const html = (title: string) =>
  `<html>\r\n<head><style>b { color: red }</style><title>${title}</title></head>\r\n<body><h1>${title}</h1></body></html>`;

describe.each(protocols)('over %s', (protocol) => {
  const serviceUrl = `http://127.0.0.1:${portOf(service, protocol)}`;

  test.each<[number, string, string, boolean]>([
    [200, 'Welcome', 'unexpected_answer', false],
    [403, 'Forbidden', 'unexpected_answer', false],
    [404, 'Not Found', 'unexpected_answer', false],
    [408, 'Request Time-out', 'unexpected_answer', true],
    [429, 'Too Many Requests', 'rate_limited', true],
    [501, 'Not Implemented', 'unavailable', false],
    [502, 'Bad Gateway', 'unavailable', true],
    [504, 'Gateway Time-out', 'unavailable', true],
  ])(
    'an HTML page with status %i from a proxy is reported as such',
    async (status, title, code, isRetryable) => {
      const { baseUrl } = await startAnswering(protocol, {
        status,
        headers: { 'Content-Type': 'text/html; charset=utf-8', 'X-Request-Id': 'proxy-1' },
        body: html(title),
      });
      const error = await errorAt(protocol, baseUrl);
      expect(error).toMatchObject({
        code,
        isRetryable,
        httpStatus: status,
        requestId: 'proxy-1',
        details: [],
      });
      expect(error.message).toContain(
        `HTTP ${status} (text/html), which is not the payment service's answer; `,
      );
      expect(error.message).toContain(JSON.stringify(`${title} ${title}`));
      expect(error.message.includes('is baseUrl right?')).toBe(status === 404);
    },
  );

  test('only temporary errors are retried', async () => {
    // The service's own 408 has the code of a body that must not be sent again, but it has not arrived.
    const late = JSON.stringify({ error: { code: 'invalid_body', message: 'The body did not arrive.' } });
    for (const [status, tries, body] of [
      [408, 3, html('x')],
      [408, 3, late],
      [400, 1, late],
      [502, 3, html('x')],
      [403, 1, html('x')],
      [200, 1, html('x')],
    ] as const) {
      const { asked, baseUrl } = await startAnswering(protocol, { status, body });
      await errorAt(protocol, baseUrl, { maxTries: 3 });
      expect([status, asked.length]).toEqual([status, tries]);
      expect(new Set(asked.map(({ headers }) => headers['idempotency-key'])).size).toBe(1);
    }
  });

  test('an endless answer is not read to its end', async () => {
    const baseUrl = await serve(protocol, (_, response) => {
      const more = () => {
        while (response.write('x'.repeat(65_536)));
      };
      response.writeHead(200).on('drain', more);
      more();
    });
    const error = await errorAt(protocol, baseUrl);
    expect(error).toMatchObject({ code: 'unexpected_answer', httpStatus: 200 });
    expect(error.message.length).toBeLessThan(400);
  });

  test('an answer that repeats a secret does not put it into the error', async () => {
    const { baseUrl } = await startAnswering(protocol, {
      status: 200,
      body: `Authorization: Bearer ${service.merchant.keys.testnet.apiKey} {"client_secret":"pi_1_secret_abc-def","secret":"whsec_a+/="}`,
    });
    const said = { code: 'denied', message: `Bad header ${service.merchant.keys.testnet.apiKey}` };
    const other = await startAnswering(protocol, { status: 403, body: JSON.stringify({ error: said }) });
    expect(JSON.stringify(await errorAt(protocol, other.baseUrl))).toContain('Bad header [secret]');
    const { message } = await errorAt(protocol, baseUrl);
    expect(message).toContain(
      '"Authorization: Bearer [secret] {\\"client_secret\\":\\"pi_1[secret]\\",\\"secret\\":\\"[secret]\\"}"',
    );
  });

  test('a redirect is not followed, so the key is not sent elsewhere', async () => {
    const elsewhere = await startAnswering(protocol, { status: 200, body: 'welcome' });
    for (const status of [301, 302, 307, 308]) {
      const { baseUrl } = await startAnswering(protocol, {
        status,
        headers: { Location: `${elsewhere.baseUrl}/login?from=here` },
      });
      const error = await errorAt(protocol, baseUrl);
      expect(error).toMatchObject({ code: 'unexpected_answer', isRetryable: false, httpStatus: status });
      expect(error.message).toContain(`it redirects to ${elsewhere.baseUrl}/login, which is not followed`);
    }
    expect(elsewhere.asked).toEqual([]);
  });

  test('a path prefix in the base URL is kept', async () => {
    for (const path of ['/payments', '/payments/', '/a/b/v1']) {
      const { asked, baseUrl } = await startAnswering(protocol, { status: 404 });
      await errorAt(protocol, baseUrl + path);
      const own =
        protocol === 'json' ? '/v1/payment_intents' : '/payments.v1.PaymentIntentService/CreatePaymentIntent';
      expect(asked[0]?.path).toBe(path.replace(/\/$/, '') + own);
    }
  });

  test('the User-Agent names the client and its runtime', async () => {
    const { asked, baseUrl } = await startAnswering(protocol, { status: 404 });
    await errorAt(protocol, baseUrl);
    const { version } = JSON.parse(await readFile('client/package.json', 'utf8'));
    const runtime = `node/${process.versions.node}`;
    expect(asked[0]?.headers['user-agent']).toBe(`payment-intents-client/${version} ${runtime}`);
  });

  test('if nothing listens, the call is retried, and its error has the cause and key', async () => {
    const { url, port, close } = await listen(createServer());
    await close();
    expect(await errorAt(protocol, url, { maxTries: 2 })).toMatchObject({
      code: 'network',
      isRetryable: true,
      httpStatus: undefined,
      requestId: undefined,
      message: `No answer came: connect ECONNREFUSED 127.0.0.1:${port}`,
      cause: expect.any(Error),
      idempotencyKey: expect.stringMatching(/^[0-9a-f-]{36}$/),
    });
    // If a name has several addresses, each is listed.
    expect((await errorAt(protocol, `http://localhost:${port}`)).message).toMatch(
      /ECONNREFUSED (127\.0\.0\.1|::1):\d+/,
    );
  });

  test('a name that does not exist', async () => {
    const error = await errorAt(protocol, 'http://nobody.invalid');
    expect(error.code).toBe('network');
    expect(error.message).toMatch(/^No answer came: getaddrinfo \w+ nobody\.invalid$/);
  });

  test('the port of the other protocol', async () => {
    const error = await errorAt(protocol, protocol === 'json' ? service.internalUrl : service.publicUrl);
    expect(error.code).not.toBe('api_key_invalid');
    expect(error.message).toMatch(
      protocol === 'json' ? /HTTP\/1|internal/i : /Protocol error; gRPC needs the internal port/,
    );
  });

  test('TLS to a port without it', async () => {
    const error = await errorAt(protocol, serviceUrl.replace('http:', 'https:'));
    expect(error.code).toBe('network');
    expect(error.message).toBe(
      'No answer came: this port does not speak TLS; use http in place of https in baseUrl',
    );
  });

  test('a refusal of the service is a typed error with its request id, and is not retried', async () => {
    const before = service.requestLines().length;
    const faulty = { amountUnits: 0, walletAddress: 'nobody' };
    const error = await errorOf(clientOf(service, protocol).createPaymentIntent(faulty));
    expect(error).toMatchObject({
      code: 'invalid_body',
      details: [
        { field: 'amount_units', message: expect.any(String) },
        { field: 'wallet_address', message: expect.any(String) },
      ],
      isRetryable: false,
    });
    expect(await errorAt(protocol, serviceUrl, { apiKey: 'sk_testnet_nonsense', maxTries: 3 })).toMatchObject(
      {
        code: 'api_key_invalid',
        httpStatus: protocol === 'json' ? 401 : undefined,
      },
    );
    const lines = service.requestLines().slice(before);
    expect(lines.map(({ code }) => code)).toEqual(['invalid_body', 'api_key_invalid']);
    expect(lines[0]?.request_id).toBe(error.requestId);
  });

  test('Retry-After is respected', async () => {
    const limited = await startService({ RATE_LIMIT: '1' });
    const client = clientOf(limited, protocol);
    // A limit of one allows a burst of two; the third is told to retry after a second.
    await Promise.all([1, 2].map(() => client.createPaymentIntent({ amountUnits })));
    const startedAtMs = performance.now();
    await client.createPaymentIntent({ amountUnits });
    expect(performance.now() - startedAtMs).toBeGreaterThan(950);
    expect(limited.log.filter(({ code }) => code === 'rate_limited')).toHaveLength(1);
    await limited.close();
  });

  describe('timeouts', () => {
    /** Accepts connections and never answers. */
    const startSilent = () => listenInTest(createServer());

    test('apply to each try, of every kind of call', async () => {
      const client = clientOf(service, protocol, { baseUrl: await startSilent(), maxTries: 1 });
      const options = { timeoutMs: 100 };
      for (const call of [
        () => client.createPaymentIntent({ amountUnits }, options),
        () => client.retrievePaymentIntent('pi_1', options),
        () => client.listEvents({}, options).page(),
        () => client.deleteWebhookEndpoint('we_1', options),
      ]) {
        expect(await errorOf(call())).toMatchObject({
          code: 'network',
          isRetryable: true,
          message: 'No answer came within 100 ms (timeoutMs)',
        });
      }
    });

    test('apply to the whole call, set for the client or for the call', async () => {
      const baseUrl = await startSilent();
      const startedAtMs = performance.now();
      const error = await errorAt(protocol, baseUrl, { timeoutMs: 150, callTimeoutMs: 700, maxTries: 100 });
      expect(error.code).toBe('network');
      expect(performance.now() - startedAtMs).toBeLessThan(1_500);
      const client = clientOf(service, protocol, { baseUrl });
      const options = { callTimeoutMs: 100, idempotencyKey: 'order-1' };
      expect(await errorOf(client.createPaymentIntent({ amountUnits }, options))).toMatchObject({
        code: 'network',
        idempotencyKey: 'order-1',
        message: 'No answer came within 100 ms (callTimeoutMs)',
      });
    });

    test('the client does not wait longer than the time left for the call', async () => {
      const { baseUrl } = await startAnswering(protocol, { status: 503, headers: { 'Retry-After': '30' } });
      const startedAtMs = performance.now();
      const error = await errorAt(protocol, baseUrl, { callTimeoutMs: 5_000, maxTries: 6 });
      expect(error).toMatchObject({ code: 'unavailable', retryAfterMs: 30_000, httpStatus: 503 });
      expect(performance.now() - startedAtMs).toBeLessThan(2_500);
    });

    test('a signal aborts a try in flight, and a pause between two', async () => {
      const controller = new AbortController();
      const silent = createServer();
      const baseUrl = await listenInTest(silent);
      const reason = new Error('the payer has left');
      silent.on('connection', () => controller.abort(reason));
      const create = (to: string, signal: AbortSignal, maxTries: number) =>
        clientOf(service, protocol, { baseUrl: to, maxTries }).createPaymentIntent(
          { amountUnits },
          { signal },
        );
      await expect(create(baseUrl, controller.signal, 1)).rejects.toBe(reason);
      const pausing = create('http://127.0.0.1:1', AbortSignal.timeout(50), 50);
      await expect(pausing).rejects.toMatchObject({ name: 'TimeoutError' });
    });
  });
});

test.each<[string, Answer, RegExp]>([
  ['no JSON', { status: 201, body: 'created' }, /the body is not JSON; "created"/],
  ['an array', { status: 201, body: '[]' }, /the body is not an object/],
  ['another object', { status: 201, body: '{"id":"pi_1"}' }, /its status is missing or has the wrong type$/],
])('201 with %s', async (_, answer, message) => {
  const { baseUrl } = await startAnswering('json', answer);
  const error = await errorAt('json', baseUrl);
  expect(error).toMatchObject({ code: 'unexpected_answer', httpStatus: 201, isRetryable: false });
  expect(error.message).toMatch(message);
});

test.each(['{}', '{"status":"maintenance"}', '{"events":null}'])(
  'the page %s of another server does not end an iteration',
  async (body) => {
    const { baseUrl } = await startAnswering('json', { status: 200, body });
    const { listEvents } = clientOf(service, 'json', { baseUrl });
    expect(await errorOf(listEvents().page())).toMatchObject({ code: 'unexpected_answer' });
  },
);

test('a page of many megabytes is read', async () => {
  const body = JSON.stringify({ events: [], newer: 'x'.repeat(2 ** 24) });
  const { baseUrl } = await startAnswering('json', { status: 200, body });
  expect((await clientOf(service, 'json', { baseUrl }).listEvents().page()).items).toEqual([]);
});

test('an empty message over gRPC is an error', async () => {
  const empty = connectNodeAdapter({
    routes: (router) =>
      router.service(PaymentIntentService, { createPaymentIntent: () => create(PaymentIntentSchema) }),
  });
  const error = await errorAt('grpc', await listenInTest(http2.createServer(empty)));
  expect(error).toMatchObject({ code: 'unexpected_answer', isRetryable: false });
});

test('a framework that patches fetch keeps no answer, and its own errors pass through', async () => {
  const building = Object.assign(new Error('Dynamic server usage'), { digest: 'DYNAMIC_SERVER_USAGE' });
  const fetching = vi.spyOn(globalThis, 'fetch').mockRejectedValue(building);
  await expect(clientOf(service, 'json').retrievePaymentIntent('pi_1')).rejects.toBe(building);
  expect(fetching.mock.calls).toMatchObject([[expect.any(String), { cache: 'no-store' }]]);
  fetching.mockRestore();
});

test.each<[number, string, boolean]>([
  [Code.Unavailable, 'unavailable', true],
  [Code.PermissionDenied, 'unexpected_answer', false],
])('a proxy that speaks gRPC and answers %i', async (grpcCode, code, isRetryable) => {
  const { baseUrl } = await startAnswering('grpc', {
    status: 200,
    headers: {
      'content-type': 'application/grpc',
      'grpc-status': String(grpcCode),
      'grpc-message': 'upstream is away',
    },
  });
  const error = await errorAt('grpc', baseUrl);
  expect(error).toMatchObject({ code, isRetryable });
  expect(error.message).toContain(
    `gRPC status ${Code[grpcCode]}, which is not the payment service's answer: upstream is away`,
  );
});

test('a message that is cut short before the status of a gateway is retried', async () => {
  const baseUrl = await listenInTest(
    http2.createServer().on('stream', (stream) => {
      stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true });
      stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': String(Code.Unavailable) }));
      // It announces 90 bytes.
      stream.end(Buffer.from([0, 0, 0, 0, 90, 1, 2]));
    }),
  );
  expect(await errorAt('grpc', baseUrl)).toMatchObject({ code: 'unavailable', isRetryable: true });
});

test('a stream from the port of the other protocol is tried again, and ends no process', async () => {
  const stop = new AbortController();
  const client = createPaymentIntentsClient({
    baseUrl: service.publicUrl,
    apiKey: service.merchant.keys.testnet.apiKey,
    protocol: 'grpc',
  });
  const interruptions: string[] = [];
  const onInterruption = ({ message }: PaymentIntentsError) => {
    if (interruptions.push(message) === 3) stop.abort();
  };
  const watch = client.watchEvents({ signal: stop.signal, onInterruption });
  await expect(watch[Symbol.asyncIterator]().next()).rejects.toMatchObject({ name: 'AbortError' });
  expect(interruptions[0]).toMatch(/Protocol error; gRPC needs the internal port/);
});

test.each([
  ['seconds', () => '1'],
  ['a date', () => new Date(Date.now() + 2_000).toUTCString()],
])('a 503 from a proxy is retried after its Retry-After in %s', async (_, retryAfter) => {
  const network = await startLossyNetwork(service.server.ports.http, { unavailableOnce: retryAfter() });
  const client = clientOf(service, 'json', { baseUrl: `http://127.0.0.1:${network.port}` });
  const startedAtMs = performance.now();
  const intent = await client.createPaymentIntent({ amountUnits });
  await network.close();
  expect(intent.replayed).toBe(true);
  expect(performance.now() - startedAtMs).toBeGreaterThan(950);
});

test('a Retry-After of more than a minute is not waited for', async () => {
  const network = await startLossyNetwork(service.server.ports.http, { unavailableOnce: '3600' });
  const client = clientOf(service, 'json', { baseUrl: `http://127.0.0.1:${network.port}` });
  expect(await errorOf(client.createPaymentIntent({ amountUnits }))).toMatchObject({
    code: 'unavailable',
    retryAfterMs: 3_600_000,
  });
  await network.close();
});

test.each(['window', 'importScripts'] as const)('refuses to run in a browser, which has %s', (name) => {
  const browser = globalThis as { window?: unknown; importScripts?: unknown };
  browser[name] = {};
  try {
    for (const create of [createPaymentIntentsClient, createJsonClient]) {
      expect(() => create({ baseUrl: 'http://x', apiKey: 'x' })).toThrow(/servers only/);
    }
  } finally {
    delete browser[name];
  }
});
