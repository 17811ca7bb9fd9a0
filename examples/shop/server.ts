// A small shop, from the order to its shipment.
//
//   npm start          in one terminal
//   npm run shop       in another, then open the address that it prints
//
// The life of an order:
//
//   1. The payer clicks. The backend creates the order and its payment intent; the idempotency key is the
//      order's id. Only the client_secret goes to the browser.
//   2. The checkout opens in a popup, or replaces the page (pages/shop.js).
//   3. The payer pays, and the service sends a webhook. The backend verifies it, stores it once together with the job
//      to ship, and answers. Then it does the job, and repeats it if it fails or the process ends.
//   4. The order's page shows what the backend knows, and nothing that a callback in the browser says.
//   5. To return the money, the backend creates a refund, with the order's id in the idempotency key, and the shop's
//      wallet sends it; here, that is the service's test wallet. The webhook `refund.succeeded` says that it has arrived.
//
// Needs only Node.js 24 and the package payment-intents-client, here from its source. Without PAYMENTS_API_KEY it uses
// the demo merchant's key. You can also set PAYMENTS_URL, PORT, DATA_DIR and ORDERS_FILE, and must set WEBHOOK_SECRET
// once the secret of the shop's endpoint was rotated.

import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { dirname, join, resolve } from 'node:path';
// In a shop of your own: 'payment-intents-client/json' and 'payment-intents-client/webhook'.
import { createPaymentIntentsClient, PaymentIntentsError } from '../../client/json.ts';
import { verifyWebhook, WebhookVerificationError } from '../../client/webhook.ts';
import { type Order, openOrders, products } from './orders.ts';
import { readDemoMerchant, registerOrigins, registerWebhook, sendRefund } from './setup.ts';

const dataDir = resolve(process.env.DATA_DIR ?? '.data');
const {
  PAYMENTS_API_KEY,
  PAYMENTS_URL = 'http://127.0.0.1:8080',
  PORT = '3002',
  ORDERS_FILE = join(dataDir, 'shop.sqlite'),
} = process.env;

const demo = PAYMENTS_API_KEY === undefined ? readDemoMerchant(dataDir) : undefined;
const payments = createPaymentIntentsClient({
  baseUrl: PAYMENTS_URL,
  apiKey: PAYMENTS_API_KEY ?? demo?.testnet_key ?? '',
  // A payer is waiting.
  callTimeoutMs: 15_000,
});
if (ORDERS_FILE !== ':memory:') mkdirSync(dirname(ORDERS_FILE), { recursive: true });
const orders = openOrders(ORDERS_FILE);
/** The secret of the shop's webhook endpoint, once there is one. */
let webhookSecret: string | undefined;

/** The request is wrong. It is answered with this status. */
class BadRequest extends Error {
  readonly status: number;
  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/**
 * Returns the client secret of an order's payment. The order's id is the idempotency key, so every call finds
 * the same intent. A key lives as long as its intent: after the intent has expired, the order's next attempt
 * has a key of its own, `order-1001/2`.
 */
async function clientSecretOf(order: Order): Promise<string> {
  const { id, amount_units: amountUnits, attempt } = order;
  const intent = await payments.createPaymentIntent(
    { amountUnits, metadata: { order_id: id } },
    { idempotencyKey: attempt === 1 ? id : `${id}/${attempt}` },
  );
  if (intent.replayed) {
    // A repeated creation returns the first answer, so ask for the current state.
    const { status } = await payments.retrievePaymentIntent(intent.id);
    if (status === 'expired' || status === 'canceled') return clientSecretOf(orders.nextAttempt(order));
  }
  orders.storeIntent(order, intent.id);
  return intent.clientSecret;
}

/** `POST /orders {"product":"harbour"}`. The backend knows what it costs. */
async function createOrder(request: IncomingMessage) {
  const { product } = (JSON.parse(await readBody(request)) ?? {}) as { product?: unknown };
  const { amountUnits } = products.get(String(product)) ?? {};
  if (amountUnits === undefined) throw new BadRequest(400, 'there is no such product');
  const order = orders.create(String(product), amountUnits);
  return { order_id: order.id, client_secret: await clientSecretOf(order) };
}

/**
 * `POST /orders/ORDER/refund {"destination":"0x…"}`: returns the money of an order. In your own shop, require a
 * login here: only the shop's staff may do this.
 */
async function refundOrder(order: Order, request: IncomingMessage) {
  const { destination } = (JSON.parse(await readBody(request)) ?? {}) as { destination?: unknown };
  if (order.payment_intent === null || order.payment_status !== 'succeeded') {
    throw new BadRequest(409, 'only a paid order can be refunded');
  }
  try {
    const refund = await openRefund(order.id, order.payment_intent, String(destination));
    // Only the first request sends it.
    if (orders.claimRefund(refund.id)) {
      await sendRefund(refund.id);
      orders.storeRefund(refund.id, order.payment_intent, 'requires_transfer');
    } else if (refund.status === 'requires_transfer') {
      throw new BadRequest(409, 'the wallet has already been asked to send it: check there whether it did');
    }
    return { refund_id: refund.id };
  } catch (error) {
    if (!(error instanceof PaymentIntentsError) || error.isRetryable) throw error;
    throw new BadRequest(400, error.details.map(({ message }) => message).join('; ') || error.message);
  }
}

/** Returns the refund of an order: the same one at every click, unless it was canceled or has expired. */
async function openRefund(orderId: string, paymentIntent: string, destination: string) {
  for (let attempt = 1; ; attempt++) {
    const { id } = await payments.createRefund(
      { paymentIntent, destination, reason: 'Returned' },
      { idempotencyKey: `${orderId}/refund/${attempt}` },
    );
    // A repeated creation returns the first answer, so ask for the current state.
    const refund = await payments.retrieveRefund(id);
    if (refund.status !== 'canceled' && refund.status !== 'expired') return refund;
  }
}

/** The states of a refund that the page shows in place of the order's own. */
const refundStates = new Map([
  ['requires_transfer', 'returning'],
  ['processing', 'returning'],
  ['succeeded', 'returned'],
]);

/** `GET /orders/ORDER/state`: what the order's page shows. */
function stateOf({ id, product, amount_units, payment_status, refund_status, shipped_at }: Order) {
  const ofOrder = shipped_at === null ? (payment_status ?? 'requires_payment') : 'shipped';
  const state = refundStates.get(refund_status ?? '') ?? ofOrder;
  return { id, product: products.get(product)?.name, amount_units, state };
}

/** Ships paid orders. In a real shop: tells the warehouse, which identifies an order by its id. */
const ship = () => void orders.shipAll(({ id }) => console.log(`ship ${id}`)).catch(console.error);

/** `POST /webhooks`: verifies the raw body, stores the event once with its work, answers, and then does the work. */
async function receiveWebhook(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const body = await readBody(request);
  // Not ready. The service tries again.
  if (webhookSecret === undefined) return void response.writeHead(503).end();
  try {
    orders.handle(verifyWebhook({ body, headers: request.headers, secret: webhookSecret }));
    response.writeHead(204).end();
    ship();
  } catch (error) {
    if (!(error instanceof WebhookVerificationError)) throw error;
    console.error(`webhook refused: ${error.code}`);
    response.writeHead(400).end();
  }
}

const maxBodyBytes = 256 * 1024;

async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    bytes += chunk.length;
    if (bytes > maxBodyBytes) throw new BadRequest(413, `the body is larger than ${maxBodyBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

/** Returns a file of the folder pages/, with the address of the payment service in it. */
const page = (name: string) =>
  readFileSync(join(import.meta.dirname, 'pages', name), 'utf8').replaceAll(
    '{{PAYMENTS_URL}}',
    PAYMENTS_URL.replace(/\/+$/, ''),
  );

const files = new Map(
  [
    ['/', 'index.html', 'text/html'],
    ['/order', 'order.html', 'text/html'],
    ['/shop.js', 'shop.js', 'text/javascript'],
    ['/order.js', 'order.js', 'text/javascript'],
    ['/palette.css', 'palette.css', 'text/css'],
    ['/shop.css', 'shop.css', 'text/css'],
    ['/harbour.svg', 'harbour.svg', 'image/svg+xml'],
  ].map(([path = '', name = '', type]) => [path, { type: `${type}; charset=utf-8`, body: page(name) }]),
);

const importMaps = [...files.values()].flatMap(({ body }) =>
  [...body.matchAll(/<script type="importmap">([\s\S]*?)<\/script>/g)].map(
    ([, map = '']) => `'sha256-${createHash('sha256').update(map).digest('base64')}'`,
  ),
);

const headers = {
  'Cache-Control': 'no-store',
  // Scripts: the shop's own, the checkout's SDK, and the import map with the SDK's address.
  'Content-Security-Policy': `default-src 'none'; script-src 'self' ${new URL(PAYMENTS_URL).origin} ${[...new Set(importMaps)].join(' ')}; style-src 'self'; img-src 'self'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'`,
  // 'same-origin' would cut the connection to the checkout's popup.
  'Cross-Origin-Opener-Policy': 'same-origin-allow-popups',
  'Referrer-Policy': 'same-origin',
  'X-Content-Type-Options': 'nosniff',
};

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { pathname, searchParams } = new URL(request.url ?? '/', 'http://shop');
  const json = (status: number, body: object, more: object = {}) =>
    void response
      .writeHead(status, { ...headers, 'Content-Type': 'application/json', ...more })
      .end(JSON.stringify(body));
  const show = (path: string) => {
    const { type, body } = files.get(path) as { type: string; body: string };
    response.writeHead(200, { ...headers, 'Content-Type': type }).end(body);
  };
  const [, id = '', part] =
    /^\/orders\/(order-[0-9a-f]{16})(?:\/(state|payment|refund))?$/.exec(pathname) ?? [];
  switch (request.method) {
    case 'POST': {
      if (pathname === '/webhooks') return receiveWebhook(request, response);
      // A page of another site cannot send this type without a preflight request.
      if (request.headers['content-type'] !== 'application/json') throw new BadRequest(415, 'send JSON');
      if (pathname === '/orders') {
        const created = await createOrder(request);
        const cookie = `${created.order_id}=1; Path=/orders; HttpOnly; SameSite=Lax`;
        return json(201, created, { 'Set-Cookie': cookie });
      }
      const order = orders.find(id);
      if (part === 'refund' && order !== undefined) return json(200, await refundOrder(order, request));
      if (part !== 'payment' || order === undefined) break;
      return json(200, { order_id: order.id, client_secret: await clientSecretOf(order) });
    }
    case 'GET': {
      if (files.has(pathname) && pathname !== '/order') return show(pathname);
      // The checkout's link back contains the intent's id and says nothing about its payment. Anybody can read
      // the id on the chain, so it leads to the order only in the browser that placed the order.
      const returned = pathname === '/orders' && orders.find(searchParams.get('payment_intent') ?? '');
      const isOwn = returned && request.headers.cookie?.split('; ').includes(`${returned.id}=1`);
      if (returned && isOwn)
        return void response.writeHead(303, { Location: `/orders/${returned.id}` }).end();
      const order = orders.find(id);
      if (order === undefined || part === 'payment' || part === 'refund') break;
      return part === 'state' ? json(200, stateOf(order)) : show('/order');
    }
  }
  throw new BadRequest(404, 'not found');
}

const server = createServer((request, response) => {
  answer(request, response).catch((error) => {
    const status = error instanceof BadRequest ? error.status : error instanceof SyntaxError ? 400 : 502;
    // Why the service has refused is for the merchant's log, not for the payer.
    if (status === 502) console.error(error);
    const message = status === 502 ? 'The payment could not be prepared. Try again.' : error.message;
    if (!request.complete) response.setHeader('Connection', 'close');
    response
      .writeHead(status, { ...headers, 'Content-Type': 'application/json' })
      .end(JSON.stringify({ error: message }));
  });
});

server.listen(Number(PORT), '127.0.0.1', async () => {
  const { port } = server.address() as AddressInfo;
  try {
    const url = `http://127.0.0.1:${port}/webhooks`;
    webhookSecret = await registerWebhook(payments, url, orders.handle, process.env.WEBHOOK_SECRET);
    await registerOrigins(demo?.merchant_id, [`http://127.0.0.1:${port}`, `http://localhost:${port}`]);
  } catch (error) {
    const code = error instanceof PaymentIntentsError ? error.code : 'error';
    const problem =
      code === 'network'
        ? `no payment service answers at ${PAYMENTS_URL}: run "npm start" in another terminal first`
        : `the payment service at ${PAYMENTS_URL} refuses this shop`;
    console.error(`${problem} (${code}: ${error instanceof Error ? error.message : error})`);
    process.exit(1);
  }
  console.log(`the shop is open: http://127.0.0.1:${port}`);
  // Jobs that were left before the start, and jobs that failed.
  ship();
  setInterval(ship, 1_000);
});
