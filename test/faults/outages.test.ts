// Outages of the database, and of the standby that commits wait for.

import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { runAdmin } from '../support/admin.ts';
import { type Door, doors } from '../support/call.ts';
import { startChain } from '../support/chain.ts';
import { metric } from '../support/metrics.ts';
import { bareEnvironment } from '../support/test-environment.ts';
import { startLoad } from './support/load.ts';
import { usePair } from './support/pair.ts';
import { startProcess, untilReadyz } from './support/process.ts';

const pair = usePair();

test('without its synchronous standby the service is not ready, and it is ready again soon after that returns', async () => {
  const { standby } = pair;
  const service = await startProcess(pair, { QUEUE_TIMEOUT: '3' });
  await standby.freeze();
  await untilReadyz(service, 503, 10_000);
  expect((await fetch(`${service.operationsUrl}/healthz`)).status).toBe(200);
  standby.thaw();
  expect(await untilReadyz(service, 200, 5_000)).toBeLessThan(5_000);
});

test('a create whose wait for the standby is canceled is not answered before it is on the standby', async () => {
  const { primary, standby, promote } = pair;
  const service = await startProcess(pair, { QUEUE_TIMEOUT: '30' });
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
  // Cancels the wait of the insert, and then of each commit that follows.
  for (let canceled = 0; canceled < 5 && !isAnswered; ) {
    canceled += (await cancelWaits())[0]?.n ?? 0;
    await sleep(50);
  }
  expect(await primary.query('select count(*)::int as n from payment_intents')).toEqual([{ n: 2 }]);
  expect(isAnswered).toBe(false);
  // The commit exists only on the primary, and is lost with it.
  const lost = await primary.query<{ id: string }>('select id from payment_intents order by id desc limit 1');
  await primary.end('SIGQUIT');
  standby.thaw();
  await promote();
  expect((await created).code).toBe('ok');
  expect(await pair.query('select count(*)::int as n from payment_intents')).toEqual([{ n: 2 }]);
  // The create was repeated with the same id.
  expect(lost).toHaveLength(1);
  expect(await pair.query('select id from payment_intents order by id desc limit 1')).toEqual(lost);
});

test('if the primary freezes, notifications arrive from the new one within 15 seconds', async () => {
  const { primary, standby, promote } = pair;
  const service = await startProcess(pair);
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
  // Sessions of the old primary end after DATABASE_TIMEOUT, and their requests are refused.
  const create = async () => (await service.call('createPaymentIntent', { amount_units: 1 })).code;
  await expect.poll(create, { timeout: 25_000 }).toBe('ok');
});

test('a refused create says whether it may have been created', async () => {
  const { primary, standby } = pair;
  const service = await startProcess(pair, { QUEUE_TIMEOUT: '2' });
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
  const { primary, standby } = pair;
  const service = await startProcess(pair);
  const doctor = async (): Promise<{ ok: boolean; message: string }> => {
    const env = { ...bareEnvironment(), ...pair.secrets, DATABASE_URL: pair.url };
    const { stdout } = await runAdmin(['doctor', '--json'], env);
    return JSON.parse(stdout).find(({ check }: { check: string }) => check === 'replication');
  };
  const measured = () => metric(service, 'payment_intents_database_synchronous_standbys');
  expect(await doctor()).toMatchObject({
    ok: true,
    message: expect.stringMatching(/^primary, timeline 1, epoch 1, 1 synchronous of 1 standbys, /),
  });
  expect(await measured()).toBe(1);
  const archivedBy = async (command: string) => {
    await primary.query(`alter system set archive_command = '${command}'`);
    await primary.query('select pg_reload_conf()');
  };
  // The first file may still be archived by the command before.
  const afterNextFile = async () => {
    await primary.query("select pg_create_restore_point('next'), pg_switch_wal()");
    return doctor();
  };
  await archivedBy('false');
  await expect.poll(async () => (await afterNextFile()).message).toContain('cannot be archived');
  // What stops every create is named, too.
  const waitFor = async (name: string) => {
    await primary.query(`alter system set synchronous_standby_names = '${name}'`);
    await primary.query('select pg_reload_conf()');
  };
  await waitFor('gone');
  const both = 'commits wait for gone, which is not attached; the log cannot be archived';
  await expect.poll(async () => (await doctor()).message).toContain(both);
  await waitFor('standby');
  await archivedBy('true');
  await expect.poll(async () => (await afterNextFile()).ok).toBe(true);
  // A command that does not end: the files of the log pile up, and no failure is reported.
  const end = join(primary.folder, 'end');
  await archivedBy(`until test -e ${end}; do sleep 0.1; done`);
  for (let i = 0; i < 16; i++) await primary.query("select pg_create_restore_point('next'), pg_switch_wal()");
  await expect.poll(async () => (await afterNextFile()).message).toContain('cannot be archived');
  await writeFile(end, '');
  await expect.poll(async () => (await doctor()).ok).toBe(true);
  await standby.end('SIGQUIT');
  // Like Patroni when the last standby is gone: commits go on, on one server.
  await primary.query('alter system reset synchronous_standby_names');
  await primary.query('select pg_reload_conf()');
  await expect.poll(measured).toBe(0);
  expect(await doctor()).toMatchObject({
    ok: false,
    message: expect.stringContaining('what is committed now is lost with this server'),
  });
});

test('a lost session is not reported as an outage', async () => {
  const { primary } = pair;
  const service = await startProcess(pair);
  await primary.query(`select pg_terminate_backend(pid) from pg_stat_activity where query like 'listen %'`);
  const texts = () => service.log.map(({ message }) => message);
  await expect.poll(texts).toContain('the database is reached again');
  expect((await service.call('createPaymentIntent', { amount_units: 1 })).code).toBe('ok');
});

test('with SIGTERM during an outage, every create in flight is answered, and the process exits with 0', async () => {
  const { primary } = pair;
  const chain = await startChain();
  onTestFinished(chain.stop);
  const timeouts = { QUEUE_TIMEOUT: '2', DRAIN_TIMEOUT: '10', DRAIN_DELAY: '12' };
  const service = await startProcess(pair, {
    ...timeouts,
    RPC_URL_BASE_SEPOLIA: chain.url,
  });
  await expect.poll(() => service.log.some(({ message }) => message === 'watching the chain')).toBe(true);
  const create = (i: number) =>
    service.call('createPaymentIntent', { amount_units: 1 }, { door: doors[i % doors.length] as Door });
  expect((await create(0)).code).toBe('ok');
  await primary.end('SIGQUIT');
  const before = Array.from({ length: 10 }, (_, i) => create(i));
  // The first refused connection shows that the creates have arrived.
  await expect
    .poll(() => service.log.some(({ message }) => /cannot be reached;/.test(String(message))))
    .toBe(true);
  const ended = service.end('SIGTERM');
  await untilReadyz(service, 503, 3_000);
  // The ports stay open for 4.5 s, half of the time for requests.
  const later = Array.from({ length: 10 }, (_, i) => create(i));
  const codes = (await Promise.all([...before, ...later])).map(({ code }) => code);
  expect(new Set(codes)).toEqual(new Set(['unavailable']));
  expect(await ended).toEqual({ code: 0, signal: null });
});

test('an outage of the database logs only a few lines', async () => {
  const { primary, promote } = pair;
  const service = await startProcess(pair, { QUEUE_TIMEOUT: '1' });
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
  const lines = service.log.slice(linesBefore).filter(({ level }) => level !== 'info');
  // Requests in flight when the database ended, one for each caller, may have waited too long.
  expect(lines.filter(({ rpc }) => rpc !== undefined).length).toBeLessThanOrEqual(16);
  const warnings = lines.filter(({ rpc }) => rpc === undefined);
  const texts = warnings.map(({ message }) => message);
  expect(texts).toEqual([
    'the database cannot be reached; what fails until it can is counted',
    'the database cannot be reached yet',
    'the database cannot be reached yet',
    'the database is reached again',
  ]);
  expect(warnings[1]).toMatchObject({
    seconds: expect.toSatisfy((seconds: number) => seconds >= 10 && seconds <= 13),
    failures: { ECONNREFUSED: expect.any(Number), 'refused requests': expect.any(Number) },
  });
  // In addition, each task logs a line when it works again.
  expect(service.log.slice(linesBefore).filter(({ rpc }) => rpc === undefined).length).toBeLessThan(20);
});
