// A reader that follows sees every event exactly once, whenever its transaction commits and whoever assigns positions.

import { afterAll, expect, test } from 'vitest';
import { loadConfig } from '../src/config/config.ts';
import { formatIdentifier, newUuid } from '../src/database/identifiers.ts';
import { newEvent } from '../src/database/new-events.ts';
import { createOrm } from '../src/database/orm.ts';
import { createPositioner } from '../src/events/position-events.ts';
import { type Door, everyDoor } from './support/call.ts';
import { allPositioned, insertEventRows } from './support/event-rows.ts';
import { disconnectWatches, openWatch } from './support/event-streams.ts';
import { openClient } from './support/open-client.ts';
import { createTestDatabase, keyOf, startService } from './support/service.ts';
import { useService } from './support/use-service.ts';

const service = await useService();

afterAll(async () => {
  disconnectWatches();
});

const { newMerchant } = service;

async function connect(location = service.location) {
  const client = await openClient(location);
  return {
    client,
    query: (sql: string, values?: unknown[]) => client.query(sql, values),
    end: () => client.end(),
  };
}

test.each(['expiry', 'deliveries'])(
  'a process with only the role %s positions the events of others',
  async (ROLES) => {
    const alone = await startService({ ROLES });
    await insertEventRows(alone.query, [{ merchantId: alone.merchant.id }]);
    const positions = async () =>
      (await alone.query('select position from events')).map(({ position }) => position);
    await expect.poll(positions).toEqual(['1']);
    await alone.close();
  },
);

test('lists by id have the events of one millisecond in their order', () => {
  const at = new Date();
  const ids = Array.from({ length: 50 }, (_, i) => {
    const report = { type: 'payment_intent.processing', data: {}, sequence: i + 1 } as const;
    return newEvent({ merchantId: newUuid(), mode: 'testnet' }, at, report).id;
  });
  expect(ids).toEqual([...ids].sort());
});

interface Seen {
  id: string;
  intent: string;
  sequence: number;
}

/** A reader that follows by `after`, page by page. */
function follow(door: Door, apiKey: string, pageSize = 100) {
  const seen: Seen[] = [];
  return {
    seen,
    /** Reads what there is. */
    async readOn() {
      for (;;) {
        const after = seen.at(-1)?.id;
        const { code, json } = await service.call(
          'listEvents',
          { page_size: pageSize, ...(after !== undefined && { after }) },
          { door, apiKey },
        );
        expect(code).toBe('ok');
        for (const { id, sequence, data } of json.events) {
          seen.push({ id, intent: data.payment_intent.id, sequence });
        }
        if (json.events.length < pageSize) return seen;
      }
    },
  };
}

const idsOf = (seen: readonly Seen[]) => seen.map(({ id }) => id);

/** The sequences that were seen of each intent. */
function sequencesOf(seen: readonly Pick<Seen, 'intent' | 'sequence'>[]): Map<string, number[]> {
  const byIntent = new Map<string, number[]>();
  for (const { intent, sequence } of seen) byIntent.set(intent, [...(byIntent.get(intent) ?? []), sequence]);
  return byIntent;
}

test('an event that commits late is ordered after events that were already read', async () => {
  const merchant = await newMerchant();
  const merchantId = merchant.id;
  const readers = everyDoor.map((door) => follow(door, keyOf(merchant)));
  const allHaveSeen = (ids: string[]) =>
    Promise.all(readers.map((reader) => expect.poll(async () => idsOf(await reader.readOn())).toEqual(ids)));
  const [late, other] = [newUuid(), newUuid()];

  const slow = await connect();
  await slow.query('begin');
  const first = await insertEventRows(slow.query, [{ merchantId, paymentIntent: late, sequence: 1 }]);
  const meanwhile: string[] = [];
  for (const sequence of [1, 2, 3]) {
    meanwhile.push(
      ...(await insertEventRows(service.query, [{ merchantId, paymentIntent: other, sequence }])),
    );
    await allHaveSeen(meanwhile);
  }
  await slow.query('commit');
  await slow.end();
  await allHaveSeen([...meanwhile, ...first]);
  const second = await insertEventRows(service.query, [{ merchantId, paymentIntent: late, sequence: 2 }]);
  await allHaveSeen([...meanwhile, ...first, ...second]);
});

test('a transaction in another database of the cluster delays no event', async () => {
  const merchant = await newMerchant();
  const elsewhere = await createTestDatabase();
  const slow = await connect(elsewhere);
  await slow.query('begin');
  // It writes, so it has a transaction id, older than that of every event below.
  await slow.query('create table held (id int)');
  try {
    const ids = await insertEventRows(service.query, [{ merchantId: merchant.id }]);
    const reader = follow('json', keyOf(merchant));
    await expect.poll(async () => idsOf(await reader.readOn())).toEqual(ids);
  } finally {
    await slow.query('rollback');
    await slow.end();
    await elsewhere.drop();
  }
});

test('concurrent positioners give each event one position, in order, without gaps', async () => {
  const merchant = await newMerchant();
  const apiKey = keyOf(merchant);
  const merchantId = merchant.id;
  const { databaseTimeouts } = loadConfig({});
  const orms = [4, 4].map((pool) => createOrm(service.location, pool, databaseTimeouts));
  const writers = await Promise.all(Array.from({ length: 5 }, () => connect()));
  const [before] = await service.query<{ last_position: string }>('select last_position from event_progress');

  let isWriting = true;
  const written: string[] = [];
  const write = async (query: (typeof writers)[number]['query'], next: number) => {
    const intents = Array.from({ length: 4 }, () => newUuid());
    for (let sequence = 1; sequence <= 8; sequence++) {
      for (const paymentIntent of intents) {
        await query('begin');
        const ids = await insertEventRows(query, [{ merchantId, paymentIntent, sequence }]);
        // Others commit meanwhile.
        if ((sequence + next) % 3 === 0) await writers[(next + 1) % writers.length]?.query('select');
        await query('commit');
        written.push(...ids);
      }
    }
  };
  const positioners = orms.flatMap((orm) => [createPositioner(orm.em), createPositioner(orm.em)]);
  const position = async ({ positionAll }: (typeof positioners)[number]) => {
    let total = 0;
    while (isWriting) total += await positionAll();
    return total + (await positionAll());
  };
  const readers = [follow('json', apiKey, 3), follow('grpc', apiKey, 100)];
  const read = async (reader: ReturnType<typeof follow>) => {
    while (isWriting) await reader.readOn();
  };
  const watch = openWatch('grpc-js', service, apiKey);
  await watch.next();

  const reading = Promise.all(readers.map(read));
  const positioning = Promise.all(positioners.map(position));
  await Promise.all(writers.map(({ query }, i) => write(query, i)));
  // Too many for one transaction to give positions to: two events of each of many intents.
  const many = Array.from({ length: 1_200 }, () => newUuid());
  written.push(
    ...(await insertEventRows(
      service.query,
      [1, 2].flatMap((sequence) => many.map((paymentIntent) => ({ merchantId, paymentIntent, sequence }))),
    )),
  );
  isWriting = false;
  await reading;
  const totals = await positioning;
  expect(Math.max(...totals)).toBeGreaterThan(0);
  await allPositioned(service);

  const rows = await service.query<{ id: string; intent: string; sequence: number; position: string }>(
    'select id, payment_intent as intent, sequence, position from events where position > $1 order by position',
    [before?.last_position],
  );
  const start = Number(before?.last_position);
  expect(rows.map(({ position }) => Number(position))).toEqual(rows.map((_, i) => start + 1 + i));
  const [after] = await service.query<{ last_position: string }>('select last_position from event_progress');
  expect(Number(after?.last_position)).toBe(start + rows.length);
  const order = rows.map(({ id }) => formatIdentifier('evt', id));
  expect([...order].sort()).toEqual([...written].sort());
  for (const [intent, sequences] of sequencesOf(rows)) {
    expect(sequences, intent).toEqual(sequences.map((_, i) => i + 1));
  }

  for (const reader of readers) {
    const seen = await reader.readOn();
    expect(idsOf(seen)).toEqual(order);
    for (const [intent, sequences] of sequencesOf(seen)) {
      expect(sequences, intent).toEqual(sequences.map((_, i) => i + 1));
    }
  }
  const streamed: string[] = [];
  while (streamed.length < order.length) streamed.push((await watch.nextEvent()).event.id);
  expect(streamed).toEqual(order);

  for (const { end } of writers) await end();
  for (const orm of orms) await orm.close();
});
