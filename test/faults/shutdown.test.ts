import { once } from 'node:events';
import http from 'node:http';
import http2 from 'node:http2';
import { afterEach, expect, test } from 'vitest';
import { httpRequest, openDoors } from '../support/doors.ts';
import { type Cluster, useCluster } from './support/cluster.ts';
import { report, startLoad } from './support/load.ts';
import { choosePorts, endAll, startProcess, untilReadyz } from './support/process.ts';

let cluster: Cluster;

useCluster((opened) => {
  cluster = opened;
});

afterEach(endAll);

const drainTimeoutS = 10;

test('SIGTERM under load: not ready first, GOAWAY for every session, every request answered, exit 0', async () => {
  const service = await startProcess(cluster, await choosePorts(), { DRAIN_TIMEOUT: String(drainTimeoutS) });
  // Sessions that rest, beside those of the load.
  const sessions = Array.from({ length: 5 }, () => http2.connect(service.internalUrl));
  await Promise.all(sessions.map((session) => once(session, 'remoteSettings')));
  const goaways = Promise.all(sessions.map((session) => once(session, 'goaway')));

  const load = await startLoad(cluster, {
    services: [service],
    apiKey: cluster.apiKey,
    callers: 64,
    shareWithoutKey: 0.5,
    // A listener that is gone is what the end looks like from outside. Anything else is a request that was lost.
    onFailure: (failure) => (/^(?:ECONNREFUSED|UNAVAILABLE)$/.test(failure) ? 'stop' : 'retry'),
  });
  await load.progress(2_000);
  const startedAtMs = performance.now();
  const ended = service.end('SIGTERM');
  await untilReadyz(service, 503, 1_000);
  const acknowledgedBefore = load.acknowledged();
  await goaways;
  expect(await ended).toEqual({ code: 0, signal: null });
  const tookMs = performance.now() - startedAtMs;
  expect(tookMs).toBeLessThan(drainTimeoutS * 1000);
  const figures = await load.finish();
  expect(
    [...load.failures.keys()].filter((failure) => !/^(?:ECONNREFUSED|UNAVAILABLE)$/.test(failure)),
  ).toEqual([]);
  report(figures, {
    afterNotReady: load.acknowledged() - acknowledgedBefore,
    exitAfterMs: Math.round(tookMs),
    failures: JSON.stringify(Object.fromEntries(load.failures)),
  });
  for (const session of sessions) session.destroy();
});

test('a connection that rests when the signal comes has one more request answered, and hears of the end', async () => {
  const service = await startProcess(cluster, await choosePorts());
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  const create = () =>
    httpRequest(
      `${service.publicUrl}/v1/payment_intents`,
      {
        agent,
        headers: { authorization: `Bearer ${cluster.apiKey}`, 'content-type': 'application/json' },
      },
      '{"amount_units":1}',
    );
  expect((await create()).headers.connection).toBe('keep-alive');
  const ended = service.end('SIGTERM');
  await untilReadyz(service, 503, 1_000);
  const last = await create();
  expect([last.status, last.headers.connection]).toEqual([201, 'close']);
  agent.destroy();
  expect(await ended).toEqual({ code: 0, signal: null });
});

test('a call that is being written when the signal comes is answered', async () => {
  const service = await startProcess(cluster, await choosePorts());
  await cluster.query(
    `create function slow() returns trigger language plpgsql as 'begin perform pg_sleep(1.5); return null; end';
     create trigger slow after insert on payment_intents for each statement execute function slow()`,
  );
  const doors = openDoors(service);
  const creates = doors.map((door) =>
    door.create({ amount_units: 7 }, { authorization: `Bearer ${cluster.apiKey}` }),
  );
  // Both are in the database's hands now.
  for (;;) {
    const [{ n } = { n: 0 }] = await cluster.query<{ n: number }>(
      "select count(*)::int as n from pg_stat_activity where query like 'insert into%' and state = 'active'",
    );
    if (n > 0) break;
  }
  const ended = service.end('SIGTERM');
  expect((await Promise.all(creates)).map(({ code }) => code)).toEqual(['ok', 'ok']);
  for (const door of doors) door.close();
  expect(await ended).toEqual({ code: 0, signal: null });
  await cluster.query('drop trigger slow on payment_intents; drop function slow()');
});
