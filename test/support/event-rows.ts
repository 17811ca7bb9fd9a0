import { expect, vi } from 'vitest';
// Inserts event rows with SQL, without a position, like the transaction of a change.

import type { ModeName } from '../../src/contract/words.ts';
import { formatIdentifier, newUuid, parseIdentifier } from '../../src/database/identifiers.ts';
import type { TestService } from './service.ts';

export interface EventRowSettings {
  /** UUID. */
  merchantId: string;
  mode?: ModeName;
  type?: string;
  /** UUID. */
  paymentIntent?: string;
  sequence?: number;
  /** Default: now. */
  createdAtMs?: number;
  /** JSON. */
  data?: string;
}

type Query = (sql: string, values: unknown[]) => Promise<unknown>;

let lastMs = 0;

/** Returns a later time with each call, so that ids have an order. */
export function nextMs(): number {
  lastMs = Math.max(Date.now(), lastMs + 1);
  return lastMs;
}

/** Inserts events with one statement. Returns their public ids. */
export async function insertEventRows(query: Query, events: readonly EventRowSettings[]): Promise<string[]> {
  const rows = events.map(({ paymentIntent = newUuid(), ...event }) => ({
    data: `{"payment_intent":{"id":"${formatIdentifier('pi', paymentIntent)}"}}`,
    ...event,
    id: newUuid(event.createdAtMs ?? nextMs()),
    paymentIntent,
  }));
  await query(
    `insert into events (id, merchant_id, mode, type, created_at, payment_intent, sequence, data)
     select id, merchant_id, mode, type, coalesce(to_timestamp(created_at_ms / 1000.0), now()), payment_intent, sequence, data
       from unnest($1::uuid[], $2::uuid[], $3::payment_mode[], $4::text[], $5::uuid[], $6::int[], $7::text[], $8::bigint[])
         as e (id, merchant_id, mode, type, payment_intent, sequence, data, created_at_ms)`,
    [
      rows.map(({ id }) => id),
      rows.map(({ merchantId }) => merchantId),
      rows.map(({ mode = 'testnet' }) => mode),
      rows.map(({ type = 'payment_intent.canceled' }) => type),
      rows.map(({ paymentIntent }) => paymentIntent),
      rows.map(({ sequence = 1 }) => sequence),
      rows.map(({ data }) => data),
      rows.map(({ createdAtMs }) => createdAtMs ?? null),
    ],
  );
  return rows.map(({ id }) => formatIdentifier('evt', id));
}

/** The events of an intent, in order. */
export const eventsOf = ({ query }: Pick<TestService, 'query'>, intent: string) =>
  query<{ type: string; sequence: number; data: string; created_at: Date }>(
    'select type, sequence, data, created_at from events where payment_intent = $1 order by sequence',
    [parseIdentifier('pi', intent)],
  );

/** Removes every event of a merchant, as retention does. */
export const removeEvents = ({ query }: Pick<TestService, 'query'>, merchantId: string) =>
  query(
    `with gone as (delete from events where merchant_id = $1 returning id, merchant_id, mode)
     insert into removed_events select id, merchant_id, mode, now() from gone`,
    [merchantId],
  );

/** Resolves when every event has its position. */
export const allPositioned = ({ query }: Pick<TestService, 'query'>) =>
  vi.waitFor(
    async () => expect(await query('select from events where position is null limit 1')).toEqual([]),
    { timeout: 10_000 },
  );

/** Stores events and waits until they have their positions. */
export async function storeEvents(service: Pick<TestService, 'query'>, events: readonly EventRowSettings[]) {
  const ids = await insertEventRows(service.query, events);
  await allPositioned(service);
  return ids;
}
