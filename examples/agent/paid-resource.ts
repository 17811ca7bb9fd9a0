// A resource with a price: whoever asks for it with an x402 client pays for it, by an intent that is created on the fly. It is
// a middleware of Express, and of anything else with Node's requests and responses:
//
//   app.get('/report', payFor(payments, { baseUrl, amountUnits: 250_000, isFulfilled }), (request, response) => …);
//
// The next handler runs once the merchant's webhook has told that the payment is final: `isFulfilled` says so, by what the
// webhook has stored (examples/shop/server.ts).

import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import type { PaymentRequired } from '@x402/core/types';
import type { PaymentIntentsClient } from '../../client/json.ts';

export interface Price {
  /** Of the payment service. */
  baseUrl: string;
  amountUnits: number;
  /** True once the webhook `payment_intent.succeeded` of this intent was received. */
  isFulfilled: (paymentIntent: string) => boolean | Promise<boolean>;
}

/** A final payment takes some 20 s. */
const maxWaitMs = 60_000;
const base64 = (json: unknown) => Buffer.from(JSON.stringify(json)).toString('base64');

export function payFor(payments: PaymentIntentsClient, { baseUrl, amountUnits, isFulfilled }: Price) {
  /** By the order that an offer names. In a service of several processes: in its database. */
  const orders = new Map<string, { id: string; clientSecret: string }>();
  const pay = (secret: string, signature?: string) =>
    fetch(`${baseUrl}/v1/checkout/pay`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${secret}`, ...(signature && { 'PAYMENT-SIGNATURE': signature }) },
    });

  /** Asks for the payment of a new intent. The client signs what the service offers, and returns it with the order. */
  async function ask(url: string, response: ServerResponse): Promise<void> {
    const order = randomUUID();
    const intent = await payments.createPaymentIntent(
      { amountUnits, metadata: { order_id: order } },
      { idempotencyKey: order },
    );
    orders.set(order, intent);
    const required = (await (await pay(intent.clientSecret)).json()) as PaymentRequired;
    const [offer] = required.accepts;
    if (offer === undefined) throw new Error('nothing is offered');
    const own = { ...required, resource: { url }, accepts: [{ ...offer, extra: { ...offer.extra, order } }] };
    response.writeHead(402, { 'Content-Type': 'application/json', 'PAYMENT-REQUIRED': base64(own) });
    response.end(JSON.stringify(own));
  }

  return async (request: IncomingMessage, response: ServerResponse, next: () => void): Promise<void> => {
    const signature = request.headers['payment-signature'];
    if (typeof signature !== 'string') return ask(`http://${request.headers.host}${request.url}`, response);
    const { accepted } = JSON.parse(Buffer.from(signature, 'base64').toString());
    const order = orders.get(accepted?.extra?.order);
    if (order === undefined) return void response.writeHead(400).end('an unknown order');
    const paid = await pay(order.clientSecret, signature);
    if (!paid.ok)
      return void response
        .writeHead(paid.status, { 'Content-Type': 'application/json' })
        .end(await paid.text());
    for (const endMs = Date.now() + maxWaitMs; !(await isFulfilled(order.id)); await sleep(500)) {
      // The same signature again finds it once it is final, and pays nothing a second time.
      if (Date.now() > endMs)
        return void response.writeHead(202).end('the payment is not final yet: ask again');
    }
    const settled = paid.headers.get('payment-response');
    if (settled !== null) response.setHeader('PAYMENT-RESPONSE', settled);
    next();
  };
}
