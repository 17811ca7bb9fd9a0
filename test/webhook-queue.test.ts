// Several processes deliver concurrently: each delivery has one attempt at a time, none is lost, and no endpoint
// delays another.

import { setImmediate as nextTurn } from 'node:timers/promises';
import type { MikroORM } from '@mikro-orm/postgresql';
import { afterAll, afterEach, expect, onTestFinished, test, vi } from 'vitest';
import { newUuid, parseIdentifier } from '../src/database/identifiers.ts';
import { createOrm } from '../src/database/orm.ts';
import type { ClaimedDelivery } from '../src/webhooks/delivery-queue.ts';
import type { AttemptResult } from '../src/webhooks/sender.ts';
import { insertEventRows } from './support/event-rows.ts';
import { type Answer, startReceiver } from './support/receiver.ts';
import type { TestMerchant } from './support/service.ts';
import { useService } from './support/use-service.ts';
import {
  createWebhookWorker,
  nothingInFlight,
  type WebhookWorker,
  type WebhookWorkerOptions,
} from './support/webhook-worker.ts';

const service = await useService({ ROLES: 'api' });
/** How the receiver answers a path. All others are answered with 204. */
const answers = new Map<string, Answer>();
let opened: { orm: MikroORM; worker: WebhookWorker }[] = [];

const receiver = await startReceiver((request, response) => {
  const answer = answers.get(request.path);
  if (answer === undefined) response.writeHead(204).end();
  else answer(request, response);
});

afterEach(async () => {
  for (const { orm, worker } of opened) {
    await worker.close();
    await orm.close();
  }
  opened = [];
  // The next test begins with an empty queue.
  await service.query('update webhook_endpoints set enabled = false, deleted_at = now()');
  await service.query(
    `update webhook_deliveries set status = 'failed', next_attempt_at = null where status = 'pending'`,
  );
  answers.clear();
});

afterAll(async () => {
  await receiver.close();
});

/** Opens a worker with its own connections, like another process. */
function openWorker(options: WebhookWorkerOptions = {}): WebhookWorker {
  const orm = createOrm(service.location, 4);
  const worker = createWebhookWorker(orm.em, service.database.keyRing('WEBHOOK_SECRET_KEYS'), options);
  opened.push({ orm, worker });
  return worker;
}

interface TestEndpoint {
  uuid: string;
  path: string;
  merchant: TestMerchant;
}

/** Creates an endpoint with its own path. Later endpoints have higher ids. */
async function newEndpoint(answer?: Answer, merchant = service.merchant): Promise<TestEndpoint> {
  const path = `/${newUuid()}`;
  if (answer !== undefined) answers.set(path, answer);
  const { code, json } = await service.call(
    'createWebhookEndpoint',
    { url: receiver.url + path },
    { apiKey: merchant.keys.testnet.apiKey },
  );
  expect(code).toBe('ok');
  return { uuid: parseIdentifier('we', json.id) as string, path, merchant };
}

async function newEndpoints(
  count: number,
  answer?: Answer,
  merchant?: TestMerchant,
): Promise<TestEndpoint[]> {
  const endpoints: TestEndpoint[] = [];
  for (let i = 0; i < count; i++) endpoints.push(await newEndpoint(answer, merchant));
  return endpoints;
}

/** Makes deliveries of that many new events of each merchant, to these endpoints only. */
async function newDeliveries(endpoints: readonly TestEndpoint[], count: number): Promise<string[]> {
  const before = await service.query('select id from webhook_endpoints where enabled');
  const ids = endpoints.map(({ uuid }) => uuid);
  await service.query('update webhook_endpoints set enabled = false where not id = any ($1)', [ids]);
  const events = await insertEventRows(
    service.query,
    [...new Set(endpoints.map(({ merchant }) => merchant.id))].flatMap((merchantId) =>
      Array.from({ length: count }, () => ({ merchantId })),
    ),
  );
  await openWorker().makeDeliveries();
  await service.query('update webhook_endpoints set enabled = true where id = any ($1)', [
    before.map(({ id }) => id),
  ]);
  return events;
}

const arrivedAt = ({ path }: TestEndpoint) => receiver.requests.filter((request) => request.path === path);

/** Delivers, as soon as there is room, until so many requests have arrived at the endpoint. */
async function deliverUntil(worker: WebhookWorker, endpoint: TestEndpoint, arrived: number): Promise<void> {
  while (arrivedAt(endpoint).length < arrived) {
    const room = worker.room();
    if (!(await worker.deliverer.deliverSome())) await room;
  }
}

const rowsOf = ({ uuid }: TestEndpoint) =>
  service.query<{ status: string; attempts: number; status_code: number | null }>(
    `select d.status, d.attempts, a.status_code from webhook_deliveries d
       left join webhook_attempts a using (event_id, endpoint_id)
      where endpoint_id = $1 order by event_id, a.number`,
    [uuid],
  );

test('two workers deliver everything, and never attempt one delivery at the same time', async () => {
  const inFlight = new Set<string>();
  const attempted: string[] = [];
  const twice: string[] = [];
  const countedBy = (counts: string[]): WebhookWorkerOptions => ({
    async onSend({ eventId, url }, run) {
      const delivery = `${eventId} ${url}`;
      if (inFlight.has(delivery)) twice.push(delivery);
      inFlight.add(delivery);
      counts.push(delivery);
      attempted.push(delivery);
      return run().finally(() => inFlight.delete(delivery));
    },
  });
  // Long enough for the other worker to look for deliveries meanwhile.
  const endpoints = await newEndpoints(6, (_, response) => {
    setTimeout(() => response.writeHead(204).end(), 20);
  });
  const counts: [string[], string[]] = [[], []];
  const workers = counts.map((own) => openWorker(countedBy(own)));
  // Lets both workers connect.
  await Promise.all(workers.map((worker) => worker.attemptAll()));
  const events = await newDeliveries(endpoints, 40);
  await Promise.all(workers.map((worker) => worker.attemptAll()));
  expect(twice).toEqual([]);
  const expected = events.flatMap((event) => endpoints.map(({ path }) => `${event} ${receiver.url}${path}`));
  expect(attempted.toSorted()).toEqual(expected.sort());
  // Both workers delivered some.
  for (const own of counts) expect(own.length).toBeGreaterThan(20);
  for (const endpoint of endpoints) {
    expect(await rowsOf(endpoint)).toEqual(
      Array(40).fill({ status: 'delivered', attempts: 1, status_code: 204 }),
    );
  }
});

test('a claimed delivery cannot be claimed by another worker until its lease expires', async () => {
  const first = Promise.withResolvers<() => void>();
  let requests = 0;
  const endpoint = await newEndpoint((_, response) => {
    if (requests++ === 0) first.resolve(() => response.writeHead(500).end());
    else response.writeHead(204).end();
  });
  await newDeliveries([endpoint], 1);
  const [a, b] = [openWorker(), openWorker()];
  await a.deliverer.deliverSome();
  const letGo = await first.promise;
  const [lease] = await service.query<{ seconds: number }>(
    `select extract(epoch from next_attempt_at - now())::float as seconds from webhook_deliveries where endpoint_id = $1`,
    [endpoint.uuid],
  );
  // The lease is longer than an attempt can take.
  expect(lease?.seconds).toBeGreaterThan(20);
  expect(lease?.seconds).toBeLessThanOrEqual(30);
  await b.attemptAll();
  expect(arrivedAt(endpoint)).toHaveLength(1);

  await service.query('update webhook_deliveries set next_attempt_at = now() where endpoint_id = $1', [
    endpoint.uuid,
  ]);
  await b.attemptAll();
  expect(arrivedAt(endpoint)).toHaveLength(2);
  expect(await rowsOf(endpoint)).toEqual([{ status: 'delivered', attempts: 1, status_code: 204 }]);
  // The later outcome of the first attempt changes nothing.
  letGo();
  await a.deliverer.idle();
  expect(await rowsOf(endpoint)).toEqual([{ status: 'delivered', attempts: 1, status_code: 204 }]);
});

test('an attempt whose lease another worker holds is not recorded', async () => {
  const held: (() => void)[] = [];
  const endpoint = await newEndpoint((_, response) => {
    held.push(() => response.writeHead(held.length === 2 ? 500 : 204).end());
  });
  await newDeliveries([endpoint], 1);
  const [a, b] = [openWorker(), openWorker()];
  const before = receiver.requests.length;
  await a.deliverer.deliverSome();
  await receiver.arrived(before + 1);
  await service.query('update webhook_deliveries set next_attempt_at = now() where endpoint_id = $1', [
    endpoint.uuid,
  ]);
  await b.deliverer.deliverSome();
  await receiver.arrived(before + 2);
  held[0]?.();
  await a.deliverer.idle();
  expect(await rowsOf(endpoint)).toEqual([{ status: 'pending', attempts: 0, status_code: null }]);
  held[1]?.();
  await b.deliverer.idle();
  expect(await rowsOf(endpoint)).toEqual([{ status: 'pending', attempts: 1, status_code: 500 }]);
});

test('a request without an answer when its process ends is not recorded as an attempt', async () => {
  const endpoint = await newEndpoint(() => {});
  await newDeliveries([endpoint], 1);
  const { deliverer, sender } = openWorker();
  const before = receiver.requests.length;
  await deliverer.deliverSome();
  await receiver.arrived(before + 1);
  deliverer.forgetUnanswered();
  await sender.close();
  await deliverer.idle();
  expect(await rowsOf(endpoint)).toEqual([{ status: 'pending', attempts: 0, status_code: null }]);
});

const inFlight = (settings: Partial<typeof nothingInFlight>) => ({ ...nothingInFlight, ...settings });

test('endpoints take turns across claims', async () => {
  const endpoints = await newEndpoints(5);
  await newDeliveries(endpoints, 6);
  const { queue } = openWorker();
  const claimed: string[] = [];
  for (let i = 0; i < 12; i++) {
    const some = await queue.claim(inFlight({ room: 3, maxHealthy: 1 }));
    expect(some.length).toBeLessThanOrEqual(3);
    claimed.push(...some.map(({ endpointId }) => endpointId));
  }
  const inTurn = endpoints.map(({ uuid }) => uuid).sort();
  expect(claimed).toHaveLength(30);
  expect(claimed).toEqual(Array(6).fill(inTurn).flat());
});

test('merchants take turns, however many endpoints and deliveries each has', async () => {
  const others = [await service.newMerchant(), await service.newMerchant()];
  const large = await newEndpoints(10);
  const small = [await newEndpoint(undefined, others[0]), await newEndpoint(undefined, others[1])];
  await newDeliveries([...large, ...small], 10);
  const { queue } = openWorker();
  const counts = new Map<string, number>();
  // No attempt ends meanwhile.
  for (let i = 0; i < 6; i++) {
    for (const { event } of await queue.claim(inFlight({ room: 2 }))) {
      counts.set(event.merchantId, (counts.get(event.merchantId) ?? 0) + 1);
    }
  }
  const merchants = [service.merchant, ...others];
  expect(merchants.map(({ id }) => counts.get(id))).toEqual([4, 4, 4]);
  // Also within one claim.
  const shared = await queue.claim(inFlight({ room: 3, byMerchant: counts }));
  expect(new Set(shared.map(({ event }) => event.merchantId)).size).toBe(3);
});

test('a merchant has at most 64 attempts in flight, and another merchant is served at once', async () => {
  const held: (() => void)[] = [];
  const endpoints = await newEndpoints(20, (_, response) => {
    held.push(() => response.writeHead(204).end());
  });
  const other = await newEndpoint(undefined, await service.newMerchant());
  await newDeliveries(endpoints, 20);
  const worker = openWorker();
  const before = receiver.requests.length;
  while (await worker.deliverer.deliverSome());
  // The rest of the room is kept for endpoints with nothing in flight.
  await receiver.arrived(before + 48);
  await newDeliveries([...(await newEndpoints(30, () => {})), other], 1);
  while (await worker.deliverer.deliverSome());
  await receiver.arrived(before + 65);
  expect(held).toHaveLength(48);
  expect(await worker.deliverer.deliverSome()).toBe(false);
  expect(receiver.requests.length).toBe(before + 65);
  expect(arrivedAt(other)).toHaveLength(1);
  for (const answer of held) answer();
});

test('a claim has the oldest due deliveries of each endpoint, within the limits', async () => {
  const [busy, failing, idle] = (await newEndpoints(3)) as [TestEndpoint, TestEndpoint, TestEndpoint];
  await newDeliveries([busy, failing, idle], 12);
  await service.query('update webhook_endpoints set failures = 1, failing_since = now() where id = $1', [
    failing.uuid,
  ]);
  const { queue } = openWorker();
  const countOf = (claimed: { endpointId: string }[], { uuid }: TestEndpoint) =>
    claimed.filter(({ endpointId }) => endpointId === uuid).length;
  const first = await queue.claim(inFlight({ byEndpoint: new Map([[busy.uuid, 6]]) }));
  expect([busy, failing, idle].map((endpoint) => countOf(first, endpoint))).toEqual([2, 1, 8]);
  const byEndpoint = new Map([busy, failing, idle].map(({ uuid }, i) => [uuid, [8, 1, 8][i] ?? 0]));
  expect(await queue.claim(inFlight({ byEndpoint }))).toEqual([]);
  // Without room for failing endpoints, the others go on.
  const third = await queue.claim(inFlight({ roomForFailing: 0 }));
  expect([busy, failing, idle].map((endpoint) => countOf(third, endpoint))).toEqual([8, 0, 4]);
  // No delivery is claimed twice, and none before it is due.
  const fourth = await queue.claim(inFlight({}));
  expect([busy, failing, idle].map((endpoint) => countOf(fourth, endpoint))).toEqual([2, 1, 0]);
  const all = [...first, ...third, ...fourth].map(({ event, endpointId }) => `${event.id} ${endpointId}`);
  expect(new Set(all).size).toBe(all.length);
  await service.query(
    `update webhook_deliveries set next_attempt_at = now() + interval '1 minute' where status = 'pending'`,
  );
  expect(await queue.claim(inFlight({}))).toEqual([]);
});

test('claims for failing endpoints stay within their limit', async () => {
  const endpoints = await newEndpoints(12);
  await newDeliveries(endpoints, 1);
  const [healthy, ...failing] = endpoints as [TestEndpoint, ...TestEndpoint[]];
  await service.query(
    'update webhook_endpoints set failures = 1, failing_since = now() where id = any ($1)',
    [failing.map(({ uuid }) => uuid)],
  );
  const { queue } = openWorker();
  const first = await queue.claim(inFlight({ room: 10, roomForFailing: 5 }));
  const idsOf = (claimed: { endpointId: string }[]) => claimed.map(({ endpointId }) => endpointId);
  expect(idsOf(first)).toContain(healthy.uuid);
  expect(first.length - 1).toBeLessThanOrEqual(5);
  // Failing endpoints get their turn once there is room for a whole claim of them.
  const rest: string[] = [];
  for (let i = 0; i < 4; i++)
    rest.push(...idsOf(await queue.claim(inFlight({ room: 10, roomForFailing: 10 }))));
  expect([...idsOf(first), ...rest].sort()).toEqual(endpoints.map(({ uuid }) => uuid).sort());
});

test.each(['first', 'last'])(
  'an endpoint with 5,000 waiting deliveries that comes %s does not delay others',
  async (place) => {
    let endpoints = await newEndpoints(21);
    if (place === 'last') endpoints = endpoints.reverse();
    const [large, ...others] = endpoints as [TestEndpoint, ...TestEndpoint[]];
    await newDeliveries([large], 5_000);
    await newDeliveries(others, 1);
    const worker = openWorker();
    const begin = receiver.requests.length;
    const isServed = () => others.every((endpoint) => arrivedAt(endpoint).length === 1);
    for (let claims = 0; !isServed(); claims++) {
      expect(claims).toBeLessThan(10);
      await worker.deliverer.deliverSome();
      await worker.deliverer.idle();
    }
    const paths = receiver.requests.slice(begin).map(({ path }) => path);
    // One or two turns of the large endpoint.
    expect(paths.filter((path) => path === large.path).length).toBeLessThanOrEqual(16);
  },
);

test('at most 8 attempts are in flight to an endpoint, and 1 if its last attempt failed', async () => {
  const held: (() => void)[] = [];
  const endpoint = await newEndpoint((_, response) => held.push(() => response.writeHead(204).end()));
  await newDeliveries([endpoint], 30);
  const worker = openWorker();
  const before = receiver.requests.length;
  await worker.deliverer.deliverSome();
  await receiver.arrived(before + 8);
  expect(await worker.deliverer.deliverSome()).toBe(false);
  expect(held).toHaveLength(8);
  // One ends, one begins.
  held.shift()?.();
  while (!(await worker.deliverer.deliverSome()));
  await receiver.arrived(before + 9);
  expect(held).toHaveLength(8);
  expect(await worker.deliverer.deliverSome()).toBe(false);
  for (const answer of held.splice(0)) answer();
  await worker.deliverer.idle();

  await service.query('update webhook_endpoints set failures = 1, failing_since = now() where id = $1', [
    endpoint.uuid,
  ]);
  expect(await worker.deliverer.deliverSome()).toBe(true);
  await receiver.arrived(before + 10);
  expect(await worker.deliverer.deliverSome()).toBe(false);
  expect(held).toHaveLength(1);
  // After a success, eight again.
  held.shift()?.();
  await worker.deliverer.idle();
  await worker.deliverer.deliverSome();
  await receiver.arrived(before + 18);
  expect(held).toHaveLength(8);
  for (const answer of held.splice(0)) answer();
  await worker.deliverer.idle();
});

test('50 hanging endpoints do not delay a healthy one', async () => {
  let hanging = 0;
  let mostHanging = 0;
  let given = 0;
  const ended: string[] = [];
  const worker = openWorker({
    async onSend({ url }, run) {
      const result = await run();
      ended.push(url);
      if (result.error !== undefined) given++;
      return result;
    },
  });
  const hang: Answer = (_, response) => {
    mostHanging = Math.max(mostHanging, ++hanging);
    response.on('close', () => hanging--);
  };
  const hung = await newEndpoints(50, hang);
  const healthy = await newEndpoint();
  await newDeliveries(hung, 10);
  await newDeliveries([healthy], 50);
  // Everything that may be is claimed. Attempts that hang stay in flight.
  await deliverUntil(worker, healthy, 50);
  expect(given).toBe(0);
  expect(mostHanging).toBeLessThanOrEqual(64);
  expect(mostHanging).toBeGreaterThanOrEqual(50);

  // Once they have failed, each endpoint has one attempt at a time.
  await worker.sender.close();
  await worker.deliverer.idle();
  expect(given).toBeGreaterThanOrEqual(50);
  await service.query(`update webhook_deliveries set next_attempt_at = now() where status = 'pending'`);
  mostHanging = 0;
  await newDeliveries([healthy], 20);
  const next = openWorker();
  await deliverUntil(next, healthy, 70);
  expect(mostHanging).toBeGreaterThan(0);
  expect(mostHanging).toBeLessThanOrEqual(50);
});

test('prompt endpoints that begin to hang delay the others by a second, not by the timeout', async () => {
  // Attempts take no time, and the second ends only when the test says so.
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  onTestFinished(() => void vi.useRealTimers());
  const hung: TestEndpoint[] = [];
  const worker = openWorker();
  for (let i = 0; i < 11; i++) {
    const merchant = await service.newMerchant();
    const prompt = await newEndpoints(8, (_, response) => response.writeHead(204).end(), merchant);
    await newDeliveries(prompt, 1);
    await worker.attemptAll();
    hung.push(...prompt);
  }
  // An attempt that was answered does not become slow.
  vi.advanceTimersByTime(1_000);
  const healthy = await newEndpoint();
  // More than may be in flight to prompt endpoints.
  for (const { path } of hung) answers.set(path, () => {});
  await newDeliveries(hung, 8);
  const begin = receiver.requests.length;
  await worker.deliverer.deliverSome();
  while (await worker.deliverer.deliverSome());
  await receiver.arrived(begin + 512);
  await newDeliveries([healthy], 20);
  expect(await worker.deliverer.deliverSome()).toBe(false);
  const room = worker.room().then(() => 'room');
  vi.advanceTimersByTime(1_000);
  expect(await Promise.race([room, nextTurn('none')])).toBe('room');
  await deliverUntil(worker, healthy, 20);
  // The other deliveries to hung endpoints wait: from now on each endpoint has one attempt at most.
  expect(receiver.requests.length - begin).toBeLessThanOrEqual(512 + 20 + hung.length);
});

test("while the merchant's other endpoints hang, a prompt endpoint gets several attempts", async () => {
  const [prompt, other] = (await newEndpoints(2)) as [TestEndpoint, TestEndpoint];
  await newDeliveries([prompt, other], 10);
  const { queue } = openWorker();
  const claimed = await queue.claim(
    inFlight({
      byEndpoint: new Map([prompt, other].map(({ uuid }) => [uuid, 1])),
      byMerchant: new Map([[service.merchant.id, 50]]),
      prompt: new Set([prompt.uuid]),
    }),
  );
  expect(claimed.map(({ endpointId }) => endpointId)).toEqual(Array(3).fill(prompt.uuid));
});

test('a failed endpoint is paused and then tried again', async () => {
  const [failing, healthy] = (await newEndpoints(2)) as [TestEndpoint, TestEndpoint];
  answers.set(failing.path, (_, response) => response.writeHead(500).end());
  await newDeliveries([failing, healthy], 20);
  const worker = openWorker({ observer: { failurePauseMs: 5_000 } });
  await worker.attemptAll();
  // Only attempts that were in flight together, and none after the first had failed.
  const attempted = arrivedAt(failing).length;
  expect(attempted).toBeLessThanOrEqual(8);
  expect(arrivedAt(healthy)).toHaveLength(20);
  expect(await worker.deliverer.deliverSome()).toBe(false);
  answers.delete(failing.path);
  for (const beganAtMs = performance.now(); arrivedAt(failing).length === attempted; ) {
    await worker.attemptAll();
    expect(performance.now() - beganAtMs).toBeLessThan(20_000);
    await nextTurn();
  }
});

test('a merchant may have at most a quarter of the free attempts, and a quarter of these is reserved', async () => {
  await newDeliveries([await newEndpoint()], 1);
  const [delivery] = await openWorker().queue.claim(nothingInFlight);
  const { promise: hangs, resolve: end } = Promise.withResolvers<AttemptResult>();
  const { queue, deliverer } = openWorker({ onSend: () => hangs });
  const claim = vi.spyOn(queue, 'claim').mockImplementation(async ({ room }) => {
    // Attempts to failing endpoints may use all of the room.
    return Array.from({ length: room }, () => ({ ...(delivery as ClaimedDelivery), failures: 1 }));
  });
  while (await deliverer.deliverSome());
  deliverer.forgetUnanswered();
  end({ at: new Date(), durationMs: 0, statusCode: undefined, error: 'ended', response: undefined });
  const limits = claim.mock.calls.map(([{ maxOfMerchant, merchantReserve }]) => [
    maxOfMerchant,
    merchantReserve,
  ]);
  // 768 attempts are free at first, and the last 128 in the end.
  expect(limits).toEqual([...Array(5).fill([64, 16]), [32, 8]]);
});

test('a claim that took more than 15 seconds is not attempted: its lease could end first', async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  onTestFinished(() => void vi.useRealTimers());
  const endpoint = await newEndpoint();
  await newDeliveries([endpoint], 1);
  const { queue, deliverer } = openWorker();
  const { claim } = queue;
  vi.spyOn(queue, 'claim').mockImplementationOnce(async (limits) => {
    const claimed = await claim(limits);
    expect(claimed).toHaveLength(1);
    vi.advanceTimersByTime(15_001);
    return claimed;
  });
  expect(await deliverer.deliverSome()).toBe(false);
  await deliverer.idle();
  expect(arrivedAt(endpoint)).toEqual([]);
});

test('an endpoint that has failed often is paused for 15 seconds at most', async () => {
  const failing = await newEndpoint((_, response) => response.writeHead(500).end());
  await service.query('update webhook_endpoints set failures = 9, failing_since = now() where id = $1', [
    failing.uuid,
  ]);
  await newDeliveries([failing], 1);
  const worker = openWorker({ observer: { failurePauseMs: 1_000 } });
  const claim = vi.spyOn(worker.queue, 'claim');
  await worker.attemptAll();
  const untilMs = Number(claim.mock.lastCall?.[0].paused.get(failing.uuid));
  expect(untilMs - performance.now()).toBeLessThanOrEqual(15_000);
});

test('concurrent failures counted by several workers all count', async () => {
  const endpoints = await newEndpoints(20);
  const [a, b] = [openWorker(), openWorker()];
  const counted: Promise<unknown>[] = [];
  for (let i = 0; i < 10; i++) {
    // The two workers count in opposite orders.
    for (const { uuid, path } of endpoints) counted.push(a.health.failed(uuid, receiver.url + path, 500));
    for (const { uuid, path } of endpoints.toReversed()) {
      counted.push(b.health.failed(uuid, receiver.url + path, 500));
    }
    await nextTurn();
  }
  await Promise.all(counted);
  const rows = await service.query('select failures from webhook_endpoints where id = any ($1)', [
    endpoints.map(({ uuid }) => uuid),
  ]);
  expect(rows).toEqual(endpoints.map(() => ({ failures: 20 })));
});

test('events of an intent can be sorted by their sequence, whatever order they arrive in', async () => {
  const endpoint = await newEndpoint();
  const paymentIntent = newUuid();
  const sequences = [3, 1, 8, 2, 5, 7, 4, 6, 10, 9];
  const types = ['partially_paid', 'processing', 'reorged', 'processing', 'succeeded'];
  await insertEventRows(
    service.query,
    sequences.map((sequence) => ({
      merchantId: service.merchant.id,
      paymentIntent,
      sequence,
      type: `payment_intent.${types[sequence % types.length]}`,
    })),
  );
  await openWorker().deliverAll();
  const bodies = arrivedAt(endpoint).map(({ body }) => JSON.parse(body));
  expect(bodies).toHaveLength(10);
  const sorted = bodies.toSorted((a, b) => a.sequence - b.sequence);
  expect(sorted.map(({ sequence, type }) => [sequence, type])).toEqual(
    Array.from({ length: 10 }, (_, i) => [i + 1, `payment_intent.${types[(i + 1) % types.length]}`]),
  );
  expect(new Set(bodies.map(({ data }) => data.payment_intent.id)).size).toBe(1);
});

test('endpoints of many merchants that begin to hang at once leave room for others', {
  timeout: 30_000,
}, async () => {
  const path = `/${newUuid()}`;
  const hanging: TestEndpoint[] = [];
  for (let i = 0; i < 12; i++) {
    const merchant = await service.newMerchant();
    const uuids = Array.from({ length: 65 }, () => newUuid());
    await service.query(
      `insert into webhook_endpoints (id, merchant_id, mode, url, event_types, enabled, created_at)
       select id, $1, 'testnet', $3, '{*}', true, now() from unnest($2::uuid[]) as w (id)`,
      [merchant.id, uuids, receiver.url + path],
    );
    hanging.push(...uuids.map((uuid) => ({ uuid, path, merchant })));
  }
  await newDeliveries(hanging, 1);
  let attempted = 0;
  const { promise: hangs, resolve: end } = Promise.withResolvers<AttemptResult>();
  const worker = openWorker({
    onSend(attempt, run) {
      if (!attempt.url.endsWith(path)) return run();
      attempted++;
      return hangs;
    },
  });
  let isOver = false;
  const delivering = (async () => {
    while (!isOver) {
      const room = worker.room();
      if (!(await worker.deliverer.deliverSome())) await room;
    }
  })();
  // Waits until no more of them are attempted.
  let before = 0;
  const moreArrived = () => {
    const more = attempted - before;
    before += more;
    return before <= 512 || more > 0;
  };
  await expect.poll(moreArrived, { interval: 500 }).toBe(false);
  const prompt = await newEndpoint(undefined, await service.newMerchant());
  await newDeliveries([prompt], 1);
  await worker.deliverer.deliverSome();
  await expect.poll(() => arrivedAt(prompt).length).toBe(1);
  isOver = true;
  end({ at: new Date(), durationMs: 0, statusCode: undefined, error: 'ended', response: undefined });
  await worker.close();
  await delivering;
});
