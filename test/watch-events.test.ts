// An event stream sends each event once, promptly, and at the pace of its reader.

import { setImmediate } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { create } from '@bufbuild/protobuf';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { WatchEventsRequestSchema } from '../src/contract/gen/payments/v1/event_service_pb.ts';
import { formatIdentifier, newUuid } from '../src/database/identifiers.ts';
import { createEventCursors } from '../src/events/event-cursor.ts';
import { createEventFeed } from '../src/events/event-feed.ts';
import { createPositioner } from '../src/events/position-events.ts';
import { createEventReader } from '../src/events/read-events.ts';
import { watchEvents } from '../src/events/watch-events.ts';
import { newRequestContext } from '../src/requests/request-context.ts';
import { createLogger } from '../src/telemetry/logging.ts';
import { httpRequest } from './support/doors.ts';
import {
  disconnectWatches,
  insertEvents,
  type NewEvent,
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

/** Stores events and gives them their positions. */
async function store(events: readonly NewEvent[]): Promise<string[]> {
  const ids = await insertEvents(service.query, events);
  await createPositioner(service.database.orm.em).positionAll();
  return ids;
}

async function read(watch: Watch, count: number): Promise<string[]> {
  const ids: string[] = [];
  while (ids.length < count) ids.push((await watch.nextEvent()).event.id);
  return ids;
}

const post = async (path: string, apiKey: string, body = '') =>
  JSON.parse(
    (
      await httpRequest(
        service.publicUrl + path,
        { headers: { Authorization: `Bearer ${apiKey}`, 'Content-Type': 'application/json' } },
        body,
      )
    ).body,
  );

const createIntent = async (apiKey: string): Promise<string> =>
  (await post('/v1/payment_intents', apiKey, '{"amount_units":1}')).id;
const cancel = (id: string, apiKey: string) => post(`/v1/payment_intents/${id}/cancel`, apiKey);

describe.each(protocols)('over %s', (protocol) => {
  test('the first message comes at once, without an event, and then live events of this merchant and mode', async () => {
    const merchant = await newMerchant();
    const apiKey = keyOf(merchant);
    await store([{ merchantId: merchant.id }]);
    const watch = openWatch(protocol, service, apiKey);
    const first = await watch.next();
    expect(first.event).toBeUndefined();
    expect(first.position).not.toBe('');

    await store([{ merchantId: service.merchant.id }, { merchantId: merchant.id, mode: 'mainnet' }]);
    const intent = await createIntent(apiKey);
    await cancel(intent, apiKey);
    // The next message: what others do is not in it.
    const { event, position } = await watch.next();
    expect(event).toMatchObject({ type: 'payment_intent.canceled', sequence: 1 });
    expect(event?.data?.paymentIntent).toMatchObject({ id: intent, clientSecret: '' });
    expect(position).not.toBe(first.position);
  });

  test('continues after an event or a position: nothing is lost or repeated while events are recorded', async () => {
    const merchant = await newMerchant();
    const merchantId = merchant.id;
    const [start = ''] = await store([{ merchantId }]);
    const made: string[] = [];
    const making = (async () => {
      for (let i = 0; i < 40; i++) {
        made.push(...(await store(Array.from({ length: 1 + (i % 3) }, () => ({ merchantId })))));
      }
    })();
    const seen: string[] = [];
    let after = start;
    for (let round = 0; seen.length < 78; round++) {
      const watch = openWatch(protocol, service, keyOf(merchant), after);
      expect((await watch.next()).event).toBeUndefined();
      for (let i = 0; i < 7 && seen.length < 78; i++) {
        const { event, position } = await watch.nextEvent();
        seen.push(event.id);
        after = round % 2 === 0 ? event.id : position;
      }
      if (round % 3 === 0) watch.cancel();
      else watch.disconnect();
    }
    await making;
    made.push(...(await store([{ merchantId }])));
    const last = openWatch(protocol, service, keyOf(merchant), after);
    seen.push(...(await read(last, made.length - seen.length)));
    const rows = await service.query<{ id: string }>(
      'select id from events where merchant_id = $1 order by position',
      [merchantId],
    );
    expect(rows).toHaveLength(1 + made.length);
    expect([start, ...seen]).toEqual(rows.map(({ id }) => formatIdentifier('evt', id)));
  });

  test('a stream from the position of the first message has exactly the later events', async () => {
    const merchant = await newMerchant();
    const merchantId = merchant.id;
    await store([{ merchantId }]);
    const watch = openWatch(protocol, service, keyOf(merchant));
    const { position } = await watch.next();
    watch.cancel();
    const ids = await store([{ merchantId }, { merchantId }]);
    const seen = await read(openWatch(protocol, service, keyOf(merchant), position), 2);
    expect(seen.sort()).toEqual(ids.sort());
  });
});

test('without events, messages keep the stream alive and carry its position', async () => {
  const merchant = await newMerchant();
  const { em } = service.database.orm;
  const feed = createEventFeed(em, createLogger('silent', { write() {} }));
  const keepAliveMs = 300;
  const method = watchEvents(createEventReader(em), createEventCursors(em), feed, { keepAliveMs });
  const identity = {
    merchantId: merchant.id,
    merchantTypeId: merchant.merchantId,
    keyTypeId: merchant.keys.testnet.keyId,
    mode: 'testnet' as const,
    payoutWallets: {},
  };
  const controller = new AbortController();
  const { signal } = controller;
  const call = { context: newRequestContext('internal'), signal, header: new Headers() };
  const messages = method.run(create(WatchEventsRequestSchema), identity, call)[Symbol.asyncIterator]();
  const next = async () => {
    const { value } = await messages.next();
    return { ...value, atMs: performance.now() };
  };
  const first = await next();
  const second = await next();
  const third = await next();
  for (const message of [first, second, third]) expect(message.event).toBeUndefined();
  // A timer may fire a little early.
  expect(second.atMs - first.atMs).toBeGreaterThan(keepAliveMs - 5);
  expect(third.atMs - second.atMs).toBeGreaterThan(keepAliveMs - 5);
  expect(third.position).toBe(first.position);
  // What happens to others moves the position on, so that a quiet stream does not fall behind what is kept.
  await store([{ merchantId: service.merchant.id }]);
  await vi.waitFor(
    async () => expect(await next()).toSatisfy(({ position }) => position !== first.position),
    { timeout: 10_000 },
  );
  // An event puts the next one off.
  const [id] = await store([{ merchantId: merchant.id }]);
  const live = await next();
  expect(live.event?.id).toBe(id);
  expect((await next()).atMs - live.atMs).toBeGreaterThan(keepAliveMs - 5);
  controller.abort();
  await expect(messages.next()).rejects.toMatchObject({ code: 'unavailable' });
  expect(feed.streams()).toBe(0);
  await feed.stop();
});

describe('a client that does not read', () => {
  setFlagsFromString('--expose_gc');
  const collectGarbage: () => void = runInNewContext('gc');
  /** The least of several measurements: a collection leaves to the next what it has still to finalize. */
  const usedBytes = async () => {
    const measured = [];
    for (let i = 0; i < 8; i++) {
      collectGarbage();
      const { heapUsed, external } = process.memoryUsage();
      measured.push(heapUsed + external);
      await setImmediate();
    }
    return Math.min(...measured);
  };
  const count = 1_200;
  const data = `{"payment_intent":{"metadata":{"text":"${'x'.repeat(16_000)}"}}}`;

  test.each(protocols)(
    'over %s costs little memory, and gets everything when it reads on',
    async (protocol) => {
      const merchant = await newMerchant();
      const merchantId = merchant.id;
      const [start = ''] = await store([{ merchantId }]);
      const slow = openWatch(protocol, service, keyOf(merchant), start);
      await slow.next();
      const fast = openWatch('gRPC', service, keyOf(merchant), start);
      await fast.next();
      const before = await usedBytes();
      await service.query(
        `insert into events (id, merchant_id, mode, type, created_at, payment_intent, sequence, data)
       select gen_random_uuid(), $1, 'testnet', 'payment_intent.canceled', now(), $2, i, $3 from generate_series(1, $4) as i`,
        [merchantId, newUuid(), data, count],
      );
      // When this reader has them all, the other one has long been sent what it takes.
      const sequences = Array.from({ length: count }, (_, i) => i + 1);
      const readSequences = async (watch: Watch) => {
        const seen: (number | undefined)[] = [];
        while (seen.length < count) seen.push((await watch.nextEvent()).event.sequence);
        return seen;
      };
      expect(await readSequences(fast)).toEqual(sequences);
      const grownBytes = (await usedBytes()) - before;
      // The events are 32 MB; a page of them is 320 KB.
      expect(grownBytes).toBeLessThan(8_000_000);
      expect(await readSequences(slow)).toEqual(sequences);
      await service.query('delete from events where merchant_id = $1', [merchantId]);
    },
  );
});

describe('between processes', () => {
  let other: TestService;
  let deaf: TestService;

  beforeAll(async () => {
    other = await startService({}, { beside: service });
    deaf = await startService({}, { beside: service, isNotified: false });
  });

  afterAll(async () => {
    disconnectWatches();
    await other.close();
    await deaf.close();
  });

  /** Milliseconds until the stream has the event. */
  async function latencyMs(watch: Watch, make: () => Promise<string>): Promise<number> {
    const startedAtMs = performance.now();
    const id = await make();
    expect((await watch.nextEvent()).event.data?.paymentIntent?.id).toBe(id);
    return performance.now() - startedAtMs;
  }

  /** The best shows what the service needs; the others may have waited for the machine. */
  async function expectSoon(watch: Watch, make: () => Promise<string>): Promise<void> {
    await watch.next();
    const latencies = [];
    for (let i = 0; i < 5; i++) latencies.push(await latencyMs(watch, make));
    expect(Math.min(...latencies)).toBeLessThan(500);
    expect(Math.max(...latencies)).toBeLessThan(2_000);
  }

  const cancelOne = async () => {
    const apiKey = keyOf(service.merchant);
    const id = await createIntent(apiKey);
    await cancel(id, apiKey);
    return id;
  };
  /** As a process does that ends before it gives the position. */
  const recordOnly = async () => {
    const id = `pi_${'0'.repeat(26)}`;
    const data = `{"payment_intent":{"id":"${id}"}}`;
    await insertEvents(service.query, [{ merchantId: service.merchant.id, data }]);
    return id;
  };

  test.each([
    ['a cancellation by another process', () => other, cancelOne],
    ['a cancellation by another process, when no notification arrives', () => deaf, cancelOne],
    ['an event that its process gave no position', () => other, recordOnly],
    ['an event that its process gave no position, when no notification arrives', () => deaf, recordOnly],
  ])('a stream has %s within half a second', async (_, process, make) => {
    await expectSoon(openWatch('grpc-js', process(), keyOf(service.merchant)), make);
  });

  test('a stream misses nothing when the connection for notifications is cut', async () => {
    const watch = openWatch('grpc-js', other, keyOf(service.merchant));
    await watch.next();
    const listening = () =>
      service.query<{ pid: number }>(
        `select pid from pg_stat_activity where datname = current_database() and query ilike 'listen %'`,
      );
    const before = await listening();
    expect(before).toHaveLength(2);
    await service.query('select pg_terminate_backend(pid) from unnest($1::int[]) as pid', [
      before.map(({ pid }) => pid),
    ]);
    expect(await latencyMs(watch, cancelOne)).toBeLessThan(2_000);
    await vi.waitFor(async () => expect(await listening()).toHaveLength(2), { timeout: 10_000 });
    expect(await latencyMs(watch, cancelOne)).toBeLessThan(2_000);
  });
});
