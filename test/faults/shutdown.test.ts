import { spawn } from 'node:child_process';
import { once } from 'node:events';
import http from 'node:http';
import http2 from 'node:http2';
import net from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { type Answer, doors } from '../support/call.ts';
import { choosePorts } from '../support/listen.ts';
import { httpRequest, postJson } from '../support/service.ts';
import { report, startLoad } from './support/load.ts';
import { endAll, startProcess, untilReadyz, useCluster } from './support/process.ts';

const cluster = useCluster();

afterEach(endAll);

const drainTimeoutS = 10;

test('after SIGTERM under load, the service is not ready, sends GOAWAY, answers every request and exits with 0', async () => {
  const service = await startProcess(cluster, { DRAIN_TIMEOUT: String(drainTimeoutS) });
  // Idle sessions in addition to those of the load.
  const sessions = Array.from({ length: 5 }, () => http2.connect(service.internalUrl));
  await Promise.all(sessions.map((session) => once(session, 'remoteSettings')));
  const goaways = Promise.all(sessions.map((session) => once(session, 'goaway')));

  const load = await startLoad(cluster, {
    services: [service],
    apiKey: cluster.apiKey,
    callers: 64,
    shareWithoutKey: 0.5,
    // A closed port is the expected end. Any other failure is a lost request.
    onFailure: (failure) => (/^(?:ECONNREFUSED|UNAVAILABLE)$/.test(failure) ? 'stop' : 'retry'),
  });
  await load.progress(500);
  // While a connection is idle, the process stays for a second.
  const agent = new http.Agent({ keepAlive: true });
  await postJson(`${service.publicUrl}/v1/payment_intents`, cluster.apiKey, undefined, { agent });
  const startedAtMs = performance.now();
  const ended = service.end('SIGTERM');
  await untilReadyz(service, 503, 1_000);
  const acknowledgedBefore = load.acknowledged();
  // No stream has begun, so clients may repeat at once whatever they send before they read the GOAWAY.
  expect((await goaways).map(([, lastStream]) => lastStream)).toEqual(sessions.map(() => 0));
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
  agent.destroy();
  for (const session of sessions) session.destroy();
});

test('a connection that is idle at the signal gets one more answer, which tells it to close', async () => {
  const service = await startProcess(cluster);
  const newAgent = () => new http.Agent({ keepAlive: true, maxSockets: 1 });
  const [agent, ofPage] = [newAgent(), newAgent()];
  const url = `${service.publicUrl}/v1/payment_intents`;
  const create = () => postJson(url, cluster.apiKey, undefined, { agent });
  const openPage = () => httpRequest(`${service.publicUrl}/docs`, { method: 'GET', agent: ofPage });
  for (const { headers } of [await create(), await openPage()]) expect(headers.connection).toBe('keep-alive');
  const ended = service.end('SIGTERM');
  await untilReadyz(service, 503, 1_000);
  const last = await create();
  expect([last.status, last.headers.connection]).toEqual([201, 'close']);
  const page = await openPage();
  expect([page.status, page.headers.connection]).toEqual([200, 'close']);
  for (const each of [agent, ofPage]) each.destroy();
  expect(await ended).toEqual({ code: 0, signal: null });
});

test('of forty creates in one write while the service stops, every started one is answered', async () => {
  const service = await startProcess(cluster);
  const socket = net.connect(Number(new URL(service.publicUrl).port), '127.0.0.1');
  await once(socket, 'connect');
  const before = await countIntents();
  const ended = service.end('SIGTERM');
  await untilReadyz(service, 503, 1_000);
  const body = '{"amount_units":1}';
  const head = `POST /v1/payment_intents HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${cluster.apiKey}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`;
  socket.write((head + body).repeat(40));
  let answers = '';
  for await (const chunk of socket) answers += chunk;
  expect(answers.match(/HTTP\/1\.1 201 /g)).toHaveLength(40);
  // Only the last answer closes the connection.
  expect(answers.match(/connection: close/gi)?.length ?? 0).toBeLessThanOrEqual(1);
  expect(await ended).toEqual({ code: 0, signal: null });
  expect((await countIntents()) - before).toBe(40);
});

/** How long DRAIN_TIMEOUT=1 may take. A process that waits for its database takes 10 s, one for its log forever. */
const mostMs = 5_000;

const countIntents = async () =>
  (await cluster.query<{ n: number }>('select count(*)::int as n from payment_intents'))[0]?.n ?? 0;

test('SIGTERM ends a start whose database accepts connections and never answers', async () => {
  const silent = net.createServer().listen(0, '127.0.0.1');
  await once(silent, 'listening');
  const asked = once(silent, 'connection');
  const { port } = silent.address() as net.AddressInfo;
  const child = spawn(process.execPath, ['src/main.ts'], {
    env: {
      PATH: process.env.PATH,
      DATABASE_URL: `postgres://payments@127.0.0.1:${port}/payments`,
      ...cluster.secrets,
      ...(await choosePorts()),
      DATABASE_CONNECT_TIMEOUT: '60',
      DRAIN_TIMEOUT: '1',
    },
    stdio: 'ignore',
  });
  await asked;
  const startedAtMs = performance.now();
  child.kill('SIGTERM');
  expect(await once(child, 'exit')).toEqual([1, null]);
  expect(performance.now() - startedAtMs).toBeLessThan(mostMs);
  silent.close();
});

test('a call that is being written at the signal is answered', async () => {
  const service = await startProcess(cluster);
  await cluster.query(
    `create function slow() returns trigger language plpgsql as 'begin perform pg_sleep(3); return null; end';
     create trigger slow after insert on payment_intents for each statement execute function slow()`,
  );
  const creates: Promise<Answer>[] = [];
  for (const door of doors) {
    creates.push(service.call('createPaymentIntent', { amount_units: 7 }, { door }));
    // Waits until the statement runs in the database.
    for (;;) {
      const [{ n } = { n: 0 }] = await cluster.query<{ n: number }>(
        "select count(*)::int as n from pg_stat_activity where query like 'insert into%' and state = 'active'",
      );
      if (n === creates.length) break;
    }
  }
  const ended = service.end('SIGTERM');
  expect((await Promise.all(creates)).map(({ code }) => code)).toEqual(['ok', 'ok']);
  expect(await ended).toEqual({ code: 0, signal: null });
  await cluster.query('drop trigger slow on payment_intents; drop function slow()');
});

test.each([
  ['nothing in flight', 0],
  ['creates in flight', 20],
])('with a database that hangs and %s, the process still ends within DRAIN_TIMEOUT', async (_, inFlight) => {
  const service = await startProcess(cluster, { DRAIN_TIMEOUT: '1' });
  const create = () => service.call('createPaymentIntent', { amount_units: 1 });
  // The key is cached and connections are open.
  expect((await create()).code).toBe('ok');
  await cluster.hang();
  try {
    const answers = Promise.allSettled(Array.from({ length: inFlight }, create));
    const startedAtMs = performance.now();
    expect(await service.end('SIGTERM')).toEqual({ code: 1, signal: null });
    expect(performance.now() - startedAtMs).toBeLessThan(mostMs);
    await answers;
    expect(service.log.at(-1)).toMatchObject({
      level: 'fatal',
      message: expect.stringMatching(/not stopped in time/),
    });
  } finally {
    cluster.goOn();
  }
});

test('with an unread log, the process still ends within DRAIN_TIMEOUT', async () => {
  const service = await startProcess(cluster, {
    DRAIN_TIMEOUT: '1',
    LOG_LEVEL: 'trace',
  });
  service.readLog(false);
  // Logs more lines than fit into the pipe and the reader's buffer.
  for (let i = 0; i < 40; i++) {
    await Promise.all(
      Array.from({ length: 50 }, () => service.call('createPaymentIntent', { amount_units: 1 })),
    );
  }
  const startedAtMs = performance.now();
  const { code, signal } = await service.end('SIGTERM');
  expect(performance.now() - startedAtMs).toBeLessThan(mostMs);
  expect([code, signal]).toEqual([null, 'SIGKILL']);
  service.readLog(true);
});
