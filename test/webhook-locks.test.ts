// Attempts are recorded while the same deliveries are redelivered or failed, without deadlocks: all statements lock
// rows in the same order. An attempt that is not recorded is repeated.

import { afterAll, expect, onTestFinished, test } from 'vitest';
import { formatIdentifier, newUuid } from '../src/database/identifiers.ts';
import { createEndpointHealth } from '../src/webhooks/endpoint-health.ts';
import { sessionsWaiting } from './support/blocker.ts';
import { insertEventRows } from './support/event-rows.ts';
import { openClient } from './support/open-client.ts';
import { useService } from './support/use-service.ts';
import { createWebhookWorker, nothingInFlight } from './support/webhook-worker.ts';

const service = await useService({ ROLES: 'api' });

const em = service.database.orm.em;
const worker = createWebhookWorker(em, service.database.keyRing('WEBHOOK_SECRET_KEYS'));
// Enough other rows that every statement finds its own by an index.
await service.query(
  `insert into webhook_deliveries (merchant_id, event_id, endpoint_id, id, status, created_at, next_attempt_at)
   select $1, gen_random_uuid(), $1, gen_random_uuid(), 'pending', now(), now() + interval '1 hour'
     from generate_series(1, 5000)`,
  [newUuid()],
);
await service.query('analyze webhook_deliveries');

afterAll(async () => {
  await worker.close();
});

/** Claims deliveries of some events to some endpoints of a new merchant, oldest event and endpoint first. */
async function claimOfShop({ endpoints, events }: { endpoints: number; events: number }) {
  const merchant = await service.newMerchant();
  const merchantId = merchant.id;
  await service.query(
    `insert into webhook_endpoints (id, merchant_id, mode, url, event_types, enabled, created_at)
     select id, $1, 'testnet', 'https://shop.example/', '{*}', true, now() from unnest($2::uuid[]) as w (id)`,
    [merchantId, Array.from({ length: endpoints }, () => newUuid())],
  );
  await insertEventRows(service.query, Array(events).fill({ merchantId }));
  await worker.makeDeliveries();
  const claimed = await worker.queue.claim({
    ...nothingInFlight,
    ...{ maxOfMerchant: 8, merchantReserve: 0, room: 8, roomForFailing: 8 },
  });
  const place = ({ event, endpointId }: (typeof claimed)[number]) => `${event.id} ${endpointId}`;
  // Those of earlier tests may be due again.
  const own = claimed.filter(({ event }) => event.merchantId === merchantId);
  return { merchant, claimed: own.toSorted((a, b) => (place(a) < place(b) ? -1 : 1)) };
}

const answer = { at: new Date(), durationMs: 5, response: undefined };
const answered410 = { ...answer, statusCode: 410, error: 'answered 410' };

test('the late result of an expired claim is not recorded, and those recorded with it are', async () => {
  const { merchant, claimed } = await claimOfShop({ endpoints: 1, events: 2 });
  const [late = expect.fail(), other = expect.fail()] = claimed;
  await service.query('update webhook_deliveries set next_attempt_at = now() where event_id = $1', [
    late.event.id,
  ]);
  const [again = expect.fail()] = (await worker.queue.claim(nothingInFlight)).filter(
    ({ event }) => event.merchantId === merchant.id,
  );
  const results = [late, again, other].map((one) => worker.queue.record(one, answered410));
  expect(await Promise.all(results)).toEqual([
    undefined,
    expect.objectContaining({ attempts: 1, status: 'pending' }),
    expect.objectContaining({ attempts: 1, status: 'pending' }),
  ]);
});

test.each<
  [
    string,
    { endpoints: number; events: number },
    (endpointId: string, apiKey: string, eventId: string) => Promise<unknown>,
  ]
>([
  [
    'a redelivery to all endpoints',
    { endpoints: 4, events: 1 },
    (_endpoint, apiKey, eventId) =>
      service.call('redeliverEvent', { id: formatIdentifier('evt', eventId) }, { apiKey }),
  ],
  [
    'a deleted endpoint',
    { endpoints: 1, events: 4 },
    (id, apiKey) => service.call('deleteWebhookEndpoint', { id: formatIdentifier('we', id) }, { apiKey }),
  ],
  [
    'an endpoint that its merchant disables',
    { endpoints: 1, events: 4 },
    (id, apiKey) =>
      service.call('updateWebhookEndpoint', { id: formatIdentifier('we', id), enabled: false }, { apiKey }),
  ],
  [
    'an endpoint that is disabled by its answer',
    { endpoints: 1, events: 4 },
    (id) => createEndpointHealth(em).failed(id, 'https://shop.example/', 410),
  ],
  [
    'deliveries that were made while their endpoint was being disabled',
    { endpoints: 1, events: 4 },
    async (id) => {
      await service.query('update webhook_endpoints set enabled = false where id = $1', [id]);
      await createEndpointHealth(em).giveUpDeliveries();
    },
  ],
])('attempts are recorded concurrently with %s', async (_, shop, act) => {
  for (const isReversed of [false, true]) {
    const { merchant, claimed } = await claimOfShop(shop);
    expect(claimed).toHaveLength(4);
    const { event, endpointId } = claimed[0] as (typeof claimed)[number];
    // Both statements wait for the rows, and get them at the same time.
    const blocker = await openClient(service.location);
    await blocker.query('begin');
    await blocker.query('select from webhook_deliveries where merchant_id = $1 for update', [
      event.merchantId,
    ]);
    const acted = act(endpointId, merchant.keys.testnet.apiKey, event.id);
    await sessionsWaiting(service, 1);
    const order = isReversed ? claimed.toReversed() : claimed;
    const recorded = Promise.all(order.map((one) => worker.queue.record(one, answered410)));
    await sessionsWaiting(service, 2);
    await blocker.query('commit');
    await blocker.end();
    await Promise.all([acted, recorded]);
  }
});

test('a claim does not wait for locks: locked deliveries are left to later claims', async () => {
  const { merchant, claimed } = await claimOfShop({ endpoints: 1, events: 2 });
  await service.query('update webhook_deliveries set next_attempt_at = now() where merchant_id = $1', [
    merchant.id,
  ]);
  const [locked, free] = claimed.map(({ event }) => event.id);
  const blocker = await openClient(service.location);
  onTestFinished(() => blocker.end());
  await blocker.query('begin');
  await blocker.query('select from webhook_deliveries where event_id = $1 for update', [locked]);
  const others = await worker.queue.claim(nothingInFlight);
  expect(others.map(({ event }) => event.id)).toContain(free);
});
