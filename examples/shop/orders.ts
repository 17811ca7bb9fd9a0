// The shop's orders, in one file. An event, and what it changes, are stored in one transaction.

import { randomBytes } from 'node:crypto';
import { DatabaseSync } from 'node:sqlite';
import type { Event } from '../../client/webhook.ts';

/** In a real shop: a table. */
export const products = new Map([['harbour', { name: 'Harbour at dawn', amountUnits: 12_500_000 }]]);

export interface Order {
  id: string;
  product: string;
  /** What it costs, in the smallest unit of USDC: 12500000 is 12.50. */
  amount_units: number;
  /** Each attempt at a payment has an intent of its own. */
  attempt: number;
  /** As events have told us. Null before the first. */
  payment_status: string | null;
  shipped_at: string | null;
}

export function openOrders(file: string) {
  const database = new DatabaseSync(file);
  database.exec(`
    create table if not exists orders (
      id text primary key, product text not null, amount_units integer not null, attempt integer not null default 1,
      payment_intent text, payment_status text, last_sequence integer not null default 0);
    create table if not exists handled_events (id text primary key);
    create table if not exists shipments (order_id text primary key, shipped_at text not null)`);
  const insertOrder = database.prepare('insert into orders (id, product, amount_units) values (?, ?, ?)');
  const findOrder = database.prepare(
    'select orders.*, shipped_at from orders left join shipments on order_id = id where id = ? or payment_intent = ?',
  );
  const storeIntent = database.prepare(
    `update orders set payment_intent = ?, payment_status = null, last_sequence = 0
     where id = ? and payment_intent is not ?`,
  );
  const nextAttempt = database.prepare(
    'update orders set attempt = attempt + 1 where id = ? and attempt = ?',
  );
  const storeEvent = database.prepare('insert into handled_events values (?) on conflict do nothing');
  const storeStatus = database.prepare(
    `update orders set payment_intent = ?1, payment_status = ?2, last_sequence = ?3
     where id = ?4 and (payment_intent is null or payment_intent = ?1) and last_sequence < ?3`,
  );
  const insertShipment = database.prepare(
    `insert into shipments values (?, datetime('now')) on conflict do nothing`,
  );

  const find = (id: string) => findOrder.get(id, id) as unknown as Order | undefined;

  /** Stores an event and what it changes. Returns the order that has to be shipped now, if there is one. */
  function apply({ id, sequence, data: { paymentIntent: intent } }: Event): Order | undefined {
    // It has come before.
    if (storeEvent.run(id).changes === 0) return undefined;
    const order = find(String(intent?.metadata.order_id ?? ''));
    if (intent === undefined || order === undefined) return undefined;
    // Events may come in another order than they happened.
    storeStatus.run(intent.id, intent.status, sequence ?? 0, order.id);
    // Success is final, whichever attempt has succeeded.
    if (intent.status !== 'succeeded' || intent.amountUnits < BigInt(order.amount_units)) return undefined;
    return insertShipment.run(order.id).changes === 1 ? order : undefined;
  }

  return {
    /** Returns a new order. Its id is hard to guess: whoever has it sees the order's page. */
    create(product: string, amountUnits: number): Order {
      const id = `order-${randomBytes(8).toString('hex')}`;
      insertOrder.run(id, product, amountUnits);
      return find(id) as Order;
    },

    /** Returns the order with this id, or with this payment intent. */
    find,

    storeIntent: (order: Order, intentId: string) => storeIntent.run(intentId, order.id, intentId),

    /** Returns the order at its next attempt. Two requests that find the same attempt over begin the same one. */
    nextAttempt({ id, attempt }: Order): Order {
      nextAttempt.run(id, attempt);
      return find(id) as Order;
    },

    handle(event: Event): Order | undefined {
      database.exec('begin immediate');
      try {
        const toShip = apply(event);
        database.exec('commit');
        return toShip;
      } catch (error) {
        database.exec('rollback');
        throw error;
      }
    },
  };
}
