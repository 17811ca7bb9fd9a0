// The end of an event stream: by its key, its client, a deadline or the service, and how it is logged.

import http2 from 'node:http2';
import net from 'node:net';
import { create } from '@bufbuild/protobuf';
import { encodeEnvelope } from '@connectrpc/connect/protocol';
import grpc from '@grpc/grpc-js';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { WatchEventsRequestSchema } from '../src/contract/gen/payments/v1/event_service_pb.ts';
import { createEventCursors } from '../src/events/event-cursor.ts';
import { createEventFeed } from '../src/events/event-feed.ts';
import { createPositioner } from '../src/events/position-events.ts';
import { createEventReader } from '../src/events/read-events.ts';
import { watchEvents } from '../src/events/watch-events.ts';
import { createApiKey, revokeApiKey } from '../src/merchants/administration.ts';
import { newRequestContext } from '../src/requests/request-context.ts';
import { createLogger } from '../src/telemetry/logging.ts';
import { httpRequest } from './support/doors.ts';
import {
  disconnectWatches,
  type EventRefusal,
  insertEvents,
  openWatch,
  protocols,
  type Watch,
} from './support/events.ts';
import { createTestMerchant, startService, type TestMerchant, type TestService } from './support/service.ts';

let service: TestService;

beforeAll(async () => {
  service = await startService();
});

afterEach(disconnectWatches);
afterAll(() => service.close());

const newMerchant = () => createTestMerchant(service.database);
const keyOf = ({ keys }: TestMerchant) => keys.testnet.apiKey;

/** Opens a stream, and waits until it is open. */
async function opened(...args: Parameters<typeof openWatch>): Promise<Watch> {
  const watch = openWatch(...args);
  await watch.next();
  return watch;
}

async function metric(name: string, of = service): Promise<number | undefined> {
  const { body } = await httpRequest(`${of.operationsUrl}/metrics`, { method: 'GET' });
  const line = body.split('\n').find((text) => text.startsWith(`${name} `));
  return line === undefined ? undefined : Number(line.slice(name.length));
}

const openStreams = () => metric('payment_intents_event_streams');
const noStreams = () => vi.waitFor(async () => expect(await openStreams()).toBe(0), { timeout: 10_000 });

const linesOf = (keyId: string, of = service) =>
  of.requestLines().filter((line) => line.rpc === 'WatchEvents' && line.key_id === keyId);

/** Resolves with the lines of the key's streams once there are so many. */
const linesOnce = (keyId: string, count: number, of = service) =>
  vi.waitFor(
    () => {
      const lines = linesOf(keyId, of);
      expect(lines).toHaveLength(count);
      return lines;
    },
    { timeout: 10_000 },
  );

describe('the end of a key', () => {
  test('ends its streams within ten seconds, and those of no other key', async () => {
    const merchant = await newMerchant();
    const { em } = service.database.orm;
    const newKey = (expiresAt?: Date) =>
      createApiKey(
        em,
        service.database.keyRing('API_KEY_PEPPERS'),
        merchant.merchantId,
        'testnet',
        expiresAt,
      );
    const expiresAt = new Date(Date.now() + 4_000);
    const keys = { revoked: await newKey(), expired: await newKey(expiresAt), good: await newKey() };
    const openAll = ({ apiKey }: { apiKey: string }) =>
      Promise.all(protocols.map((protocol) => opened(protocol, service, apiKey)));
    const streams = {
      expired: await openAll(keys.expired),
      revoked: await openAll(keys.revoked),
      good: await openAll(keys.good),
    };
    // Open before the keys end, and silent.
    expect(linesOf(keys.expired.keyId)).toEqual([]);
    expect(Date.now()).toBeLessThan(expiresAt.getTime());
    const endOf = async (watch: Watch) => ({ refusal: await watch.refusal(), at: Date.now() });
    const ends = {
      revoked: Promise.all(streams.revoked.map(endOf)),
      expired: Promise.all(streams.expired.map(endOf)),
    };
    await revokeApiKey(em, keys.revoked.keyId);
    const revokedAt = Date.now();
    for (const [name, endedAt] of [
      ['revoked', revokedAt],
      ['expired', expiresAt.getTime()],
    ] as const) {
      for (const { refusal, at } of await ends[name]) {
        expect(refusal, name).toMatchObject({ code: 'api_key_invalid', status: 16 });
        expect(at - endedAt, name).toBeLessThan(10_000);
        expect(at, name).toBeGreaterThanOrEqual(endedAt);
      }
      const lines = await linesOnce(keys[name].keyId, protocols.length);
      expect(lines.map(({ code }) => code)).toEqual(protocols.map(() => 'api_key_invalid'));
    }
    const [id] = await insertEvents(service.query, [{ merchantId: merchant.id }]);
    await createPositioner(em).positionAll();
    for (const watch of streams.good) expect((await watch.nextEvent()).event.id).toBe(id);
    expect(linesOf(keys.good.keyId)).toEqual([]);
  });
});

test('a slow reader whose key has ended gets no more events of the current page', async () => {
  const merchant = await newMerchant();
  const { em } = service.database.orm;
  const feed = createEventFeed(em, createLogger('silent', { write() {} }));
  const method = watchEvents(createEventReader(em), createEventCursors(em), feed);
  const [after = ''] = await insertEvents(service.query, [{ merchantId: merchant.id }]);
  await createPositioner(em).positionAll();
  const open = () => {
    const { keyId } = merchant.keys.testnet;
    const identity = {
      merchantId: merchant.id,
      merchantTypeId: merchant.merchantId,
      keyTypeId: keyId,
      mode: 'testnet' as const,
      payoutWallets: {},
    };
    const { signal } = new AbortController();
    const call = { context: newRequestContext('internal'), signal, header: new Headers() };
    return method.run(create(WatchEventsRequestSchema, { after }), identity, call)[Symbol.asyncIterator]();
  };
  const [slow, prompt] = [open(), open()];
  const ids = await insertEvents(
    service.query,
    Array.from({ length: 3 }, () => ({ merchantId: merchant.id })),
  );
  await createPositioner(em).positionAll();
  for (const stream of [slow, prompt]) {
    await stream.next();
    expect(ids).toContain((await stream.next()).value.event.id);
  }
  await revokeApiKey(em, merchant.keys.testnet.keyId);
  await prompt.next();
  await prompt.next();
  // Ends when the feed has noticed.
  await expect(prompt.next()).rejects.toMatchObject({ code: 'api_key_invalid' });
  await expect(slow.next()).rejects.toMatchObject({ code: 'api_key_invalid' });
  expect(feed.streams()).toBe(0);
  await feed.stop();
});

describe('a client that leaves', () => {
  test.each(protocols)('frees its stream over %s, and has one line in the log', async (protocol) => {
    await noStreams();
    const merchant = await newMerchant();
    const { keyId, apiKey } = merchant.keys.testnet;
    const watches = [
      await opened(protocol, service, apiKey),
      await opened(protocol, service, apiKey),
    ] as const;
    expect(await openStreams()).toBe(2);
    expect(linesOf(keyId)).toEqual([]);
    const count = 'payment_intents_requests_total{door="internal",method="WatchEvents",code="canceled"}';
    const before = (await metric(count)) ?? 0;
    watches[0].cancel();
    await linesOnce(keyId, 1);
    expect(await openStreams()).toBe(1);
    watches[1].disconnect();
    const lines = await linesOnce(keyId, 2);
    expect(lines).toEqual(
      lines.map(() =>
        expect.objectContaining({
          rpc: 'WatchEvents',
          door: 'internal',
          code: 'canceled',
          merchant_id: merchant.merchantId,
          mode: 'testnet',
          duration_ms: expect.any(Number),
        }),
      ),
    );
    expect(new Set(lines.map(({ request_id }) => request_id)).size).toBe(2);
    await noStreams();
    expect(await metric(count)).toBe(before + 2);
  });

  test('frees its stream when its connection breaks, even with unread events', async () => {
    await noStreams();
    const { id, keys } = await newMerchant();
    const socket = net.connect(service.server.ports.grpc, '127.0.0.1');
    const session = http2.connect(service.internalUrl, { createConnection: () => socket });
    session.on('error', () => {});
    const stream = session.request({
      ':method': 'POST',
      ':path': '/payments.v1.EventService/WatchEvents',
      'content-type': 'application/grpc+proto',
      te: 'trailers',
      authorization: `Bearer ${keys.testnet.apiKey}`,
    });
    stream.on('error', () => {});
    stream.end(encodeEnvelope(0, new Uint8Array()));
    await vi.waitFor(async () => expect(await openStreams()).toBe(1));
    const reader = await opened('gRPC', service, keys.testnet.apiKey);
    const data = `{"payment_intent":{"metadata":{"text":"${'x'.repeat(16_000)}"}}}`;
    await insertEvents(
      service.query,
      Array.from({ length: 100 }, () => ({ merchantId: id, data })),
    );
    // When this reader has them all, the other stream has long been full.
    for (let i = 0; i < 100; i++) await reader.nextEvent();
    socket.destroy();
    expect((await linesOnce(keys.testnet.keyId, 1))[0]).toMatchObject({ code: 'canceled' });
    expect(await openStreams()).toBe(1);
    reader.disconnect();
    await noStreams();
  });

  test('ends its stream by its deadline', async () => {
    const { keys } = await newMerchant();
    const session = http2.connect(service.internalUrl);
    const stream = session.request({
      ':method': 'POST',
      ':path': '/payments.v1.EventService/WatchEvents',
      'content-type': 'application/grpc+proto',
      te: 'trailers',
      authorization: `Bearer ${keys.testnet.apiKey}`,
      // Only the service knows of it, so only the service ends the call.
      'grpc-timeout': '700m',
    });
    const status = new Promise((resolve) => {
      stream.once('trailers', (trailers) => resolve(Number(trailers['grpc-status'])));
    });
    stream.resume().end(encodeEnvelope(0, new Uint8Array()));
    expect(await status).toBe(grpc.status.DEADLINE_EXCEEDED);
    expect((await linesOnce(keys.testnet.keyId, 1))[0]).toMatchObject({ code: 'deadline_exceeded' });
    session.close();
    await noStreams();
  });
});

test('one key has at most 32 streams, over all protocols', async () => {
  await noStreams();
  const merchant = await newMerchant();
  const apiKey = keyOf(merchant);
  const watches = await Promise.all(
    Array.from({ length: 32 }, (_, i) => opened(protocols[i % protocols.length] ?? 'gRPC', service, apiKey)),
  );
  for (const protocol of protocols) {
    expect(await openWatch(protocol, service, apiKey).refusal(), protocol).toMatchObject({
      code: 'rate_limited',
      status: 8,
    });
    await opened(protocol, service, merchant.keys.mainnet.apiKey);
  }
  expect(await openStreams()).toBe(32 + protocols.length);
  watches[0]?.cancel();
  await vi.waitFor(() => opened('Connect', service, apiKey), { timeout: 10_000 });
  const [refused] = linesOf(merchant.keys.testnet.keyId);
  expect(refused).toMatchObject({ code: 'rate_limited' });
  // Those that are open are not disturbed.
  const [id] = await insertEvents(service.query, [{ merchantId: merchant.id }]);
  await createPositioner(service.database.orm.em).positionAll();
  for (const watch of watches.slice(1)) expect((await watch.nextEvent()).event.id).toBe(id);
});

test('a service that stops ends its streams with UNAVAILABLE', async () => {
  const own = await startService();
  const { keyId, apiKey } = own.merchant.keys.testnet;
  const watches = await Promise.all(protocols.map((protocol) => opened(protocol, own, apiKey)));
  const startedAtMs = performance.now();
  const closing = own.server.close();
  const refusals: EventRefusal[] = await Promise.all(watches.map((watch) => watch.refusal()));
  for (const refusal of refusals) expect(refusal).toMatchObject({ code: 'unavailable', status: 14 });
  for (const watch of watches) watch.disconnect();
  await closing;
  // Not cut at the end of the drain timeout, 10 s.
  expect(performance.now() - startedAtMs).toBeLessThan(8_000);
  const lines = linesOf(keyId, own);
  expect(lines.map(({ code, level }) => [code, level])).toEqual(
    protocols.map(() => ['unavailable', expect.anything()]),
  );
  expect(lines.map(({ request_id }) => request_id).sort()).toEqual(
    refusals.map(({ requestId }) => requestId).sort(),
  );
  await own.close();
});
