import { setTimeout as sleep } from 'node:timers/promises';
import grpc from '@grpc/grpc-js';
import { expect, test } from 'vitest';
import { EventService } from '../src/contract/gen/payments/v1/event_service_pb.ts';
import { PaymentIntentService } from '../src/contract/gen/payments/v1/payment_intent_service_pb.ts';
import { RefundService } from '../src/contract/gen/payments/v1/refund_service_pb.ts';
import { TransferService } from '../src/contract/gen/payments/v1/transfer_service_pb.ts';
import { WebhookEndpointService } from '../src/contract/gen/payments/v1/webhook_endpoint_service_pb.ts';
import { httpRoutesOf } from '../src/contract/http-routes.ts';
import { type Door, doors } from './support/call.ts';
import { httpRequest, postJson, startService } from './support/service.ts';
import { useService } from './support/use-service.ts';

const service = await useService({ RATE_LIMIT: '5' });

/** A merchant with an unused rate limit. */
const newKey = async () => (await service.newMerchant()).keys.testnet.apiKey;
const countRows = async () =>
  (await service.query<{ n: number }>('select count(*)::int as n from payment_intents'))[0]?.n;

const createOverHttp = (apiKey: string, body?: string) =>
  postJson(`${service.publicUrl}/v1/payment_intents`, apiKey, body);

test('allows a burst of twice the rate over both doors together, then returns 429 and stores nothing', async () => {
  const { keys } = await service.newMerchant();
  const { apiKey } = keys.testnet;
  const rowsBefore = (await countRows()) ?? 0;
  const beganAtMs = performance.now();
  const calls = 60;
  const codes = await Promise.all(
    Array.from({ length: calls }, (_, i) =>
      service
        .call('createPaymentIntent', { amount_units: 1 }, { door: doors[i % 2] as Door, apiKey })
        .then(({ code }) => code),
    ),
  );
  const created = codes.filter((code) => code === 'ok').length;
  const becameAvailable = Math.ceil((5 * (performance.now() - beganAtMs)) / 1_000);
  expect(created).toBeGreaterThanOrEqual(10);
  expect(created).toBeLessThanOrEqual(10 + becameAvailable);
  expect(codes.filter((code) => code === 'rate_limited').length).toBe(calls - created);
  expect(await countRows()).toBe(rowsBefore + created);
  // Other merchants and other keys of the merchant are not affected.
  for (const other of [await newKey(), keys.mainnet.apiKey]) {
    const { code } = await service.call('createPaymentIntent', { amount_units: 1 }, { apiKey: other });
    expect(code).toBe('ok');
  }
});

test('every answer has the remaining quota, and a refusal has Retry-After', async () => {
  const apiKey = await newKey();
  const first = await createOverHttp(apiKey);
  expect(first.headers).toMatchObject({
    'ratelimit-policy': '"creates";q=10;w=2',
    ratelimit: '"creates";r=9;t=1',
  });
  const faulty = await createOverHttp(apiKey, 'nonsense');
  // One is available again every 200 ms.
  expect([faulty.status, faulty.headers.ratelimit]).toEqual([
    400,
    expect.stringMatching(/^"creates";r=[89];t=1$/),
  ]);
  let last = first;
  // Refused before the body is read.
  while (last.status !== 429) last = await createOverHttp(apiKey, 'nonsense');
  expect(last.headers).toMatchObject({
    'retry-after': '1',
    'ratelimit-policy': '"creates";q=10;w=2',
    ratelimit: '"creates";r=0;t=2',
  });
  expect(JSON.parse(last.body).error.code).toBe('rate_limited');
  await sleep(Number(last.headers['retry-after']) * 1000);
  expect((await createOverHttp(apiKey)).status).toBe(201);
});

test('over gRPC the refusal is RESOURCE_EXHAUSTED with RetryInfo', async () => {
  const apiKey = await newKey();
  for (;;) {
    const answer = await service.call('createPaymentIntent', { amount_units: 1 }, { door: 'grpc', apiKey });
    if (answer.code === 'ok') continue;
    expect(answer).toMatchObject({
      code: 'rate_limited',
      status: grpc.status.RESOURCE_EXHAUSTED,
      retryDelaySeconds: 1,
    });
    break;
  }
});

const services = [EventService, PaymentIntentService, RefundService, TransferService, WebhookEndpointService];
const creates = ['POST /v1/payment_intents', 'POST /v1/refunds'];
test.each(services.flatMap(httpRoutesOf).map(({ httpMethod, path }) => [httpMethod, path] as const))(
  '%s %s counts under its policy',
  async (method, path) => {
    const policy = method === 'GET' ? 'reads' : creates.includes(`${method} ${path}`) ? 'creates' : 'changes';
    const url = service.publicUrl + path.replace('{id}', 'x');
    const headers = { Authorization: `Bearer ${await newKey()}` };
    const answer = await httpRequest(url, { method, headers });
    expect(answer.headers['ratelimit-policy']).toBe(`"${policy}";q=10;w=2`);
  },
);

test('RATE_LIMIT=0 turns the limit off', async () => {
  const open = await startService({ RATE_LIMIT: '0' });
  const { apiKey } = open.merchant.keys.testnet;
  const codes = await Promise.all(
    Array.from({ length: 50 }, () => open.call('createPaymentIntent', { amount_units: 1 })),
  );
  expect(new Set(codes.map(({ code }) => code))).toEqual(new Set(['ok']));
  const { status, headers } = await postJson(`${open.publicUrl}/v1/payment_intents`, apiKey);
  expect([status, headers.ratelimit]).toEqual([201, undefined]);
  await open.close();
});
