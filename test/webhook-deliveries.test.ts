// Which events are sent to which endpoint, how attempts are recorded, and when deliveries stop.

import type { JsonObject } from '@bufbuild/protobuf';
import { afterAll, describe, expect, onTestFinished, test } from 'vitest';
import { formatIdentifier, newUuid, parseIdentifier } from '../src/database/identifiers.ts';
import { outcomeOf } from '../src/webhooks/delivery-queue.ts';
import { sessionsWaiting } from './support/blocker.ts';
import { type Door, doors, type MethodName } from './support/call.ts';
import { type EventRowSettings, insertEventRows } from './support/event-rows.ts';
import { metric, scrape } from './support/metrics.ts';
import { openClient } from './support/open-client.ts';
import { type Answer, startReceiver } from './support/receiver.ts';
import { startService, type TestMerchant } from './support/service.ts';
import { useService } from './support/use-service.ts';
import { createWebhookWorker, policyWithPublic } from './support/webhook-worker.ts';

// Without the role that delivers webhooks: a worker of the test delivers when told to.
const service = await useService({ ROLES: 'api' });

/** How the receiver answers a path. All others are answered with 204. */
const answers = new Map<string, Answer>();

const receiver = await startReceiver((request, response) => {
  const answer = answers.get(request.path);
  if (answer === undefined) response.writeHead(204).end();
  else answer(request, response);
});
/** Treats the receiver as one on the internet. */
const worker = createWebhookWorker(service.database.orm.em, service.database.keyRing('WEBHOOK_SECRET_KEYS'), {
  policy: policyWithPublic('127.0.0.1'),
});

afterAll(async () => {
  await worker.close();
  await receiver.close();
});

/** A merchant of its own, so that no other test's endpoints want its events. */
class Shop {
  readonly #merchant: TestMerchant;
  readonly apiKey: string;

  constructor(merchant: TestMerchant) {
    this.#merchant = merchant;
    this.apiKey = merchant.keys.testnet.apiKey;
  }

  static async open(): Promise<Shop> {
    return new Shop(await service.newMerchant());
  }

  /** Calls a method, which has to succeed. */
  async call<M extends MethodName>(
    method: M,
    request: JsonObject,
    { door = 'json' as Door, apiKey = this.apiKey } = {},
    // biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects to be there.
  ): Promise<any> {
    const { code, message, json } = await service.call(method, request, { door, apiKey });
    expect([code, message]).toEqual(['ok', '']);
    return json;
  }

  /** Creates an endpoint with its own path at the receiver. */
  async endpoint(request: JsonObject = {}, answer?: Answer, apiKey = this.apiKey): Promise<TestEndpoint> {
    const path = `/${newUuid()}`;
    if (answer !== undefined) answers.set(path, answer);
    const { id } = await this.call(
      'createWebhookEndpoint',
      { url: receiver.url + path, ...request },
      { apiKey },
    );
    return { id, uuid: parseIdentifier('we', id) as string, path };
  }

  /** Records events of this merchant. */
  async events(...events: Partial<EventRowSettings>[]): Promise<string[]> {
    return insertEventRows(
      service.query,
      events.map((event) => ({ merchantId: this.#merchant.id, ...event })),
    );
  }

  async event(event: Partial<EventRowSettings> = {}): Promise<string> {
    const [id = ''] = await this.events(event);
    return id;
  }

  /** The deliveries to an endpoint, newest event first. */
  async deliveries({ id }: TestEndpoint, filter: JsonObject = {}) {
    return (await this.call('listWebhookDeliveries', { id, ...filter })).webhook_deliveries;
  }
}

interface TestEndpoint {
  id: string;
  uuid: string;
  path: string;
}

/** The ids of the events that have arrived at an endpoint. */
const arrivedAt = ({ path }: TestEndpoint) =>
  receiver.requests.filter((request) => request.path === path).map(({ headers }) => headers['webhook-id']);

const answering =
  (status: number, body: string | Buffer = ''): Answer =>
  (_, response) =>
    response.writeHead(status).end(body);

/** Makes the pending deliveries to an endpoint due, as if enough time had passed. */
const letTimePass = ({ uuid }: TestEndpoint) =>
  service.query(
    `update webhook_deliveries set next_attempt_at = now() where endpoint_id = $1 and status = 'pending'`,
    [uuid],
  );

/** Keeps the pending deliveries to an endpoint from being repeated during the test. */
const postpone = ({ uuid }: TestEndpoint) =>
  service.query(
    `update webhook_deliveries set next_attempt_at = now() + interval '1 hour' where endpoint_id = $1 and status = 'pending'`,
    [uuid],
  );

describe('an event is sent', () => {
  test('to the enabled endpoints of its merchant and mode that are subscribed to its type', async () => {
    const [shop, stranger] = [await Shop.open(), await Shop.open()];
    const all = await shop.endpoint();
    const some = await shop.endpoint({
      event_types: ['payment_intent.succeeded', 'payment_intent.canceled'],
    });
    const others = await shop.endpoint({ event_types: ['payment_intent.expired'] });
    const born = await shop.endpoint({ enabled: false });
    const disabled = await shop.endpoint();
    await shop.call('updateWebhookEndpoint', { id: disabled.id, enabled: false });
    const deleted = await shop.endpoint();
    await shop.call('deleteWebhookEndpoint', { id: deleted.id });
    const elsewhere = await stranger.endpoint();

    const canceled = await shop.event({ type: 'payment_intent.canceled' });
    const expired = await shop.event({ type: 'payment_intent.expired' });
    const mainnet = await shop.event({ type: 'payment_intent.canceled', mode: 'mainnet' });
    await worker.deliverAll();
    expect(arrivedAt(all).sort()).toEqual([canceled, expired].sort());
    expect(arrivedAt(some)).toEqual([canceled]);
    expect(arrivedAt(others)).toEqual([expired]);
    for (const endpoint of [born, disabled, deleted, elsewhere]) expect(arrivedAt(endpoint)).toEqual([]);
    expect(receiver.requests.map(({ headers }) => headers['webhook-id'])).not.toContain(mainnet);
    const rows = await service.query(
      'select endpoint_id from webhook_deliveries where endpoint_id = any ($1)',
      [[born.uuid, disabled.uuid, deleted.uuid, elsewhere.uuid]],
    );
    expect(rows).toEqual([]);
  });

  test('once, and not to endpoints created later', async () => {
    const shop = await Shop.open();
    const endpoint = await shop.endpoint();
    const paymentIntent = newUuid();
    const event = await shop.event({ paymentIntent, type: 'payment_intent.expired' });
    await worker.deliverAll();
    const later = await shop.endpoint();
    await worker.deliverAll();
    expect([arrivedAt(endpoint), arrivedAt(later)]).toEqual([[event], []]);
    expect(await shop.deliveries(endpoint)).toEqual([
      {
        id: expect.stringMatching(/^del_[0-7][0-9a-hjkmnp-tv-z]{25}$/),
        event,
        event_type: 'payment_intent.expired',
        payment_intent: formatIdentifier('pi', paymentIntent),
        webhook_endpoint: endpoint.id,
        status: 'delivered',
        attempts: [{ at: expect.any(String), status_code: 204, duration_ms: expect.any(Number) }],
        created_at: expect.any(String),
      },
    ]);
  });

  test('to the current URL of the endpoint', async () => {
    const shop = await Shop.open();
    const endpoint = await shop.endpoint();
    await shop.event();
    await worker.makeDeliveries();
    const moved = `/${newUuid()}`;
    await shop.call('updateWebhookEndpoint', { id: endpoint.id, url: receiver.url + moved });
    await worker.deliverAll();
    expect(arrivedAt(endpoint)).toEqual([]);
    expect(arrivedAt({ ...endpoint, path: moved })).toHaveLength(1);
  });
});

describe('when an endpoint is disabled', () => {
  test('its pending deliveries fail, and stay failed after it is enabled', async () => {
    const shop = await Shop.open();
    const endpoint = await shop.endpoint();
    const event = await shop.event();
    await worker.makeDeliveries();
    expect(await shop.deliveries(endpoint)).toMatchObject([
      { event, status: 'pending', attempts: [], next_attempt_at: expect.any(String) },
    ]);
    await shop.call('updateWebhookEndpoint', { id: endpoint.id, enabled: false });
    const [failed] = await shop.deliveries(endpoint);
    expect(failed).toMatchObject({ event, status: 'failed', attempts: [] });
    expect(failed).not.toHaveProperty('next_attempt_at');
    await shop.call('updateWebhookEndpoint', { id: endpoint.id, enabled: true });
    await worker.deliverAll();
    expect(arrivedAt(endpoint)).toEqual([]);
    expect(await shop.deliveries(endpoint)).toEqual([failed]);
  });

  test('an attempt in flight is not recorded, and its delivery fails', async () => {
    const shop = await Shop.open();
    const arrived = Promise.withResolvers<() => void>();
    const endpoint = await shop.endpoint({}, (_, response) => {
      arrived.resolve(() => response.writeHead(500).end());
    });
    await shop.event();
    await worker.makeDeliveries();
    await worker.deliverer.deliverSome();
    const letGo = await arrived.promise;
    await shop.call('updateWebhookEndpoint', { id: endpoint.id, enabled: false });
    letGo();
    await worker.deliverer.idle();
    expect(await shop.deliveries(endpoint)).toMatchObject([{ status: 'failed', attempts: [] }]);
    expect(
      await service.query('select failures from webhook_endpoints where id = $1', [endpoint.uuid]),
    ).toEqual([{ failures: 0 }]);
  });

  test('a delivery created at the same moment is not attempted and fails', async () => {
    const shop = await Shop.open();
    const endpoint = await shop.endpoint();
    await shop.event();
    await worker.makeDeliveries();
    await service.query('update webhook_endpoints set enabled = false where id = $1', [endpoint.uuid]);
    await worker.deliverAll();
    expect(arrivedAt(endpoint)).toEqual([]);
    expect(await worker.health.giveUpDeliveries()).toBe(1);
    expect(await worker.health.giveUpDeliveries()).toBe(0);
    expect(await shop.deliveries(endpoint)).toMatchObject([{ status: 'failed' }]);
  });
});

describe('an attempt is recorded', () => {
  const kib = Buffer.alloc(2_000, 'é');
  const cases: [string, Answer, object, Buffer | null][] = [
    ['200', answering(200, 'ok'), { status_code: 200, response: 'ok' }, Buffer.from('ok')],
    ['204', answering(204), { status_code: 204 }, null],
    ['299', answering(299, 'fine'), { status_code: 299, response: 'fine' }, Buffer.from('fine')],
    ['300', answering(300), { status_code: 300, error: 'answered 300: redirects are not followed' }, null],
    [
      '404 with a body',
      answering(404, '{"error":"no such page"}'),
      { status_code: 404, error: 'answered 404', response: '{"error":"no such page"}' },
      Buffer.from('{"error":"no such page"}'),
    ],
    ['500', answering(500), { status_code: 500, error: 'answered 500' }, null],
    [
      'what is not UTF-8',
      answering(200, Buffer.of(0x6f, 0x6b, 0xff, 0xc3, 0x28, 0)),
      { status_code: 200, response: 'ok\ufffd\ufffd(\0' },
      Buffer.of(0x6f, 0x6b, 0xff, 0xc3, 0x28, 0),
    ],
    [
      'no more than the first 1,024 bytes, cut within a character',
      answering(200, Buffer.concat([Buffer.from('a'), kib])),
      { status_code: 200, response: `a${'é'.repeat(511)}\ufffd` },
      Buffer.concat([Buffer.from('a'), kib.subarray(0, 1_023)]),
    ],
    [
      'a connection that breaks',
      (_, response) => void response.destroy(),
      { error: 'the answer was not HTTP, or the connection broke' },
      null,
    ],
  ];

  test.each(cases)('%s', async (_, answer, expected, bytes) => {
    const shop = await Shop.open();
    const endpoint = await shop.endpoint({}, answer);
    const startedAtMs = Date.now();
    await shop.event();
    await worker.deliverAll();
    for (const door of doors) {
      const { webhook_deliveries } = await shop.call('listWebhookDeliveries', { id: endpoint.id }, { door });
      const [{ status, attempts }] = webhook_deliveries;
      expect(status).toBe('error' in expected ? 'pending' : 'delivered');
      expect(attempts).toEqual([{ at: expect.any(String), duration_ms: expect.any(Number), ...expected }]);
      expect(Date.parse(attempts[0].at)).toBeGreaterThanOrEqual(startedAtMs);
      expect(Date.parse(attempts[0].at)).toBeLessThanOrEqual(Date.now());
      expect(attempts[0].duration_ms).toBeLessThanOrEqual(Date.now() - startedAtMs);
    }
    const [row] = await service.query('select response from webhook_attempts where endpoint_id = $1', [
      endpoint.uuid,
    ]);
    expect(row?.response).toEqual(bytes);
  });

  test('with its duration', async () => {
    const shop = await Shop.open();
    const endpoint = await shop.endpoint({}, (_, response) => {
      setTimeout(() => response.writeHead(204).end(), 300);
    });
    await shop.event();
    await worker.deliverAll();
    const [{ attempts }] = await shop.deliveries(endpoint);
    expect(attempts[0].duration_ms).toBeGreaterThanOrEqual(290);
  });

  test('a redirect, without following it', async () => {
    const shop = await Shop.open();
    const target = await shop.endpoint({ event_types: ['payment_intent.reorged'] });
    for (const status of [301, 302, 303, 307, 308]) {
      const endpoint = await shop.endpoint({}, (_, response) => {
        response.writeHead(status, { location: receiver.url + target.path }).end();
      });
      await shop.event();
      await worker.deliverAll();
      expect(arrivedAt(endpoint)).toHaveLength(1);
      const [{ attempts }] = await shop.deliveries(endpoint);
      expect(attempts).toMatchObject([
        { status_code: status, error: `answered ${status}: redirects are not followed` },
      ]);
      await shop.call('deleteWebhookEndpoint', { id: endpoint.id });
    }
    expect(arrivedAt(target)).toEqual([]);
  });

  test('without the answer of a permitted private target', async () => {
    const shop = await Shop.open();
    const permitting = createWebhookWorker(
      service.database.orm.em,
      service.database.keyRing('WEBHOOK_SECRET_KEYS'),
    );
    const fine = await shop.endpoint({}, answering(200, 'private'));
    const faulty = await shop.endpoint({}, answering(500, 'private'));
    // On a new connection and on a reused one.
    for (let i = 0; i < 2; i++) {
      await shop.event();
      await permitting.deliverAll();
      await postpone(faulty);
    }
    await permitting.close();
    const withoutResponse = (expected: object) => ({
      at: expect.any(String),
      duration_ms: expect.any(Number),
      ...expected,
    });
    const attemptsTo = async (endpoint: TestEndpoint) =>
      (await shop.deliveries(endpoint)).flatMap(({ attempts }: { attempts: object[] }) => attempts);
    expect(await attemptsTo(fine)).toEqual(Array(2).fill(withoutResponse({ status_code: 200 })));
    expect(await attemptsTo(faulty)).toEqual(
      Array(2).fill(withoutResponse({ status_code: 500, error: 'answered 500' })),
    );
  });
});

/** From the contract: seconds after each failed attempt. */
const schedule = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400];

describe('a failed attempt is retried', () => {
  test('on schedule, with 10% of jitter', () => {
    schedule.forEach((seconds, scheduled) => {
      const pauses = Array.from({ length: 2_000 }, () => {
        const { status, retryAfterMs } = outcomeOf({ scheduled }, { error: 'answered 500' });
        expect(status).toBe('pending');
        return (retryAfterMs as number) / 1000 / seconds;
      });
      const [least, most] = [Math.min(...pauses), Math.max(...pauses)];
      expect(least).toBeGreaterThanOrEqual(0.9);
      expect(least).toBeLessThan(0.91);
      expect(most).toBeLessThanOrEqual(1.1);
      expect(most).toBeGreaterThan(1.09);
    });
    expect(outcomeOf({ scheduled: schedule.length }, { error: 'answered 500' })).toEqual({
      status: 'failed',
      retryAfterMs: undefined,
    });
    expect(outcomeOf({ scheduled: 0 }, { error: undefined })).toEqual({
      status: 'delivered',
      retryAfterMs: undefined,
    });
  });

  test('until the last attempt, and then the delivery fails', async () => {
    const shop = await Shop.open();
    const endpoint = await shop.endpoint({}, answering(503));
    const event = await shop.event();
    for (const [i, seconds] of schedule.entries()) {
      await worker.deliverAll();
      const [row] = await service.query<{ status: string; seconds: number; attempts: number }>(
        `select status, extract(epoch from next_attempt_at - now())::float as seconds, attempts
           from webhook_deliveries where endpoint_id = $1`,
        [endpoint.uuid],
      );
      expect(row).toMatchObject({ status: 'pending', attempts: i + 1 });
      expect(row?.seconds).toBeLessThanOrEqual(seconds * 1.1);
      // Less the time since it was recorded.
      expect(row?.seconds).toBeGreaterThan(seconds * 0.9 - 4);
      await letTimePass(endpoint);
    }
    await worker.deliverAll();
    const [last] = await shop.deliveries(endpoint);
    expect(last).toMatchObject({ event, status: 'failed' });
    expect(last.attempts).toHaveLength(10);
    expect(last).not.toHaveProperty('next_attempt_at');
    await worker.deliverAll();
    expect(arrivedAt(endpoint)).toEqual(Array(10).fill(event));
    expect(worker.log.filter(({ webhook_endpoint }) => webhook_endpoint === endpoint.id)).toEqual([
      expect.objectContaining({
        level: 'warn',
        message: 'a webhook delivery has failed: no retries left',
        event,
        event_type: 'payment_intent.canceled',
        payment_intent: last.payment_intent,
        merchant_id: expect.stringMatching(/^mer_/),
        attempts: 10,
        status_code: 503,
        error: 'answered 503',
      }),
    ]);
  });

  test('with a new signature and the same id', async () => {
    const shop = await Shop.open();
    let isDown = true;
    const endpoint = await shop.endpoint({}, (_, response) => {
      response.writeHead(isDown ? 500 : 200).end();
    });
    const event = await shop.event();
    await worker.deliverAll();
    isDown = false;
    await letTimePass(endpoint);
    await worker.deliverAll();
    const [first, second] = receiver.requests.filter(({ path }) => path === endpoint.path);
    expect([first?.headers['webhook-id'], second?.headers['webhook-id']]).toEqual([event, event]);
    expect(second?.body).toBe(first?.body);
    const [delivery] = await shop.deliveries(endpoint);
    expect(delivery).toMatchObject({
      status: 'delivered',
      attempts: [{ status_code: 500, error: 'answered 500' }, { status_code: 200 }],
    });
  });
});

describe('an endpoint is disabled', () => {
  const stateOf = async (endpoint: TestEndpoint) => {
    const [row] = await service.query<{ enabled: boolean; failures: number; failing: boolean }>(
      'select enabled, failures, failing_since is not null as failing from webhook_endpoints where id = $1',
      [endpoint.uuid],
    );
    return row;
  };
  const setFailures = (endpoint: TestEndpoint, failures: number, since: string) =>
    service.query(
      `update webhook_endpoints set failures = $2, failing_since = now() - $3::interval where id = $1`,
      [endpoint.uuid, failures, since],
    );

  test('at once if it answers 410', async () => {
    const shop = await Shop.open();
    const endpoint = await shop.endpoint({}, answering(410, 'gone'));
    const other = await shop.endpoint();
    await shop.events({}, {});
    await worker.deliverAll();
    expect(await shop.call('getWebhookEndpoint', { id: endpoint.id })).toMatchObject({
      enabled: false,
      disabled_reason: 'it answered 410 Gone',
    });
    const deliveries = await shop.deliveries(endpoint);
    expect(deliveries.map(({ status }: { status: string }) => status)).toEqual(['failed', 'failed']);
    // The attempts that were sent are recorded.
    expect(deliveries.flatMap(({ attempts }: { attempts: object[] }) => attempts)).toEqual(
      expect.arrayContaining([expect.objectContaining({ status_code: 410, error: 'answered 410' })]),
    );
    expect(await shop.call('getWebhookEndpoint', { id: other.id })).toMatchObject({ enabled: true });
    const before = arrivedAt(endpoint).length;
    await shop.event();
    await worker.deliverAll();
    expect([arrivedAt(endpoint).length, arrivedAt(other).length]).toEqual([before, 3]);
    const lines = worker.log.filter(({ webhook_endpoint }) => webhook_endpoint === endpoint.id);
    expect(lines).toEqual([
      expect.objectContaining({
        level: 'warn',
        message: 'a webhook endpoint was disabled: it answered 410 Gone',
        merchant_id: expect.stringMatching(/^mer_/),
        failed_deliveries: expect.any(Number),
      }),
    ]);
  });

  test('but not because of an answer from its previous URL', async () => {
    const shop = await Shop.open();
    const endpoint = await shop.endpoint({}, async (request, response) => {
      // The old server is taken down while it handles its last delivery.
      await shop.call('updateWebhookEndpoint', { id: endpoint.id, url: `${receiver.url}/new` });
      answering(410, 'gone')(request, response);
    });
    await shop.event();
    await worker.deliverAll();
    expect(await stateOf(endpoint)).toEqual({ enabled: true, failures: 0, failing: false });
  });

  test('after 5 days without a success and at least 10 failures, not before', async () => {
    const shop = await Shop.open();
    const endpoint = await shop.endpoint({}, answering(500));
    await shop.event();
    const attempt = async () => {
      await letTimePass(endpoint);
      await worker.deliverAll();
    };
    await worker.deliverAll();
    expect(await stateOf(endpoint)).toEqual({ enabled: true, failures: 1, failing: true });
    // Long enough, but too few failures.
    await setFailures(endpoint, 8, '6 days');
    await attempt();
    expect(await stateOf(endpoint)).toEqual({ enabled: true, failures: 9, failing: true });
    // Enough failures, but not long enough.
    await setFailures(endpoint, 40, '4 days 23 hours 59 minutes');
    await attempt();
    expect(await stateOf(endpoint)).toEqual({ enabled: true, failures: 41, failing: true });
    await setFailures(endpoint, 9, '5 days');
    await attempt();
    expect(await shop.call('getWebhookEndpoint', { id: endpoint.id })).toMatchObject({
      enabled: false,
      disabled_reason: '10 attempts in a row have failed, over 5 days',
    });
    expect(await shop.deliveries(endpoint)).toMatchObject([{ status: 'failed' }]);
    const arrived = arrivedAt(endpoint).length;
    await attempt();
    expect(arrivedAt(endpoint)).toHaveLength(arrived);
  });

  test('never, if a success resets its failures after they were counted', async () => {
    const shop = await Shop.open();
    const endpoint = await shop.endpoint({}, answering(500));
    await setFailures(endpoint, 9, '6 days');
    await service.query(`
      create function reset() returns trigger language plpgsql as $$
      begin update webhook_endpoints set failures = 0, failing_since = null where id = new.id; return null; end $$;
      create constraint trigger reset after update on webhook_endpoints deferrable initially deferred
      for each row when (new.failures = 10 and new.enabled) execute function reset()`);
    onTestFinished(async () => void (await service.query('drop function reset() cascade')));
    await shop.event();
    await worker.deliverAll();
    expect(await stateOf(endpoint)).toEqual({ enabled: true, failures: 0, failing: false });
  });

  test('never, if a success has reset its failures', async () => {
    const shop = await Shop.open();
    const endpoint = await shop.endpoint();
    await setFailures(endpoint, 40, '4 days');
    await shop.event();
    await worker.deliverAll();
    expect(await stateOf(endpoint)).toEqual({ enabled: true, failures: 0, failing: false });
  });

  test('and an operator sees that in the log and in the metrics', async () => {
    const live = await startService();
    const target = await startReceiver((request, response) => {
      response.writeHead(request.path === '/gone' ? 410 : 200).end();
    });
    const gone = await live.call('createWebhookEndpoint', { url: `${target.url}/gone` });
    await live.call('createWebhookEndpoint', { url: `${target.url}/fine` });
    // A change of an intent, from the call to the delivery.
    const { id } = (await live.call('createPaymentIntent', { amount_units: 1 })).json;
    expect((await live.call('cancelPaymentIntent', { id })).code).toBe('ok');
    const line = await live.loggedLine(({ message }) =>
      /a webhook endpoint was disabled/.test(String(message)),
    );
    expect(line).toMatchObject({
      level: 'warn',
      webhook_endpoint: gone.json.id,
      merchant_id: live.merchant.merchantId,
      message: 'a webhook endpoint was disabled: it answered 410 Gone',
    });
    await target.arrived(2);
    expect(target.requests.map(({ body }) => JSON.parse(body).data.payment_intent.id)).toEqual(
      Array(2).fill(id),
    );
    expect(target.requests.map(({ body }) => body).join()).not.toContain('client_secret');
    // An attempt is counted once it is recorded.
    const delivered = 'payment_intents_webhook_attempts_total{outcome="delivered"} 1';
    await expect.poll(() => scrape(live)).toContain(delivered);
    const metrics = await scrape(live);
    expect(metrics).toContain('payment_intents_webhook_attempts_total{outcome="failed"} 1');
    expect(metrics).toContain('payment_intents_webhook_duration_seconds_count{outcome="delivered"} 1');
    expect(metrics).toContain('payment_intents_webhook_duration_seconds_count{outcome="failed"} 1');
    expect(metrics).toMatch(/^payment_intents_webhook_oldest_pending_seconds \d/m);
    await target.close();
    await live.close();
  });

  test('an outcome that cannot be recorded is counted, too', async () => {
    const live = await startService();
    const target = await startReceiver((_, response) => response.writeHead(200).end());
    await live.call('createWebhookEndpoint', { url: target.url });
    await live.query('revoke insert on webhook_attempts from serving');
    const { id } = (await live.call('createPaymentIntent', { amount_units: 1 })).json;
    await live.call('cancelPaymentIntent', { id });
    await live.loggedLine(({ message }) => /could not record a webhook attempt/.test(String(message)));
    expect(await metric(live, 'payment_intents_webhook_attempts_total{outcome="unrecorded"}')).toBe(1);
    await target.close();
    await live.close();
  });
});

test('the age of the oldest pending delivery is measured, and how long a merchant gets no attempt', async () => {
  const shop = await Shop.open();
  await service.query(
    `update webhook_deliveries set status = 'failed', next_attempt_at = null where status = 'pending'`,
  );
  expect((await worker.queue.backlog()).oldestMs).toBe(0);
  const [endpoint] = [await shop.endpoint(), await shop.endpoint()];
  await shop.events({}, {});
  await worker.makeDeliveries();
  await service.query(
    `update webhook_deliveries set created_at = now() - interval '1 hour'
      where (event_id, endpoint_id) = (select event_id, endpoint_id from webhook_deliveries where endpoint_id = $1 limit 1)`,
    [endpoint.uuid],
  );
  const ageMs = (await worker.queue.backlog()).oldestMs;
  expect(ageMs).toBeGreaterThanOrEqual(3_600_000 - 1_000);
  expect(ageMs).toBeLessThan(3_660_000);
  const change = (next: string, which = 'true') =>
    service.query(`update webhook_deliveries set ${next} where status = 'pending' and ${which}`);
  await change(`next_attempt_at = now() - interval '1 minute'`);
  expect((await worker.queue.backlog()).lagMs).toBeGreaterThanOrEqual(60_000);
  const until = `now() + interval '20 s'`;
  await change(
    `next_attempt_at = ${until}, leased_until = ${until}`,
    `created_at < now() - interval '1 minute'`,
  );
  expect((await worker.queue.backlog()).lagMs).toBe(0);
  await change('next_attempt_at = now(), leased_until = null');
  await worker.deliverAll();
  expect((await worker.queue.backlog()).oldestMs).toBe(0);
});

describe.each(doors)('over %s', (door) => {
  test('an event is delivered again to one endpoint, whatever its types', async () => {
    const shop = await Shop.open();
    const endpoint = await shop.endpoint();
    const other = await shop.endpoint();
    const unsubscribed = await shop.endpoint({ event_types: ['payment_intent.reorged'] });
    const event = await shop.event();
    await worker.deliverAll();
    const [before] = await shop.deliveries(endpoint);
    const again = await shop.call('redeliverEvent', { id: event, webhook_endpoint: endpoint.id }, { door });
    expect(again.webhook_deliveries).toEqual([
      { ...before, status: 'pending', next_attempt_at: expect.any(String) },
    ]);
    const first = await shop.call(
      'redeliverEvent',
      { id: event, webhook_endpoint: unsubscribed.id },
      { door },
    );
    expect(first.webhook_deliveries).toMatchObject([
      { event, webhook_endpoint: unsubscribed.id, status: 'pending', attempts: [] },
    ]);
    await worker.deliverAll();
    expect([arrivedAt(endpoint), arrivedAt(other), arrivedAt(unsubscribed)]).toEqual([
      ...[[event, event], [event], [event]],
    ]);
    const [after] = await shop.deliveries(endpoint);
    expect(after).toEqual({
      ...before,
      attempts: [...before.attempts, expect.objectContaining({ status_code: 204 })],
    });
  });

  test('an event is delivered again to all enabled endpoints subscribed to it', async () => {
    const shop = await Shop.open();
    const endpoints = [await shop.endpoint(), await shop.endpoint()];
    const event = await shop.event();
    await worker.deliverAll();
    const late = await shop.endpoint({ event_types: ['payment_intent.canceled'] });
    const unsubscribed = await shop.endpoint({ event_types: ['payment_intent.reorged'] });
    const disabled = await shop.endpoint({ enabled: false });
    const mainnet = await shop.endpoint();
    await service.query(`update webhook_endpoints set mode = 'mainnet' where id = $1`, [mainnet.uuid]);
    const { webhook_deliveries } = await shop.call('redeliverEvent', { id: event }, { door });
    const ids = webhook_deliveries.map((delivery: { webhook_endpoint: string }) => delivery.webhook_endpoint);
    expect(ids.sort()).toEqual([...endpoints, late].map(({ id }) => id).sort());
    await worker.deliverAll();
    for (const endpoint of endpoints) expect(arrivedAt(endpoint)).toEqual([event, event]);
    expect(arrivedAt(late)).toEqual([event]);
    for (const endpoint of [unsubscribed, disabled, mainnet]) expect(arrivedAt(endpoint)).toEqual([]);
  });

  test('redelivering an event without a subscribed endpoint makes no delivery', async () => {
    const shop = await Shop.open();
    const event = await shop.event();
    await worker.makeDeliveries();
    expect(await shop.call('redeliverEvent', { id: event }, { door })).toEqual({ webhook_deliveries: [] });
  });

  test('redelivery makes a waiting delivery due at once, with a new schedule', async () => {
    const shop = await Shop.open();
    const endpoint = await shop.endpoint({}, answering(500));
    const event = await shop.event();
    await worker.deliverAll();
    const waiting = () =>
      service.query<{ scheduled: number; is_due: boolean }>(
        'select scheduled, next_attempt_at <= now() as is_due from webhook_deliveries where endpoint_id = $1',
        [endpoint.uuid],
      );
    for (const [i, request] of [{ id: event }, { id: event, webhook_endpoint: endpoint.id }].entries()) {
      expect(await waiting()).toEqual([{ scheduled: 1, is_due: false }]);
      const { webhook_deliveries } = await shop.call('redeliverEvent', request, { door });
      expect(webhook_deliveries).toMatchObject([
        { status: 'pending', attempts: Array(i + 1).fill({ status_code: 500 }) },
      ]);
      expect(await waiting()).toEqual([{ scheduled: 0, is_due: true }]);
      // A delivery that is due already keeps its place.
      const [{ next_attempt_at }] = webhook_deliveries;
      const [again] = (await shop.call('redeliverEvent', request, { door })).webhook_deliveries;
      expect(again.next_attempt_at).toBe(next_attempt_at);
      await worker.deliverAll();
      expect(arrivedAt(endpoint)).toHaveLength(i + 2);
    }
  });

  test('redelivery does not change a delivery with an attempt in flight', async () => {
    const shop = await Shop.open();
    // Keeps retries of other tests from becoming due meanwhile.
    await service.query(
      "update webhook_deliveries set next_attempt_at = now() + interval '1 hour' where status = 'pending'",
    );
    const arrived = Promise.withResolvers<() => void>();
    const endpoint = await shop.endpoint({}, (_, response) => {
      arrived.resolve(() => response.writeHead(204).end());
    });
    const event = await shop.event();
    await worker.makeDeliveries();
    await worker.deliverer.deliverSome();
    const letGo = await arrived.promise;
    await shop.call('redeliverEvent', { id: event }, { door });
    await shop.call('redeliverWebhookEndpoint', { id: endpoint.id, status: 'pending' }, { door });
    expect(await worker.deliverer.deliverSome()).toBe(false);
    letGo();
    await worker.deliverer.idle();
    expect(arrivedAt(endpoint)).toEqual([event]);
    expect(await shop.deliveries(endpoint)).toMatchObject([
      { status: 'delivered', attempts: [{ status_code: 204 }] },
    ]);
  });

  test('redelivery restarts the schedule and continues the count; the newest 20 attempts are kept', async () => {
    const shop = await Shop.open();
    const endpoint = await shop.endpoint({}, answering(500));
    const event = await shop.event();
    await worker.deliverAll();
    // As after a whole schedule and further attempts.
    await service.query(
      `update webhook_deliveries set status = 'failed', next_attempt_at = null, scheduled = 10, attempts = 19
        where endpoint_id = $1`,
      [endpoint.uuid],
    );
    await service.query(
      `insert into webhook_attempts (event_id, endpoint_id, number, at, duration_ms, status_code, error)
       select event_id, endpoint_id, n, now(), n, 500, 'answered 500'
         from webhook_attempts, generate_series(2, 19) as n where endpoint_id = $1`,
      [endpoint.uuid],
    );
    await shop.call('redeliverEvent', { id: event, webhook_endpoint: endpoint.id }, { door });
    for (let n = 20; n <= 22; n++) {
      await letTimePass(endpoint);
      await worker.deliverAll();
    }
    expect(
      await service.query(
        `select status, scheduled, attempts from webhook_deliveries where endpoint_id = $1`,
        [endpoint.uuid],
      ),
    ).toEqual([{ status: 'pending', scheduled: 3, attempts: 22 }]);
    const numbers = await service.query<{ number: number }>(
      'select number from webhook_attempts where endpoint_id = $1 order by number',
      [endpoint.uuid],
    );
    expect(numbers.map(({ number }) => number)).toEqual(Array.from({ length: 20 }, (_, i) => i + 3));
    const { webhook_deliveries } = await shop.call('listWebhookDeliveries', { id: endpoint.id }, { door });
    const [{ attempts }] = webhook_deliveries;
    // Oldest first.
    expect(attempts.slice(0, 17).map((attempt: { duration_ms: number }) => attempt.duration_ms)).toEqual(
      Array.from({ length: 17 }, (_, i) => i + 3),
    );
    expect(attempts).toHaveLength(20);
  });

  test('a redelivery to a disabled endpoint is sent once that is enabled', async () => {
    const shop = await Shop.open();
    const endpoint = await shop.endpoint();
    const event = await shop.event();
    await worker.deliverAll();
    await shop.call('updateWebhookEndpoint', { id: endpoint.id, enabled: false });
    const { apiKey } = shop;
    for (const [method, request] of [
      ['redeliverEvent', { id: event, webhook_endpoint: endpoint.id }],
      ['redeliverWebhookEndpoint', { id: endpoint.id }],
      ['pingWebhookEndpoint', { id: endpoint.id }],
    ] as const) {
      const { code, message } = await service.call(method, request, { door, apiKey });
      expect([method, code]).toEqual([method, 'invalid_state']);
      expect(message).toMatch(/disabled\. Enable it first/);
    }
    await worker.deliverAll();
    expect(arrivedAt(endpoint)).toEqual([event]);
    await shop.call('updateWebhookEndpoint', { id: endpoint.id, enabled: true });
    await shop.call('redeliverEvent', { id: event, webhook_endpoint: endpoint.id }, { door });
    await worker.deliverAll();
    expect(arrivedAt(endpoint)).toEqual([event, event]);
  });

  test('redelivering an event that is removed meanwhile finds nothing', async () => {
    const shop = await Shop.open();
    const endpoint = await shop.endpoint();
    const event = await shop.event();
    await worker.deliverAll();
    await service.query(`update webhook_deliveries set status = 'failed' where endpoint_id = $1`, [
      endpoint.uuid,
    ]);
    const removal = await openClient(service.location);
    const uuid = parseIdentifier('evt', event);
    await removal.query('begin');
    await removal.query('delete from events where id = $1', [uuid]);
    expect(await shop.call('redeliverWebhookEndpoint', { id: endpoint.id })).toEqual({ deliveries_count: 0 });
    const { apiKey } = shop;
    const again = service.call('redeliverEvent', { id: event }, { door, apiKey });
    await sessionsWaiting(service, 1);
    await removal.query('delete from webhook_deliveries where event_id = $1', [uuid]);
    await removal.query('commit');
    await removal.end();
    expect((await again).code).toBe('resource_missing');
    const left = 'select from webhook_deliveries where event_id = $1';
    expect(await service.query(left, [uuid])).toEqual([]);
  });

  test('redelivering an unknown event, or one without a position, finds nothing', async () => {
    const shop = await Shop.open();
    await shop.endpoint();
    const unpositioned = await shop.event();
    for (const id of [formatIdentifier('evt', newUuid()), 'evt_x', unpositioned]) {
      const { code } = await service.call('redeliverEvent', { id }, { door, apiKey: shop.apiKey });
      expect([id, code]).toEqual([id, 'resource_missing']);
    }
    await worker.deliverAll();
    const { code } = await service.call(
      'redeliverEvent',
      { id: unpositioned },
      { door, apiKey: shop.apiKey },
    );
    expect(code).toBe('ok');
    await worker.deliverAll();
  });

  test('a ping and its redelivery go only to their endpoint, whatever its types', async () => {
    const shop = await Shop.open();
    const endpoint = await shop.endpoint({ event_types: ['payment_intent.expired'], description: 'orders' });
    const other = await shop.endpoint();
    const ping = await shop.call('pingWebhookEndpoint', { id: endpoint.id }, { door });
    const present = await shop.call('getWebhookEndpoint', { id: endpoint.id });
    expect(ping).toEqual({
      id: expect.stringMatching(/^evt_/),
      type: 'webhook_endpoint.ping',
      created_at: expect.any(String),
      mode: 'testnet',
      data: { webhook_endpoint: present },
    });
    await worker.deliverAll();
    expect([arrivedAt(endpoint), arrivedAt(other)]).toEqual([[ping.id], []]);
    const toOther = { id: ping.id, webhook_endpoint: other.id };
    expect(await service.call('redeliverEvent', toOther, { door, apiKey: shop.apiKey })).toMatchObject({
      code: 'resource_missing',
    });
    const { webhook_deliveries } = await shop.call('redeliverEvent', { id: ping.id }, { door });
    expect(webhook_deliveries).toMatchObject([
      { webhook_endpoint: endpoint.id, event_type: 'webhook_endpoint.ping' },
    ]);
    expect(webhook_deliveries[0]).not.toHaveProperty('payment_intent');
    await worker.deliverAll();
    expect([arrivedAt(endpoint), arrivedAt(other)]).toEqual([[ping.id, ping.id], []]);
  });

  test('deliveries are listed by status and page, newest event first', async () => {
    const shop = await Shop.open();
    const isFine = (body: string) => JSON.parse(body).sequence % 3 !== 0;
    const endpoint = await shop.endpoint({}, ({ body }, response) => {
      response.writeHead(isFine(body) ? 204 : 500).end();
    });
    const ids: string[] = [];
    const intent = newUuid();
    for (let sequence = 1; sequence <= 24; sequence++) {
      ids.unshift(await shop.event({ paymentIntent: intent, sequence }));
    }
    await worker.deliverAll();
    await service.query(
      `update webhook_deliveries set status = 'failed', next_attempt_at = null where endpoint_id = $1 and event_id = $2`,
      [endpoint.uuid, parseIdentifier('evt', ids[0] as string)],
    );
    const expected = ids.map((event, i) => ({
      event,
      status: i === 0 ? 'failed' : (24 - i) % 3 !== 0 ? 'delivered' : 'pending',
    }));
    const pages = async (request: JsonObject) => {
      const found: object[][] = [];
      let token: string | undefined;
      do {
        const page = await shop.call(
          'listWebhookDeliveries',
          { id: endpoint.id, ...request, ...(token !== undefined && { page_token: token }) },
          { door },
        );
        found.push(
          page.webhook_deliveries.map(({ event, status, attempts }: Record<string, unknown>) => {
            // Each delivery has its own attempts.
            expect(attempts).toMatchObject([{ status_code: status === 'delivered' ? 204 : 500 }]);
            return { event, status };
          }),
        );
        token = page.next_page_token;
      } while (token !== undefined);
      return found;
    };
    expect(await pages({})).toEqual([expected.slice(0, 20), expected.slice(20)]);
    expect(await pages({ page_size: 8 })).toEqual([0, 8, 16].map((from) => expected.slice(from, from + 8)));
    for (const status of ['pending', 'delivered', 'failed']) {
      expect(await pages({ status, page_size: 100 })).toEqual([
        expected.filter((delivery) => delivery.status === status),
      ]);
    }
    expect((await pages({ status: 'delivered', page_size: 3 })).flat()).toEqual(
      expected.filter(({ status }) => status === 'delivered'),
    );
    const { next_page_token } = await shop.call('listWebhookDeliveries', { id: endpoint.id, page_size: 5 });
    const other = await shop.endpoint();
    for (const [request, field] of [
      [{ id: endpoint.id, status: 'failed', page_token: next_page_token }, 'page_token'],
      [{ id: other.id, page_token: next_page_token }, 'page_token'],
      [{ id: endpoint.id, page_size: 101 }, 'page_size'],
      [{ id: endpoint.id, page_size: -1 }, 'page_size'],
    ] as const) {
      const { code, details } = await service.call('listWebhookDeliveries', request, {
        door,
        apiKey: shop.apiKey,
      });
      expect([code, details[0]?.field]).toEqual(['invalid_body', field]);
    }
  });
});
