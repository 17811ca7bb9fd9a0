import { randomBytes } from 'node:crypto';
import http from 'node:http';
import { createClient } from '@connectrpc/connect';
import { createConnectTransport } from '@connectrpc/connect-node';
import { afterAll, describe, expect, test, vi } from 'vitest';
import { chainNamed } from '../src/contract/chains.ts';
import { PaymentIntentService } from '../src/contract/gen/payments/v1/payment_intent_service_pb.ts';
import { parseIdentifier } from '../src/database/identifiers.ts';
import { blockCreates } from './support/blocker.ts';
import type { Door } from './support/call.ts';
import { startChain } from './support/chain.ts';
import { type ReceivedSpan, startCollector } from './support/collector.ts';
import { listenInTest } from './support/listen.ts';
import { startProgram } from './support/program.ts';
import { createTestDatabase, startService } from './support/service.ts';
import { createMerchantCalls, idBytes } from './support/settlement.ts';
import { anyPorts, bareEnvironment, databaseUrl, newSecrets } from './support/test-environment.ts';
import { insertTransfers } from './support/transfer-rows.ts';

const collector = await startCollector();
const env = {
  OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
  OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
  OTEL_BSP_SCHEDULE_DELAY: '20',
  OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=test',
};
// OpenTelemetry reads the environment of this process.
for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value);
const service = await startService(env);

afterAll(async () => {
  await service.close();
  await collector.close();
  vi.unstubAllEnvs();
});

interface Caller {
  traceId: string;
  spanId: string;
  traceparent: string;
}

/** A caller with its own span. */
function caller(flags = '01'): Caller {
  const traceId = randomBytes(16).toString('hex');
  const spanId = randomBytes(8).toString('hex');
  return { traceId, spanId, traceparent: `00-${traceId}-${spanId}-${flags}` };
}

interface Asked {
  amount?: number;
  authorization?: string;
  idempotencyKey?: string;
  metadata?: string;
}

const defaults = () => ({ amount: 1, authorization: `Bearer ${service.merchant.keys.testnet.apiKey}` });

/** Creates an intent through a door that the other tests use, too. */
const through =
  (door: Door) =>
  async (traceparent: string | undefined, asked: Asked = {}) => {
    const { amount, metadata, ...options } = { ...defaults(), ...asked };
    const body = { amount_units: amount, ...(metadata && { metadata: { order: metadata } }) };
    const headers = { ...(traceparent && { traceparent }) };
    const { requestId } = await service.call('createPaymentIntent', body, { door, headers, ...options });
    return requestId;
  };

/** Creates an intent over each protocol. Returns the request id. */
const ways = {
  'the public door': through('json'),
  gRPC: through('grpc'),
  Connect: async (traceparent: string | undefined, asked: Asked = {}) => {
    const { amount, authorization, idempotencyKey } = { ...defaults(), ...asked };
    const transport = createConnectTransport({ baseUrl: service.internalUrl, httpVersion: '2' });
    let requestId = '';
    await createClient(PaymentIntentService, transport)
      .createPaymentIntent(
        { amountUnits: BigInt(amount) },
        {
          headers: {
            authorization,
            ...(traceparent && { traceparent }),
            ...(idempotencyKey && { 'idempotency-key': idempotencyKey }),
          },
          onHeader: (headers) => {
            requestId = String(headers.get('x-request-id'));
          },
        },
      )
      .catch((error) => {
        requestId = String(error.metadata.get('x-request-id'));
      });
    return requestId;
  },
};

const named = (spans: readonly ReceivedSpan[], name: string) => {
  const found = spans.filter((span) => span.name === name);
  expect([name, found.length]).toEqual([name, 1]);
  return found[0] as ReceivedSpan;
};

const http201 = { 'http.request.method': 'POST', 'http.route': '/v1/payment_intents', 'url.scheme': 'http' };
const rpcOk = (system: string) => ({ 'rpc.system.name': system, 'rpc.status_code': 'OK' });
const served = {
  'the public door': { name: 'POST /v1/payment_intents', ...http201, 'http.response.status_code': 201 },
  gRPC: { name: 'payments.v1.PaymentIntentService/CreatePaymentIntent', ...rpcOk('grpc') },
  Connect: { name: 'payments.v1.PaymentIntentService/CreatePaymentIntent', ...rpcOk('connectrpc') },
};

describe.each(Object.keys(ways) as (keyof typeof ways)[])('a request over %s', (way) => {
  const { name, ...attributes } = served[way];

  test('is in its caller’s trace, with the statement that stores it', async () => {
    const { traceId, spanId, traceparent } = caller();
    await ways[way](undefined);
    const requestId = await ways[way](traceparent);
    const spans = await collector.trace(traceId, 2);
    expect(spans).toHaveLength(2);
    const server = named(spans, name);
    const insert = named(spans, 'INSERT payment_intents');
    expect(server).toMatchObject({
      parentSpanId: spanId,
      kind: 2,
      status: 0,
      attributes: {
        ...attributes,
        'payment_intents.request_id': requestId,
        'payment_intents.merchant_id': service.merchant.merchantId,
        'payment_intents.key_id': service.merchant.keys.testnet.keyId,
      },
      resource: { 'service.name': 'payment-intent-service', 'deployment.environment.name': 'test' },
    });
    expect(insert).toMatchObject({
      parentSpanId: server.spanId,
      kind: 3,
      status: 0,
      attributes: {
        'db.system.name': 'postgresql',
        'db.operation.name': 'INSERT',
        'db.collection.name': 'payment_intents',
        'payment_intents.commit_batch_size': 1,
      },
    });
    // The start of a span is rounded to whole milliseconds.
    expect(insert.startNs).toBeGreaterThan(server.startNs - 1_000_000n);
    expect(insert.endNs).toBeLessThan(server.endNs + 1_000_000n);
    expect(service.log.find(({ request_id }) => request_id === requestId)).toMatchObject({
      trace_id: traceId,
    });
  });

  test('that is refused has the reason in its span, but not the status of a server error', async () => {
    const { traceId, traceparent } = caller();
    await ways[way](traceparent, { amount: 0 });
    const [server, ...others] = await collector.trace(traceId, 1);
    expect(others).toEqual([]);
    expect(server?.attributes).not.toHaveProperty('error.type');
    expect(server).toMatchObject({
      status: 0,
      attributes: {
        'payment_intents.code': 'invalid_body',
        ...(way === 'the public door'
          ? { 'http.response.status_code': 400 }
          : { 'rpc.status_code': 'INVALID_ARGUMENT' }),
      },
    });
  });

  test('whose caller does not sample is not traced, and one without a caller begins a trace', async () => {
    const unsampled = caller('00');
    await ways[way](unsampled.traceparent);
    const requestId = await ways[way](undefined);
    const line = service.log.find(({ request_id }) => request_id === requestId);
    const spans = await collector.trace(String(line?.trace_id), 2);
    expect(named(spans, name).parentSpanId).toBeUndefined();
    // Spans arrive in the order in which they ended, so the earlier ones would have arrived.
    expect(collector.spans.filter(({ traceId }) => traceId === unsampled.traceId)).toEqual([]);
  });
});

test('the trace of a replayed create shows the statement that finds the first intent', async () => {
  const [first, again] = [caller(), caller()];
  const idempotencyKey = randomBytes(8).toString('hex');
  await ways.gRPC(first.traceparent, { idempotencyKey });
  await ways['the public door'](again.traceparent, { idempotencyKey });
  const spans = await collector.trace(again.traceId, 3);
  expect(spans.map(({ name }) => name).sort()).toEqual([
    'INSERT payment_intents',
    'POST /v1/payment_intents',
    'SELECT payment_intents',
  ]);
  expect(named(spans, 'POST /v1/payment_intents').attributes).toMatchObject({
    'payment_intents.replayed': true,
  });
});

test('the trace of an uncached key shows the statement that looks it up', async () => {
  await service.query(`update payout_wallets set updated_at = updated_at where merchant_id = $1`, [
    service.merchant.id,
  ]);
  await service.keyChangesHeard();
  const { traceId, traceparent } = caller();
  await ways.gRPC(traceparent);
  const spans = await collector.trace(traceId, 3);
  expect(named(spans, 'SELECT api_keys').parentSpanId).toBe(
    named(spans, 'payments.v1.PaymentIntentService/CreatePaymentIntent').spanId,
  );
});

test('a statement shared by several creates is in the trace of each', async () => {
  const callers = Array.from({ length: 30 }, () => caller());
  await Promise.all(callers.map(({ traceparent }) => ways.gRPC(traceparent)));
  const inserts = await Promise.all(
    callers.map(async ({ traceId }) => named(await collector.trace(traceId, 2), 'INSERT payment_intents')),
  );
  const sizes = inserts.map(({ attributes }) => Number(attributes['payment_intents.commit_batch_size']));
  expect(Math.max(...sizes)).toBeGreaterThan(1);
  // A batch of n is in n traces.
  for (const size of new Set(sizes)) expect(sizes.filter((n) => n === size).length % size).toBe(0);
});

test('the event of an attribution is in the trace of its request', async () => {
  const { authorization } = defaults();
  const call = (path: string, body: object, traceparent = '') =>
    fetch(`${service.publicUrl}/v1/${path}`, {
      method: 'POST',
      headers: { authorization, 'content-type': 'application/json', traceparent },
      body: JSON.stringify(body),
    });
  const created = await call('payment_intents', { amount_units: 1 });
  const { id: payment_intent } = (await created.json()) as { id: string };
  const [transfer] = await insertTransfers(service, service.merchant, [{ amountUnits: 1 }]);
  const { traceId, traceparent } = caller();
  const attributed = await call(`transfers/${transfer}/attribute`, { payment_intent }, traceparent);
  expect(attributed.status).toBe(200);
  const { spanId } = named(await collector.trace(traceId, 1), 'POST /v1/transfers/{id}/attribute');
  const events = await service.query('select traceparent from events where payment_intent = $1', [
    parseIdentifier('pi', payment_intent),
  ]);
  expect(events).toEqual([{ traceparent: `00-${traceId}-${spanId}-01` }]);
});

test('a delivery is in the trace of the request whose event it sends', async () => {
  const url = await listenInTest(http.createServer((_, response) => response.writeHead(503).end()));
  const { authorization } = defaults();
  const call = async (path: string, body: object, traceparent?: string) => {
    const answer = await fetch(`${service.publicUrl}/v1/${path}`, {
      method: 'POST',
      headers: { authorization, 'content-type': 'application/json', ...(traceparent && { traceparent }) },
      body: JSON.stringify(body),
    });
    expect(answer.ok).toBe(true);
    return (await answer.json()) as { id: string };
  };
  await call('webhook_endpoints', { url: `${url}/secret-path` });
  const intent = await call('payment_intents', { amount_units: 1 });
  const { traceId, traceparent } = caller();
  await call(`payment_intents/${intent.id}/cancel`, {}, traceparent);
  const spans = await collector.trace(traceId, 2);
  const server = named(spans, 'POST /v1/payment_intents/{id}/cancel');
  const delivery = named(spans, 'webhook POST');
  expect(delivery).toMatchObject({
    parentSpanId: server.spanId,
    kind: 3,
    status: 2,
    attributes: {
      'http.request.method': 'POST',
      'http.response.status_code': 503,
      'server.address': '127.0.0.1',
      'server.port': Number(new URL(url).port),
      'error.type': '503',
      'payment_intents.event_id': expect.stringMatching(/^evt_/),
    },
  });
  expect(JSON.stringify(delivery.attributes)).not.toContain('secret-path');
});

test('a change caused by the chain is in one trace with its block or confirmation, and with its deliveries', async () => {
  const url = await listenInTest(http.createServer((_, response) => response.end()));
  const calls = createMerchantCalls(service);
  // Endpoints of other tests have deliveries too.
  await service.query('delete from webhook_endpoints');
  await service.call('createWebhookEndpoint', { url: `${url}/` });
  const { id, expected_wallet, amount_units, chain_id, confirmations_required } = await calls.createIntent();
  const chain = await startChain();
  try {
    await service.server.watch([{ ...chainNamed('testnet', 'base'), urls: [chain.url] }], 50);
    const [{ address: from }] = chain.accounts;
    await chain.mint(from, BigInt(amount_units));
    await chain.transfer({
      ...{ from, to: expected_wallet, amountUnits: BigInt(amount_units), suffix: idBytes(id) },
    });
    await chain.mine();
    const paidIn = Number(await chain.client.getBlockNumber());
    const recorded = async (type: string, work: string, requests: string[]) => {
      await service.loggedLine(({ event, payment_intent }) => event === type && payment_intent === id);
      const [{ traceparent = '' } = {}] = await service.query<{ traceparent: string }>(
        'select traceparent from events where payment_intent = $1 and type = $2',
        [parseIdentifier('pi', id), type],
      );
      const [, traceId = '', spanId] = traceparent.split('-');
      // The three more are the work itself, its transaction, and the delivery.
      const spans = await collector.trace(traceId, requests.length + 3);
      const root = named(spans, work);
      const commit = named(spans, 'COMMIT');
      expect(root.parentSpanId).toBe(undefined);
      const inside = spans.filter(({ parentSpanId }) => parentSpanId === root.spanId);
      expect(inside.map(({ name }) => name).sort()).toEqual(['COMMIT', ...requests]);
      // The event refers to the transaction that recorded it, which is the delivery's parent.
      expect(spanId).toBe(commit.spanId);
      expect(named(spans, 'webhook POST').parentSpanId).toBe(commit.spanId);
      return root;
    };

    const block = await recorded('payment_intent.processing', 'block', ['eth_getTransactionByHash']);
    expect(block).toMatchObject({
      status: 0,
      attributes: {
        'payment_intents.chain_id': chain_id,
        'payment_intents.block': paidIn,
        'payment_intents.transfers': 1,
      },
    });
    await chain.mine(confirmations_required);
    await recorded('payment_intent.succeeded', 'confirmation', [
      'eth_getBlockByNumber',
      'eth_getBlockByNumber',
      'eth_getTransactionReceipt',
    ]);
  } finally {
    await chain.stop();
  }
});

test('a statement whose connection is cut is marked as an error, but not its request, which is repeated', async () => {
  const blocker = await blockCreates(service.location);
  const { traceId, traceparent } = caller();
  const answered = ways.gRPC(traceparent);
  await blocker.cutWaitingInserts();
  await blocker.release();
  await answered;
  const spans = await collector.trace(traceId, 3);
  const inserts = spans.filter(({ name }) => name === 'INSERT payment_intents');
  expect(inserts.map(({ status, attributes }) => [status, attributes['error.type']]).sort()).toEqual([
    [0, undefined],
    [2, '57P01'],
  ]);
  expect(named(spans, 'payments.v1.PaymentIntentService/CreatePaymentIntent')).toMatchObject({
    attributes: { 'rpc.status_code': 'OK' },
  });
});

test('a statement that the database refuses is marked as an error, and its request as a server error', async () => {
  await service.query('alter table payment_intents rename to gone');
  try {
    const { traceId, traceparent } = caller();
    await ways['the public door'](traceparent);
    const spans = await collector.trace(traceId, 2);
    expect(named(spans, 'INSERT payment_intents')).toMatchObject({
      status: 2,
      attributes: { 'error.type': '42P01' },
    });
    expect(named(spans, 'POST /v1/payment_intents')).toMatchObject({
      status: 2,
      attributes: { 'error.type': 'internal', 'http.response.status_code': 500 },
    });
  } finally {
    await service.query('alter table gone rename to payment_intents');
  }
});

test('no span contains a key, a client secret, metadata or an idempotency key', async () => {
  const { traceId, traceparent } = caller();
  await ways['the public door'](traceparent, {
    idempotencyKey: 'mark-of-a-key',
    metadata: 'mark-of-metadata',
  });
  await collector.trace(traceId, 2);
  const text = JSON.stringify(collector.spans, (_, value) =>
    typeof value === 'bigint' ? String(value) : value,
  );
  expect(text).not.toMatch(/sk_testnet_|_secret_|mark-of/);
});

test('a collector that does not answer delays the end by two seconds', async () => {
  const database = await createTestDatabase();
  const program = startProgram([process.execPath, 'src/main.ts'], {
    env: {
      ...{ ...bareEnvironment(), ...anyPorts, ...newSecrets(), ROLES: 'api' },
      ...{ DATABASE_URL: databaseUrl(database), DRAIN_DELAY: '0', OTEL_BSP_SCHEDULE_DELAY: '60000' },
      OTEL_EXPORTER_OTLP_ENDPOINT: await listenInTest(http.createServer(() => {})),
    },
  });
  const [ready] = await program.until(/^.*"message":"ready".*$/m);
  const url = `http://127.0.0.1:${JSON.parse(ready).http}/v1/payment_intents`;
  expect((await fetch(url, { method: 'POST', headers: { connection: 'close' } })).status).toBe(401);
  expect(await program.end('SIGTERM')).toEqual([0, null]);
  const [line = '{}'] = program.printed.output.match(/^.*the last spans could not be sent.*$/m) ?? [];
  expect(JSON.parse(line).err.message).toBe('the collector did not answer within 2000 ms');
  await database.drop();
});
