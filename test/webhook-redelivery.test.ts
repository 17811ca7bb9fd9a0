// The cost of listing and redelivering, and the redelivery of all failed or pending deliveries.

import type { JsonObject } from '@bufbuild/protobuf';
import { afterAll, describe, expect, onTestFinished, test } from 'vitest';
import { formatIdentifier, newUuid } from '../src/database/identifiers.ts';
import { sessionsWaiting } from './support/blocker.ts';
import { doors } from './support/call.ts';
import { insertEventRows } from './support/event-rows.ts';
import { openClient } from './support/open-client.ts';
import { httpRequest, type TestMerchant } from './support/service.ts';
import { insertTransfers } from './support/transfer-rows.ts';
import { useService } from './support/use-service.ts';
import { createWebhookWorker } from './support/webhook-worker.ts';

const service = await useService({
  ROLES: 'api',
  RATE_LIMIT: '500',
  RATE_LIMIT_CHANGES: '20',
  DATABASE_POOL: '1',
});

/** Makes deliveries, and attempts them when told to. */
const worker = createWebhookWorker(service.database.orm.em, service.database.keyRing('WEBHOOK_SECRET_KEYS'));

afterAll(async () => {
  await worker.close();
});

/** A merchant with that many endpoints and events, all of them to be delivered. */
async function openShop({ endpoints = 1, events = 1 }) {
  const merchant = await service.newMerchant();
  const uuids = Array.from({ length: endpoints }, () => newUuid());
  await service.query(
    `insert into webhook_endpoints (id, merchant_id, mode, url, event_types, enabled, created_at)
     select id, $1, 'testnet', 'https://shop.example/', '{*}', true, now() from unnest($2::uuid[]) as w (id)`,
    [merchant.id, uuids],
  );
  const ids = await insertEventRows(service.query, Array(events).fill({ merchantId: merchant.id }));
  await worker.makeDeliveries();
  return { merchant, uuids, endpoints: uuids.map((id) => formatIdentifier('we', id)), events: ids };
}

test('a backlog of thousands of deliveries is failed in parts when its endpoint is disabled', async () => {
  const { merchant, endpoints } = await openShop({ endpoints: 1, events: 2_500 });
  const { apiKey } = merchant.keys.testnet;
  await service.call('updateWebhookEndpoint', { id: endpoints[0] as string, enabled: false }, { apiKey });
  const { giveUpDeliveries } = worker.health;
  const left = [await giveUpDeliveries(), await giveUpDeliveries(), await giveUpDeliveries()];
  expect(left).toEqual([1_000, 500, 0]);
});

test('an endpoint that is enabled again at once gets nothing of the backlog', async () => {
  const { merchant, endpoints } = await openShop({ endpoints: 1, events: 2_500 });
  const { apiKey } = merchant.keys.testnet;
  for (const enabled of [false, true]) {
    await service.call('updateWebhookEndpoint', { id: endpoints[0] as string, enabled }, { apiKey });
  }
  const states = `select status, count(*)::int from webhook_deliveries where merchant_id = $1 group by status`;
  expect(await service.query(states, [merchant.id])).toEqual([{ status: 'failed', count: 2_500 }]);
});

/** Records that many failed attempts of each of a merchant's deliveries. */
const addAttempts = ({ id }: TestMerchant, count: number) =>
  service.query(
    `insert into webhook_attempts (event_id, endpoint_id, number, at, duration_ms, status_code, error, response)
     select event_id, endpoint_id, n, now(), 5, 500, 'answered 500', convert_to(repeat('x', 1024), 'UTF8')
       from webhook_deliveries, generate_series(1, $2) as n where merchant_id = $1`,
    [id, count],
  );

/** Calls over HTTP. `left` is the remaining quota in the answer. */
async function call({ keys }: TestMerchant, method: 'GET' | 'POST', path: string, body: object = {}) {
  const headers = { authorization: `Bearer ${keys.testnet.apiKey}`, 'content-type': 'application/json' };
  const { publicUrl } = service;
  const answer = await httpRequest(
    `${publicUrl}/v1/${path}`,
    { method, headers },
    method === 'POST' ? JSON.stringify(body) : undefined,
  );
  const [, left] = /r=(\d+)/.exec(String(answer.headers.ratelimit)) ?? [];
  return {
    status: answer.status,
    headers: answer.headers,
    json: JSON.parse(answer.body),
    left: Number(left),
  };
}

/** The burst of a key that has sent nothing yet, for reading and for changing. */
const burst = 1_000;
const changesBurst = 40;

describe('the rate limit counts rows', () => {
  test('a page of 100 deliveries costs 5 requests, one of 7 costs 1, and more attempts cost more', async () => {
    const list = ({ merchant, endpoints }: Awaited<ReturnType<typeof openShop>>) =>
      call(merchant, 'GET', `webhook_endpoints/${endpoints[0]}/deliveries?page_size=100`);
    const full = await list(await openShop({ events: 100 }));
    expect([full.json.webhook_deliveries.length, full.left]).toEqual([100, burst - 5]);

    expect((await list(await openShop({ events: 7 }))).left).toBe(burst - 1);

    const failing = await openShop({ events: 40 });
    await addAttempts(failing.merchant, 20);
    const retried = await list(failing);
    expect([retried.json.webhook_deliveries.length, retried.left]).toEqual([40, burst - 40]);
  });

  test('an intent with 100 payments costs 5 requests', async () => {
    const merchant = await service.newMerchant();
    const { apiKey } = merchant.keys.testnet;
    const { json } = await service.call('createPaymentIntent', { amount_units: 1 }, { apiKey });
    await insertTransfers(service, merchant, Array(100).fill({ paymentIntent: json.id }));
    await service.query('update payment_intents set payments_count = 100 where merchant_id = $1', [
      merchant.id,
    ]);
    const answer = await call(merchant, 'GET', `payment_intents/${json.id}`);
    expect([answer.json.payments.length, answer.left]).toEqual([100, burst - 5]);
  });

  test('a page of 100 endpoints costs 5 requests, and so does a redelivery to them', async () => {
    const { merchant, events } = await openShop({ endpoints: 100 });
    const listed = await call(merchant, 'GET', 'webhook_endpoints?page_size=100');
    expect([listed.json.webhook_endpoints.length, listed.left]).toEqual([100, burst - 5]);
    const again = await call(merchant, 'POST', `events/${events[0]}/redeliver`);
    expect([again.json.webhook_deliveries.length, again.left]).toEqual([100, changesBurst - 5]);
  });

  test('a redelivery to an endpoint that does not exist costs 1 request', async () => {
    const merchant = await service.newMerchant();
    const path = `webhook_endpoints/${formatIdentifier('we', newUuid())}/redeliver`;
    const { status, left } = await call(merchant, 'POST', path);
    expect([status, left]).toEqual([404, changesBurst - 1]);
  });

  test('concurrent requests count as their maximum until their rows are known', async () => {
    const { merchant, endpoints } = await openShop({ events: 1 });
    const path = `webhook_endpoints/${endpoints[0]}/deliveries?page_size=100`;
    const blocker = await openClient(service.location);
    onTestFinished(() => blocker.end());
    await blocker.query('begin; lock table webhook_deliveries in access exclusive mode');
    const answers = Array.from({ length: 400 }, () => call(merchant, 'GET', path));
    // A burst has room for 200 pages of 100 rows if they arrive at the same moment.
    const refused = answers.map(async (answer) => {
      if ((await answer).status !== 429) throw new Error('not refused');
    });
    await Promise.any(refused);
    await blocker.query('commit');
    const statuses = (await Promise.all(answers)).map(({ status }) => status);
    expect(statuses.filter((status) => status === 200).length).toBeGreaterThanOrEqual(200);
    expect(new Set(statuses)).toEqual(new Set([200, 429]));
    // In the end, each page cost one request.
    expect((await call(merchant, 'GET', path)).left).toBeGreaterThan(burst / 2);
  });
});

test('lists of endpoints and redeliveries run prepared statements', async () => {
  const { merchant, endpoints, events } = await openShop({ endpoints: 3, events: 3 });
  await call(merchant, 'GET', 'webhook_endpoints');
  await call(merchant, 'GET', `webhook_endpoints/${endpoints[0]}/deliveries`);
  await call(merchant, 'POST', `events/${events[0]}/redeliver`);
  const prepared = await service.served.em.execute<{ name: string }[]>(
    `select regexp_replace(name, '_[0-9a-f]{12}$', '') as name from pg_prepared_statements`,
  );
  expect(prepared.map(({ name }) => name)).toEqual(
    expect.arrayContaining([
      'list_webhook_endpoints',
      'find_webhook_endpoint',
      'find_webhook_attempts',
      'redeliver_event',
    ]),
  );
});

/** Sets the status and the time of a merchant's deliveries, a second apart, in the order of their events. */
async function setDeliveries({ id }: TestMerchant, status: 'failed' | 'pending' | 'delivered') {
  // With the statistics of an almost empty table, the join would number all rows again for each row.
  await service.query('analyze webhook_deliveries');
  await service.query(
    `update webhook_deliveries d
        set status = $2::webhook_delivery_status, scheduled = 3,
            next_attempt_at = case when $2 = 'pending' then now() + interval '1 hour' end,
            created_at = timestamptz '2026-11-01T00:00:00Z' + n * interval '1 second'
       from (select event_id, endpoint_id, row_number() over (order by event_id) - 1 as n
               from webhook_deliveries where merchant_id = $1) as numbered
      where d.merchant_id = $1 and (d.event_id, d.endpoint_id) = (numbered.event_id, numbered.endpoint_id)`,
    [id, status],
  );
}

/** Returns the numbers of the events that are due, oldest first. */
const dueOf = async ({ id }: TestMerchant) => {
  const rows = await service.query<{ n: number }>(
    `select extract(epoch from created_at - timestamptz '2026-11-01T00:00:00Z')::int as n from webhook_deliveries
      where merchant_id = $1 and status = 'pending' and scheduled = 0 and next_attempt_at <= now() order by n`,
    [id],
  );
  return rows.map(({ n }) => n);
};

describe.each(doors)('all of an endpoint, over %s', (door) => {
  const redeliver = async ({ keys }: TestMerchant, request: JsonObject) => {
    return service.call('redeliverWebhookEndpoint', request, { door, apiKey: keys.testnet.apiKey });
  };

  test.each(['failed', 'pending'] as const)('%s deliveries in a time range become due', async (status) => {
    const { merchant, endpoints } = await openShop({ endpoints: 1, events: 6 });
    await setDeliveries(merchant, status);
    const [id = ''] = endpoints;
    const other = status === 'failed' ? 'pending' : 'failed';
    const counted = async (request: JsonObject) => {
      const { code, json } = await redeliver(merchant, { id, ...request });
      return [code, json.deliveries_count];
    };
    expect(await counted({ status: other })).toEqual(['ok', 0]);
    const range = { created_from: '2026-11-01T00:00:01Z', created_before: '2026-11-01T00:00:03.000Z' };
    expect(await counted({ status, ...range })).toEqual(['ok', 2]);
    expect(await dueOf(merchant)).toEqual([1, 2]);
    expect(await counted({ status, created_from: '2026-11-01T00:00:05Z' })).toEqual(['ok', 1]);
    // Deliveries that are already due are not counted again. The default status is failed.
    expect(await counted(status === 'failed' ? {} : { status })).toEqual(['ok', 3]);
    expect(await counted({ status })).toEqual(['ok', 0]);
    expect(await dueOf(merchant)).toEqual([0, 1, 2, 3, 4, 5]);
  });

  test('other endpoints, delivered deliveries and other merchants are not changed', async () => {
    const { merchant, endpoints, uuids } = await openShop({ endpoints: 2, events: 1 });
    await setDeliveries(merchant, 'failed');
    const [id = ''] = endpoints;
    expect(await redeliver(merchant, { id })).toMatchObject({ code: 'ok', json: { deliveries_count: 1 } });
    const due = await service.query(
      `select endpoint_id from webhook_deliveries where merchant_id = $1 and status = 'pending'`,
      [merchant.id],
    );
    expect(due).toEqual([{ endpoint_id: uuids[0] }]);
    await setDeliveries(merchant, 'delivered');
    expect(await redeliver(merchant, { id })).toMatchObject({ code: 'ok', json: { deliveries_count: 0 } });
    const stranger = await service.newMerchant();
    expect((await redeliver(stranger, { id })).code).toBe('resource_missing');
    const unknown = await redeliver(merchant, { id, no_field: 1 });
    expect(unknown).toMatchObject({ code: 'invalid_body', details: [{ field: expect.any(String) }] });
    const message = 'must be "pending" or "failed"';
    const wrong = await redeliver(merchant, { id, status: 'delivered' });
    expect(wrong).toMatchObject({ code: 'invalid_body', details: [{ field: 'status', message }] });
  });
});

test('a delivery that succeeds between the count and the change is not due again', async () => {
  const { merchant, endpoints } = await openShop({});
  await setDeliveries(merchant, 'failed');
  const blocker = await openClient(service.location);
  await blocker.query('begin; lock table events in access exclusive mode');
  const redelivered = call(merchant, 'POST', `webhook_endpoints/${endpoints[0]}/redeliver`);
  await sessionsWaiting(service, 1);
  await setDeliveries(merchant, 'delivered');
  await blocker.query('commit');
  await blocker.end();
  expect((await redelivered).json).toEqual({ deliveries_count: 0 });
});

test('a redelivery makes at most the 10,000 oldest due, and costs 500 requests, which are paid back over time', async () => {
  const { merchant, endpoints } = await openShop({ events: 10_003 });
  await setDeliveries(merchant, 'failed');
  const path = `webhook_endpoints/${endpoints[0]}/redeliver`;
  const first = await call(merchant, 'POST', path);
  expect([first.status, first.json, first.left]).toEqual([200, { deliveries_count: 10_000 }, 0]);
  const rest = await service.query(
    `select extract(epoch from min(created_at) - timestamptz '2026-11-01T00:00:00Z')::int as n, count(*)::int
       from webhook_deliveries where merchant_id = $1 and status = 'failed'`,
    [merchant.id],
  );
  expect(rest).toEqual([{ n: 10_000, count: 3 }]);
  // In parts, so that others do not wait for it.
  const parts = await service.query(
    `select count(*)::int as n from webhook_deliveries
      where merchant_id = $1 and status = 'pending' group by xmin::text`,
    [merchant.id],
  );
  expect(parts).toEqual(Array(10).fill({ n: 1_000 }));
  const refused = await call(merchant, 'POST', path);
  expect(refused.status).toBe(429);
  // 500 requests less the burst of 40, at 20 a second.
  expect(Number(refused.headers['retry-after'])).toBeGreaterThan(10);
  expect(Number(refused.headers['retry-after'])).toBeLessThanOrEqual(24);
  // Reads are not limited by this.
  expect((await call(merchant, 'GET', 'webhook_endpoints')).status).toBe(200);
});
