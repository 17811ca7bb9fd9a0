// What follows an intent's creation, through the client: the same over both protocols.

import { once } from 'node:events';
import http from 'node:http';
import http2 from 'node:http2';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { connectNodeAdapter } from '@connectrpc/connect-node';
import { afterEach, describe, expect, test, vi } from 'vitest';
import {
  createPaymentIntentsClient,
  type List,
  type PaymentIntentsClient,
  type PaymentIntentsClientOptions,
  PaymentIntentsError,
} from '../client/index.ts';
import { methods } from '../client/methods.ts';
import { EventService } from '../src/contract/gen/payments/v1/event_service_pb.ts';
import { PaymentIntentService } from '../src/contract/gen/payments/v1/payment_intent_service_pb.ts';
import { TransferService } from '../src/contract/gen/payments/v1/transfer_service_pb.ts';
import { WebhookEndpointService } from '../src/contract/gen/payments/v1/webhook_endpoint_service_pb.ts';
import { httpRoutesOf } from '../src/contract/http-routes.ts';
import { parseIdentifier } from '../src/database/identifiers.ts';
import { startLossyNetwork } from './support/lossy-network.ts';
import type { TestMerchant } from './support/service.ts';
import { useService } from './support/use-service.ts';

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

/** Accepts every webhook. Returns its address. */
const startReceiver = (status = 200) =>
  listen(
    http.createServer((request, response) => {
      request.resume().on('end', () => response.writeHead(status).end('thanks'));
    }),
  );

async function all<Item>(list: AsyncIterable<Item>): Promise<Item[]> {
  const items: Item[] = [];
  for await (const item of list) items.push(item);
  return items;
}

/** Reads a list page by page. */
async function pagesOf<Item>(list: List<Item>): Promise<Item[][]> {
  const pages: Item[][] = [];
  for (let token: string | undefined; ; ) {
    const { items, nextPageToken } = await list.page(token);
    pages.push(items);
    if (nextPageToken === undefined) return pages;
    token = nextPageToken;
  }
}

const idsOf = (items: readonly { id: string }[]) => items.map(({ id }) => id);

async function errorOf(call: Promise<unknown>): Promise<PaymentIntentsError> {
  const error = await call.then(
    () => expect.fail('it succeeded'),
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(PaymentIntentsError);
  return error as PaymentIntentsError;
}

const uuidOf = (id: string) => parseIdentifier('pi', id);

const missing = {
  pi: 'pi_00000000000000000000000000',
  evt: 'evt_00000000000000000000000000',
  tr: 'tr_00000000000000000000000000',
};
const missingEndpoint = 'we_00000000000000000000000000';

/** Every call that names a resource. */
const callsOf = (client: PaymentIntentsClient): Record<string, (id: never) => Promise<unknown>> => ({
  retrievePaymentIntent: (id) => client.retrievePaymentIntent(id),
  cancelPaymentIntent: (id) => client.cancelPaymentIntent(id),
  retrieveEvent: (id) => client.retrieveEvent(id),
  retrieveWebhookEndpoint: (id) => client.retrieveWebhookEndpoint(id),
  updateWebhookEndpoint: (id) => client.updateWebhookEndpoint(id, { enabled: true }),
  deleteWebhookEndpoint: (id) => client.deleteWebhookEndpoint(id),
  rotateWebhookSecret: (id) => client.rotateWebhookSecret(id),
  pingWebhookEndpoint: (id) => client.pingWebhookEndpoint(id),
  listWebhookDeliveries: async (id) => client.listWebhookDeliveries(id).page(),
  redeliverWebhookEndpoint: (id) => client.redeliverWebhookEndpoint(id),
  redeliverEvent: (id) => client.redeliverEvent(id),
  attributeTransfer: (id) => client.attributeTransfer(id, { paymentIntent: missing.pi }),
  detachTransfer: (id) => client.detachTransfer(id),
});

describe.each(protocols)('over %s', (protocol) => {
  const port = () => service.server.ports[protocol === 'json' ? 'http' : 'grpc'];
  const clientFor = (
    merchant: TestMerchant,
    change: Partial<PaymentIntentsClientOptions> = {},
  ): PaymentIntentsClient =>
    createPaymentIntentsClient({
      baseUrl: `http://127.0.0.1:${port()}`,
      apiKey: merchant.keys.testnet.apiKey,
      protocol,
      ...change,
    });
  const newClient = async () => clientFor(await service.newMerchant());

  describe('payment intents', () => {
    test('a new intent is retrieved with every field', async () => {
      const client = await newClient();
      const { replayed, ...created } = await client.createPaymentIntent({
        amountUnits: 12_500_000n,
        metadata: { order_id: 'order-1' },
      });
      const intent = await client.retrievePaymentIntent(created.id);
      expect(intent).toEqual({
        ...created,
        createdAt: new Date(created.expiresAt.getTime() - 30 * 60_000),
        amountReceivedUnits: 0n,
        payments: [],
        paymentsCount: 0,
        labels: [],
        succeededAt: undefined,
        canceledAt: undefined,
        expiredAt: undefined,
      });
    });

    test('what has happened to an intent since is retrieved and listed', async () => {
      const client = await newClient();
      const { id, clientSecret } = await client.createPaymentIntent({ amountUnits: 9007199254740991n });
      await service.query(
        `update payment_intents set status = 'succeeded', amount_received_units = 9007199254740990, payments_count = 3,
           labels = '{overpaid,brand_new}', succeeded_at = '2026-11-21T12:04:02.007Z' where id = $1`,
        [uuidOf(id)],
      );
      const intent = await client.retrievePaymentIntent(id);
      expect(intent).toMatchObject({
        status: 'succeeded',
        clientSecret,
        amountReceivedUnits: 9007199254740990n,
        paymentsCount: 3,
        // A label that is newer than the client passes through as it is.
        labels: ['overpaid', 'brand_new'],
        succeededAt: new Date('2026-11-21T12:04:02.007Z'),
      });
      const { clientSecret: _, ...listed } = intent;
      expect(await all(client.listPaymentIntents())).toStrictEqual([listed]);
    });

    test('a list reads every page, newest first, each intent once', async () => {
      const client = await newClient();
      const created: string[] = [];
      for (let i = 0; i < 5; i++) created.unshift((await client.createPaymentIntent({ amountUnits: 1 })).id);
      const linesBefore = service.requestLines().length;
      const list = client.listPaymentIntents({ pageSize: 2 });
      expect(service.requestLines().length).toBe(linesBefore);
      expect(idsOf(await all(list))).toEqual(created);
      expect(service.requestLines().length).toBe(linesBefore + 3);
      // It can be read again.
      const pages = await pagesOf(list);
      expect(pages.map(idsOf)).toEqual([created.slice(0, 2), created.slice(2, 4), created.slice(4)]);
      expect(JSON.stringify(pages, (_, value) => String(value))).not.toContain('_secret_');
      // Reading stops with the loop.
      for await (const { id } of list) {
        expect(id).toBe(created[0]);
        break;
      }
      expect(service.requestLines().length).toBe(linesBefore + 3 + 3 + 1);
    });

    test('every filter reaches the service', async () => {
      const client = await newClient();
      const key = '"a+b c&d=e%20/\\"#?"';
      const polygon = await client.createPaymentIntent({ amountUnits: 1, chain: 'polygon' });
      const manual = await client.createPaymentIntent({ amountUnits: 1, lane: 'manual' });
      const keyed = await client.createPaymentIntent({ amountUnits: 1 }, { idempotencyKey: '~a+b&c=%20/#?' });
      const canceled = await client.createPaymentIntent({ amountUnits: 1 });
      await client.cancelPaymentIntent(canceled.id);
      const { createdAt } = await client.retrievePaymentIntent(keyed.id);
      const find = async (filters: Parameters<typeof client.listPaymentIntents>[0]) =>
        idsOf(await all(client.listPaymentIntents(filters)));
      expect(await find({ chain: 'polygon' })).toEqual([polygon.id]);
      expect(await find({ lane: 'manual' })).toEqual([manual.id]);
      expect(await find({ idempotencyKey: '~a+b&c=%20/#?' })).toEqual([keyed.id]);
      expect(await find({ status: 'canceled' })).toEqual([canceled.id]);
      expect(await find({ status: 'requires_payment', chain: 'base', lane: 'sdk' })).toEqual([keyed.id]);
      const since = await find({ createdFrom: createdAt });
      expect(since).toContain(keyed.id);
      const before = await find({ createdBefore: createdAt });
      expect(before).not.toContain(keyed.id);
      expect([...since, ...before].sort()).toEqual(idsOf([polygon, manual, keyed, canceled]).sort());
      const error = await errorOf(client.listPaymentIntents({ idempotencyKey: key }).page());
      expect(error.details).toEqual([{ field: 'idempotency_key', message: expect.any(String) }]);
    });

    test('an intent is canceled, again without an effect, and not after another end', async () => {
      const client = await newClient();
      const { id, clientSecret } = await client.createPaymentIntent({ amountUnits: 1 });
      const canceled = await client.cancelPaymentIntent(id);
      expect(canceled).toMatchObject({ id, clientSecret, status: 'canceled', canceledAt: expect.any(Date) });
      expect(await client.cancelPaymentIntent(id)).toEqual(canceled);
      expect(await client.retrievePaymentIntent(id)).toEqual(canceled);
      const other = await client.createPaymentIntent({ amountUnits: 1 });
      await service.query(
        `update payment_intents set status = 'succeeded', succeeded_at = now() where id = $1`,
        [uuidOf(other.id)],
      );
      expect(await errorOf(client.cancelPaymentIntent(other.id))).toMatchObject({
        code: 'invalid_state',
        isRetryable: false,
        idempotencyKey: '',
        requestId: expect.stringMatching(/^req_/),
      });
    });
  });

  describe('events', () => {
    test('are retrieved and listed, oldest first, by each filter', async () => {
      const client = await newClient();
      const intents = [];
      for (let i = 0; i < 3; i++) {
        const { id } = await client.createPaymentIntent({ amountUnits: 1 });
        intents.push(await client.cancelPaymentIntent(id));
      }
      const events = await vi.waitFor(async () => {
        const found = await all(client.listEvents({ pageSize: 2 }));
        expect(found).toHaveLength(3);
        return found;
      });
      for (const [i, event] of events.entries()) {
        const { clientSecret, ...snapshot } = intents[i] as (typeof intents)[number];
        expect(event).toStrictEqual({
          id: expect.stringMatching(/^evt_/),
          type: 'payment_intent.canceled',
          createdAt: snapshot.canceledAt,
          mode: 'testnet',
          sequence: 1,
          data: {
            paymentIntent: snapshot,
            transfer: undefined,
            webhookEndpoint: undefined,
            transfersCount: undefined,
          },
        });
        expect(await client.retrieveEvent(event.id)).toEqual(event);
      }
      const [first, second, third] = idsOf(events);
      const find = async (filters: Parameters<typeof client.listEvents>[0]) =>
        idsOf(await all(client.listEvents(filters)));
      expect(await find({ after: first })).toEqual([second, third]);
      // Over several pages too.
      expect(await find({ after: first, pageSize: 1 })).toEqual([second, third]);
      expect(await find({ paymentIntent: intents[1]?.id })).toEqual([second]);
      expect(await find({ type: 'payment_intent.canceled', after: second })).toEqual([third]);
      expect(await find({ type: 'payment_intent.succeeded' })).toEqual([]);
    });

    test('a position whose events are gone is refused', async () => {
      const client = await newClient();
      const { id } = await client.createPaymentIntent({ amountUnits: 1 });
      await client.cancelPaymentIntent(id);
      const [event] = await vi.waitFor(async () => {
        const found = await all(client.listEvents());
        expect(found).toHaveLength(1);
        return found;
      });
      await service.query(
        `with gone as (delete from events where payment_intent = $1 returning id, merchant_id, mode)
         insert into removed_events select id, merchant_id, mode, now() from gone`,
        [uuidOf(id)],
      );
      expect(await errorOf(client.listEvents({ after: event?.id }).page())).toMatchObject({
        code: 'cursor_expired',
        isRetryable: false,
      });
    });
  });

  describe('webhook endpoints', () => {
    test('are created, retrieved, listed, changed, given a new secret, and deleted', async () => {
      const client = await newClient();
      const url = await startReceiver();
      const endpoint = await client.createWebhookEndpoint({ url, description: 'orders' });
      const { secret, replayed, ...plain } = endpoint;
      expect(endpoint).toStrictEqual({
        id: expect.stringMatching(/^we_/),
        url,
        eventTypes: ['*'],
        enabled: true,
        disabledReason: undefined,
        description: 'orders',
        mode: 'testnet',
        createdAt: expect.any(Date),
        secret: expect.stringMatching(/^whsec_/),
        replayed: false,
      });
      expect(await client.retrieveWebhookEndpoint(plain.id)).toStrictEqual(plain);
      const other = await client.createWebhookEndpoint({
        url,
        eventTypes: ['payment_intent.succeeded'],
        enabled: false,
      });
      expect(other).toMatchObject({ enabled: false, eventTypes: ['payment_intent.succeeded'] });
      expect(idsOf(await all(client.listWebhookEndpoints({ pageSize: 1 })))).toEqual([other.id, plain.id]);

      const changed = await client.updateWebhookEndpoint(plain.id, {
        url: `${url}/hooks`,
        eventTypes: ['payment_intent.canceled'],
        enabled: false,
        description: '',
      });
      expect(changed).toStrictEqual({
        ...plain,
        url: `${url}/hooks`,
        eventTypes: ['payment_intent.canceled'],
        enabled: false,
        description: undefined,
      });
      // A field that is left out stays as it is.
      expect(await client.updateWebhookEndpoint(plain.id, { enabled: true, url: undefined })).toEqual({
        ...changed,
        enabled: true,
      });

      const rotated = await client.rotateWebhookSecret(plain.id, { overlapHours: 0 });
      expect(rotated.secret).toMatch(/^whsec_/);
      expect(rotated.secret).not.toBe(secret);
      await client.deleteWebhookEndpoint(plain.id);
      // Again without an effect.
      await client.deleteWebhookEndpoint(plain.id);
      expect(await errorOf(client.retrieveWebhookEndpoint(plain.id))).toMatchObject({
        code: 'resource_missing',
      });
    });

    test('creation and rotation return the same secret for the same idempotency key', async () => {
      const client = await newClient();
      const url = await startReceiver();
      const first = await client.createWebhookEndpoint({ url }, { idempotencyKey: 'endpoint-1' });
      const again = await client.createWebhookEndpoint({ url }, { idempotencyKey: 'endpoint-1' });
      expect(again).toEqual({ ...first, replayed: true });
      const rotated = await client.rotateWebhookSecret(first.id, {}, { idempotencyKey: 'rotation-1' });
      expect(await client.rotateWebhookSecret(first.id, {}, { idempotencyKey: 'rotation-1' })).toEqual({
        ...rotated,
        replayed: true,
      });
      // Without one, each call has its own.
      expect((await client.rotateWebhookSecret(first.id)).secret).not.toBe(rotated.secret);
      expect(
        await errorOf(
          client.rotateWebhookSecret(first.id, { overlapHours: 1 }, { idempotencyKey: 'rotation-1' }),
        ),
      ).toMatchObject({ code: 'idempotency_key_reused', idempotencyKey: 'rotation-1' });
    });

    test('a ping is delivered, listed with its attempts, and delivered again', async () => {
      const client = await newClient();
      const endpoint = await client.createWebhookEndpoint({ url: await startReceiver() });
      const event = await client.pingWebhookEndpoint(endpoint.id);
      const { secret, replayed, ...snapshot } = endpoint;
      expect(event).toMatchObject({
        type: 'webhook_endpoint.ping',
        sequence: undefined,
        data: { webhookEndpoint: snapshot, paymentIntent: undefined },
      });
      const [delivery] = await vi.waitFor(
        async () => {
          const found = await all(client.listWebhookDeliveries(endpoint.id, { status: 'delivered' }));
          expect(found).toHaveLength(1);
          return found;
        },
        { timeout: 10_000 },
      );
      expect(delivery).toStrictEqual({
        id: expect.stringMatching(/^del_/),
        event: event.id,
        eventType: 'webhook_endpoint.ping',
        paymentIntent: undefined,
        webhookEndpoint: endpoint.id,
        status: 'delivered',
        attempts: [
          {
            at: expect.any(Date),
            statusCode: 200,
            durationMs: expect.any(Number),
            error: undefined,
            response: undefined,
          },
        ],
        nextAttemptAt: undefined,
        createdAt: expect.any(Date),
      });
      expect(await all(client.listWebhookDeliveries(endpoint.id, { status: 'failed' }))).toEqual([]);
      const range = { status: 'failed', createdFrom: new Date(0), createdBefore: new Date() } as const;
      expect(await client.redeliverWebhookEndpoint(endpoint.id, range)).toBe(0);
      expect(await client.redeliverWebhookEndpoint(endpoint.id)).toBe(0);
      const again = await client.redeliverEvent(event.id, { webhookEndpoint: endpoint.id });
      expect(again).toMatchObject([{ id: delivery?.id, event: event.id, status: 'pending' }]);
      await vi.waitFor(
        async () => {
          const [repeated] = await all(client.listWebhookDeliveries(endpoint.id, { pageSize: 1 }));
          expect(repeated?.attempts).toHaveLength(2);
        },
        { timeout: 10_000 },
      );
    });

    test('an event is delivered again to every endpoint that wants its type', async () => {
      const client = await newClient();
      const url = await startReceiver(500);
      const wanting = await client.createWebhookEndpoint({ url });
      await client.createWebhookEndpoint({ url, eventTypes: ['payment_intent.succeeded'] });
      const { id } = await client.createPaymentIntent({ amountUnits: 1 });
      await client.cancelPaymentIntent(id);
      const [event] = await vi.waitFor(async () => {
        const found = await all(client.listEvents());
        expect(found).toHaveLength(1);
        return found;
      });
      const deliveries = await client.redeliverEvent(event?.id ?? '');
      expect(deliveries.map(({ webhookEndpoint }) => webhookEndpoint)).toEqual([wanting.id]);
      await vi.waitFor(
        async () => {
          const [failed] = await all(client.listWebhookDeliveries(wanting.id));
          expect(failed).toMatchObject({
            status: 'pending',
            attempts: [{ statusCode: 500, error: expect.any(String) }],
            nextAttemptAt: expect.any(Date),
          });
        },
        { timeout: 10_000 },
      );
    });
  });

  describe('failures', () => {
    test('what is not there is refused, once', async () => {
      const client = await newClient();
      const linesBefore = service.requestLines().length;
      for (const [name, call] of Object.entries(callsOf(client))) {
        const [, id] = [
          [/Intent/, missing.pi] as const,
          [/Event$/, missing.evt] as const,
          [/Transfer$/, missing.tr] as const,
          [/./, missingEndpoint] as const,
        ].find(([kind]) => kind.test(name)) as [RegExp, string];
        const error = await errorOf(call(id as never));
        expect([name, error.code, error.isRetryable]).toEqual([name, 'resource_missing', false]);
      }
      expect(service.requestLines().length - linesBefore).toBe(Object.keys(callsOf(client)).length);
    });

    test('a lost request and a lost answer are retried, for every kind of call', async () => {
      const merchant = await service.newMerchant();
      const direct = clientFor(merchant);
      const { id } = await direct.createPaymentIntent({ amountUnits: 1 });
      const endpoint = await direct.createWebhookEndpoint({ url: await startReceiver() });
      const calls: Record<string, (client: PaymentIntentsClient) => Promise<unknown>> = {
        retrieve: (client) => client.retrievePaymentIntent(id),
        list: (client) => all(client.listPaymentIntents()),
        cancel: (client) => client.cancelPaymentIntent(id),
        'create an endpoint': (client) => client.createWebhookEndpoint({ url: endpoint.url }),
        update: (client) => client.updateWebhookEndpoint(endpoint.id, { description: 'x' }),
        rotate: (client) => client.rotateWebhookSecret(endpoint.id),
        delete: (client) => client.deleteWebhookEndpoint(endpoint.id),
      };
      for (const [name, call] of Object.entries(calls)) {
        const network = await startLossyNetwork(port());
        try {
          const result = await call(clientFor(merchant, { baseUrl: `http://127.0.0.1:${network.port}` }));
          // The answer to a deletion is too short to be lost.
          expect([name, network.connections()]).toEqual([name, expect.toSatisfy((count) => count >= 2)]);
          // The service had done it, and the client's own key found it.
          if (/create|rotate/.test(name)) expect(result).toMatchObject({ replayed: true });
        } finally {
          await network.close();
        }
      }
      expect(await all(direct.listWebhookEndpoints())).toHaveLength(1);
    });

    test('a signal aborts a list between two pages, and timeouts apply to each try', async () => {
      const client = await newClient();
      for (let i = 0; i < 3; i++) await client.createPaymentIntent({ amountUnits: 1 });
      const controller = new AbortController();
      const reason = new Error('no more');
      const seen: string[] = [];
      const reading = (async () => {
        for await (const { id } of client.listPaymentIntents(
          { pageSize: 1 },
          { signal: controller.signal },
        )) {
          seen.push(id);
          if (seen.length === 2) controller.abort(reason);
        }
      })();
      await expect(reading).rejects.toBe(reason);
      expect(seen).toHaveLength(2);
      const silent = clientFor(service.merchant, { baseUrl: await listen(createServer()), maxTries: 1 });
      const options = { timeoutMs: 100 };
      for (const call of [
        silent.retrievePaymentIntent(missing.pi, options),
        silent.listEvents({}, options).page(),
        silent.deleteWebhookEndpoint(missingEndpoint, options),
      ]) {
        expect(await errorOf(call)).toMatchObject({
          code: 'network',
          message: 'No answer came within 100 ms (timeoutMs)',
        });
      }
    });
  });
});

describe('what is refused before it is sent, the same over both protocols', () => {
  const clients = () =>
    protocols.map((protocol) =>
      createPaymentIntentsClient({
        baseUrl: protocol === 'json' ? service.publicUrl : service.internalUrl,
        apiKey: service.merchant.keys.testnet.apiKey,
        protocol,
      }),
    );

  /** Returns the error of a call over each protocol. Fails if they differ, or if anything was sent. */
  async function refused(call: (client: PaymentIntentsClient) => unknown): Promise<PaymentIntentsError> {
    const before = service.requestLines().length;
    const errors = await Promise.all(
      clients().map(async (client) => {
        try {
          await call(client);
          return expect.fail('it succeeded');
        } catch (error) {
          return error as PaymentIntentsError;
        }
      }),
    );
    expect(service.requestLines().slice(before)).toEqual([]);
    expect(errors[0]?.message).toBe(errors[1]?.message);
    return errors[0] as PaymentIntentsError;
  }

  test.each([[''], ['.'], ['..'], ['pi_1/../2'], ['pi_1?a=b'], [undefined], [null], [5], [{ id: 'pi_1' }]])(
    'an id that would ask for something else: %j',
    async (id) => {
      const client = clients()[0] as PaymentIntentsClient;
      for (const name of Object.keys(callsOf(client))) {
        const error = await refused((client) => callsOf(client)[name]?.(id as never));
        expect(error).toMatchObject({ code: 'invalid_body', isRetryable: false, details: [{ field: 'id' }] });
      }
    },
  );

  test('a client secret as an id is not shown', async () => {
    const { id, clientSecret } = await (clients()[0] as PaymentIntentsClient).createPaymentIntent({
      amountUnits: 1,
    });
    const error = await refused((client) => client.retrievePaymentIntent(clientSecret));
    expect(error.message).toBe('id must be an id that the service returned, not a client secret');
    expect(error.message).not.toContain(id);
  });

  test.each<[string, (client: PaymentIntentsClient) => unknown, string, RegExp]>([
    [
      'status',
      (c) => c.listPaymentIntents({ status: 'paid' as never }),
      'status',
      /must be "requires_payment" or/,
    ],
    ['stauts', (c) => c.listPaymentIntents({ stauts: 'x' } as never), 'stauts', /did you mean status\?$/],
    ['pageSize', (c) => c.listPaymentIntents({ pageSize: 0 }), 'page_size', /an integer from 1 on/],
    ['pageSize', (c) => c.listEvents({ pageSize: 1.5 }), 'page_size', /an integer from 1 on/],
    [
      'createdFrom',
      (c) => c.listPaymentIntents({ createdFrom: new Date('x') }),
      'created_from',
      /an invalid Date/,
    ],
    [
      'createdFrom',
      (c) => c.listPaymentIntents({ createdFrom: '2026' as never }),
      'created_from',
      /must be a Date/,
    ],
    // Empty means everything over gRPC.
    ['after', (c) => c.listEvents({ after: '' }), 'after', /must not be empty/],
    ['paymentIntent', (c) => c.listEvents({ paymentIntent: '' }), 'payment_intent', /must not be empty/],
    [
      'webhookEndpoint',
      (c) => c.redeliverEvent(missing.evt, { webhookEndpoint: '' }),
      'webhook_endpoint',
      /empty/,
    ],
    [
      'eventTypes',
      (c) => c.createWebhookEndpoint({ url: 'x', eventTypes: [] }),
      'event_types',
      /must not be empty/,
    ],
    [
      'eventTypes',
      (c) => c.createWebhookEndpoint({ url: 'x', eventTypes: '*' as never }),
      'event_types',
      /an array/,
    ],
    [
      'eventTypes',
      (c) => c.createWebhookEndpoint({ url: 'x', eventTypes: [5 as never] }),
      'event_types[0]',
      /text/,
    ],
    ['url', (c) => c.createWebhookEndpoint({} as never), 'url', /must be text, not undefined/],
    [
      'enabled',
      (c) => c.updateWebhookEndpoint(missingEndpoint, { enabled: 1 as never }),
      'enabled',
      /true or false/,
    ],
    [
      'overlapHours',
      (c) => c.rotateWebhookSecret(missingEndpoint, { overlapHours: 2 ** 40 }),
      'overlap_hours',
      /from 0/,
    ],
  ])('%s', async (_, call, field, message) => {
    const error = await refused(call);
    expect(error).toBeInstanceOf(PaymentIntentsError);
    expect(error).toMatchObject({ code: 'invalid_body', isRetryable: false });
    expect(error.details).toEqual([{ field, message: expect.stringMatching(message) }]);
  });

  test('an option that a call does not have', async () => {
    for (const call of [
      (client: PaymentIntentsClient) =>
        client.retrievePaymentIntent(missing.pi, { idempotencyKey: 'order-1' } as never),
      (client: PaymentIntentsClient) => client.listEvents({}, { idempotencyKey: 'order-1' } as never),
    ]) {
      const error = await refused(call);
      expect(error).toBeInstanceOf(TypeError);
      expect(error.message).toBe(
        'idempotencyKey is not an option here; there are signal, timeoutMs, callTimeoutMs',
      );
    }
  });
});

describe('a service newer than the client', () => {
  const moment = '2026-11-21T12:30:15.514Z';
  const paymentJson = {
    transaction_hash: '0x5b',
    log_index: 41,
    block_number: 21450112,
    block_hash: '0x9c',
    block_time: moment,
    from_address: '0x5a',
    to_address: '0xDD',
    token_address: '0x03',
    amount_units: 12500000,
    confirmations: 4,
    status: 'frozen',
    labels: ['late', 'brand_new'],
    a_new_field: 1,
  };
  const payment = {
    transactionHash: '0x5b',
    logIndex: 41,
    blockNumber: 21450112,
    blockHash: '0x9c',
    blockTime: new Date(moment),
    fromAddress: '0x5a',
    toAddress: '0xDD',
    tokenAddress: '0x03',
    amountUnits: 12500000n,
    confirmations: 4,
    labels: ['late', 'brand_new'],
  };
  const intentJson = {
    id: 'pi_01m7yzn0mtexwagr0spq4wg7vz',
    status: 'refunded',
    mode: 'sandbox',
    chain: 'solana',
    chain_id: 101,
    confirmations_required: 32,
    amount_units: 1,
    decimals: 6,
    token_symbol: 'USDC',
    token_address: '0x',
    expected_wallet: '0x',
    expires_at: moment,
    expires_in_minutes: 30,
    lane: 'express',
    metadata: {},
    created_at: moment,
    amount_received_units: 12500000,
    payments: [paymentJson],
    payments_count: 1,
    labels: ['brand_new'],
  };
  const stamp = { seconds: BigInt(Date.parse(moment)) / 1000n, nanos: 514_000_000 };

  const eventJson = (data: object) => ({
    id: 'evt_01m7z1n4qpf2k8c3v7w5x9y0za',
    type: 'payout.created',
    created_at: moment,
    mode: 'sandbox',
    data,
  });

  const answering = async (body: unknown) =>
    createPaymentIntentsClient({
      baseUrl: await listen(
        http.createServer((_, response) => response.writeHead(200).end(JSON.stringify(body))),
      ),
      apiKey: 'sk_testnet_x',
      maxTries: 1,
    });

  test('over JSON, unknown words, types, labels and kinds of data pass through', async () => {
    const client = await answering({ payment_intents: [intentJson], a_new_field: 1 });
    const found = await all(client.listPaymentIntents());
    const { a_new_field, ...knownFields } = paymentJson;
    expect(JSON.parse(JSON.stringify(found))).toEqual([{ ...intentJson, payments: [knownFields] }]);
    expect(found).toMatchObject([
      {
        status: 'unknown:refunded',
        mode: 'unknown:sandbox',
        chain: 'unknown:solana',
        lane: 'unknown:express',
        labels: ['brand_new'],
        payments: [{ ...payment, status: 'unknown:frozen' }],
      },
    ]);
    const newer = await answering(eventJson({ payout: { id: 'po_1' } }));
    expect(await newer.retrieveEvent('evt_1')).toStrictEqual({
      id: 'evt_01m7z1n4qpf2k8c3v7w5x9y0za',
      type: 'payout.created',
      createdAt: new Date(moment),
      mode: 'unknown:sandbox',
      sequence: undefined,
      data: {
        paymentIntent: undefined,
        transfer: undefined,
        webhookEndpoint: undefined,
        transfersCount: undefined,
      },
    });
  });

  test('over gRPC, unknown numbers, types and labels pass through', async () => {
    const newer = connectNodeAdapter({
      routes: (router) =>
        router
          .service(PaymentIntentService, {
            listPaymentIntents: () => ({
              paymentIntents: [
                {
                  id: 'pi_01m7yzn0mtexwagr0spq4wg7vz',
                  ...({ status: 99, mode: 3, chain: 3, lane: 0 } as object),
                  chainId: 101n,
                  expiresAt: stamp,
                  createdAt: stamp,
                  amountReceivedUnits: 12500000n,
                  // More than JSON can say.
                  amountUnits: 9007199254740993n,
                  paymentsCount: 1,
                  labels: ['brand_new'],
                  payments: [
                    { ...payment, blockNumber: 21450112n, blockTime: stamp, ...({ status: 9 } as object) },
                  ],
                },
              ],
            }),
          })
          .service(EventService, {
            getEvent: () => ({ id: 'evt_1', type: 'payout.created', createdAt: stamp, data: {} }),
          })
          .service(WebhookEndpointService, {
            listWebhookDeliveries: () => ({
              webhookDeliveries: [{ id: 'del_1', createdAt: stamp, ...({ status: 9 } as object) }],
            }),
          }),
    });
    const client = createPaymentIntentsClient({
      baseUrl: await listen(http2.createServer(newer)),
      apiKey: 'sk_testnet_x',
      protocol: 'grpc',
      maxTries: 1,
    });
    const found = await all(client.listPaymentIntents());
    expect(JSON.parse(JSON.stringify(found))).toMatchObject([
      { status: 'unknown:99', chain: 'unknown:3', amount_units: '9007199254740993' },
    ]);
    expect(found).toMatchObject([
      {
        status: 'unknown:99',
        mode: 'unknown:3',
        chain: 'unknown:3',
        lane: 'unknown:0',
        labels: ['brand_new'],
        amountReceivedUnits: 12500000n,
        createdAt: new Date(moment),
        payments: [{ ...payment, status: 'unknown:9' }],
      },
    ]);
    expect(await client.retrieveEvent('evt_1')).toMatchObject({ type: 'payout.created', data: {} });
    expect(await all(client.listWebhookDeliveries('we_1'))).toMatchObject([{ status: 'unknown:9' }]);
  });

  test.each<[string, unknown, RegExp]>([
    [
      'payments[0].amount_units',
      { ...intentJson, payments: [{ ...paymentJson, amount_units: '1' }] },
      /type$/,
    ],
    ['payments', { ...intentJson, payments: {} }, /type$/],
    ['amount_received_units', { ...intentJson, amount_received_units: undefined }, /type$/],
    ['created_at', { ...intentJson, created_at: 'yesterday' }, /type$/],
    ['labels[1]', { ...intentJson, labels: ['a', 5] }, /type$/],
  ])('an answer whose %s is not what it should be is not misread', async (path, intent, message) => {
    const client = await answering({ payment_intents: [intent] });
    const error = await errorOf(client.listPaymentIntents().page());
    expect(error).toMatchObject({ code: 'unexpected_answer', isRetryable: false, httpStatus: 200 });
    expect(error.message).toContain(`its payment_intents[0].${path} is missing or of another`);
    expect(error.message).toMatch(message);
  });

  test('a page of the largest intents is read to its end', async () => {
    const metadata = Object.fromEntries(Array.from({ length: 50 }, (_, i) => [`k${i}`, 'é'.repeat(300)]));
    const largest = { ...intentJson, metadata, payments: Array(100).fill(paymentJson) };
    const client = await answering({ payment_intents: Array(100).fill(largest) });
    const found = await all(client.listPaymentIntents({ pageSize: 100 }));
    expect(found).toHaveLength(100);
    expect(found[99]?.payments).toHaveLength(100);
  });
});

test('the routes are those of the contract', () => {
  const routes = [PaymentIntentService, EventService, WebhookEndpointService, TransferService].flatMap(
    httpRoutesOf,
  );
  expect(
    Object.fromEntries(Object.entries(methods).map(([name, { http, status }]) => [name, [http, status]])),
  ).toEqual(
    Object.fromEntries(
      routes.map(({ httpMethod, path, successStatus, method }) => [
        method.localName,
        [`${httpMethod} ${path}`, successStatus],
      ]),
    ),
  );
});
