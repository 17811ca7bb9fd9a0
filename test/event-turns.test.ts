// Merchants take turns for the positions of their events, whatever another merchant's events cost.

import { afterAll, beforeEach, expect, test } from 'vitest';
import { newUuid } from '../src/database/identifiers.ts';
import { createOrm } from '../src/database/orm.ts';
import { createPositioner } from '../src/events/position-events.ts';
import { createDeliveries } from '../src/webhooks/delivery-queue.ts';
import { type EventRowSettings, insertEventRows } from './support/event-rows.ts';
import { createTestDatabase } from './support/service.ts';

const database = await createTestDatabase();
const orm = createOrm(database, 2);

afterAll(async () => {
  await orm.close();
  await database.drop();
});

beforeEach(() => query('truncate events, webhook_endpoints, webhook_deliveries'));

async function query(sql: string, values: readonly unknown[] = []) {
  const pool = await orm.em.getConnection().getNativeClient();
  return (await pool.query(sql, [...values])).rows;
}

/** Returns the UUIDs of new merchants with this many endpoints each. */
async function newMerchants(count: number, endpoints: number): Promise<string[]> {
  const merchantIds = Array.from({ length: count }, () => newUuid());
  await query(
    `insert into webhook_endpoints (id, merchant_id, mode, url, event_types, enabled, created_at)
     select gen_random_uuid(), merchant_id, 'testnet', 'https://shop.example', '{*}', true, now()
       from unnest($1::uuid[]) as merchant_id, generate_series(1, $2)`,
    [merchantIds, endpoints],
  );
  return merchantIds;
}

/** Positions all events. Returns the number of events and deliveries of each batch. */
async function positionInBatches(): Promise<{ events: number; deliveries: number }[]> {
  const batches: { events: number; deliveries: number }[] = [];
  await createPositioner(orm.em, async (run, after, upTo) => {
    const deliveries = await createDeliveries(run, after, upTo);
    batches.push({ events: Number(upTo - after), deliveries });
  }).positionAll();
  return batches;
}

/** The events in the order of their positions, which have no gaps. */
async function positioned(): Promise<{ merchant: string; intent: string; sequence: number }[]> {
  const rows = await query(
    'select merchant_id as merchant, payment_intent as intent, sequence, position::int from events order by position',
  );
  expect(rows.map(({ position }) => position)).toEqual(rows.map((_, i) => rows[0].position + i));
  return rows;
}

/** Two events of each of several intents. */
const eventsOf = (merchantId: string, intents: number): EventRowSettings[] =>
  Array.from({ length: intents }, () => newUuid()).flatMap((paymentIntent) =>
    [1, 2].map((sequence) => ({ merchantId, paymentIntent, sequence })),
  );

test('an event waits for one batch of another merchant, and a batch for at most 2,000 deliveries', async () => {
  const [busy, other] = [...(await newMerchants(1, 100)), ...(await newMerchants(1, 1))] as [string, string];
  await insertEventRows(query, [...eventsOf(busy, 30), { merchantId: other }]);
  const batches = await positionInBatches();
  for (const { deliveries } of batches) expect(deliveries).toBeLessThanOrEqual(2_000);
  expect(batches.reduce((sum, { deliveries }) => sum + deliveries, 0)).toBe(60 * 100 + 1);
  const merchants = (await positioned()).map(({ merchant }) => merchant);
  expect(merchants.indexOf(other)).toBeLessThan(2);
  expect(merchants).toHaveLength(61);
});

test('merchants that are left out of a batch come first in the next, and intents keep their order', async () => {
  const merchantIds = await newMerchants(30, 100);
  await insertEventRows(
    query,
    merchantIds.flatMap((merchantId) => eventsOf(merchantId, 1)),
  );
  expect(await positionInBatches()).toEqual(Array(3).fill({ events: 20, deliveries: 2_000 }));
  const events = await positioned();
  for (const [round, sequence] of [1, 2].entries()) {
    const turns = events.slice(round * 30, round * 30 + 30);
    expect(new Set(turns.map(({ merchant }) => merchant))).toEqual(new Set(merchantIds));
    expect(new Set(turns.map((event) => event.sequence))).toEqual(new Set([sequence]));
  }
});

test('a batch has at most 1,000 events, those of one merchant if no other has any', async () => {
  const [busy, other] = [newUuid(), newUuid()];
  // Clocks differ: the second event of an intent may have the lower id.
  const secondFirst = eventsOf(busy, 1_250).toSorted((a, b) => Number(b.sequence) - Number(a.sequence));
  await insertEventRows(query, [...secondFirst, ...eventsOf(other, 5)]);
  const batches = await positionInBatches();
  expect(batches.map(({ events }) => events)).toEqual([510, 1_000, 1_000]);
  const events = await positioned();
  const merchants = events.map(({ merchant }) => merchant);
  expect(merchants.lastIndexOf(other)).toBe(merchants.indexOf(other) + 18);
  const sequences = Map.groupBy(events, ({ intent }) => intent);
  for (const ofIntent of sequences.values()) expect(ofIntent.map(({ sequence }) => sequence)).toEqual([1, 2]);
});
