// Processes and connections that end at the worst moment. Every acknowledged intent is stored exactly once.

import { afterEach, expect, test } from 'vitest';
import { choosePorts } from '../support/listen.ts';
import { startPostgresProxy } from '../support/postgres-proxy.ts';
import { report, startLoad } from './support/load.ts';
import { endAll, startProcess, untilReadyz, useCluster } from './support/process.ts';
import { random } from './support/seed.ts';

const cluster = useCluster();

afterEach(endAll);

test('after kill -9 under load, each retry finds or creates its one intent', async () => {
  const ports = await choosePorts();
  let service = await startProcess(cluster, ports);
  const load = await startLoad(cluster, {
    services: [service],
    apiKey: cluster.apiKey,
    callers: 32,
    shareWithoutKey: 0.1,
  });
  const kills = 5;
  for (let kill = 0; kill < kills; kill++) {
    await load.progress(50 + random.below(300));
    await service.end('SIGKILL');
    service = await startProcess(cluster, ports);
  }
  await load.progress(500);
  report(await load.finish(), { kills, failures: JSON.stringify(Object.fromEntries(load.failures)) });
});

test('while PostgreSQL is cut off, creates get 503, and afterwards the service is ready without a restart', async () => {
  const service = await startProcess(cluster, { QUEUE_TIMEOUT: '1' });
  const load = await startLoad(cluster, { services: [service], apiKey: cluster.apiKey, callers: 32 });
  const readyAfterMs: number[] = [];
  for (let stop = 0; stop < 3; stop++) {
    await load.progress(50 + random.below(300));
    await cluster.stopImmediately();
    await untilReadyz(service, 503, 8_000);
    const refused = await fetch(`${service.publicUrl}/v1/payment_intents`, {
      method: 'POST',
      headers: { authorization: `Bearer ${cluster.apiKey}`, 'content-type': 'application/json' },
      body: '{"amount_units":1}',
    });
    expect(refused.status).toBe(503);
    expect(refused.headers.get('retry-after')).toMatch(/^\d+$/);
    expect(await refused.json()).toMatchObject({ error: { code: 'unavailable' } });
    await cluster.start();
    readyAfterMs.push(Math.round(await untilReadyz(service, 200, 5_000)));
  }
  await load.progress(500);
  expect(service.log.filter(({ level }) => level === 'error' || level === 'fatal')).toEqual([]);
  report(await load.finish(), { readyAfterMs: readyAfterMs.join('/') });
});

test('if the connection is cut between COMMIT and its answer, the create is repeated by its id, and answered once', async () => {
  let [inserts, cuts] = [0, 0];
  const proxy = await startPostgresProxy(cluster.socket, cluster.location.user, () => {
    let hasInserted = false;
    return ({ type, body }) => {
      // CommandComplete has the number of rows. The commit is done once the server is ready for a statement.
      if (type === 'C') hasInserted = /^INSERT 0 [1-9]/.test(body.toString());
      if (type !== 'Z' || !hasInserted) return 'forward';
      hasInserted = false;
      if (++inserts !== 10 && random.fraction() >= 0.08) return 'forward';
      cuts++;
      return 'cut';
    };
  });
  const service = await startProcess(cluster, { DATABASE_URL: proxy.url });
  const load = await startLoad(cluster, {
    services: [service],
    apiKey: cluster.apiKey,
    callers: 32,
    shareWithoutKey: 0.5,
  });
  await load.progress(1_500);
  const figures = await load.finish();
  await service.end('SIGTERM');
  await proxy.close();
  expect(cuts).toBeGreaterThan(0);
  expect([...load.failures.keys()]).toEqual([]);
  expect(service.log.filter(({ level }) => level === 'error')).toEqual([]);
  report(figures, { cuts });
});

test('idempotency keys sent to two processes at once get one intent and one answer each', async () => {
  const services = await Promise.all([startProcess(cluster), startProcess(cluster)]);
  const load = await startLoad(cluster, { services, apiKey: cluster.apiKey, callers: 16, callersPerKey: 4 });
  await load.progress(2_000);
  const figures = await load.finish();
  expect(load.failures).toEqual(new Map());
  expect(figures.acknowledged).toBe(figures.sent * 4);
  // There were no deadlocks, because batches lock their keys in a fixed order.
  const [statistics] = await cluster.query(
    'select deadlocks::int from pg_stat_database where datname = current_database()',
  );
  expect(statistics).toEqual({ deadlocks: 0 });
  report(figures);
});
