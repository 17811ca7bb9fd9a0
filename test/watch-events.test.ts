// Streams of events over every protocol: what they send, when, and how they end.

import http2 from 'node:http2';
import net from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { create } from '@bufbuild/protobuf';
import { encodeEnvelope } from '@connectrpc/connect/protocol';
import grpc from '@grpc/grpc-js';
import { afterAll, afterEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { WatchEventsRequestSchema } from '../src/contract/gen/payments/v1/event_service_pb.ts';
import { formatIdentifier, newUuid } from '../src/database/identifiers.ts';
import { createEventFeed } from '../src/events/event-feed.ts';
import { watchEvents } from '../src/events/event-methods.ts';
import { createPositioner } from '../src/events/position-events.ts';
import { createEventCursors, createEventReader } from '../src/events/read-events.ts';
import { createApiKey, revokeApiKey } from '../src/merchants/administration.ts';
import { newRequestContext } from '../src/requests/request-context.ts';
import { createLogger } from '../src/telemetry/logging.ts';
import { type EventRowSettings, insertEventRows } from './support/event-rows.ts';
import { disconnectWatches, openWatch, protocols, type Watch } from './support/event-streams.ts';
import { metric } from './support/metrics.ts';
import { openClient } from './support/open-client.ts';
import { identityOf, keyOf, startService, type TestMerchant } from './support/service.ts';
import { useService } from './support/use-service.ts';

const service = await useService();
const { newMerchant } = service;
const { em } = service.database.orm;

afterEach(disconnectWatches);

const large = `{"payment_intent":{"metadata":{"text":"${'x'.repeat(16_000)}"}}}`;

/** Stores events and gives them their positions. */
async function store(events: readonly EventRowSettings[]): Promise<string[]> {
  const ids = await insertEventRows(service.query, events);
  await createPositioner(em).positionAll();
  return ids;
}

/** Opens a stream, and waits until it is open. */
async function opened(...args: Parameters<typeof openWatch>): Promise<Watch> {
  const watch = openWatch(...args);
  await watch.next();
  return watch;
}

async function cancelOne(apiKey = keyOf(service.merchant)): Promise<string> {
  const { id } = (await service.call('createPaymentIntent', { amount_units: 1 }, { apiKey })).json;
  await service.call('cancelPaymentIntent', { id }, { apiKey });
  return id;
}

/** Opens a stream by calling the method itself, without a door. */
function openMethod(
  merchant: TestMerchant,
  { after = '', ...options }: { after?: string; keepAliveMs?: number },
) {
  const feed = createEventFeed(em, createLogger('silent', { write() {} }));
  const method = watchEvents(createEventReader(em), createEventCursors(em), feed, options);
  const identity = identityOf(merchant);
  const open = () => {
    const controller = new AbortController();
    const { signal } = controller;
    const call = { context: newRequestContext('internal'), signal, header: new Headers() };
    const messages = method
      .run(create(WatchEventsRequestSchema, { after }), identity, call)
      [Symbol.asyncIterator]();
    return { controller, messages };
  };
  return { feed, open };
}

describe.each(protocols)('over %s', (protocol) => {
  test('the first message has no event and comes at once; then live events of this merchant and mode follow', async () => {
    const merchant = await newMerchant();
    await store([{ merchantId: merchant.id }]);
    const watch = openWatch(protocol, service, keyOf(merchant));
    const first = await watch.next();
    expect([first.event, first.position === '']).toEqual([undefined, false]);

    await store([{ merchantId: service.merchant.id }, { merchantId: merchant.id, mode: 'mainnet' }]);
    const intent = await cancelOne(keyOf(merchant));
    // The next message is not about the events of others.
    const { event, position } = await watch.next();
    expect(event).toMatchObject({ type: 'payment_intent.canceled', sequence: 1 });
    expect(event?.data?.paymentIntent).toMatchObject({ id: intent, clientSecret: '' });
    expect(position).not.toBe(first.position);
    // A stream from the first position repeats no earlier event and misses no later one.
    const again = openWatch(protocol, service, keyOf(merchant), first.position);
    expect((await again.nextEvent()).event.id).toBe(event?.id);
  });

  test('a stream that continues after an event or a position loses and repeats nothing while events are recorded', async () => {
    const merchant = await newMerchant();
    const merchantId = merchant.id;
    const [start = ''] = await store([{ merchantId }]);
    const count = 79;
    const making = (async () => {
      for (let i = 0; i < 40; i++) await store(Array.from({ length: 1 + (i % 3) }, () => ({ merchantId })));
    })();
    const seen: string[] = [];
    let after = start;
    for (let round = 0; seen.length < count; round++) {
      const watch = openWatch(protocol, service, keyOf(merchant), after);
      expect((await watch.next()).event).toBeUndefined();
      for (let i = 0; i < 7 && seen.length < count; i++) {
        const { event, position } = await watch.nextEvent();
        seen.push(event.id);
        after = round % 2 === 0 ? event.id : position;
      }
      if (round % 3 === 0) watch.cancel();
      else watch.disconnect();
    }
    await making;
    const rows = await service.query<{ id: string }>(
      'select id from events where merchant_id = $1 order by position',
      [merchantId],
    );
    expect([start, ...seen]).toEqual(rows.map(({ id }) => formatIdentifier('evt', id)));
  });
});

test('without events, messages keep the stream alive and carry its position', async () => {
  const merchant = await newMerchant();
  const keepAliveMs = 300;
  const { feed, open } = openMethod(merchant, { keepAliveMs });
  const { controller, messages } = open();
  const next = async () => ({ ...(await messages.next()).value, atMs: performance.now() });
  const [first, second, third] = [await next(), await next(), await next()];
  for (const message of [first, second, third]) expect(message.event).toBeUndefined();
  // A timer may fire a little early.
  expect(second.atMs - first.atMs).toBeGreaterThan(keepAliveMs - 5);
  expect(third.atMs - second.atMs).toBeGreaterThan(keepAliveMs - 5);
  expect(third.position).toBe(first.position);
  // Events of others move the position on, so that a quiet stream does not fall behind the retained events.
  await store([{ merchantId: service.merchant.id }]);
  await expect.poll(async () => (await next()).position).not.toBe(first.position);
  // An event postpones the next keep-alive message.
  const [id] = await store([{ merchantId: merchant.id }]);
  const live = await next();
  expect(live.event?.id).toBe(id);
  expect((await next()).atMs - live.atMs).toBeGreaterThan(keepAliveMs - 5);
  controller.abort();
  await expect(messages.next()).rejects.toMatchObject({ code: 'unavailable' });
  expect(feed.streams()).toBe(0);
  await feed.stop();
});

test('without a setting, a message is due after 30 seconds', async () => {
  const { feed, open } = openMethod(await newMerchant(), {});
  const { subscribe } = feed;
  const waits: number[] = [];
  feed.subscribe = (reader) => {
    const stream = subscribe(reader);
    return {
      ...stream,
      wait(ms, signal) {
        waits.push(ms);
        return stream.wait(ms, signal);
      },
    };
  };
  const { controller, messages } = open();
  await messages.next();
  const next = messages.next();
  await expect.poll(() => waits.length).toBeGreaterThan(0);
  controller.abort();
  await expect(next).rejects.toMatchObject({ code: 'unavailable' });
  expect(waits[0]).toBeGreaterThan(25_000);
  expect(waits[0]).toBeLessThanOrEqual(30_000);
  await feed.stop();
});

describe('a client that does not read', () => {
  setFlagsFromString('--expose_gc');
  const collectGarbage: () => void = runInNewContext('gc');
  /** The lowest of several measurements: one collection may leave objects to be finalized by the next. */
  const usedBytes = async () => {
    const measured = [];
    for (let i = 0; i < 3; i++) {
      collectGarbage();
      const { heapUsed, external } = process.memoryUsage();
      measured.push(heapUsed + external);
      await setImmediate();
    }
    return Math.min(...measured);
  };
  const sequences = Array.from({ length: 600 }, (_, i) => i + 1);

  // The two protocols with different framing.
  test.each(['gRPC', 'Connect'] as const)(
    'costs little memory over %s, and gets everything when it reads on',
    async (protocol) => {
      const merchant = await newMerchant();
      const merchantId = merchant.id;
      const [start = ''] = await store([{ merchantId }]);
      const slow = await opened(protocol, service, keyOf(merchant), start);
      const fast = await opened('gRPC', service, keyOf(merchant), start);
      const before = await usedBytes();
      await service.query(
        `insert into events (id, merchant_id, mode, type, created_at, payment_intent, sequence, data)
       select uuidv7(), $1, 'testnet', 'payment_intent.canceled', now(), $2, i, $3 from generate_series(1, $4) as i`,
        [merchantId, newUuid(), large, sequences.length],
      );
      // Once the fast reader has all events, the slow one has been sent as much as it takes.
      const readAll = async (watch: Watch) => {
        const seen: (number | undefined)[] = [];
        while (seen.length < sequences.length) seen.push((await watch.nextEvent()).event.sequence);
        return seen;
      };
      expect(await readAll(fast)).toEqual(sequences);
      // All events are 10 MB. A page of them is 320 KB.
      expect((await usedBytes()) - before).toBeLessThan(4_000_000);
      expect(await readAll(slow)).toEqual(sequences);
      await service.query('delete from events where merchant_id = $1', [merchantId]);
    },
  );
});

describe('between processes', async () => {
  const other = await useService({}, { beside: service });
  const deaf = await useService({}, { beside: service, isNotified: false });
  afterAll(disconnectWatches);

  /** Returns the milliseconds until the stream has the event. */
  async function latencyMs(watch: Watch, make: () => Promise<string>): Promise<number> {
    const startedAtMs = performance.now();
    const id = await make();
    expect((await watch.nextEvent()).event.data?.paymentIntent?.id).toBe(id);
    return performance.now() - startedAtMs;
  }

  /** Records an event like a process that ends before it assigns the position. */
  const recordOnly = async () => {
    const paymentIntent = newUuid();
    await insertEventRows(service.query, [{ merchantId: service.merchant.id, paymentIntent }]);
    return formatIdentifier('pi', paymentIntent);
  };

  test.each([
    ['a cancellation by another process', other, cancelOne],
    ['a cancellation by another process, when no notification arrives', deaf, cancelOne],
    ['an event without a position from its process', other, recordOnly],
    ['an event without a position from its process, when no notification arrives', deaf, recordOnly],
  ])('a stream has %s within half a second', async (_, process, make) => {
    const watch = await opened('grpc-js', process, keyOf(service.merchant));
    const latencies = [];
    for (let i = 0; i < 5; i++) latencies.push(await latencyMs(watch, () => make()));
    // The lowest one shows what the service needs. The machine may have delayed the others.
    expect(Math.min(...latencies)).toBeLessThan(500);
    expect(Math.max(...latencies)).toBeLessThan(10_000);
  });

  test('a stream misses nothing when the connection for notifications is cut', async () => {
    const watch = await opened('grpc-js', other, keyOf(service.merchant));
    const listening = () =>
      service.query<{ pid: number }>(
        `select pid from pg_stat_activity where datname = current_database() and query ilike 'listen %'`,
      );
    const before = await listening();
    expect(before).toHaveLength(2);
    await service.query('select pg_terminate_backend(pid) from unnest($1::int[]) as pid', [
      before.map(({ pid }) => pid),
    ]);
    expect(await latencyMs(watch, cancelOne)).toBeLessThan(10_000);
    await expect.poll(listening).toHaveLength(2);
    expect(await latencyMs(watch, cancelOne)).toBeLessThan(10_000);
  });
});

const openStreams = () => metric(service, 'payment_intents_event_streams');
const noStreams = () => expect.poll(openStreams).toBe(0);

const linesOf = (keyId: string, of = service) =>
  of.requestLines().filter((line) => line.rpc === 'WatchEvents' && line.key_id === keyId);

/** Resolves with the log lines of the key's streams once there are so many. */
async function linesOnce(keyId: string, count: number) {
  await expect.poll(() => linesOf(keyId)).toHaveLength(count);
  return linesOf(keyId);
}

/** Opens a stream on an HTTP/2 session, without its request. */
const openRaw = (session: http2.ClientHttp2Session, headers: http2.OutgoingHttpHeaders) =>
  session.request({
    ':method': 'POST',
    ':path': '/payments.v1.EventService/WatchEvents',
    'content-type': 'application/grpc+proto',
    te: 'trailers',
    ...headers,
  });

describe('a stream ends', () => {
  test('within ten seconds after its key, but not with another key of the merchant', async () => {
    const merchant = await newMerchant();
    const newKey = (expiresAt?: Date) =>
      createApiKey(
        em,
        service.database.keyRing('API_KEY_PEPPERS'),
        merchant.merchantId,
        'testnet',
        expiresAt,
      );
    const expiresAt = new Date(Date.now() + 8_000);
    const keys = { revoked: await newKey(), expired: await newKey(expiresAt), good: await newKey() };
    const openAll = ({ apiKey }: { apiKey: string }) =>
      Promise.all(protocols.map((protocol) => opened(protocol, service, apiKey)));
    const [expired, revoked] = [await openAll(keys.expired), await openAll(keys.revoked)];
    const good = await openAll(keys.good);
    expect(linesOf(keys.expired.keyId)).toEqual([]);
    expect(Date.now()).toBeLessThan(expiresAt.getTime());
    const endOf = async (watch: Watch) => ({ refusal: await watch.refusal(), at: Date.now() });
    const ends = { revoked: Promise.all(revoked.map(endOf)), expired: Promise.all(expired.map(endOf)) };
    await revokeApiKey(em, keys.revoked.keyId);
    const endedAt = { revoked: Date.now(), expired: expiresAt.getTime() };
    for (const name of ['revoked', 'expired'] as const) {
      for (const { refusal, at } of await ends[name]) {
        expect(refusal, name).toMatchObject({ code: 'api_key_invalid', status: 16 });
        expect(at - endedAt[name], name).toBeLessThan(10_000);
        expect(at, name).toBeGreaterThanOrEqual(endedAt[name]);
      }
      const lines = await linesOnce(keys[name].keyId, protocols.length);
      expect(lines.map(({ code }) => code)).toEqual(protocols.map(() => 'api_key_invalid'));
    }
    const [id] = await store([{ merchantId: merchant.id }]);
    for (const watch of good) expect((await watch.nextEvent()).event.id).toBe(id);
    expect(linesOf(keys.good.keyId)).toEqual([]);
  });

  test('with its key for a slow reader, too, who gets no more of the page that was read before', async () => {
    const merchant = await newMerchant();
    const [after = ''] = await store([{ merchantId: merchant.id }]);
    const { feed, open } = openMethod(merchant, { after });
    const [slow, prompt] = [open().messages, open().messages];
    const ids = await store(Array.from({ length: 3 }, () => ({ merchantId: merchant.id })));
    for (const stream of [slow, prompt]) {
      await stream.next();
      expect(ids).toContain((await stream.next()).value.event.id);
    }
    await revokeApiKey(em, merchant.keys.testnet.keyId);
    for (let i = 0; i < 2; i++) await prompt.next();
    // The stream ends once the feed has noticed the revocation.
    await expect(prompt.next()).rejects.toMatchObject({ code: 'api_key_invalid' });
    await expect(slow.next()).rejects.toMatchObject({ code: 'api_key_invalid' });
    expect(feed.streams()).toBe(0);
    await feed.stop();
  });

  test.each(protocols)('over %s when its client leaves, with one line in the log', async (protocol) => {
    await noStreams();
    const merchant = await newMerchant();
    const { keyId, apiKey } = merchant.keys.testnet;
    const open = () => opened(protocol, service, apiKey);
    const [first, second] = [await open(), await open()];
    expect([await openStreams(), linesOf(keyId)]).toEqual([2, []]);
    const count = 'payment_intents_requests_total{door="internal",method="WatchEvents",code="canceled"}';
    const before = (await metric(service, count)) ?? 0;
    first.cancel();
    await linesOnce(keyId, 1);
    expect(await openStreams()).toBe(1);
    second.disconnect();
    const lines = await linesOnce(keyId, 2);
    const line = {
      rpc: 'WatchEvents',
      door: 'internal',
      code: 'canceled',
      merchant_id: merchant.merchantId,
      mode: 'testnet',
      duration_ms: expect.any(Number),
    };
    expect(lines).toMatchObject([line, line]);
    expect(new Set(lines.map(({ request_id }) => request_id)).size).toBe(2);
    await noStreams();
    expect(await metric(service, count)).toBe(before + 2);
  });

  test.each([
    ['breaks', 'destroy'],
    ['is reset', 'resetAndDestroy'],
  ] as const)('when its connection %s, even while it is sent more than it reads', async (_, end) => {
    await noStreams();
    const { id: merchantId, keys } = await newMerchant();
    const { apiKey, keyId } = keys.testnet;
    const socket = net.connect(service.server.ports.grpc, '127.0.0.1');
    const session = http2.connect(service.internalUrl, { createConnection: () => socket });
    session.on('error', () => {});
    const stream = openRaw(session, { authorization: `Bearer ${apiKey}` });
    stream.on('error', () => {});
    stream.end(encodeEnvelope(0, new Uint8Array()));
    await expect.poll(openStreams).toBe(1);
    const reader = await opened('gRPC', service, apiKey);
    await store(Array.from({ length: 100 }, () => ({ merchantId, data: large })));
    // By then the other stream is full.
    for (let i = 0; i < 100; i++) await reader.nextEvent();
    socket[end]();
    expect(await linesOnce(keyId, 1)).toMatchObject([{ code: 'canceled', level: 'info' }]);
    expect(await openStreams()).toBe(1);
  });

  test('at its deadline', async () => {
    const { apiKey, keyId } = (await newMerchant()).keys.testnet;
    const session = http2.connect(service.internalUrl);
    // The client does not know the deadline, so only the service can end the call.
    const stream = openRaw(session, { authorization: `Bearer ${apiKey}`, 'grpc-timeout': '700m' });
    const status = new Promise((resolve) => {
      stream.once('trailers', (trailers) => resolve(Number(trailers['grpc-status'])));
    });
    stream.resume().end(encodeEnvelope(0, new Uint8Array()));
    expect(await status).toBe(grpc.status.DEADLINE_EXCEEDED);
    expect(await linesOnce(keyId, 1)).toMatchObject([{ code: 'deadline_exceeded' }]);
    session.close();
    await noStreams();
  });

  test('with UNAVAILABLE when its database session does', async () => {
    const blocker = await openClient(service.location);
    onTestFinished(() => blocker.end());
    await blocker.query('begin; lock table events in access exclusive mode');
    const refusal = openWatch('gRPC', service, keyOf(service.merchant)).refusal();
    const end = `select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock' and query like 'select e.%'`;
    await expect.poll(() => service.query(end)).toHaveLength(1);
    expect(await refusal).toMatchObject({ code: 'unavailable', status: 14 });
  });

  test('with UNAVAILABLE when the service stops', async () => {
    const own = await startService();
    const { keyId, apiKey } = own.merchant.keys.testnet;
    const watches = await Promise.all(protocols.map((protocol) => opened(protocol, own, apiKey)));
    const startedAtMs = performance.now();
    const closing = own.server.close();
    const refusals = await Promise.all(watches.map((watch) => watch.refusal()));
    for (const refusal of refusals) expect(refusal).toMatchObject({ code: 'unavailable', status: 14 });
    for (const watch of watches) watch.disconnect();
    await closing;
    expect(performance.now() - startedAtMs).toBeLessThan(8_000); // Less than the drain timeout.
    const lines = linesOf(keyId, own);
    expect(lines.map(({ code }) => code)).toEqual(protocols.map(() => 'unavailable'));
    expect(lines.map(({ request_id }) => request_id).sort()).toEqual(
      refusals.map(({ requestId }) => requestId).sort(),
    );
    await own.close();
  });
});

test('a process has at most 1,024 streams', async () => {
  const { feed } = openMethod(service.merchant, {});
  const reader = { merchantId: service.merchant.id, mode: 'testnet' } as const;
  for (const keyId of Array.from({ length: 32 }, newUuid)) {
    for (let i = 0; i < 32; i++) feed.subscribe({ ...reader, keyId });
  }
  expect(() => feed.subscribe({ ...reader, keyId: newUuid() })).toThrow(/^Too many streams are open/);
  await feed.stop();
});

test('one key has at most 32 streams, over all protocols', async () => {
  await noStreams();
  const merchant = await newMerchant();
  const apiKey = keyOf(merchant);
  const watches = await Promise.all(
    Array.from({ length: 32 }, (_, i) => opened(protocols[i % protocols.length] ?? 'gRPC', service, apiKey)),
  );
  const refused = { code: 'rate_limited', status: 8 };
  for (const protocol of protocols) {
    expect(await openWatch(protocol, service, apiKey).refusal(), protocol).toMatchObject(refused);
    await opened(protocol, service, merchant.keys.mainnet.apiKey);
  }
  expect(await openStreams()).toBe(32 + protocols.length);
  watches[0]?.cancel();
  await vi.waitFor(() => opened('Connect', service, apiKey), { timeout: 10_000 });
  expect(linesOf(merchant.keys.testnet.keyId)[0]).toMatchObject({ code: 'rate_limited' });
  // The open streams are not disturbed.
  const [id] = await store([{ merchantId: merchant.id }]);
  for (const watch of watches.slice(1)) expect((await watch.nextEvent()).event.id).toBe(id);
});
