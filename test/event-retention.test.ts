// Events are removed after a number of days, and a reader that would miss some gets `cursor_expired`.

import { create } from '@bufbuild/protobuf';
import { afterAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { ListEventsRequestSchema } from '../src/contract/gen/payments/v1/event_service_pb.ts';
import { formatIdentifier } from '../src/database/identifiers.ts';
import { listEvents } from '../src/events/event-methods.ts';
import { createEventCursors, createEventReader } from '../src/events/read-events.ts';
import { createEventRemoval } from '../src/events/remove-events.ts';
import { newRequestContext } from '../src/requests/request-context.ts';
import { type Door, everyDoor, refusalOf } from './support/call.ts';
import { insertEventRows, storeEvents } from './support/event-rows.ts';
import { disconnectWatches, openWatch, protocols } from './support/event-streams.ts';
import { identityOf, keyOf, type TestMerchant } from './support/service.ts';
import { useService } from './support/use-service.ts';

// The service's own removal finds nothing to remove.
const service = await useService({ EVENT_RETENTION_DAYS: '3650' });

const retentionDays = 7;
const dayMs = 86_400_000;
const longAgoMs = () => Date.now() - retentionDays * dayMs - 60_000;
const justKeptMs = () => Date.now() - retentionDays * dayMs + 60_000;

afterAll(async () => {
  disconnectWatches();
});

const { newMerchant } = service;
const removalOf = () => createEventRemoval(service.database.orm.em, retentionDays);

/** Removes until there is no more. */
async function removeAll(): Promise<void> {
  const remove = removalOf();
  while (await remove());
}

const countOf = async (table: 'events' | 'removed_events', { id }: TestMerchant) =>
  (
    await service.query<{ n: number }>(`select count(*)::int as n from ${table} where merchant_id = $1`, [id])
  )[0]?.n;

/** Asks every door and every stream for the events behind `after`. Returns their refusals. */
async function codesAfter(
  after: string,
  apiKey: string,
  doorsAsked: readonly Door[] = everyDoor,
): Promise<string[]> {
  const codes = doorsAsked.map(async (door) => {
    const { code, status } = await service.call('listEvents', { after }, { door, apiKey });
    return `${door} ${status} ${code}`;
  });
  for (const protocol of protocols) {
    const watch = openWatch(protocol, service, apiKey, after);
    codes.push(watch.refusal().then(({ code, status }) => `${protocol} ${status} ${code}`));
  }
  return Promise.all(codes);
}

const overEveryStream = (outcome: string) => protocols.map((protocol) => `${protocol} ${outcome}`);
const expired = [
  'json 410 cursor_expired',
  ...everyDoor.slice(1).map((door) => `${door} 11 cursor_expired`),
  ...overEveryStream('11 cursor_expired'),
];
const missing = [
  'json 404 resource_missing',
  ...everyDoor.slice(1).map((door) => `${door} 5 resource_missing`),
  ...overEveryStream('5 resource_missing'),
];

describe('removal', () => {
  test('removes events older than the retention, in batches, and keeps their ids', async () => {
    const merchant = await newMerchant();
    const merchantId = merchant.id;
    const old = await storeEvents(
      service,
      Array.from({ length: 2_500 }, () => ({ merchantId, createdAtMs: longAgoMs() })),
    );
    const kept = await storeEvents(service, [{ merchantId, createdAtMs: justKeptMs() }, { merchantId }]);
    const remove = removalOf();
    const left = [];
    for (let hasMore = true; hasMore; ) {
      hasMore = await remove();
      left.push([await countOf('events', merchant), await countOf('removed_events', merchant)]);
    }
    expect(left).toEqual([
      [1_502, 1_000],
      [502, 2_000],
      [2, 2_500],
    ]);
    const { events } = (await service.call('listEvents', {}, { apiKey: keyOf(merchant) })).json;
    expect(events.map(({ id }) => id)).toEqual(kept);
    expect((await service.call('getEvent', { id: old[0] }, { apiKey: keyOf(merchant) })).code).toBe(
      'resource_missing',
    );
  });

  test('several processes remove each event once, with its deliveries and their attempts', async () => {
    const merchant = await newMerchant();
    await storeEvents(
      service,
      Array.from({ length: 1_500 }, () => ({ merchantId: merchant.id, createdAtMs: longAgoMs() })),
    );
    await service.query(
      `insert into webhook_attempts (event_id, endpoint_id, number, at, duration_ms)
       select id, merchant_id, 1, now(), 5 from events where merchant_id = $1`,
      [merchant.id],
    );
    await service.query(
      `insert into webhook_deliveries (merchant_id, event_id, endpoint_id, id, status, created_at)
       select merchant_id, id, id, id, 'delivered', now() from events where merchant_id = $1`,
      [merchant.id],
    );
    await Promise.all([removeAll(), removeAll(), removeAll()]);
    expect(await service.query('select from webhook_attempts limit 1')).toEqual([]);
    expect(await service.query('select from webhook_deliveries limit 1')).toEqual([]);
    expect([await countOf('events', merchant), await countOf('removed_events', merchant)]).toEqual([
      0, 1_500,
    ]);
  });

  test.each([
    ["this process's clock is a year ahead", 365, Date.now],
    ["the database's clock is a year ahead, which makes them look old", -365, longAgoMs],
    ["this process's clock is at the year 1970", -Date.now() / dayMs, Date.now],
  ])('keeps events although %s', async (_, days, createdAtMs) => {
    const merchant = await newMerchant();
    await storeEvents(service, [{ merchantId: merchant.id, createdAtMs: createdAtMs() }]);
    const ownMs = Math.round(Date.now() + days * dayMs);
    vi.spyOn(Date, 'now').mockReturnValue(ownMs);
    await removeAll().finally(() => vi.restoreAllMocks());
    expect(await countOf('events', merchant)).toBe(1);
  });

  test('keeps an event that is redelivered while it is to be removed', async () => {
    const merchant = await newMerchant();
    await storeEvents(service, [{ merchantId: merchant.id, createdAtMs: longAgoMs() }]);
    await service.query(`
      create function redeliver() returns trigger language plpgsql as $$ begin
        insert into webhook_deliveries (merchant_id, event_id, endpoint_id, id, status, created_at, next_attempt_at)
        values (old.merchant_id, old.id, old.id, old.id, 'pending', now(), now()); return old; end $$;
      create trigger redeliver before delete on events for each row execute function redeliver()`);
    onTestFinished(async () => void (await service.query('drop function redeliver cascade')));
    await expect(removeAll()).rejects.toThrow('redelivered');
    expect(await countOf('events', merchant)).toBe(1);
  });

  test('tries a batch of half the size after a failure', async () => {
    const merchant = await newMerchant();
    const old = { merchantId: merchant.id, createdAtMs: longAgoMs() };
    await storeEvents(service, Array(1_100).fill(old));
    await service.query(`
      create function refuse() returns trigger language plpgsql as $$ begin
        if (select count(*) from gone) > 600 then raise 'too many'; end if; return null; end $$;
      create trigger refuse after delete on events referencing old table as gone
        for each statement execute function refuse()`);
    onTestFinished(async () => void (await service.query('drop function refuse cascade')));
    const remove = removalOf();
    await expect(remove()).rejects.toThrow('too many');
    expect(await remove()).toBe(true);
    expect(await countOf('removed_events', merchant)).toBeLessThanOrEqual(500);
    while (await remove());
    expect(await countOf('events', merchant)).toBe(0);
  });

  test('keeps events without a position, which no reader has seen', async () => {
    const merchant = await newMerchant();
    // The lock of the transaction that gives positions.
    await service.query('select pg_advisory_lock(4611733002118207)');
    try {
      await insertEventRows(service.query, [{ merchantId: merchant.id, createdAtMs: longAgoMs() }]);
      await removeAll();
      expect(await countOf('events', merchant)).toBe(1);
    } finally {
      await service.query('select pg_advisory_unlock(4611733002118207)');
    }
  });
});

describe('a reader that returns', () => {
  test('after a removed event gets cursor_expired for 90 days', async () => {
    const merchant = await newMerchant();
    const apiKey = keyOf(merchant);
    const [removed = ''] = await storeEvents(service, [
      { merchantId: merchant.id, createdAtMs: longAgoMs() },
      { merchantId: merchant.id },
    ]);
    await removeAll();
    expect(await codesAfter(removed, apiKey)).toEqual(expired);
    // Others do not learn that it existed.
    for (const other of [keyOf(await newMerchant()), merchant.keys.mainnet.apiKey]) {
      expect(await codesAfter(removed, other)).toEqual(missing);
    }
    const rememberedFor = async (days: number) => {
      await service.query(
        'update removed_events set removed_at = now() - make_interval(days => $2) where merchant_id = $1',
        [merchant.id, days],
      );
      await removeAll();
    };
    await rememberedFor(89);
    expect(await codesAfter(removed, apiKey)).toEqual(expired);
    await rememberedFor(91);
    expect(await codesAfter(removed, apiKey)).toEqual(missing);
    expect(await countOf('removed_events', merchant)).toBe(0);
  });

  test('with a position before removed events gets cursor_expired, after them it continues', async () => {
    const merchant = await newMerchant();
    const apiKey = keyOf(merchant);
    const positionNow = async () => (await openWatch('gRPC', service, apiKey).next()).position;
    const before = await positionNow();
    await storeEvents(service, [{ merchantId: merchant.id, createdAtMs: longAgoMs() }]);
    const behind = await positionNow();
    await removeAll();
    expect(await codesAfter(before, apiKey, [])).toEqual(overEveryStream('11 cursor_expired'));
    for (const protocol of protocols) {
      expect(await openWatch(protocol, service, apiKey, behind).next(), protocol).toMatchObject({
        position: behind,
      });
    }
  });

  test('after a kept event followed by removed ones gets cursor_expired', async () => {
    const merchant = await newMerchant();
    const merchantId = merchant.id;
    const apiKey = keyOf(merchant);
    const [first = ''] = await storeEvents(service, [{ merchantId }]);
    // Committed so late that it is older than an event with an earlier position.
    await storeEvents(service, [{ merchantId, createdAtMs: longAgoMs() }]);
    const [last = ''] = await storeEvents(service, [{ merchantId }]);
    await removeAll();
    expect((await service.call('getEvent', { id: first }, { apiKey })).code).toBe('ok');
    expect(await codesAfter(first, apiKey)).toEqual(expired);
    for (const door of everyDoor) {
      expect(await service.call('listEvents', { after: last }, { door, apiKey }), door).toMatchObject({
        code: 'ok',
        json: { events: [] },
      });
    }
  });
});

describe('events that are removed while they are read', () => {
  const large = `{"payment_intent":{"metadata":{"text":"${'x'.repeat(16_000)}"}}}`;

  test.each(protocols)('end a stream over %s that has not sent them yet', async (protocol) => {
    const merchant = await newMerchant();
    const event = { merchantId: merchant.id, createdAtMs: longAgoMs(), data: large };
    await storeEvents(
      service,
      Array.from({ length: 300 }, () => event),
    );
    const rows = await service.query<{ id: string }>(
      'select id from events where merchant_id = $1 order by position',
      [merchant.id],
    );
    const [first = '', ...others] = rows.map(({ id }) => formatIdentifier('evt', id));
    const watch = openWatch(protocol, service, keyOf(merchant), first);
    await watch.next();
    // The client reads no more, so the service has sent only what fits into the buffers.
    await removeAll();
    await storeEvents(service, [{ merchantId: merchant.id }]);
    const positions: string[] = [];
    const refusal = await (async () => {
      for (;;) {
        const message = await watch.next().catch((reason) => ({ reason, position: undefined }));
        if (message.position === undefined) return refusalOf(message.reason);
        positions.push(message.position);
      }
    })();
    expect(refusal).toMatchObject({ code: 'cursor_expired', status: 11 });
    expect(positions.length).toBeLessThan(others.length);
    expect(new Set(positions).size).toBe(positions.length);
  });

  test('make a list fail instead of skipping them', async () => {
    const merchant = await newMerchant();
    const merchantId = merchant.id;
    const [first = ''] = await storeEvents(service, [{ merchantId }]);
    await storeEvents(service, [{ merchantId, createdAtMs: longAgoMs() }]);
    const { em } = service.database.orm;
    const reader = createEventReader(em);
    const method = listEvents(
      {
        ...reader,
        // Between the check of `after` and the read of the events behind it.
        async page(...range) {
          await removeAll();
          return reader.page(...range);
        },
      },
      createEventCursors(em),
    );
    const identity = identityOf(merchant);
    const { signal } = new AbortController();
    const call = { context: newRequestContext('internal'), signal, header: new Headers() };
    const list = method.run(create(ListEventsRequestSchema, { after: first }), identity, call);
    await expect(list).rejects.toMatchObject({ code: 'cursor_expired' });
  });
});
