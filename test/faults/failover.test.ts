// A primary and its standby, as a database that fails over has them: the service moves to the server that accepts
// writes, and creates that arrive meanwhile wait for it.

import { execFile } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { DatabaseLocation } from '../../src/config/database-location.ts';
import { formatIdentifier, newUuid } from '../../src/database/identifiers.ts';
import { migrate } from '../../src/database/orm.ts';
import { type Door, doors } from '../support/call.ts';
import { insertEventRows } from '../support/event-rows.ts';
import { disconnectWatches, openWatch } from '../support/event-streams.ts';
import { type OwnPostgres, startOwnPostgres } from '../support/own-postgres.ts';
import { bareEnvironment } from '../support/test-environment.ts';
import { type Cluster, queryOnce, withMerchant } from './support/cluster.ts';
import { report, startLoad } from './support/load.ts';
import { hasPgBouncer, startPgBouncer } from './support/pgbouncer.ts';
import { choosePorts, endAll, type ServiceProcess, startProcess, untilReadyz } from './support/process.ts';

const run = promisify(execFile);

let primary: OwnPostgres;
let standby: OwnPostgres;
let pair: Pick<Cluster, 'url' | 'secrets' | 'apiKey' | 'folder' | 'query'>;

beforeEach(async () => {
  primary = await startOwnPostgres({
    settings: ['wal_keep_size = 256MB', 'archive_mode = on', "archive_command = 'true'"],
  });
  const url = primary.url('postgres', 'postgres');
  await migrate({ url });
  const known = await withMerchant({ url });
  standby = await startOwnPostgres({ standbyOf: primary });
  const hosts = `127.0.0.1:${standby.port},127.0.0.1:${primary.port}`;
  pair = {
    ...known,
    folder: primary.folder,
    // The standby first: the service finds the primary itself.
    url: `postgresql://postgres@${hosts}/postgres`,
    query: (sql, values) => queryOnce({ url: standby.url('postgres', 'postgres') }, sql, values),
  };
  await primary.query("alter system set synchronous_standby_names = 'standby'");
  await primary.query('select pg_reload_conf()');
});

afterEach(async () => {
  await endAll();
  await standby.stop();
  await primary.stop();
});

/** Makes the standby the primary, which waits for no other. */
async function promote(): Promise<void> {
  await standby.query('alter system reset synchronous_standby_names');
  await standby.query('select pg_promote(true, 30)');
}

/** Ends the primary and makes the standby the next one. Resolves with the time of the promotion. */
async function failOver(signal: NodeJS.Signals): Promise<number> {
  await primary.end(signal);
  await promote();
  return performance.now();
}

/** Asks `/readyz` ten times a second. Returns its different answers, in their order. */
function watchReadyz({ operationsUrl }: ServiceProcess) {
  const seen: number[] = [];
  let isStopped = false;
  const asking = (async () => {
    while (!isStopped) {
      const { status } = await fetch(`${operationsUrl}/readyz`);
      if (seen.at(-1) !== status) seen.push(status);
      await sleep(100);
    }
  })();
  return {
    stop() {
      isStopped = true;
      return asking.then(() => seen);
    },
  };
}

/** Fails over under load: nobody may notice. */
async function failOverUnderLoad(cluster: typeof pair, signal: NodeJS.Signals): Promise<number> {
  const service = await startProcess(cluster, await choosePorts());
  const load = await startLoad(cluster, {
    services: [service],
    apiKey: cluster.apiKey,
    callers: 16,
    shareWithoutKey: 0.5,
  });
  const readiness = watchReadyz(service);
  await load.progress(500);
  const promotedAtMs = await failOver(signal);
  await load.progress(1);
  const firstAfterMs = Math.round(performance.now() - promotedAtMs);
  await load.progress(500);
  const figures = await load.finish();
  report(figures, { firstAfterMs });
  expect(Object.fromEntries(load.failures)).toEqual({});
  expect(await readiness.stop()).toEqual([200]);
  return firstAfterMs;
}

const signals = [
  ['a switchover', 'SIGINT'],
  ['a crash', 'SIGQUIT'],
] as const;

test.each(signals)('in %s, creates wait, and none is refused, lost or doubled', async (_, signal) => {
  expect(await failOverUnderLoad(pair, signal)).toBeLessThan(1_000);
});

test.skipIf(!hasPgBouncer).each(signals)(
  'the same in %s, with a PgBouncer before each server',
  async (_, signal) => {
    const poolers = await Promise.all(
      [standby, primary].map(({ folder, port }) =>
        startPgBouncer(folder, `host=127.0.0.1 port=${port} user=postgres`, [
          'server_login_retry = 1',
          'query_wait_timeout = 2',
        ]),
      ),
    );
    const hosts = poolers.map(({ port }) => `127.0.0.1:${port}`).join();
    await failOverUnderLoad({ ...pair, url: `postgresql://postgres@${hosts}/postgres` }, signal);
    await endAll();
    await Promise.all(poolers.map(({ stop }) => stop()));
  },
);

test('without its synchronous standby the service is not ready, and soon after it is again', async () => {
  const service = await startProcess(pair, await choosePorts(), { QUEUE_TIMEOUT: '3' });
  await standby.freeze();
  await untilReadyz(service, 503, 10_000);
  expect((await fetch(`${service.operationsUrl}/healthz`)).status).toBe(200);
  standby.thaw();
  expect(await untilReadyz(service, 200, 2_000)).toBeLessThan(2_000);
});

test('a create whose wait for the standby is canceled is not answered before it is on the standby', async () => {
  const service = await startProcess(pair, await choosePorts(), { QUEUE_TIMEOUT: '30' });
  const key = { idempotencyKey: 'order-1001' };
  const first = await service.call('createPaymentIntent', { amount_units: 1 }, { idempotencyKey: 'before' });
  expect(first.code).toBe('ok');
  await standby.freeze();
  let isAnswered = false;
  const created = service.call('createPaymentIntent', { amount_units: 1 }, key).finally(() => {
    isAnswered = true;
  });
  const cancelWaits = () =>
    primary.query<{ n: number }>(
      `select count(pg_cancel_backend(pid))::int as n from pg_stat_activity where wait_event = 'SyncRep'`,
    );
  // The insert, and then each commit that follows it.
  for (let canceled = 0; canceled < 5 && !isAnswered; ) {
    canceled += (await cancelWaits())[0]?.n ?? 0;
    await sleep(50);
  }
  expect(await primary.query('select count(*)::int as n from payment_intents')).toEqual([{ n: 2 }]);
  expect(isAnswered).toBe(false);
  // What was committed there alone is lost with it.
  const lost = await primary.query<{ id: string }>('select id from payment_intents order by id desc limit 1');
  await primary.end('SIGQUIT');
  standby.thaw();
  await promote();
  expect((await created).code).toBe('ok');
  expect(await pair.query('select count(*)::int as n from payment_intents')).toEqual([{ n: 2 }]);
  // Made again, with the id that it had.
  expect(lost).toHaveLength(1);
  expect(await pair.query('select id from payment_intents order by id desc limit 1')).toEqual(lost);
});

test('when the primary stands still, notifications arrive from the next one within 15 seconds', async () => {
  const service = await startProcess(pair, await choosePorts());
  await primary.freeze();
  await promote();
  const promotedAtMs = performance.now();
  const listening = async () => {
    const [{ n } = { n: 0 }] = await standby.query<{ n: number }>(
      `select count(*)::int as n from pg_stat_activity where query like 'listen %'`,
    );
    return n;
  };
  await expect.poll(listening).toBe(1);
  console.log(`listening after ${Math.round(performance.now() - promotedAtMs)} ms`);
  // Sessions of the old primary end with DATABASE_TIMEOUT, which refuses what they were doing.
  const create = async () => (await service.call('createPaymentIntent', { amount_units: 1 })).code;
  await expect.poll(create, { timeout: 25_000 }).toBe('ok');
});

test('a refused create says whether it may have been created', async () => {
  const service = await startProcess(pair, await choosePorts(), { QUEUE_TIMEOUT: '2' });
  const create = () => service.call('createPaymentIntent', { amount_units: 1 });
  expect((await create()).code).toBe('ok');
  await standby.freeze();
  const sent = create();
  const waiting = () => primary.query("select from pg_stat_activity where wait_event = 'SyncRep'");
  await expect.poll(waiting).not.toEqual([]);
  await primary.end('SIGQUIT');
  expect((await sent).message).toContain('may have been created');
  expect((await create()).message).toContain('was not created');
});

test('doctor and metrics say whether a synchronous standby is attached', async () => {
  const service = await startProcess(pair, await choosePorts());
  const doctor = async (): Promise<{ ok: boolean; message: string }> => {
    const env = { ...bareEnvironment(), ...pair.secrets, DATABASE_URL: pair.url };
    const { stdout } = await run(process.execPath, ['src/admin.ts', 'doctor', '--json'], { env }).catch(
      (error) => error,
    );
    return JSON.parse(stdout).find(({ check }: { check: string }) => check === 'replication');
  };
  const measured = async () => {
    const text = await (await fetch(`${service.operationsUrl}/metrics`)).text();
    return /^payment_intents_database_synchronous_standbys (\d)$/m.exec(text)?.[1];
  };
  expect(await doctor()).toMatchObject({
    ok: true,
    message: expect.stringMatching(/^primary, timeline 1, epoch 1, 1 synchronous of 1 standbys, /),
  });
  expect(await measured()).toBe('1');
  await primary.query("alter system set archive_command = 'false'");
  await primary.query('select pg_reload_conf(), pg_switch_wal()');
  await expect.poll(async () => (await doctor()).message).toContain('cannot be archived');
  await primary.query("alter system set archive_command = 'true'");
  await primary.query('select pg_reload_conf(), pg_switch_wal()');
  await expect.poll(async () => (await doctor()).ok).toBe(true);
  await standby.end('SIGQUIT');
  // As Patroni does when the last standby is gone: commits go on, on one server.
  await primary.query('alter system reset synchronous_standby_names');
  await primary.query('select pg_reload_conf()');
  await expect.poll(measured).toBe('0');
  expect(await doctor()).toMatchObject({
    ok: false,
    message: expect.stringContaining('what is committed now is lost with this server'),
  });
});

test('a lost session is no outage', async () => {
  const service = await startProcess(pair, await choosePorts());
  await primary.query(`select pg_terminate_backend(pid) from pg_stat_activity where query like 'listen %'`);
  const texts = () => service.log.map(({ message }) => message);
  await expect.poll(texts).toContain('the database is reached again');
  expect((await service.call('createPaymentIntent', { amount_units: 1 })).code).toBe('ok');
});

test('SIGTERM while the database is away: every create in flight is answered, and the process ends with 0', async () => {
  const service = await startProcess(pair, await choosePorts(), { DRAIN_TIMEOUT: '4', DRAIN_DELAY: '1' });
  const create = (i: number) =>
    service.call('createPaymentIntent', { amount_units: 1 }, { door: doors[i % doors.length] as Door });
  expect((await create(0)).code).toBe('ok');
  await primary.end('SIGQUIT');
  const before = Array.from({ length: 10 }, (_, i) => create(i));
  // The first refused connection says that the creates have arrived.
  await expect
    .poll(() => service.log.some(({ message }) => /cannot be reached;/.test(String(message))))
    .toBe(true);
  const ended = service.end('SIGTERM');
  await untilReadyz(service, 503, 1_000);
  // The ports are open for a second longer.
  const later = Array.from({ length: 10 }, (_, i) => create(i));
  const codes = (await Promise.all([...before, ...later])).map(({ code }) => code);
  expect(new Set(codes)).toEqual(new Set(['unavailable']));
  expect(await ended).toEqual({ code: 0, signal: null });
});

test('an outage of the database is a few lines of the log', async () => {
  const service = await startProcess(pair, await choosePorts(), { QUEUE_TIMEOUT: '1' });
  const load = await startLoad(pair, { services: [service], apiKey: pair.apiKey, callers: 16 });
  await load.progress(100);
  const linesBefore = service.log.length;
  expect(service.log.filter(({ level }) => level === 'warn')).toEqual([]);
  await primary.end('SIGQUIT');
  const summaries = () =>
    service.log.filter(({ message }) => message === 'the database cannot be reached yet').length;
  await expect.poll(summaries, { timeout: 25_000 }).toBe(2);
  await promote();
  await load.progress(100);
  await load.finish();
  const warnings = service.log.slice(linesBefore).filter(({ level }) => level !== 'info');
  const texts = warnings.map(({ message }) => message);
  expect(texts).toEqual([
    'the database cannot be reached; what fails until it can is counted',
    'the database cannot be reached yet',
    'the database cannot be reached yet',
    'the database is reached again',
  ]);
  expect(warnings[1]).toMatchObject({
    seconds: expect.toSatisfy((seconds: number) => seconds === 10 || seconds === 11),
    failures: { ECONNREFUSED: expect.any(Number), 'refused requests': expect.any(Number) },
  });
  // Besides, a line for each task that works again.
  expect(service.log.slice(linesBefore).filter(({ rpc }) => rpc === undefined).length).toBeLessThan(20);
});

describe('readers of events', () => {
  let merchantId: string;
  beforeEach(async () => {
    [{ id: merchantId } = { id: '' }] = await primary.query<{ id: string }>('select id from merchants');
  });
  afterEach(disconnectWatches);

  /** Stores events and waits until they have their positions. Returns their ids. */
  async function store(database: DatabaseLocation, n: number): Promise<string[]> {
    const query = (sql: string, values?: unknown[]) => queryOnce(database, sql, values);
    const ids = await insertEventRows(
      query,
      Array.from({ length: n }, () => ({ merchantId })),
    );
    const waiting = () => query('select from events where position is null limit 1');
    await expect.poll(waiting).toEqual([]);
    return ids;
  }
  const onPrimary = () => ({ url: primary.url('postgres', 'postgres') });
  const onStandby = () => ({ url: standby.url('postgres', 'postgres') });

  /** The page of a list, once the service reaches the database. */
  const list = (
    service: ServiceProcess,
    request: Parameters<ServiceProcess['call']>[1],
    door: Door = 'json',
  ) =>
    vi.waitUntil(
      async () => {
        const answer = await service.call('listEvents', request, { door });
        return answer.code === 'unavailable' ? undefined : answer;
      },
      { timeout: 15_000 },
    );
  const idsOf = ({ json }: Awaited<ReturnType<typeof list>>) => json.events.map(({ id }) => id);

  /** Reads events of a stream. */
  async function take(service: ServiceProcess, after: string, n: number) {
    const watch = openWatch('gRPC', service, pair.apiKey, after);
    const messages = [];
    for (let i = 0; i < n; i++) messages.push(await watch.nextEvent());
    return {
      watch,
      ids: messages.map(({ event }) => event.id),
      position: messages.at(-1)?.position ?? '',
    };
  }

  test('notice nothing of a promotion that loses nothing', async () => {
    const service = await startProcess(pair, await choosePorts());
    const before = await store(onPrimary(), 5);
    const { position } = await take(service, before[0] as string, 3);
    const { next_page_token } = (await list(service, { page_size: 2 })).json;
    await failOver('SIGQUIT');
    const later = await store(onStandby(), 5);
    const all = [...before, ...later];
    expect(idsOf(await list(service, { page_token: next_page_token, page_size: 2 }))).toEqual(
      all.slice(2, 4),
    );
    expect(idsOf(await list(service, { after: before[2] }))).toEqual(all.slice(3));
    expect((await take(service, position, 6)).ids).toEqual(all.slice(4));
    expect(await standby.query('select begins_after::int from event_epochs order by number')).toEqual([
      { begins_after: 0 },
      { begins_after: 5 },
    ]);
  });

  test('that are past the events a promotion lost are refused, and no others', async () => {
    await primary.query('alter system reset synchronous_standby_names');
    await primary.query('select pg_reload_conf()');
    const service = await startProcess(pair, await choosePorts());
    const kept = await store(onPrimary(), 10);
    const keptPosition = (await take(service, kept[0] as string, 8)).position;
    await expect.poll(() => standby.query('select from events where position = 10')).toHaveLength(1);
    // From here on the standby receives nothing.
    await standby.query("alter system set primary_conninfo = ''");
    await standby.query('select pg_reload_conf()');
    await expect.poll(() => standby.query('select from pg_stat_wal_receiver')).toEqual([]);
    const lost = await store(onPrimary(), 90);
    const reader = await take(service, kept[9] as string, 90);
    expect(reader.ids).toEqual(lost);
    const { next_page_token } = (await list(service, { page_size: 50 })).json;
    await failOver('SIGQUIT');
    // Their positions were those of other events before.
    const later = await store(onStandby(), 100);

    expect(['cursor_expired', 'unavailable']).toContain((await reader.watch.refusal()).code);
    expect((await openWatch('gRPC', service, pair.apiKey, reader.position).refusal()).code).toBe(
      'cursor_expired',
    );
    for (const past of [{ after: lost[0] }, { after: lost[89] }, { page_token: next_page_token }]) {
      for (const door of doors) {
        const { code, resumeAfter } = await list(service, past, door);
        expect([code, resumeAfter]).toEqual(['cursor_expired', kept[9]]);
      }
    }
    expect(idsOf(await list(service, { after: kept[9], page_size: 100 }))).toEqual(later);
    expect((await take(service, keptPosition, 101)).ids).toEqual([kept[9], ...later]);
    expect((await list(service, { after: formatIdentifier('evt', newUuid()) })).code).toBe(
      'resource_missing',
    );
  });

  test('of one restored backup are refused by another one', async () => {
    const first = await startProcess(pair, await choosePorts());
    const kept = await store(onPrimary(), 3);
    await first.end('SIGTERM');
    const restored = await Promise.all(
      ['one', 'two'].map(async (name) => {
        await primary.query(`create database ${name} template postgres strategy file_copy`, 'template1');
        const url = primary.url('postgres', name);
        const env = { ...bareEnvironment(), DATABASE_URL: url };
        await run(process.execPath, ['src/admin.ts', 'event', 'new-epoch', '--yes'], { env });
        const service = await startProcess({ ...pair, url }, await choosePorts());
        return { service, events: await store({ url }, 5) };
      }),
    );
    const [one, two] = restored as [(typeof restored)[0], (typeof restored)[0]];
    const { position } = await take(one.service, kept[2] as string, 2);
    expect((await take(one.service, position, 3)).ids).toEqual(one.events.slice(2));
    expect((await openWatch('gRPC', two.service, pair.apiKey, position).refusal()).code).toBe(
      'cursor_expired',
    );
  });
});
