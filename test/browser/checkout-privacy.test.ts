// The client secret and the payer's visit stay between this tab and the service. The first test pays. The
// others check the traces that this has left.

import { afterAll, describe, expect, test } from 'vitest';
import { hasBrowser, useOpened } from '../support/browser.ts';
import type { Intent } from '../support/call.ts';
import { type CheckoutPage, type Device, startCheckoutWorld } from '../support/checkout-page.ts';

describe.skipIf(!hasBrowser)('a payment from the link to the way back', () => {
  const world = useOpened(startCheckoutWorld);
  let device: Device;
  let intent: Intent;
  let checkout: CheckoutPage;
  /** What the tab held in each state. */
  const seen: Awaited<ReturnType<CheckoutPage['storage']>>[] = [];
  let shopRequests: Record<string, string>[];
  const secret = () => intent.client_secret.slice(intent.client_secret.indexOf('_secret_'));

  afterAll(() => device.context.close());

  test('succeeds', async () => {
    await world.setOrigins('https://shop.example');
    device = await world.openDevice();
    await device.context.route('https://shop.example/**', (route) => route.fulfill({ body: 'Thank you' }));
    await device.installWallet(await world.createPayer());
    await device.context.addInitScript({
      content: `{ const { setTimeout } = window; window.delays = [];
        window.setTimeout = (work, ms, ...given) => (delays.push(ms), setTimeout(work, ms, ...given)); }`,
    });
    const asksEvery = (ms: number) =>
      expect.poll(() => checkout.page.evaluate(`delays.includes(${ms})`)).toBe(true);
    intent = await world.createIntent();
    checkout = await device.open(intent, { return_url: 'https://shop.example/orders/1?a=b#c' });
    const look = async (view: string) => {
      await checkout.view(view);
      seen.push(await checkout.storage());
    };
    await look('choose-wallet');
    await asksEvery(2_500);
    await checkout.connect();
    await look('ready');
    await checkout.press('pay');
    await look('sent');
    await checkout.page.reload();
    await look('sent');
    await asksEvery(1_000);
    await world.mine();
    await checkout.refresh();
    await look('processing');
    await world.mine(9);
    await checkout.refresh();
    await look('succeeded');
    await asksEvery(15_000);
    await checkout.press('return');
    await checkout.page.waitForURL('https://shop.example/orders/1?*#c');
    shopRequests = device.requests
      .filter(({ url }) => url.startsWith('https://shop.example'))
      .map(({ url, headers }) => ({ url, ...headers }));
  });

  test('violates no policy and logs no error', () => {
    expect(device.complaints).toEqual([]);
  });

  test('sends requests only to the service, until the payer goes back', () => {
    expect(device.foreignRequests()).toEqual([
      `https://shop.example/orders/1?a=b&payment_intent=${intent.id}`,
    ]);
  });

  test('sends the secret only in one header, to one address', () => {
    const withSecret = device.requests.filter((request) => JSON.stringify(request).includes(secret()));
    expect(withSecret.length).toBeGreaterThan(3);
    for (const { url, method, headers } of withSecret) {
      expect([method, url]).toEqual(['GET', `${world.service.publicUrl}/v1/checkout`]);
      expect(headers.authorization).toBe(`Bearer ${intent.client_secret}`);
      const others = Object.entries(headers).filter(([name]) => name !== 'authorization');
      expect(JSON.stringify(others)).not.toContain(secret());
    }
  });

  test('sends no cookie and no referrer', () => {
    for (const { headers } of device.requests) {
      expect(headers).not.toHaveProperty('cookie');
      expect(headers).not.toHaveProperty('referer');
    }
  });

  test('gives the shop the id of the intent, but neither the secret nor a referrer', () => {
    expect(shopRequests).toHaveLength(1);
    expect(JSON.stringify(shopRequests)).not.toContain(secret());
    expect(JSON.stringify(shopRequests)).not.toContain('status');
    expect(shopRequests[0]).not.toHaveProperty('referer');
  });

  test('leaves no secret in the address bar', () => {
    expect(seen.map(({ url }) => url)).toEqual(seen.map(() => `${world.service.publicUrl}/checkout`));
  });

  test('leaves no secret in the history', async () => {
    const session = await device.context.newCDPSession(checkout.page);
    const { entries } = await session.send('Page.getNavigationHistory');
    expect(entries.length).toBeGreaterThan(1);
    expect(JSON.stringify(entries.map(({ url, title }) => [url, title]))).not.toContain(secret());
  });

  test('stores the secret in the session of this tab only', () => {
    for (const { session, local, cookies } of seen) {
      for (const name of Object.keys(JSON.parse(session)))
        expect(name).toMatch(/^payment-intents-checkout\b/);
      expect(session).toContain(secret());
      expect(local).not.toContain(secret());
      expect(cookies).toBe('');
    }
    expect(seen.some(({ local }) => local.includes(intent.id))).toBe(true);
  });

  test('stores nothing elsewhere: no database, cache, worker or window name', async () => {
    await checkout.page.goto(`${world.service.publicUrl}/checkout`);
    expect(
      await checkout.page.evaluate(async () => {
        const page = globalThis as unknown as {
          indexedDB: { databases(): Promise<unknown[]> };
          caches: { keys(): Promise<unknown[]> };
          navigator: { serviceWorker: { getRegistrations(): Promise<unknown[]> } };
          name: string;
        };
        return [
          await page.indexedDB.databases(),
          await page.caches.keys(),
          await page.navigator.serviceWorker.getRegistrations(),
          page.name,
        ];
      }),
    ).toEqual([[], [], [], '']);
    expect((await device.context.storageState()).cookies).toEqual([]);
  });

  test('is unknown to another tab without the link', async () => {
    const page = await device.context.newPage();
    await page.goto(`${world.service.publicUrl}/checkout`);
    await device.wrap(page).view('invalid');
    expect(JSON.stringify(await device.wrap(page).storage())).not.toContain(secret());
  });

  test('leaves no secret in the log of the service', () => {
    expect(world.service.log.some((line) => JSON.stringify(line).includes(intent.id))).toBe(true);
    expect(JSON.stringify(world.service.log)).not.toContain(secret());
  });

  test('stops asking in a hidden tab once the payment has ended', async () => {
    const other = await world.openDevice();
    await other.context.clock.install();
    const { id, client_secret } = await world.createIntent();
    await world.service.call('cancelPaymentIntent', { id });
    const { page, view } = await other.open({ id, client_secret } as Intent);
    await view('canceled');
    await page.waitForLoadState();
    await page.evaluate(`Object.defineProperty(document, 'hidden', { value: true, configurable: true })`);
    expect(other.requests.filter(({ url }) => url.endsWith('/v1/checkout'))).toHaveLength(1);
    const answered = page.waitForResponse(/v1.checkout/);
    await page.clock.fastForward(20_000);
    await answered;
    const before = other.requests.length;
    for (let i = 0; i < 10; i++) await page.clock.fastForward(30_000);
    await page.evaluate(`delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))`);
    await page.waitForResponse(/v1.checkout/);
    expect(other.requests.length - before).toBe(1);
    await other.context.close();
  });
});
