// The shop's orders, in one file. An event and the changes that it causes are stored in one transaction.

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
  /** The status in the newest event. Null before the first. */
  payment_status: string | null;
  payment_intent: string | null;
  /** The status of its newest refund, which has the highest id. Null without a refund. */
  refund_status: string | null;
  shipped_at: string | null;
}

export function openOrders(file: string) {
  const database = new DatabaseSync(file, { timeout: 5_000 });
  database.exec(`
    create table if not exists orders (
      id text primary key, product text not null, amount_units integer not null, attempt integer not null default 1,
      payment_intent text, payment_status text, last_sequence integer not null default 0);
    create table if not exists intent_refunds (
      id text primary key, payment_intent text not null, refund_status text not null, last_sequence integer not null);
    create table if not exists sent_refunds (id text primary key);
    create table if not exists handled_events (id text primary key);
    create table if not exists jobs (order_id text primary key, due_at integer not null);
    create table if not exists shipments (order_id text primary key, shipped_at text not null)`);
  const insertOrder = database.prepare('insert into orders (id, product, amount_units) values (?, ?, ?)');
  const findOrder = database.prepare(
    `select orders.*, refund_status, shipped_at from orders left join shipments on order_id = id
       left join (select payment_intent, refund_status, max(id) from intent_refunds group by payment_intent)
       using (payment_intent) where orders.id = ? or payment_intent = ?`,
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
  const storeRefund = database.prepare(
    `insert into intent_refunds values (?, ?, ?, ?) on conflict do update
     set refund_status = excluded.refund_status, last_sequence = excluded.last_sequence
     where last_sequence < excluded.last_sequence`,
  );
  const claimRefund = database.prepare('insert into sent_refunds values (?) on conflict do nothing');
  const insertJob = database.prepare(
    `insert into jobs select ?1, 0 where not exists (select 1 from shipments where order_id = ?1)
     on conflict do nothing`,
  );
  // No other process takes this job for a minute. If shipping fails or this process ends, it is then taken again.
  const takeJob = database.prepare(
    `update jobs set due_at = unixepoch() + 60
     where order_id = (select order_id from jobs where due_at <= unixepoch() order by due_at limit 1) returning order_id`,
  );
  const deleteJob = database.prepare('delete from jobs where order_id = ?');
  const insertShipment = database.prepare(
    `insert into shipments values (?, datetime('now')) on conflict do nothing`,
  );

  const find = (id: string) => findOrder.get(id, id) as unknown as Order | undefined;

  function transaction(change: () => void): void {
    database.exec('begin immediate');
    try {
      change();
      database.exec('commit');
    } catch (error) {
      database.exec('rollback');
      throw error;
    }
  }

  /** Stores an event, the changes that it causes, and the job to ship the order if it is paid. */
  function apply({ id, type, sequence, data: { paymentIntent: intent, refund } }: Event): void {
    // A repeated event was handled before.
    if (storeEvent.run(id).changes === 0) return;
    if (refund !== undefined) storeRefund.run(refund.id, refund.paymentIntent, refund.status, sequence ?? 0);
    const order = find(String(intent?.metadata.order_id ?? ''));
    if (intent === undefined || order === undefined) return;
    // Events may arrive out of order, so an older one does not replace the status.
    storeStatus.run(intent.id, intent.status, sequence ?? 0, order.id);
    // Any attempt may succeed. Later events, such as `.reorged`, have the status `succeeded` too, and ship nothing.
    if (type === 'payment_intent.succeeded' && intent.amountUnits >= BigInt(order.amount_units))
      insertJob.run(order.id);
  }

  return {
    /** Returns a new order. Its id is hard to guess: anyone who has it can see the order's page. */
    create(product: string, amountUnits: number): Order {
      const id = `order-${randomBytes(8).toString('hex')}`;
      insertOrder.run(id, product, amountUnits);
      return find(id) as Order;
    },

    /** Returns the order with this id, or with this payment intent. */
    find,

    storeIntent: (order: Order, intentId: string) => storeIntent.run(intentId, order.id, intentId),

    /** Returns the order at its next attempt. Concurrent requests that end the same attempt begin the same next one. */
    nextAttempt({ id, attempt }: Order): Order {
      nextAttempt.run(id, attempt);
      return find(id) as Order;
    },

    /** True for the first call with this refund. */
    claimRefund: (refundId: string) => claimRefund.run(refundId).changes === 1,

    storeRefund: (id: string, intentId: string, status: string) => storeRefund.run(id, intentId, status, 0),

    handle: (event: Event) => transaction(() => apply(event)),

    /**
     * Ships every paid order that waits. If `ship` fails or the process ends meanwhile, it is called again
     * after a minute, so shipping an order twice must be harmless.
     */
    async shipAll(ship: (order: Order) => void | Promise<void>): Promise<void> {
      for (let job = takeJob.get(); job !== undefined; job = takeJob.get()) {
        const order = find(String(job.order_id)) as Order;
        try {
          await ship(order);
          transaction(() => {
            insertShipment.run(order.id);
            deleteJob.run(order.id);
          });
        } catch (error) {
          console.error(`${order.id} could not be shipped and is tried again in a minute:`, error);
        }
      }
    },
  };
}
