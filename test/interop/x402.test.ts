// x402's published client for axios, and the example of a priced resource in Express.

import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { privateKeyToAccount } from 'viem/accounts';
import { afterAll, expect, test } from 'vitest';
import { createPaymentIntentsClient } from '../../client/json.ts';
import { verifyWebhook } from '../../client/webhook.ts';
import { payFor } from '../../examples/agent/paid-resource.ts';
import { parseIdentifier } from '../../src/database/identifiers.ts';
import { listenInTest } from '../support/listen.ts';
import { startLocalX402 } from '../support/local-x402.ts';

/** Imports a package that only this folder has installed, so that the compiler does not know it. */
// biome-ignore lint/suspicious/noExplicitAny: it has types of its own.
const load = (name: string): Promise<any> => import(name);
const [{ wrapAxiosWithPaymentFromConfig }, { ExactEvmScheme }, { default: axios }, { default: express }] =
  await Promise.all(['@x402/axios', '@x402/evm', 'axios', 'express'].map(load));

const { service, receiver, webhookSecret, url, createIntent, newPayer, close } = await startLocalX402([
  'base',
  'polygon',
]);
afterAll(close);

async function clientFor(chain: 'base' | 'polygon') {
  const client = new ExactEvmScheme(privateKeyToAccount(await newPayer(chain)));
  return wrapAxiosWithPaymentFromConfig(axios.create(), { schemes: [{ network: 'eip155:*', client }] });
}

test.each(['base', 'polygon'] as const)('@x402/axios pays an intent on %s', async (chain) => {
  const { client_secret: secret } = await createIntent({ chain });
  const api = await clientFor(chain);
  const { status, data, headers } = await api.post(url, undefined, {
    headers: { authorization: `Bearer ${secret}` },
  });
  expect([status, data.status]).toEqual([200, 'processing']);
  expect(headers['payment-response']).toBeDefined();
});

test('a priced resource is served once its payment is final, once for each payment', async () => {
  const payments = createPaymentIntentsClient({
    baseUrl: service.publicUrl,
    apiKey: service.merchant.keys.testnet.apiKey,
  });
  const isFulfilled = (id: string) =>
    receiver.requests.some(({ body, headers }) => {
      const event = verifyWebhook({ body, headers, secret: webhookSecret });
      return event.type === 'payment_intent.succeeded' && event.data.paymentIntent?.id === id;
    });
  const app = express();
  const shop = await listenInTest(createServer(app));
  const price = { baseUrl: service.publicUrl, publicUrl: shop, amountUnits: 250_000, isFulfilled };
  app.get('/report', payFor(payments, price), (_: unknown, response: { send(text: string): void }) =>
    response.send('the report'),
  );
  const api = await clientFor('base');
  const { status, data, config } = await api.get(`${shop}/report`);
  expect([status, data]).toEqual([200, 'the report']);
  const again = await fetch(`${shop}/report`, { headers: config.headers.toJSON() });
  expect([again.status, await again.text()]).toEqual([400, 'an unknown order, or one that was served']);
  const asked: string[] = [];
  const isNever = (id: string) => asked.push(id) === 0;
  app.get('/never', payFor(payments, { ...price, waitMs: 500, isFulfilled: isNever }));
  const never = await api.get(`${shop}/never`);
  expect([never.status, (await fetch(never.headers.location)).status]).toEqual([202, 202]);
  // A client that does not wait is told where to get the resource later, without a signature.
  app.get(
    '/soon',
    payFor(payments, { ...price, waitMs: 1 }),
    (_: unknown, response: { send(text: string): void }) => response.send('the report'),
  );
  const soon = await api.get(`${shop}/soon?a=b`);
  expect([soon.status, soon.headers['retry-after']]).toEqual([202, '5']);
  expect(soon.data).toMatch(/on its way. Do not pay again: GET \S+\/soon\?a=b&x402_order=/);
  const { location } = soon.headers;
  const found = async () => (await fetch(location)).status;
  const seen = new Set<number>();
  while (!seen.has(200)) {
    seen.add(await found());
    await sleep(100);
  }
  expect([...seen]).toEqual([202, 200]);
  expect(await found()).toBe(400);
  // Nobody waits for an intent that has ended.
  await expect.poll(() => isFulfilled(asked[0] ?? ''), { timeout: 60_000 }).toBe(true);
  await service.query(`update payment_intents set status = 'expired' where id = $1`, [
    parseIdentifier('pi', asked[0] ?? ''),
  ]);
  expect((await fetch(never.headers.location)).status).toBe(410);
  const nonsense = await fetch(`${shop}/report`, { headers: { 'payment-signature': 'nonsense' } });
  expect(nonsense.status).toBe(400);
});
