// A resource with a price: this middleware creates an intent for a request, and an x402 client pays it. It works with
// Express and with anything else that uses Node's requests and responses:
//
//   app.get('/report', payFor(payments, { baseUrl, publicUrl, amountUnits: 250_000, isFulfilled }), (request, response) => …);
//
// The next handler runs once the payment is final: `isFulfilled` asks whether your webhook has stored a
// `payment_intent.succeeded` of the intent. Limit the requests of a client before it, because each unpaid one creates
// an intent.

import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import type { PaymentRequired } from '@x402/core/types';
import type { PaymentIntentsClient } from '../../client/json.ts';

export interface Price {
  /** Address of the payment service. */
  baseUrl: string;
  /** Address at which clients reach this server. */
  publicUrl: string;
  amountUnits: number;
  /**
   * How long a request waits for its payment to be final, in milliseconds. Default: a minute. Stay below the
   * client's timeout: a client that gives up sooner, such as Python's httpx after 5 s, pays again when it repeats
   * the request. After a 202, the client gets the resource at `Location`, without another signature.
   */
  waitMs?: number;
  /** True once your webhook has received `payment_intent.succeeded` of this intent. */
  isFulfilled: (paymentIntent: string) => boolean | Promise<boolean>;
}

/** A payment is final after about 20 s. */
const defaultWaitMs = 60_000;
const maxOrders = 10_000;
/** A client that has paid can ask again until an hour after the intent's expiry. */
const keptMs = 3_600_000;
const base64 = (json: unknown) => Buffer.from(JSON.stringify(json)).toString('base64');

export function payFor(payments: PaymentIntentsClient, { baseUrl, publicUrl, waitMs, ...price }: Price) {
  /** Offers that are neither paid nor served, by order. Use a database if a restart must lose none. */
  const orders = new Map<string, { id: string; clientSecret: string; expiresAt: Date }>();
  /** Orders that are paid or may be paid. New offers do not evict them. */
  const paidOrders: typeof orders = new Map();
  /** Signatures on their way to the service, by order. Until the service has one, it reports the order as unpaid. */
  const paying = new Map<string, Promise<unknown>>();
  const pay = (secret: string, signature?: string) =>
    fetch(`${baseUrl}/v1/checkout/pay`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${secret}`, ...(signature && { 'PAYMENT-SIGNATURE': signature }) },
      // The service answers within 25 s.
      signal: AbortSignal.timeout(40_000),
    });

  /** False while a signature can still be used. */
  const isOver = async ({ id }: { id: string }) =>
    ['expired', 'canceled'].includes((await payments.retrievePaymentIntent(id)).status);

  /** Creates an intent and asks for its payment. The client signs the offer, which contains the order. */
  async function ask(path: string, response: ServerResponse): Promise<void> {
    const order = randomUUID();
    const intent = await payments.createPaymentIntent(
      { amountUnits: price.amountUnits, metadata: { order_id: order } },
      { idempotencyKey: order },
    );
    const asked = await pay(intent.clientSecret);
    if (asked.status !== 402) return end(response, 503, 'payment by a signature is not possible now');
    const required = (await asked.json()) as PaymentRequired;
    orders.set(order, intent);
    for (const oldest of orders.keys()) if (orders.size > maxOrders) orders.delete(oldest);
    for (const [oldest, { expiresAt }] of paidOrders) {
      if (expiresAt.getTime() > Date.now() - keptMs) break;
      paidOrders.delete(oldest);
    }
    const accepts = required.accepts.map((offer) => ({ ...offer, extra: { ...offer.extra, order } }));
    const own = { ...required, resource: { url: `${publicUrl}${path}` }, accepts };
    response.setHeader('PAYMENT-REQUIRED', base64(own)).setHeader('Content-Type', 'application/json');
    end(response, 402, JSON.stringify(own));
  }

  async function serve(request: IncomingMessage, response: ServerResponse, next: () => void): Promise<void> {
    const endMs = Date.now() + (waitMs ?? defaultWaitMs);
    const given = request.headers['payment-signature'];
    const signature = typeof given === 'string' ? given : undefined;
    // An Express router removes its own part of `url`.
    const path = (request as { originalUrl?: string }).originalUrl ?? request.url ?? '/';
    const url = new URL(`${publicUrl}${path}`);
    const named = url.searchParams.get('x402_order');
    if (signature === undefined && named === null) return ask(path, response);
    const order = signature === undefined ? String(named) : orderIn(signature);
    const intent = (signature && orders.get(order)) || paidOrders.get(order);
    if (intent === undefined) return end(response, 400, 'an unknown order, or one that was served');
    if (orders.delete(order)) paidOrders.set(order, intent);
    url.searchParams.set('x402_order', order);
    const later = () => {
      response.setHeader('Location', url.href).setHeader('Retry-After', '5');
      end(response, 202, `Your payment is on its way. Do not pay again: GET ${url.href}`);
    };
    const leftMs = () => Math.max(0, endMs - Date.now());
    if (signature !== undefined || !(await price.isFulfilled(intent.id))) {
      if (signature === undefined && paying.has(order)) return later();
      const asked = pay(intent.clientSecret, signature);
      if (signature !== undefined) {
        paying.set(order, asked);
        const forget = () => void (paying.get(order) === asked && paying.delete(order));
        asked.then(forget, forget);
      }
      const paid = await Promise.race([asked, sleep(leftMs(), undefined)]);
      if (paid === undefined) return later();
      if (signature === undefined && (paid.status === 402 || (paid.status === 409 && (await isOver(intent)))))
        return end(response, 410, 'not paid: request the resource again');
      // After these the order may still be paid: by another request, or by this one, which was not checked yet.
      const mayBePaid = paid.ok || paid.status >= 500 || paid.status === 409 || paid.status === 429;
      if (signature !== undefined && !mayBePaid && paidOrders.delete(order)) orders.set(order, intent);
      if (!paid.ok && signature !== undefined) return end(response, paid.status, await paid.text());
      const settled = paid.headers.get('payment-response');
      if (settled !== null) response.setHeader('PAYMENT-RESPONSE', settled);
    }
    while (!(await price.isFulfilled(intent.id))) {
      if (leftMs() === 0) return later();
      await sleep(Math.min(500, leftMs()));
    }
    // A client that has hung up repeats the request.
    if (response.destroyed) return;
    // If several requests wait for the same payment, only one is served.
    if (!paidOrders.delete(order)) return end(response, 400, 'this order was served');
    next();
  }

  return (request: IncomingMessage, response: ServerResponse, next: () => void): Promise<void> =>
    serve(request, response, next).catch((reason) => {
      console.error(reason);
      if (!response.headersSent) end(response, 503, 'the payment could not be checked: repeat this request');
    });
}

function orderIn(signature: string): string {
  try {
    return String(JSON.parse(Buffer.from(signature, 'base64').toString()).accepted.extra.order);
  } catch {
    return '';
  }
}

function end(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status).end(text);
}
