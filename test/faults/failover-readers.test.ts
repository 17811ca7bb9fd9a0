// How a failover or a restored backup affects readers of events.

import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { DatabaseLocation } from '../../src/config/database-location.ts';
import { formatIdentifier, newUuid } from '../../src/database/identifiers.ts';
import { runAdmin } from '../support/admin.ts';
import { type Door, doors } from '../support/call.ts';
import { insertEventRows } from '../support/event-rows.ts';
import { disconnectWatches, openWatch } from '../support/event-streams.ts';
import { bareEnvironment } from '../support/test-environment.ts';
import { usePair } from './support/pair.ts';
import { queryOnce, type ServiceProcess, startProcess } from './support/process.ts';

const pair = usePair();

let merchantId: string;
beforeEach(async () => {
  [{ id: merchantId } = { id: '' }] = await pair.primary.query<{ id: string }>('select id from merchants');
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
const onPrimary = () => ({ url: pair.primary.url('postgres', 'postgres') });
const onStandby = () => ({ url: pair.standby.url('postgres', 'postgres') });

/** Returns the page of a list, once the service reaches the database. */
const list = (service: ServiceProcess, request: Parameters<ServiceProcess['call']>[1], door: Door = 'json') =>
  vi.waitUntil(
    async () => {
      const answer = await service.call('listEvents', request, { door });
      return answer.code === 'unavailable' ? undefined : answer;
    },
    { timeout: 30_000 },
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

test('readers of events do not notice a promotion that loses nothing', async () => {
  const { standby, failOver } = pair;
  const service = await startProcess(pair);
  const before = await store(onPrimary(), 5);
  const { position } = await take(service, before[0] as string, 3);
  const { next_page_token } = (await list(service, { page_size: 2 })).json;
  await failOver('SIGQUIT');
  const later = await store(onStandby(), 5);
  const all = [...before, ...later];
  expect(idsOf(await list(service, { page_token: next_page_token, page_size: 2 }))).toEqual(all.slice(2, 4));
  expect(idsOf(await list(service, { after: before[2] }))).toEqual(all.slice(3));
  expect((await take(service, position, 6)).ids).toEqual(all.slice(4));
  expect(await standby.query('select begins_after::int from event_epochs order by number')).toEqual([
    { begins_after: 0 },
    { begins_after: 5 },
  ]);
});

test('only readers whose position is after the events that a promotion lost are refused', async () => {
  const { primary, standby, failOver } = pair;
  await primary.query('alter system reset synchronous_standby_names');
  await primary.query('select pg_reload_conf()');
  const service = await startProcess(pair);
  const kept = await store(onPrimary(), 10);
  const keptPosition = (await take(service, kept[0] as string, 8)).position;
  await expect.poll(() => standby.query('select from events where position = 10')).toHaveLength(1);
  // From now on the standby receives nothing.
  await standby.query("alter system set primary_conninfo = ''");
  await standby.query('select pg_reload_conf()');
  await expect.poll(() => standby.query('select from pg_stat_wal_receiver')).toEqual([]);
  const lost = await store(onPrimary(), 90);
  const reader = await take(service, kept[9] as string, 90);
  expect(reader.ids).toEqual(lost);
  const refusal = reader.watch.refusal();
  const { next_page_token } = (await list(service, { page_size: 50 })).json;
  await failOver('SIGQUIT');
  // Lost events had these positions before.
  const later = await store(onStandby(), 100);

  expect(['cursor_expired', 'unavailable']).toContain((await refusal).code);
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
  expect((await list(service, { after: formatIdentifier('evt', newUuid()) })).code).toBe('resource_missing');
});

test('readers of one restored backup are refused by another restore of it', async () => {
  const { primary } = pair;
  const first = await startProcess(pair);
  const kept = await store(onPrimary(), 3);
  await first.end('SIGTERM');
  const restored = await Promise.all(
    ['one', 'two'].map(async (name) => {
      await primary.query(`create database ${name} template postgres strategy file_copy`, 'template1');
      const url = primary.url('postgres', name);
      const env = { ...bareEnvironment(), DATABASE_URL: url };
      expect(await runAdmin(['event', 'new-epoch', '--yes'], env)).toMatchObject({ code: 0 });
      const service = await startProcess({ ...pair, url });
      return { service, events: await store({ url }, 5) };
    }),
  );
  const [one, two] = restored as [(typeof restored)[0], (typeof restored)[0]];
  const { position } = await take(one.service, kept[2] as string, 2);
  expect((await take(one.service, position, 3)).ids).toEqual(one.events.slice(2));
  expect((await openWatch('gRPC', two.service, pair.apiKey, position).refusal()).code).toBe('cursor_expired');
});
