// Each acknowledged change has exactly one event, which every reader gets once and every webhook endpoint at
// least once, whatever crashes meanwhile.

import { setTimeout as sleep } from 'node:timers/promises';
import { Webhook } from 'standardwebhooks';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { choosePorts } from '../support/listen.ts';
import { startPostgresProxy } from '../support/postgres-proxy.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { endAll, type ServiceProcess, startProcess, useCluster } from './support/process.ts';
import { random } from './support/seed.ts';

interface Event {
  id: string;
  type: string;
  sequence: number;
  data: { payment_intent: { id: string; status: string } };
}

let receiver: Receiver;
let secret: string;
/** Deliveries that are being received, by event. */
let inHand: Map<string, number>;
/** The most deliveries of one event that were being received at the same time. */
let mostAtOnce: number;

const cluster = useCluster();

beforeEach(async () => {
  inHand = new Map();
  mostAtOnce = 0;
  receiver = await startReceiver(async ({ headers, body }, response) => {
    const { id } = new Webhook(secret).verify(body, headers) as Event;
    const count = (inHand.get(id) ?? 0) + 1;
    inHand.set(id, count);
    mostAtOnce = Math.max(mostAtOnce, count);
    // Long enough for another process to send it too, if it could.
    await sleep(20);
    inHand.set(id, (inHand.get(id) ?? 1) - 1);
    response.writeHead(204).end();
  });
});

afterEach(async () => {
  await endAll();
  await receiver.close();
  await cluster.query('update webhook_endpoints set enabled = false, deleted_at = now()');
});

const permitted = { WEBHOOK_ALLOW: '127.0.0.1' };

/** Calls until the service answers with that status, like a client that never gives up. */
async function call(
  service: Pick<ServiceProcess, 'publicUrl'>,
  method: string,
  path: string,
  { body, idempotencyKey }: { body?: object; idempotencyKey?: string } = {},
): Promise<unknown> {
  for (;;) {
    const answer = await fetch(`${service.publicUrl}/v1/${path}`, {
      method,
      headers: {
        authorization: `Bearer ${cluster.apiKey}`,
        ...(body && { 'content-type': 'application/json' }),
        ...(idempotencyKey && { 'idempotency-key': idempotencyKey }),
      },
      ...(body && { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(15_000),
    }).catch(() => undefined);
    const text = await answer?.text().catch(() => undefined);
    if (answer?.ok && text !== undefined) return JSON.parse(text);
    if (answer !== undefined && answer.status < 500) throw new Error(`${answer.status} ${text}`);
    await sleep(50);
  }
}

async function createEndpoint(service: ServiceProcess): Promise<void> {
  const body = { url: `${receiver.url}/` };
  ({ secret } = (await call(service, 'POST', 'webhook_endpoints', { body })) as { secret: string });
}

async function createIntents(service: ServiceProcess, count: number): Promise<string[]> {
  const create = () => call(service, 'POST', 'payment_intents', { body: { amount_units: 1 } });
  const intents = await Promise.all(Array.from({ length: count }, create));
  return intents.map((intent) => (intent as { id: string }).id);
}

/** Cancels all intents, a few at a time, with retries until acknowledged. Calls `onProgress` after each. */
async function cancelAll(
  service: ServiceProcess,
  ids: readonly string[],
  onProgress = () => {},
): Promise<void> {
  const left = [...ids];
  const worker = async () => {
    for (let id = left.pop(); id !== undefined; id = left.pop()) {
      expect(await call(service, 'POST', `payment_intents/${id}/cancel`)).toMatchObject({
        id,
        status: 'canceled',
      });
      onProgress();
    }
  };
  await Promise.all(Array.from({ length: 16 }, worker));
}

/** Resolves when every delivery has ended. */
async function untilDelivered(): Promise<void> {
  for (;;) {
    const [row] = await cluster.query<{ open: string }>(
      `select (select count(*) from events where position is null)
            + (select count(*) from webhook_deliveries where status = 'pending') as open`,
    );
    if (row?.open === '0') return;
    await sleep(100);
  }
}

/** Returns the events that a reader gets who follows the list from its beginning. */
async function followedEvents(service: ServiceProcess, intents: readonly string[]): Promise<Event[]> {
  const wanted = new Set(intents);
  const events: Event[] = [];
  for (let after = ''; ; ) {
    const page = (await call(service, 'GET', `events?page_size=100${after}`)) as { events: Event[] };
    if (page.events.length === 0) break;
    events.push(...page.events);
    after = `&after=${page.events.at(-1)?.id}`;
  }
  return events.filter(({ data }) => wanted.has(data.payment_intent?.id));
}

/** Expects one event for each intent, once for the reader and at least once for the receiver. */
async function expectEverything(service: ServiceProcess, intents: readonly string[]): Promise<void> {
  await untilDelivered();
  const events = await followedEvents(service, intents);
  expect(events.map(({ data }) => data.payment_intent.id).sort()).toEqual([...intents].sort());
  expect(new Set(events.map(({ type, sequence }) => `${type} ${sequence}`))).toEqual(
    new Set(['payment_intent.canceled 1']),
  );
  const received = receiver.requests.map(({ headers }) => headers['webhook-id']);
  expect([...new Set(received)].sort()).toEqual(events.map(({ id }) => id).sort());
  console.log(`seed ${random.seed}: ${events.length} events, ${received.length} webhooks`);
}

/** As if the half minute had passed after which unrecorded attempts are repeated. */
const endClaims = () =>
  cluster.query(
    'update webhook_deliveries set next_attempt_at = now(), leased_until = now() where leased_until > now()',
  );

test('with kill -9 during cancels and deliveries, each has one event, delivered at least once', async () => {
  const ports = await choosePorts();
  let service = await startProcess(cluster, { ...ports, ...permitted });
  await createEndpoint(service);
  const intents = await createIntents(service, 150);
  let canceled = 0;
  const canceling = cancelAll(service, intents, () => {
    canceled++;
  });
  for (const share of [0.2, 0.5, 0.8]) {
    while (canceled < share * intents.length + random.below(12)) await sleep(5);
    await service.end('SIGKILL');
    await endClaims();
    service = await startProcess(cluster, { ...ports, ...permitted });
  }
  await canceling;
  await expectEverything(service, intents);
});

test('two processes that deliver send nothing twice or concurrently', async () => {
  const service = await startProcess(cluster, { ...permitted, ROLES: 'api' });
  for (const roles of ['deliveries', 'deliveries,expiry']) {
    await startProcess(cluster, { ...permitted, ROLES: roles });
  }
  await createEndpoint(service);
  const intents = await createIntents(service, 100);
  await cancelAll(service, intents);
  await expectEverything(service, intents);
  expect([mostAtOnce, receiver.requests.length]).toEqual([1, intents.length]);
});

test('if PostgreSQL is cut off during cancels and deliveries, all is delivered without a restart', async () => {
  const service = await startProcess(cluster, permitted);
  await createEndpoint(service);
  const intents = await createIntents(service, 100);
  let canceled = 0;
  const canceling = cancelAll(service, intents, () => {
    canceled++;
  });
  for (const share of [0.3, 0.6]) {
    while (canceled < share * intents.length) await sleep(5);
    await cluster.stopImmediately();
    await cluster.start();
    await endClaims();
  }
  await canceling;
  await expectEverything(service, intents);
  expect(service.log.filter(({ level }) => level === 'error' || level === 'fatal')).toEqual([]);
});

/** Longer than `DATABASE_TIMEOUT`, and than the first pauses between retries. */
const hangMs = 3_000;

test('if the database hangs during cancels and deliveries, all is delivered, and no attempts overlap', async () => {
  const proxy = await startPostgresProxy(cluster.socket, cluster.location.user, () => () => 'forward');
  const settings = {
    ...permitted,
    DATABASE_URL: proxy.url,
    DATABASE_TIMEOUT: '1',
    DATABASE_CONNECT_TIMEOUT: '1',
  };
  const service = await startProcess(cluster, settings);
  const other = await startProcess(cluster, { ...settings, ROLES: 'deliveries' });
  await createEndpoint(service);
  const intents: string[] = [];
  for (const [what, { hang, goOn }] of [
    ['the network', proxy],
    ['PostgreSQL', cluster],
  ] as const) {
    const some = await createIntents(service, 100);
    intents.push(...some);
    const middle = Promise.withResolvers<void>();
    let left = 25 + random.below(50);
    const canceling = cancelAll(service, some, () => {
      if (--left === 0) middle.resolve();
    });
    await middle.promise;
    await hang();
    await sleep(hangMs);
    const received = receiver.requests.length;
    const endedAtMs = performance.now();
    goOn();
    await receiver.arrived(received + 1);
    const tookMs = Math.round(performance.now() - endedAtMs);
    console.log(`${what} hung at ${received} webhooks: the next one came ${tookMs} ms after its end`);
    await canceling;
  }
  await expectEverything(service, intents);
  expect(mostAtOnce).toBe(1);
  const [positions] = await cluster.query<{ events: number; first: number; last: number; progress: number }>(
    `select count(distinct position)::int as events, min(position)::int as first, max(position)::int as last,
            (select last_position::int from event_progress) as progress from events`,
  );
  expect(positions).toEqual({
    events: positions?.events,
    first: 1,
    last: positions?.events,
    progress: positions?.events,
  });
  for (const each of [service, other]) {
    const peakMb = Math.round(await each.peakResidentMb());
    console.log(`at most ${peakMb} MB`);
    expect(peakMb).toBeLessThan(400);
    expect(each.log.filter(({ level }) => level === 'error' || level === 'fatal')).toEqual([]);
    expect(await each.end('SIGTERM')).toEqual({ code: 0, signal: null });
  }
  await proxy.close();
});
