// A merchant's backend: `POST /checkout {"order_id":"order-1001"}` returns the only value that a frontend may see.
//
//   PAYMENTS_API_KEY=sk_testnet_… node examples/checkout-server.ts
//
// Needs only Node.js 24.

import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

const { PAYMENTS_API_KEY, PAYMENTS_URL = 'http://127.0.0.1:8080', PORT = '3000' } = process.env;
if (PAYMENTS_API_KEY === undefined) throw new Error('set PAYMENTS_API_KEY to your secret API key');

/** The backend knows what an order costs. Never trust an amount from a frontend. */
const priceOf = (_orderId: string) => 12_500_000;

interface PaymentIntent {
  id: string;
  mode: string;
  chain: string;
  client_secret: string;
}

/**
 * Creates the intent of an order, or finds the existing one. The order's id is the idempotency key, so every
 * retry, by this process or by another one, gets the same intent.
 *
 * The key lives as long as its intent. After the intent has expired unpaid (`expires_at`), the key still
 * returns it, but nobody can pay it. Then use a new key, such as `order-1001/2`: examples/shop does this.
 */
async function createPaymentIntent(orderId: string): Promise<PaymentIntent> {
  // The payer is waiting. A client that gives up and asks again gets the same intent.
  const giveUpAt = Date.now() + 25_000;
  for (let tryNumber = 1; ; tryNumber++) {
    let wait = Math.min(2 ** tryNumber * 50, 5_000) * (0.5 + Math.random() / 2);
    try {
      const answer = await fetch(`${PAYMENTS_URL}/v1/payment_intents`, {
        method: 'POST',
        headers: {
          Authorization: `Bearer ${PAYMENTS_API_KEY}`,
          'Content-Type': 'application/json',
          'Idempotency-Key': orderId,
        },
        body: JSON.stringify({ amount_units: priceOf(orderId), metadata: { order_id: orderId } }),
        signal: AbortSignal.timeout(10_000),
      });
      const body = await answer.text();
      if (answer.status === 201) return JSON.parse(body);
      // 408, 429 and 5xx, some of them a proxy's, are temporary. Any other error needs a changed request.
      const isTemporary = [408, 429].includes(answer.status) || answer.status >= 500;
      wait = Math.max(wait, (Number(answer.headers.get('Retry-After')) || 0) * 1_000);
      if (!isTemporary || Date.now() + wait > giveUpAt) {
        throw new PaymentRefused(`${answer.status} ${body}`);
      }
    } catch (error) {
      // The connection broke, or no answer came in time. The intent may exist: the next try finds it or creates it.
      if (error instanceof PaymentRefused || Date.now() + wait > giveUpAt) throw error;
    }
    await sleep(wait);
  }
}

class PaymentRefused extends Error {}

/** The frontend's request is wrong. It is answered with this status. */
class BadRequest extends Error {
  readonly status: number;
  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

const maxBodyBytes = 10_000;

/**
 * Reads `{"order_id":"order-1001"}`. The id becomes the idempotency key, so it is checked: if it were missing,
 * the key would be "undefined", and all such payers would share one intent.
 */
async function readOrderId(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    bytes += chunk.length;
    if (bytes > maxBodyBytes) throw new BadRequest(413, `the body is larger than ${maxBodyBytes} bytes`);
    chunks.push(chunk);
  }
  let body: unknown;
  try {
    body = JSON.parse(Buffer.concat(chunks).toString());
  } catch {
    throw new BadRequest(400, 'the body is not JSON');
  }
  const orderId = (body as { order_id?: unknown } | null)?.order_id;
  if (typeof orderId !== 'string' || !/^[\w-]{1,100}$/.test(orderId)) {
    throw new BadRequest(
      400,
      'order_id must be text of 1 to 100 letters, digits, - and _, such as "order-1001"',
    );
  }
  // Check here that the order exists, belongs to this payer, and is not paid yet.
  return orderId;
}

const server = createServer(async (request, response) => {
  const reply = (status: number, body: object) =>
    response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(body));
  if (request.method !== 'POST' || request.url !== '/checkout') return reply(404, { error: 'not found' });
  try {
    const orderId = await readOrderId(request);
    const intent = await createPaymentIntent(orderId);
    // Store the intent's id, mode and chain with the order here. Learn its status from webhooks, or retrieve
    // it: a repeated creation returns the first answer, even if the intent has been paid since.
    console.log({ orderId, id: intent.id, mode: intent.mode, chain: intent.chain });
    return reply(200, { client_secret: intent.client_secret });
  } catch (error) {
    if (error instanceof BadRequest) {
      // The rest of a body that is too large is never read.
      if (!request.complete) response.setHeader('Connection', 'close');
      return reply(error.status, { error: error.message });
    }
    // Log the whole answer, but send none of it to the payer.
    console.error(error);
    return reply(502, { error: 'the payment could not be prepared; try again' });
  }
});
server.listen(Number(PORT), '127.0.0.1', () => {
  console.log(`listening on port ${(server.address() as AddressInfo).port}`);
});
