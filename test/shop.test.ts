import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { Webhook } from 'standardwebhooks';
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from 'vitest';
import { createPaymentIntentsClient, type Event } from '../client/json.ts';
import { openOrders } from '../examples/shop/orders.ts';
import { faultsFromOutside } from './support/faults-from-outside.ts';
import { useFolder } from './support/folder.ts';
import {
  ask,
  hasShipped,
  intentOf,
  type Program,
  placeOrder,
  post,
  startShop,
  stateOf,
} from './support/shop.ts';
import { useService } from './support/use-service.ts';

let folder: string;
const service = await useService();
let shop: Program;
let env: NodeJS.ProcessEnv;

beforeEach(async () => {
  folder = await useFolder(onTestFinished);
  const PAYMENTS_API_KEY = service.merchant.keys.testnet.apiKey;
  env = {
    ...{ PAYMENTS_URL: service.publicUrl, PAYMENTS_API_KEY },
    ORDERS_FILE: join(folder, 'orders.sqlite'),
  };
  shop = await startShop(env);
});

afterEach(async () => {
  await shop.stop();
});

const client = () =>
  createPaymentIntentsClient({ baseUrl: service.publicUrl, apiKey: service.merchant.keys.testnet.apiKey });

/** Returns the secret of the shop's endpoint, by the idempotency key that created it. */
async function webhookSecret(): Promise<string> {
  const url = `${shop.url}/webhooks`;
  const { secret } = await client().createWebhookEndpoint(
    { url, description: 'examples/shop' },
    { idempotencyKey: `examples/shop/${url}` },
  );
  return secret;
}

/** Sends an event as the service would, with the intent's fields changed, and returns the status of the answer. */
async function deliver(
  clientSecret: string,
  { id, sequence, ...fields }: { id: string; sequence: number; status: string; amount_units?: number },
  { secret, type }: { secret?: string; type?: string } = {},
): Promise<number> {
  const answer = await fetch(`${service.publicUrl}/v1/payment_intents/${intentOf(clientSecret)}`, {
    headers: { authorization: `Bearer ${service.merchant.keys.testnet.apiKey}` },
  });
  const { client_secret: _, ...intent } = (await answer.json()) as Record<string, unknown>;
  const at = new Date();
  const body = JSON.stringify({
    ...{ id, type: type ?? `payment_intent.${fields.status}`, created_at: at.toISOString() },
    ...{ mode: 'testnet', sequence, data: { payment_intent: { ...intent, ...fields } } },
  });
  const headers = {
    'webhook-id': id,
    'webhook-timestamp': String(Math.floor(at.getTime() / 1_000)),
    'webhook-signature': new Webhook(secret ?? (await webhookSecret())).sign(id, at, body),
  };
  return (await fetch(`${shop.url}/webhooks`, { method: 'POST', headers, body })).status;
}

const newEventId = () => `evt_${crypto.randomUUID().replaceAll('-', '').slice(0, 26)}`;

test('prints how to register its origin if the merchant is not the demo merchant', () => {
  const { port } = new URL(shop.url);
  expect(shop.output()).toContain(
    `merchant set-origins --merchant mer_… --mode testnet --origins http://127.0.0.1:${port},http://localhost:${port}\n`,
  );
});

test('an order has one intent, and the browser gets its client secret and nothing else', async () => {
  const order = await placeOrder(shop);
  expect(Object.keys(order).sort()).toEqual(['client_secret', 'order_id']);
  const again = await post(`${shop.url}/orders/${order.order_id}/payment`);
  expect(again).toEqual({ status: 200, body: order });
  const { items } = await client().listPaymentIntents({ idempotencyKey: order.order_id }).page();
  expect(items).toMatchObject([{ amountUnits: 12_500_000n, metadata: { order_id: order.order_id } }]);
  for (const path of ['/', `/orders/${order.order_id}`, '/shop.js', '/order.js']) {
    expect((await ask(shop.url + path)).body).not.toMatch(/sk_testnet|whsec_/);
  }
});

test('a paid order ships once, even if events are repeated, late or received after a restart', async () => {
  const { order_id, client_secret } = await placeOrder(shop);
  expect(await stateOf(shop, order_id)).toBe('requires_payment');
  expect(await deliver(client_secret, { id: newEventId(), sequence: 1, status: 'processing' })).toBe(204);
  expect(await stateOf(shop, order_id)).toBe('processing');
  await hasShipped(shop, order_id, 0);
  const paid = { id: newEventId(), sequence: 2, status: 'succeeded' };
  const twice = [deliver(client_secret, paid), deliver(client_secret, paid)];
  expect(await Promise.all(twice)).toEqual([204, 204]);
  expect(await deliver(client_secret, { ...paid, id: newEventId() })).toBe(204);
  // An older event that arrives late.
  expect(await deliver(client_secret, { id: newEventId(), sequence: 1, status: 'processing' })).toBe(204);
  expect(await stateOf(shop, order_id)).toBe('shipped');
  await hasShipped(shop, order_id, 1);
  await shop.stop();
  shop = await startShop(env);
  expect(await deliver(client_secret, paid)).toBe(204);
  expect(await deliver(client_secret, { ...paid, id: newEventId() })).toBe(204);
  expect(await stateOf(shop, order_id)).toBe('shipped');
  await hasShipped(shop, order_id, 0);
});

// The points around the answer and around the line that ships.
test.each([9, 13, 17, 20])(
  'a shop killed at point %d of a webhook ships after the next start',
  async (point) => {
    const { order_id, client_secret } = await placeOrder(shop);
    await shop.stop();
    shop = await startShop({ ...env, NODE_OPTIONS: `--import=${faultsFromOutside}`, KILL_AT: String(point) });
    const paid = { id: newEventId(), sequence: 1, status: 'succeeded' };
    const status = await deliver(client_secret, paid).catch(() => undefined);
    await shop.ended;
    shop = await startShop(env);
    // Simulates that a minute has passed.
    const database = new DatabaseSync(join(folder, 'orders.sqlite'), { timeout: 5_000 });
    database.exec('update jobs set due_at = 0');
    database.close();
    if (status !== 204) expect(await deliver(client_secret, paid)).toBe(204);
    await hasShipped(shop, order_id, 1);
    expect(await stateOf(shop, order_id)).toBe('shipped');
  },
);

test('a webhook that the service has not signed ships nothing', async () => {
  const { order_id, client_secret } = await placeOrder(shop);
  const paid = { id: newEventId(), sequence: 2, status: 'succeeded' };
  const forged = `whsec_${Buffer.from('a secret that somebody has made.').toString('base64')}`;
  expect(await deliver(client_secret, paid, { secret: forged })).toBe(400);
  expect((await ask(`${shop.url}/webhooks`, { method: 'POST', body: '{}' })).status).toBe(400);
  expect(await stateOf(shop, order_id)).toBe('requires_payment');
  await hasShipped(shop, order_id, 0);
  // The refusal did not record the event's id.
  expect(await deliver(client_secret, paid)).toBe(204);
  await hasShipped(shop, order_id, 1);
});

test('an intent of less than the price ships nothing, nor does an event that follows success', async () => {
  const { order_id, client_secret } = await placeOrder(shop);
  const paid = { id: newEventId(), sequence: 2, status: 'succeeded', amount_units: 1 };
  expect(await deliver(client_secret, paid)).toBe(204);
  const next = { ...paid, id: newEventId(), amount_units: 12_500_000 };
  expect(await deliver(client_secret, next, { type: 'payment_intent.reorged' })).toBe(204);
  await hasShipped(shop, order_id, 0);
});

test('the way back from the checkout finds the order and changes nothing', async () => {
  const { order_id, client_secret } = await placeOrder(shop);
  const back = `${shop.url}/orders?payment_intent=${intentOf(client_secret)}`;
  const headers = { cookie: `other=1; ${order_id}=1` };
  expect(await ask(back, { headers })).toEqual({ status: 303, body: `/orders/${order_id}` });
  // The id of the intent is public on the chain, so it must not open the order.
  expect((await ask(back)).status).toBe(404);
  expect((await ask(`${shop.url}/orders/${order_id}?payment_intent=x&status=succeeded`)).status).toBe(200);
  expect(await stateOf(shop, order_id)).toBe('requires_payment');
  await hasShipped(shop, order_id, 0);
  expect((await ask(`${shop.url}/orders?payment_intent=pi_x`)).status).toBe(404);
});

test('an order whose intent was canceled gets a second one, and no third', async () => {
  const { order_id, client_secret } = await placeOrder(shop);
  await client().cancelPaymentIntent(intentOf(client_secret));
  // This webhook comes from the service itself.
  await vi.waitFor(async () => expect(await stateOf(shop, order_id)).toBe('canceled'), { timeout: 10_000 });
  const pay = async () => (await post(`${shop.url}/orders/${order_id}/payment`)).body.client_secret;
  const [second, same] = await Promise.all([pay(), pay()]);
  expect([second, await pay()]).toEqual([same, same]);
  expect(intentOf(second)).not.toBe(intentOf(client_secret));
  expect(await stateOf(shop, order_id)).toBe('requires_payment');
  const { items } = await client()
    .listPaymentIntents({ idempotencyKey: `${order_id}/2` })
    .page();
  expect(items.map(({ id }) => id)).toEqual([intentOf(second)]);
  expect(await deliver(second, { id: newEventId(), sequence: 1, status: 'succeeded' })).toBe(204);
  await hasShipped(shop, order_id, 1);
});

test('an order shows its newest refund, even if an earlier one was canceled', () => {
  const orders = openOrders(join(folder, 'others.sqlite'));
  const order = orders.create('tea', 1);
  orders.storeIntent(order, 'pi_1');
  const told = [
    ['rf_1', 'canceled', 2],
    ['rf_2', 'succeeded', 2],
    ['rf_2', 'processing', 1],
  ] as const;
  for (const [i, [id, status, sequence]] of told.entries()) {
    const refund = { id, status, paymentIntent: 'pi_1' };
    orders.handle({ id: `evt_${i}`, sequence, data: { refund } } as unknown as Event);
  }
  expect(orders.find(order.id)?.refund_status).toBe('succeeded');
});

test('events from while the endpoint was disabled are handled at the next start of the shop', async () => {
  const { order_id, client_secret } = await placeOrder(shop);
  const { items } = await client().listWebhookEndpoints().page();
  const own = items.find(({ url }) => url === `${shop.url}/webhooks`);
  await client().updateWebhookEndpoint(own?.id ?? '', { enabled: false });
  await client().cancelPaymentIntent(intentOf(client_secret));
  const events = client().listEvents({ paymentIntent: intentOf(client_secret) });
  const types = async () => (await events.page()).items.map(({ type }) => type);
  await expect.poll(types, { timeout: 10_000 }).toEqual(['payment_intent.canceled']);
  await shop.stop();
  shop = await startShop({ ...env, PORT: new URL(shop.url).port });
  expect(await stateOf(shop, order_id)).toBe('canceled');
});

test('refuses invalid orders, and serves no other files', async () => {
  const orders = `${shop.url}/orders`;
  expect((await post(orders, { product: 'sun' })).status).toBe(400);
  expect((await post(orders, null)).status).toBe(400);
  expect((await ask(orders, { method: 'POST', body: '{"product":"harbour"}' })).status).toBe(415);
  expect((await post(orders, 'x'.repeat(300_000))).status).toBe(413);
  for (const path of ['/orders/order-0123456789abcdef', '/orders/../server.ts', '/order', '/orders', '/x']) {
    expect([path, (await ask(shop.url + path)).status]).toEqual([path, 404]);
  }
});

test('does not start without a service, and says why in one line', async () => {
  const nobody = startShop({ ...env, PAYMENTS_URL: 'http://127.0.0.1:1' });
  await expect(nobody).rejects.toThrow(
    /^exited with 1: no payment service answers at http:\/\/127\.0\.0\.1:1: run "npm start" in another terminal first \(network: .*\)\n$/,
  );
  const stranger = startShop({ ...env, PAYMENTS_API_KEY: 'sk_testnet_nonsense' });
  await expect(stranger).rejects.toThrow(
    /^exited with 1: the payment service at \S+ refuses this shop \(api_key_invalid: The API key is not accepted\. .*\)\n$/,
  );
  const { PAYMENTS_API_KEY: _, ...nothing } = env;
  await expect(startShop({ ...nothing, DATA_DIR: folder })).rejects.toThrow(/run "npm start" in another/);
});
