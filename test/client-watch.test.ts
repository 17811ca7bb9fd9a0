// The client's stream of events resumes by itself: nothing is lost, nothing comes twice, and refusals are reported.

import net from 'node:net';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError } from '@connectrpc/connect';
import { afterEach, describe, expect, test } from 'vitest';
import { pauseMsAfter } from '../client/calls.ts';
import {
  createPaymentIntentsClient,
  type GrpcPaymentIntentsClient,
  type PaymentIntentsClientOptions,
  PaymentIntentsError,
  type WatchEvents,
  type WatchedEvent,
} from '../client/index.ts';
import { revokeApiKey } from '../src/merchants/administration.ts';
import { removeEvents } from './support/event-rows.ts';
import { type Listening, listenInTest } from './support/listen.ts';
import { startService, type TestMerchant, type TestService } from './support/service.ts';
import { startStreamingServer } from './support/streaming-server.ts';
import { startTcpProxy } from './support/tcp-proxy.ts';
import { useService } from './support/use-service.ts';

const service = await useService();
const opened: { close(): Promise<void> }[] = [];

afterEach(async () => {
  await Promise.all(opened.splice(0).map((server) => server.close()));
});

const { newMerchant } = service;

const clientFor = (
  { keys }: Pick<TestMerchant, 'keys'>,
  { baseUrl = service.internalUrl, ...change }: Partial<PaymentIntentsClientOptions> = {},
) => createPaymentIntentsClient({ baseUrl, apiKey: keys.testnet.apiKey, ...change, protocol: 'grpc' });

/** Makes events. Returns the ids of their intents, in their order. */
async function makeEvents(merchant: TestMerchant, count: number): Promise<string[]> {
  const client = clientFor(merchant);
  const ids: string[] = [];
  for (let i = 0; i < count; i++) {
    const { id } = await client.createPaymentIntent({ amountUnits: 1 });
    await client.cancelPaymentIntent(id);
    ids.push(id);
  }
  return ids;
}

/** The ids of all events, in the order that every reader gets. */
async function allEvents(merchant: TestMerchant): Promise<string[]> {
  const ids: string[] = [];
  for await (const { id } of clientFor(merchant).listEvents({ pageSize: 100 })) ids.push(id);
  return ids;
}

/** The ids of all events, once there are that many. */
async function eventsOnce(merchant: TestMerchant, count: number): Promise<string[]> {
  await expect.poll(() => allEvents(merchant)).toHaveLength(count);
  return allEvents(merchant);
}

/** Watches until `stop` returns true. */
async function watchUntil(
  watch: AsyncIterable<WatchedEvent>,
  stop: (messages: WatchedEvent[]) => boolean,
): Promise<WatchedEvent[]> {
  const messages: WatchedEvent[] = [];
  for await (const message of watch) {
    messages.push(message);
    if (stop(messages)) break;
  }
  return messages;
}

const idsIn = (messages: readonly WatchedEvent[]) => messages.flatMap(({ event }) => event?.id ?? []);

async function errorOf(watch: AsyncIterable<WatchedEvent>): Promise<PaymentIntentsError> {
  const error = await watchUntil(watch, () => false).catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(PaymentIntentsError);
  return error as PaymentIntentsError;
}

/** A proxy in front of the service. `serve` gets each connection with its number, from 1. */
async function startProxy(
  serve: (connection: number, client: net.Socket, server: net.Socket, cut: () => void) => void,
): Promise<Listening & { baseUrl: string; connections(): number }> {
  let connections = 0;
  const proxy = await startTcpProxy(
    () => net.connect(service.server.ports.grpc, '127.0.0.1'),
    (client, server, cut) => serve(++connections, client, server, cut),
  );
  opened.push(proxy);
  return { ...proxy, baseUrl: `http://127.0.0.1:${proxy.port}`, connections: () => connections };
}

const anEvent = (id: string) => ({
  id,
  type: 'payout.created',
  createdAt: timestampFromDate(new Date(0)),
  mode: 1,
  data: {},
});

describe('on a good network', () => {
  test('the first message says where the stream begins, and live events follow', async () => {
    const merchant = await newMerchant();
    await makeEvents(merchant, 1);
    await eventsOnce(merchant, 1);
    const making: Promise<string[]>[] = [];
    const messages = await watchUntil(clientFor(merchant).watchEvents(), (messages) => {
      if (messages.length === 1) making.push(makeEvents(merchant, 2));
      return idsIn(messages).length === 2;
    });
    expect(messages[0]).toEqual({ event: undefined, position: expect.stringMatching(/./) });
    const [, second, third] = await eventsOnce(merchant, 3);
    expect(idsIn(messages)).toEqual([second, third]);
    expect(messages[1]?.event).toEqual(await clientFor(merchant).retrieveEvent(second ?? ''));
    await Promise.all(making);
  });

  test('a watch continues after a stored position, or after an event', async () => {
    const merchant = await newMerchant();
    await makeEvents(merchant, 4);
    const ids = await eventsOnce(merchant, 4);
    const client = clientFor(merchant);
    const first = await watchUntil(client.watchEvents({ after: ids[0] }), (all) => idsIn(all).length === 2);
    expect(idsIn(first)).toEqual(ids.slice(1, 3));
    const second = await watchUntil(
      client.watchEvents({ after: first.at(-1)?.position }),
      (all) => idsIn(all).length === 1,
    );
    expect(idsIn(second)).toEqual([ids[3]]);
  });

  test('leaving the loop closes the connection, and other calls of the client still work', async () => {
    const merchant = await newMerchant();
    let closed = 0;
    const proxy = await startProxy((_, client, server) => {
      client.pipe(server).pipe(client);
      client.on('close', () => closed++);
    });
    const client = clientFor(merchant, { baseUrl: proxy.baseUrl });
    const { id } = await client.createPaymentIntent({ amountUnits: 1 });
    await watchUntil(client.watchEvents(), () => true);
    await expect.poll(() => closed).toBe(1);
    // On the connection for calls, which is another one.
    expect((await client.retrievePaymentIntent(id)).id).toBe(id);
    expect(proxy.connections()).toBe(2);
  });

  test('a signal ends the watch, also while no message comes', async () => {
    const merchant = await newMerchant();
    const controller = new AbortController();
    const reason = new Error('shutting down');
    const seen: WatchedEvent[] = [];
    const watching = (async () => {
      for await (const message of clientFor(merchant).watchEvents({ signal: controller.signal })) {
        seen.push(message);
        setTimeout(() => controller.abort(reason), 50);
      }
    })();
    await expect(watching).rejects.toBe(reason);
    expect(seen).toHaveLength(1);
    await expect(
      watchUntil(clientFor(merchant).watchEvents({ signal: controller.signal }), () => true),
    ).rejects.toBe(reason);
  });
});

describe('on a network that breaks', () => {
  test('connections cut at any byte, while events are made: each event comes once, in order', {
    timeout: 120_000,
  }, async () => {
    const merchant = await newMerchant();
    await makeEvents(merchant, 1);
    const [start] = await eventsOnce(merchant, 1);
    // Cuts each connection after some more bytes: amid the handshake, between messages, amid a message.
    const proxy = await startProxy((connection, client, server, cut) => {
      let left = connection > 40 ? Number.POSITIVE_INFINITY : (connection * 377) % 3_000;
      client.pipe(server);
      server.on('data', (chunk: Buffer) => {
        if (chunk.length < left) {
          left -= chunk.length;
          client.write(chunk);
          return;
        }
        client.write(chunk.subarray(0, left), cut);
        left = 0;
      });
    });
    const interruptions: PaymentIntentsError[] = [];
    const count = 60;
    const making = makeEvents(merchant, count);
    const messages = await watchUntil(
      clientFor(merchant, { baseUrl: proxy.baseUrl }).watchEvents({
        after: start,
        onInterruption: (error) => interruptions.push(error),
      }),
      (messages) => idsIn(messages).length >= count,
    );
    const intents = await making;
    const expected = await eventsOnce(merchant, 1 + count);
    expect(idsIn(messages)).toEqual(expected.slice(1));
    expect(messages.flatMap(({ event }) => event?.data.paymentIntent?.id ?? [])).toEqual(intents);
    expect(interruptions.length).toBeGreaterThan(5);
    expect(interruptions.every(({ isRetryable }) => isRetryable)).toBe(true);
    expect(proxy.connections()).toBe(interruptions.length + 1);
  });

  test('an unavailable service is retried at growing intervals, and no event is lost', async () => {
    const merchant = await newMerchant();
    let isAway = false;
    const cuts = new Set<() => void>();
    const proxy = await startProxy((_, client, server, cut) => {
      if (isAway) return cut();
      cuts.add(cut);
      client.pipe(server).pipe(client);
    });
    const at: number[] = [];
    let made: Promise<unknown> | undefined;
    const messages = await watchUntil(
      clientFor(merchant, { baseUrl: proxy.baseUrl, maxTries: 1 }).watchEvents({
        onInterruption() {
          at.push(performance.now());
          if (at.length === 5) isAway = false;
        },
      }),
      (messages) => {
        if (messages.length === 1) {
          isAway = true;
          for (const cut of cuts) cut();
          made = makeEvents(merchant, 2);
        }
        return idsIn(messages).length === 2;
      },
    );
    await made;
    expect(idsIn(messages)).toEqual(await eventsOnce(merchant, 2));
    expect(at).toHaveLength(5);
    const pauses = at.slice(1).map((ms, i) => ms - (at[i] ?? 0));
    // Half of each pause is random: 0.1 to 0.2 s, 0.2 to 0.4 s, 0.4 to 0.8 s, 0.8 to 1.6 s.
    expect(pauses[3]).toBeGreaterThan(780);
  });

  test('a call on a connection that died silently is answered on another', async () => {
    const pipes: [net.Socket, net.Socket][] = [];
    const { baseUrl, connections } = await startProxy((_, client, server) => {
      client.pipe(server).pipe(client);
      pipes.push([client, server]);
    });
    const client = clientFor(service.merchant, { baseUrl });
    const { id } = await client.createPaymentIntent({ amountUnits: 1 });
    for (const [client, server] of pipes) client.unpipe(server).pause();
    expect((await client.retrievePaymentIntent(id)).id).toBe(id);
    expect(connections()).toBe(2);
  });

  test('if the service restarts, the stream continues at its successor', async () => {
    const first = await startService();
    const { merchant } = first;
    const second = await startService({}, { beside: first });
    let target = first.server.ports.grpc;
    const proxy = await startTcpProxy(
      () => net.connect(target, '127.0.0.1'),
      (client, server) => void client.pipe(server).pipe(client),
    );
    opened.push(proxy);
    const make = async (to: TestService) => {
      const client = clientFor(merchant, { baseUrl: to.internalUrl });
      await client.cancelPaymentIntent((await client.createPaymentIntent({ amountUnits: 1 })).id);
    };
    const interruptions: string[] = [];
    let work: Promise<void> = Promise.resolve();
    const messages = await watchUntil(
      clientFor(merchant, { baseUrl: `http://127.0.0.1:${proxy.port}` }).watchEvents({
        onInterruption: ({ code }) => interruptions.push(code),
      }),
      (messages) => {
        if (messages.length === 1) {
          work = make(first).then(async () => {
            target = second.server.ports.grpc;
            await first.server.close();
            await make(second);
          });
        }
        return idsIn(messages).length === 2;
      },
    );
    await work;
    expect(interruptions[0]).toBe('unavailable');
    expect(new Set(idsIn(messages)).size).toBe(2);
    await second.close();
    await first.close();
  });

  test('a server that accepts the call and never sends a message is abandoned after timeoutMs', async () => {
    const baseUrl = await listenInTest(net.createServer());
    const controller = new AbortController();
    const reason = new Error('enough');
    const interruptions: string[] = [];
    const watch = clientFor(service.merchant, { baseUrl, timeoutMs: 100 }).watchEvents({
      signal: controller.signal,
      onInterruption({ message }) {
        interruptions.push(message);
        if (interruptions.length === 2) controller.abort(reason);
      },
    });
    await expect(watchUntil(watch, () => false)).rejects.toBe(reason);
    expect(interruptions).toEqual(Array(2).fill('No message came within 100 ms'));
  });

  test('the next stream begins after the last message, with or without an event', async () => {
    const server = await startStreamingServer(async function* (stream) {
      if (stream === 1) {
        yield { position: 'p1' };
        yield { event: anEvent('evt_1'), position: 'p2' };
        yield { position: 'p3' };
        throw new ConnectError('restarting', Code.Unavailable);
      }
      // A stream that ends without an error is resumed too.
      if (stream === 2) return;
      yield { position: 'p3' };
      yield { event: anEvent('evt_2'), position: 'p4' };
    });
    opened.push(server);
    const messages = await watchUntil(
      clientFor(service.merchant, { baseUrl: server.url }).watchEvents({ after: 'stored' }),
      (messages) => idsIn(messages).length === 2,
    );
    expect(server.asked).toEqual(['stored', 'p3', 'p3']);
    expect(messages.map(({ event, position }) => [event?.id, position])).toEqual([
      [undefined, 'p1'],
      ['evt_1', 'p2'],
      [undefined, 'p3'],
      [undefined, 'p3'],
      ['evt_2', 'p4'],
    ]);
  });
});

test('a server that requests a pause of more than a minute is tried again after a minute', () => {
  const error = new PaymentIntentsError('unavailable', '', { retryAfterMs: 3_600_000 });
  expect(pauseMsAfter(1, error)).toBe(60_000);
});

describe('refusals end the watch', () => {
  test('a key that is not accepted, at once or later', async () => {
    const merchant = await newMerchant();
    const wrong = clientFor(merchant, { apiKey: 'sk_testnet_nonsense' }).watchEvents();
    expect(await errorOf(wrong)).toMatchObject({ code: 'api_key_invalid', isRetryable: false });
    const revoking = (async () => {
      for await (const _ of clientFor(merchant).watchEvents()) {
        await revokeApiKey(service.database.orm.em, merchant.keys.testnet.keyId);
      }
    })();
    await expect(revoking).rejects.toMatchObject({
      code: 'api_key_invalid',
      requestId: expect.stringMatching(/^req_/),
    });
  });

  test('a position whose events are gone', async () => {
    const merchant = await newMerchant();
    await makeEvents(merchant, 1);
    const [id = ''] = await eventsOnce(merchant, 1);
    await removeEvents(service, merchant.id);
    expect(await errorOf(clientFor(merchant).watchEvents({ after: id }))).toMatchObject({
      code: 'cursor_expired',
      isRetryable: false,
    });
  });

  test('an invalid position', async () => {
    const linesBefore = service.requestLines().length;
    expect(await errorOf(clientFor(service.merchant).watchEvents({ after: 'nonsense' }))).toMatchObject({
      code: 'invalid_body',
      details: [{ field: 'after' }],
    });
    expect(service.requestLines().length).toBe(linesBefore + 1);
  });

  test.each<[unknown, RegExp]>([
    [{ after: '' }, /^after must be a position or the id of an event, not empty; leave it out to begin now$/],
    [{ after: 5 }, /^after must be a position or the id of an event, not 5$/],
    [{ signal: 'soon' }, /^signal must be an AbortSignal, not "soon"$/],
    [{ onInterruption: 'log' }, /^onInterruption must be a function, not "log"$/],
    [{ position: 'x' }, /^position is not an option here; there are after, signal, onInterruption$/],
  ])('wrong options, at once: %o', (options, message) => {
    const watch = () => clientFor(service.merchant).watchEvents(options as WatchEvents);
    expect(watch).toThrow(TypeError);
    expect(watch).toThrow(message);
  });

  test('there is no stream over JSON', () => {
    const client = createPaymentIntentsClient({ baseUrl: service.publicUrl, apiKey: 'sk_testnet_x' });
    const watch = () => (client as GrpcPaymentIntentsClient).watchEvents();
    expect(watch).toThrow(TypeError);
    expect(watch).toThrow(
      /^watchEvents needs gRPC: create the client with protocol: 'grpc' and .* listEvents/,
    );
  });
});
