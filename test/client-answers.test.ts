// How the client handles answers from a newer service, answers from something else, and no answer.

import { once } from 'node:events';
import http from 'node:http';
import http2 from 'node:http2';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { inspect } from 'node:util';
import { create } from '@bufbuild/protobuf';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError } from '@connectrpc/connect';
import { connectNodeAdapter } from '@connectrpc/connect-node';
import { afterEach, describe, expect, test } from 'vitest';
import {
  chains,
  deliveryStatuses,
  lanes,
  modes,
  paymentStatuses,
  statuses,
  tokens,
} from '../client/enums.ts';
import {
  createPaymentIntentsClient,
  type PaymentIntentsClientOptions,
  PaymentIntentsError,
} from '../client/index.ts';
import { userAgent, version } from '../client/version.ts';
import { ErrorInfoSchema } from '../src/contract/gen/google/rpc/error_details_pb.ts';
import {
  ChainSchema,
  LaneSchema,
  ModeSchema,
  PaymentIntentSchema,
  PaymentIntentStatusSchema,
  TokenSchema,
} from '../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { PaymentIntentService } from '../src/contract/gen/payments/v1/payment_intent_service_pb.ts';
import { PaymentStatusSchema } from '../src/contract/gen/payments/v1/payment_pb.ts';
import { WebhookDeliveryStatusSchema } from '../src/contract/gen/payments/v1/webhook_endpoint_pb.ts';
import { enumWords } from '../src/contract/json/json-codec.ts';
import { useService } from './support/use-service.ts';

type Protocol = 'json' | 'grpc';
const protocols = ['json', 'grpc'] as const;

const service = await useService();
const opened: { close(): Promise<void> }[] = [];

afterEach(async () => {
  await Promise.all(opened.splice(0).map((server) => server.close()));
});

/** Starts a server, which is closed with its connections when the test ends. Returns its address. */
async function listen(server: Server): Promise<string> {
  const sockets = new Set<{ destroy(): void }>();
  server.on('connection', (socket) => void sockets.add(socket));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  opened.push({
    async close() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

interface Answer {
  status: number;
  headers?: Record<string, string>;
  body?: string;
}

/** A server that gives the same answer to every request of either protocol, and records the requests. */
async function startAnswering(protocol: Protocol, answer: Answer) {
  const asked: { path: string; headers: http.IncomingHttpHeaders }[] = [];
  const hear = (
    request: http.IncomingMessage | http2.Http2ServerRequest,
    response: http.ServerResponse | http2.Http2ServerResponse,
  ) => {
    asked.push({ path: request.url ?? '', headers: request.headers });
    (response as http.ServerResponse).writeHead(answer.status, answer.headers).end(answer.body);
  };
  const baseUrl = await listen(protocol === 'json' ? http.createServer(hear) : http2.createServer(hear));
  return { asked, baseUrl };
}

const clientAt = (protocol: Protocol, baseUrl: string, change: Partial<PaymentIntentsClientOptions> = {}) =>
  createPaymentIntentsClient({
    baseUrl,
    apiKey: service.merchant.keys.testnet.apiKey,
    protocol,
    ...change,
  });

async function errorAt(
  protocol: Protocol,
  baseUrl: string,
  change: Partial<PaymentIntentsClientOptions> = {},
): Promise<PaymentIntentsError> {
  const error = await clientAt(protocol, baseUrl, { maxTries: 1, ...change })
    .createPaymentIntent({ amountUnits: 1 })
    .then(
      (intent) => expect.fail(`created ${intent.id}`),
      (reason: unknown) => reason,
    );
  expect(error).toBeInstanceOf(PaymentIntentsError);
  expect(inspect(error, { depth: 20, showHidden: true })).not.toContain(service.merchant.keys.testnet.apiKey);
  return error as PaymentIntentsError;
}

const html = (title: string) =>
  `<html>\r\n<head><style>b { color: red }</style><title>${title}</title></head>\r\n<body><h1>${title}</h1></body></html>`;

describe('a service newer than the client', () => {
  test('over JSON, unknown words are passed through', async () => {
    const { baseUrl } = await startAnswering('json', {
      status: 201,
      body: JSON.stringify({
        id: 'pi_01m7yzn0mtexwagr0spq4wg7vz',
        status: 'refunded',
        client_secret: 'pi_01m7yzn0mtexwagr0spq4wg7vz_secret_x',
        mode: 'sandbox',
        chain: 'solana',
        chain_id: 101,
        confirmations_required: 32,
        amount_units: 1,
        decimals: 6,
        token_symbol: 'USDC',
        token_address: '0x',
        expected_wallet: '0x',
        expires_at: '2026-11-21T12:30:15.514Z',
        expires_in_minutes: 30,
        lane: 'express',
        metadata: {},
        a_new_field: { of: ['any', 'kind'] },
      }),
    });
    expect(await clientAt('json', baseUrl).createPaymentIntent({ amountUnits: 1 })).toMatchObject({
      status: 'unknown:refunded',
      mode: 'unknown:sandbox',
      chain: 'unknown:solana',
      lane: 'unknown:express',
    });
  });

  test('over gRPC, unknown numbers are passed through', async () => {
    const newer = connectNodeAdapter({
      routes: (router) =>
        router.service(PaymentIntentService, {
          createPaymentIntent: () =>
            create(PaymentIntentSchema, {
              id: 'pi_01m7yzn0mtexwagr0spq4wg7vz',
              clientSecret: 'pi_01m7yzn0mtexwagr0spq4wg7vz_secret_x',
              expiresAt: timestampFromDate(new Date()),
              // Numbers that are not in the contract yet.
              ...({ status: 99, chain: 3, mode: 3, lane: 0 } as object),
            }),
        }),
    });
    const baseUrl = await listen(http2.createServer(newer));
    expect(await clientAt('grpc', baseUrl).createPaymentIntent({ amountUnits: 1 })).toMatchObject({
      status: 'unknown:99',
      mode: 'unknown:3',
      chain: 'unknown:3',
      lane: 'unknown:0',
    });
  });

  test.each([
    ['chain', chains, ChainSchema],
    ['delivery status', deliveryStatuses, WebhookDeliveryStatusSchema],
    ['lane', lanes, LaneSchema],
    ['mode', modes, ModeSchema],
    ['payment status', paymentStatuses, PaymentStatusSchema],
    ['status', statuses, PaymentIntentStatusSchema],
    ['token', tokens, TokenSchema],
  ])('the client knows every word of the contract: %s', (_, words, schema) => {
    expect(words).toEqual(
      Object.fromEntries(enumWords(schema).map(({ word, value }) => [word, value.number])),
    );
  });

  test.each<[number, boolean]>([
    [402, false],
    [409, false],
    [503, true],
  ])('a new code with status %i over JSON', async (status, isRetryable) => {
    const { baseUrl } = await startAnswering('json', {
      status,
      body: JSON.stringify({
        error: {
          code: 'plan_exhausted',
          message: 'No more.',
          request_id: 'req_1',
          doc_url: 'https://pay.example/docs#plan_exhausted',
        },
      }),
    });
    expect(await errorAt('json', baseUrl)).toMatchObject({
      code: 'unknown:plan_exhausted',
      message: 'No more.',
      isRetryable,
      httpStatus: status,
      requestId: 'req_1',
      docUrl: 'https://pay.example/docs#plan_exhausted',
    });
  });

  test.each<[Code, boolean]>([
    [Code.FailedPrecondition, false],
    [Code.Unavailable, true],
  ])('a new reason with gRPC code %i', async (code, isRetryable) => {
    const newer = connectNodeAdapter({
      routes: (router) =>
        router.service(PaymentIntentService, {
          createPaymentIntent() {
            throw new ConnectError('No more.', code, undefined, [
              {
                desc: ErrorInfoSchema,
                value: { reason: 'PLAN_EXHAUSTED', domain: 'payments', metadata: { doc_url: '/docs#error' } },
              },
            ]);
          },
        }),
    });
    const baseUrl = await listen(http2.createServer(newer));
    expect(await errorAt('grpc', baseUrl)).toMatchObject({
      code: 'unknown:plan_exhausted',
      message: 'No more.',
      docUrl: '/docs#error',
      isRetryable,
    });
  });
});

describe.each(protocols)('over %s', (protocol) => {
  const serviceUrl = () => (protocol === 'json' ? service.publicUrl : service.internalUrl);

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
    for (const [status, tries] of [
      [408, 3],
      [502, 3],
      [403, 1],
      [200, 1],
    ] as const) {
      const { asked, baseUrl } = await startAnswering(protocol, { status, body: html('x') });
      await errorAt(protocol, baseUrl, { maxTries: 3 });
      expect([status, asked.length]).toEqual([status, tries]);
      expect(new Set(asked.map(({ headers }) => headers['idempotency-key'])).size).toBe(1);
    }
  });

  test('an endless answer is not read to its end', async () => {
    const flood = (_: unknown, answer: http.ServerResponse | http2.Http2ServerResponse) => {
      const response = answer as http.ServerResponse;
      const more = () => {
        while (response.write('x'.repeat(65_536)));
      };
      response.writeHead(200).on('drain', more);
      more();
    };
    const baseUrl = await listen(protocol === 'json' ? http.createServer(flood) : http2.createServer(flood));
    const error = await errorAt(protocol, baseUrl);
    expect(error).toMatchObject({ code: 'unexpected_answer', httpStatus: 200 });
    expect(error.message.length).toBeLessThan(400);
  });

  test('an answer that repeats a secret does not put it into the error', async () => {
    const { baseUrl } = await startAnswering(protocol, {
      status: 200,
      body: `Authorization: Bearer ${service.merchant.keys.testnet.apiKey} {"client_secret":"pi_1_secret_abc-def"}`,
    });
    const { message } = await errorAt(protocol, baseUrl);
    expect(message).toContain('"Authorization: Bearer [secret] {\\"client_secret\\":\\"pi_1[secret]\\"}"');
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

  test('the User-Agent has the client and its runtime', async () => {
    const { asked, baseUrl } = await startAnswering(protocol, { status: 404 });
    await errorAt(protocol, baseUrl);
    expect(asked[0]?.headers['user-agent']).toBe(
      `payment-intents-client/${version} node/${process.versions.node}`,
    );
  });

  test('nothing listens: the error has the cause', async () => {
    const gone = http.createServer();
    gone.listen(0, '127.0.0.1');
    await once(gone, 'listening');
    const { port } = gone.address() as AddressInfo;
    await once(gone.close(), 'close');
    const error = await errorAt(protocol, `http://127.0.0.1:${port}`);
    expect(error).toMatchObject({
      code: 'network',
      isRetryable: true,
      httpStatus: undefined,
      message: `No answer came: connect ECONNREFUSED 127.0.0.1:${port}`,
      cause: expect.any(Error),
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
    const error = await errorAt(protocol, serviceUrl().replace('http:', 'https:'));
    expect(error.code).toBe('network');
    expect(error.message).toBe(
      'No answer came: this port does not speak TLS; use http in place of https in baseUrl',
    );
  });

  test('an error from the service has its request id', async () => {
    const linesBefore = service.log.length;
    const error = await errorAt(protocol, serviceUrl(), { apiKey: 'sk_testnet_nonsense' });
    expect(error).toMatchObject({
      code: 'api_key_invalid',
      httpStatus: protocol === 'json' ? 401 : undefined,
      requestId: expect.stringMatching(/^req_/),
    });
    expect(service.log.slice(linesBefore).map(({ request_id }) => request_id)).toContain(error.requestId);
  });

  describe('timeouts', () => {
    /** Accepts connections and never answers. */
    const startSilent = () => listen(createServer());

    test('apply to each try', async () => {
      const baseUrl = await startSilent();
      const error = await errorAt(protocol, baseUrl, { timeoutMs: 100 });
      expect(error).toMatchObject({
        code: 'network',
        isRetryable: true,
        message: 'No answer came within 100 ms (timeoutMs)',
      });
    });

    test('apply to the whole call, set for the client or for the call', async () => {
      const baseUrl = await startSilent();
      const startedAtMs = performance.now();
      const error = await errorAt(protocol, baseUrl, { timeoutMs: 150, callTimeoutMs: 700, maxTries: 100 });
      expect(error.code).toBe('network');
      expect(performance.now() - startedAtMs).toBeLessThan(1_500);
      const client = clientAt(protocol, baseUrl);
      const ended = await client
        .createPaymentIntent({ amountUnits: 1 }, { callTimeoutMs: 100, idempotencyKey: 'order-1' })
        .catch((reason) => reason);
      expect(ended).toMatchObject({
        code: 'network',
        idempotencyKey: 'order-1',
        message: 'No answer came within 100 ms (callTimeoutMs)',
      });
    });

    test('the client does not wait longer than the call has time for', async () => {
      const { baseUrl } = await startAnswering(protocol, { status: 503, headers: { 'Retry-After': '30' } });
      const startedAtMs = performance.now();
      const error = await errorAt(protocol, baseUrl, { callTimeoutMs: 5_000, maxTries: 6 });
      expect(error).toMatchObject({ code: 'unavailable', retryAfterMs: 30_000, httpStatus: 503 });
      expect(performance.now() - startedAtMs).toBeLessThan(2_500);
    });

    test('a signal aborts a try in flight', async () => {
      const controller = new AbortController();
      const silent = createServer();
      const baseUrl = await listen(silent);
      const reason = new Error('the payer has left');
      silent.on('connection', () => controller.abort(reason));
      const call = clientAt(protocol, baseUrl).createPaymentIntent(
        { amountUnits: 1 },
        { signal: controller.signal },
      );
      await expect(call).rejects.toBe(reason);
    });
  });
});

test.each<[string, Answer, RegExp]>([
  ['no JSON', { status: 201, body: 'created' }, /the body is not JSON; "created"/],
  ['an array', { status: 201, body: '[]' }, /the body is not an object/],
  ['another object', { status: 201, body: '{"id":"pi_1"}' }, /its status is missing or of another type$/],
])('201 with %s', async (_, answer, message) => {
  const { baseUrl } = await startAnswering('json', answer);
  const error = await errorAt('json', baseUrl);
  expect(error).toMatchObject({ code: 'unexpected_answer', httpStatus: 201, isRetryable: false });
  expect(error.message).toMatch(message);
});

test('an empty message over gRPC is an error', async () => {
  const empty = connectNodeAdapter({
    routes: (router) =>
      router.service(PaymentIntentService, { createPaymentIntent: () => create(PaymentIntentSchema) }),
  });
  const error = await errorAt('grpc', await listen(http2.createServer(empty)));
  expect(error).toMatchObject({ code: 'unexpected_answer', isRetryable: false });
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

test('the version is that of the package', async () => {
  const { default: manifest } = await import('../client/package.json', { with: { type: 'json' } });
  expect(version).toBe(manifest.version);
  expect(userAgent()).toMatch(/^payment-intents-client\/\d+\.\d+\.\d+ node\/24\./);
});
