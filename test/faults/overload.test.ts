// A database that is slow or refuses connections: bounded queue, quick refusals, flat memory, full recovery.

import pg from 'pg';
import { afterEach, expect, test } from 'vitest';
import { pgConfigOf } from '../../src/config/database-location.ts';
import { doors } from '../support/call.ts';
import { postJson } from '../support/service.ts';
import { report, startLoad } from './support/load.ts';
import { endAll, type ServiceProcess, startProcess, useCluster } from './support/process.ts';

const cluster = useCluster();

afterEach(endAll);

const metadata = { note: 'x'.repeat(8_000) };

/** Sends that many creates at once over JSON. Returns each answer and its duration. */
async function createAtOnce(service: ServiceProcess, creates: number) {
  const body = JSON.stringify({ amount_units: 1, metadata });
  return Promise.all(
    Array.from({ length: creates }, async () => {
      const startedAtMs = performance.now();
      const url = `${service.publicUrl}/v1/payment_intents`;
      const { status, headers } = await postJson(url, cluster.apiKey, body, { agent: false });
      return { status, retryAfter: headers['retry-after'], tookMs: performance.now() - startedAtMs };
    }),
  );
}

test('with a slow database, creates that exceed the queue or wait too long in it are refused quickly', async () => {
  const service = await startProcess(cluster, { QUEUE_SIZE: '200', QUEUE_TIMEOUT: '1' });
  const timed = async (creates: number) => {
    const load = await startLoad(cluster, { services: [service], apiKey: cluster.apiKey, callers: 32 });
    const startedAtMs = performance.now();
    await load.progress(creates);
    const perSecond = (creates / (performance.now() - startedAtMs)) * 1000;
    return { perSecond, figures: await load.finish() };
  };
  await timed(500);
  const before = await timed(1_000);
  await createAtOnce(service, 600);
  const residentBefore = await service.residentMb();

  await cluster.query(
    `create function slow() returns trigger language plpgsql as 'begin perform pg_sleep(2); return null; end';
     create trigger slow after insert on payment_intents for each statement execute function slow()`,
  );
  const answers = [];
  for (let wave = 0; wave < 2; wave++) answers.push(...(await createAtOnce(service, 600)));
  const refused = answers.filter(({ status }) => status === 503);
  const created = answers.filter(({ status }) => status === 201);
  expect(refused.length + created.length).toBe(answers.length);
  expect(refused.length).toBeGreaterThan(0);
  // Creates that found the queue full did not wait.
  expect(Math.min(...refused.map(({ tookMs }) => tookMs))).toBeLessThan(1_000);
  for (const { retryAfter } of refused) expect(retryAfter).toMatch(/^\d+$/);
  // One second in the queue, plus the time the client needs to send six hundred requests.
  const slowestRefusalMs = Math.max(...refused.map(({ tookMs }) => tookMs));
  expect(slowestRefusalMs).toBeLessThan(3_000);
  const residentAfter = await service.residentMb();
  expect(residentAfter).toBeLessThan(residentBefore + 60);

  await cluster.query('drop trigger slow on payment_intents; drop function slow()');
  // The machine may be slow for a second. A service that does not recover stays slow.
  let after = await timed(1_000);
  for (let i = 0; i < 4 && after.perSecond <= before.perSecond / 2; i++) after = await timed(1_000);
  expect(after.perSecond).toBeGreaterThan(before.perSecond / 2);
  report(after.figures, {
    created: created.length,
    refused: refused.length,
    slowestRefusalMs: Math.round(slowestRefusalMs),
    residentMb: `${Math.round(residentBefore)} -> ${Math.round(residentAfter)}`,
    perSecond: `${Math.round(before.perSecond)} -> ${Math.round(after.perSecond)}`,
  });
});

test('a statement that never ends is abandoned, and its connection is closed', async () => {
  const service = await startProcess(cluster, { DATABASE_TIMEOUT: '1' });
  await cluster.query(
    `create function stuck() returns trigger language plpgsql as 'begin perform pg_sleep(20); return null; end';
     create trigger stuck after insert on payment_intents for each statement execute function stuck()`,
  );
  const options = { idempotencyKey: 'stuck' };
  for (const door of doors) {
    const startedAtMs = performance.now();
    expect((await service.call('createPaymentIntent', { amount_units: 1 }, { door, ...options })).code).toBe(
      'unavailable',
    );
    expect(performance.now() - startedAtMs).toBeLessThan(2_500);
  }
  await cluster.query(
    "select pg_terminate_backend(pid) from pg_stat_activity where query like 'insert into%' and pid <> pg_backend_pid()",
  );
  await cluster.query('drop trigger stuck on payment_intents; drop function stuck()');
  for (const door of doors)
    expect((await service.call('createPaymentIntent', { amount_units: 1 }, { door, ...options })).code).toBe(
      'ok',
    );
});

test('without a free connection in the database, creates wait for QUEUE_TIMEOUT, and all work once connections are free', async () => {
  const service = await startProcess(cluster, { QUEUE_TIMEOUT: '1' });
  for (const door of doors)
    expect((await service.call('createPaymentIntent', { amount_units: 1 }, { door })).code).toBe('ok');

  const others: pg.Client[] = [];
  const takeAll = async () => {
    for (;;) {
      const client = new pg.Client(pgConfigOf(cluster.location));
      client.on('error', () => {});
      try {
        await client.connect();
      } catch (error) {
        expect((error as { code?: string }).code).toBe('53300');
        return;
      }
      others.push(client);
    }
  };
  await takeAll();
  const [first] = others;
  const endOfService = `select pg_terminate_backend(pid) from pg_stat_activity
    where application_name = 'payment-intent-service' and pid <> all($1)`;
  const ownIds = () => others.map((client) => (client as unknown as { processID: number }).processID);
  // The service takes any place that becomes free, so its sessions are ended until it has none.
  await expect
    .poll(async () => {
      const ended = await first?.query(endOfService, [ownIds()]);
      await takeAll();
      return ended?.rowCount;
    })
    .toBe(0);
  for (const door of doors) {
    const startedAtMs = performance.now();
    expect((await service.call('createPaymentIntent', { amount_units: 1 }, { door })).code).toBe(
      'unavailable',
    );
    expect(performance.now() - startedAtMs).toBeLessThan(3_000);
  }
  const load = await startLoad(cluster, { services: [service], apiKey: cluster.apiKey, callers: 16 });
  await expect.poll(() => load.failures.get('unavailable')).toBeGreaterThan(30);
  await Promise.all(others.map((client) => client.end()));
  await load.progress(1_000);
  const figures = await load.finish();
  expect([...load.failures.keys()]).toEqual(['unavailable']);
  report(figures);
  for (const door of doors)
    expect((await service.call('createPaymentIntent', { amount_units: 1 }, { door })).code).toBe('ok');
});
