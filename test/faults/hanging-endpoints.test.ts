// The worst kind of dead webhook endpoint: it accepts every connection and never answers. It does not delay
// other endpoints.

import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, test } from 'vitest';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { endAll, type ServiceProcess, startProcess, useCluster } from './support/process.ts';

const hangingEndpoints = 100;
/** Events for each hanging endpoint, more than it may have in flight. */
const eventsBefore = 12;
/** How long an attempt waits for an answer. */
const timeoutMs = 10_000;
/** Events for the healthy endpoint. */
const events = 120;
/** Spreads the events over longer than the timeout, at which all hanging attempts fail together. */
const pauseMs = (1.1 * timeoutMs) / events;

let receivers: Receiver[] = [];

const cluster = useCluster();

afterEach(async () => {
  await endAll();
  for (const receiver of receivers) await receiver.close();
  receivers = [];
  await cluster.query('update webhook_endpoints set enabled = false, deleted_at = now()');
});

async function openReceiver(...how: Parameters<typeof startReceiver>): Promise<Receiver> {
  const receiver = await startReceiver(...how);
  receivers.push(receiver);
  return receiver;
}

async function call<Json>(service: ServiceProcess, apiKey: string, path: string, body = {}): Promise<Json> {
  const answer = await fetch(`${service.publicUrl}/v1/${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  expect(answer.ok).toBe(true);
  return (await answer.json()) as Json;
}

const createEndpoint = (service: ServiceProcess, apiKey: string, url: string) =>
  call(service, apiKey, 'webhook_endpoints', { url });

async function createIntents(service: ServiceProcess, apiKey: string, count: number): Promise<string[]> {
  const create = () => call<{ id: string }>(service, apiKey, 'payment_intents', { amount_units: 1 });
  return (await Promise.all(Array.from({ length: count }, create))).map(({ id }) => id);
}

const cancel = (service: ServiceProcess, apiKey: string, id: string) =>
  call(service, apiKey, `payment_intents/${id}/cancel`);

/** How long events take from their creation to their arrival, in milliseconds. */
interface Delays {
  p50: number;
  p99: number;
  most: number;
}

/** Cancels intents at an even pace, and waits until each event has arrived at the healthy endpoint. */
async function measureDelays(service: ServiceProcess): Promise<Delays> {
  const delays: number[] = [];
  const healthy = await openReceiver(({ body }, response) => {
    delays.push(Date.now() - Date.parse(JSON.parse(body).created_at));
    response.writeHead(204).end();
  });
  await createEndpoint(service, cluster.apiKey, healthy.url);
  const intents = await createIntents(service, cluster.apiKey, events);
  const startedAtMs = performance.now();
  const canceling = intents.map(async (id, i) => {
    await sleep(i * pauseMs);
    await cancel(service, cluster.apiKey, id);
  });
  await Promise.all(canceling);
  const received = await healthy.arrived(events);
  const tookMs = Math.round(performance.now() - startedAtMs);
  const ids = received.map(({ body }) => JSON.parse(body).data.payment_intent.id);
  // Each event arrives once, because an answered attempt is not repeated.
  expect(ids.sort()).toEqual(intents.sort());
  delays.sort((a, b) => a - b);
  const at = (share: number) => delays[Math.ceil(share * events) - 1] as number;
  const figures = { p50: at(0.5), p99: at(0.99), most: at(1) };
  console.log(
    `${events} events in ${tookMs} ms; p50 ${figures.p50}, p99 ${figures.p99}, most ${figures.most} ms`,
  );
  return figures;
}

test(`${hangingEndpoints} endpoints that never answer, of the same merchant and of others, delay no other endpoint`, async () => {
  const service = await startProcess(cluster, { WEBHOOK_ALLOW: '127.0.0.1' });
  const hanging = await openReceiver(() => {});
  const others = await Promise.all(Array.from({ length: 10 }, () => cluster.newKeyIn(cluster.location)));
  const keys = [...others, ...others.map(() => cluster.apiKey)];
  await Promise.all(
    Array.from({ length: hangingEndpoints }, (_, i) =>
      createEndpoint(service, keys[i % keys.length] as string, `${hanging.url}/${i}`),
    ),
  );
  await Promise.all(
    [...others, cluster.apiKey].map(async (key) => {
      const intents = await createIntents(service, key, eventsBefore);
      await Promise.all(intents.map((id) => cancel(service, key, id)));
    }),
  );
  await hanging.arrived(hangingEndpoints);
  // An event goes to the endpoints that exist when it gets its position.
  const waiting = () => cluster.query('select from events where position is null');
  await expect.poll(waiting).toEqual([]);
  const delays = await measureDelays(service);
  expect(new Set(hanging.requests.map(({ path }) => path)).size).toBe(hangingEndpoints);
  expect(delays.p50).toBeLessThan(500);
  expect(delays.most).toBeLessThan(timeoutMs / 2);
});
