// The example shop in Chromium, with a service of the test, and as a new user runs it.

import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createPaymentIntentsClient } from '../../client/json.ts';
import { setOrigins } from '../../src/merchants/administration.ts';
import { findProblems } from '../support/axe.ts';
import { hasBrowser, openBrowser, type TestBrowser } from '../support/browser.ts';
import { startService, type TestService } from '../support/service.ts';
import {
  hasShipped,
  type Program,
  placeOrder,
  startShop,
  startWholeService,
  stateOf,
} from '../support/shop.ts';

describe.skipIf(!hasBrowser)('beside a service', () => {
  let service: TestService;
  let shop: Program;
  let browser: TestBrowser;
  let page: Page;
  const complaints: string[] = [];

  beforeAll(async () => {
    service = await startService();
    const PAYMENTS_API_KEY = service.merchant.keys.testnet.apiKey;
    shop = await startShop({ PAYMENTS_URL: service.publicUrl, PAYMENTS_API_KEY, ORDERS_FILE: ':memory:' });
    const { em } = service.database.orm;
    await setOrigins(em, service.merchant.merchantId, 'testnet', [shop.url]);
    browser = await openBrowser({ blocksPopups: true });
  });

  afterAll(async () => {
    await browser.close();
    await shop.stop();
    await service.close();
  });

  beforeEach(async () => {
    page = await browser.context.newPage();
    page.on('console', (message) => {
      if (message.type() === 'error') complaints.push(message.text());
    });
    await page.goto(shop.url);
    await page.waitForSelector('#popup:enabled');
  });

  afterEach(async () => {
    await page.close();
    expect(complaints.splice(0)).toEqual([]);
  });

  const forge = (popup: Page, status: string) =>
    popup.evaluate(
      `opener.postMessage({ from: 'payment-intents-checkout', type: 'status', paymentIntent: 'pi_x', status: '${status}' }, '*')`,
    );

  test('after a forged success the order is shown as the backend knows it', async () => {
    const [popup] = await Promise.all([page.waitForEvent('popup'), page.click('#popup')]);
    await popup.waitForSelector('main[data-status="requires_payment"]');
    await forge(popup, 'succeeded');
    await page.waitForURL('**/orders/order-*');
    await page.waitForSelector('main[data-state="requires_payment"]');
    expect(await page.textContent('#title')).toBe('Waiting for your payment');
    expect(shop.output()).not.toContain('ship ');
    await popup.close();
  });

  test('a closed checkout is noticed, and a second click pays the same order, also after a reload', async () => {
    const click = async () => {
      const [popup] = await Promise.all([page.waitForEvent('popup'), page.click('#popup')]);
      await popup.waitForSelector('main[data-status="requires_payment"]');
      const secret = await popup.evaluate(`sessionStorage.getItem('payment-intents-checkout')`);
      await popup.close();
      await expect.poll(() => page.textContent('#message')).toMatch(/was closed/);
      return secret;
    };
    const secret = await click();
    expect(await click()).toBe(secret);
    await page.reload();
    await page.waitForSelector('#popup:enabled');
    expect(await click()).toBe(secret);
  });

  test('both buttons at once pay one order', async () => {
    const placed = () => service.query('select id from payment_intents');
    const before = (await placed()).length;
    const [popup] = await Promise.all([
      page.waitForEvent('popup'),
      page.evaluate(`document.querySelector('#popup').click(); document.querySelector('#redirect').click()`),
    ]);
    await page.waitForURL('**/checkout*');
    expect((await placed()).length - before).toBe(1);
    await popup.close();
  });

  test('an order is shown even if the payment service cannot be reached, and its messages stay', async () => {
    const { order_id } = await placeOrder(shop);
    await page.route(`${service.publicUrl}/**`, (route) => route.abort());
    await page.goto(`${shop.url}/orders/${order_id}`);
    await page.waitForSelector('main[data-state="requires_payment"]');
    await page.click('#pay');
    const message = () => page.textContent('#message');
    await expect.poll(message).toBe('The payment could not be started. Try again.');
    await page.waitForResponse('**/state');
    await page.waitForResponse('**/state');
    expect(await message()).toBe('The payment could not be started. Try again.');
    complaints.splice(0);
  });

  test('an order can be paid where the browser blocks storage', async () => {
    await page.addInitScript(`if (location.pathname !== '/checkout') {
      const get = () => { throw new DOMException('', 'SecurityError'); };
      Object.defineProperty(globalThis, 'sessionStorage', { get });
    }`);
    await page.reload();
    const [popup] = await Promise.all([page.waitForEvent('popup'), page.click('#popup:enabled')]);
    await popup.waitForSelector('main[data-status="requires_payment"]');
    await popup.close();
    const { order_id } = await placeOrder(shop);
    await page.goto(`${shop.url}/orders/${order_id}`);
    await page.waitForSelector('main[data-state="requires_payment"]');
    await Promise.all([page.waitForURL('**/checkout*'), page.click('#pay')]);
  });

  test.each([
    [320, 'dark'],
    [1_100, 'light'],
  ] as const)('at %i px in %s: nothing overflows, and axe finds no problems', async (width, colorScheme) => {
    const { order_id } = await placeOrder(shop);
    await page.setViewportSize({ width, height: 800 });
    await page.emulateMedia({ colorScheme });
    for (const path of ['/', `/orders/${order_id}`]) {
      await page.goto(shop.url + path);
      await page.waitForSelector(path === '/' ? '#popup:enabled' : 'main[data-state="requires_payment"]');
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(width);
      expect(await findProblems(page)).toEqual([]);
    }
  });
});

// Like a new user: two commands, and a purchase with the test wallet.
describe.skipIf(!hasBrowser)('beside npm start', () => {
  let data: string;
  let service: Program;
  let shop: Program;
  let browser: TestBrowser;
  let page: Page;

  beforeAll(async () => {
    data = await mkdtemp(join(tmpdir(), 'pi-shop-data-'));
    // PostgreSQL may run as another user.
    await chmod(data, 0o755);
    const env = { HOME: data, DATA_DIR: join(data, 'data') };
    service = await startWholeService(env);
    shop = await startShop({ ...env, PAYMENTS_URL: service.url }, ['npm', 'run', '-s', 'shop']);
    browser = await openBrowser({ blocksPopups: true });
  });

  afterAll(async () => {
    await browser.close();
    await shop.stop();
    await service.stop();
    await rm(data, { recursive: true, force: true });
  });

  beforeEach(async () => {
    page = await browser.context.newPage();
    await page.goto(shop.url);
    await page.waitForSelector('#popup:enabled');
  });

  afterEach(() => page.close());

  const payExactly = (on: Page) => on.click('[data-action="test-wallet"][data-amount="exact"]');
  const isShipped = (on: Page) => on.waitForSelector('main[data-state="shipped"]', { timeout: 40_000 });
  const orderOn = (on: Page) => new URL(on.url()).pathname.split('/')[2] as string;
  const openPopup = async () => {
    const [popup] = await Promise.all([page.waitForEvent('popup'), page.click('#popup')]);
    return popup;
  };

  test('an order is paid in the popup, shipped once, and refunded', {
    timeout: 90_000,
  }, async () => {
    const popup = await openPopup();
    expect(popup.url()).not.toContain('_secret_');
    await payExactly(popup);
    await page.waitForURL('**/orders/order-*');
    await isShipped(page);
    await popup.waitForSelector('main[data-status="succeeded"]');
    await hasShipped(shop, orderOn(page), 1);
    await page.fill('#destination', '0x');
    await page.click('#refund button');
    await page.fill('#destination', '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed');
    await page.click('#refund button');
    await page.waitForSelector('main[data-state="returning"]', { timeout: 20_000 });
    await page.waitForSelector('main[data-state="returned"]', { timeout: 40_000 });
    await popup.reload();
    await popup.waitForSelector('[data-notice="returned"]');
    expect(await popup.textContent('[data-returned]')).toMatch(/Returned12\.50.USDC.*0x5aAe…eAed/);
    await popup.close();
  });

  test('an order is paid on the payment page, and the payer comes back', { timeout: 60_000 }, async () => {
    await page.click('#redirect');
    await page.waitForURL(`${service.url}/checkout*`);
    await payExactly(page);
    await page.waitForSelector('main[data-status="succeeded"]', { timeout: 40_000 });
    await page.click('[data-action="return"]');
    await page.waitForURL('**/orders/order-*?payment_intent=pi_*');
    await isShipped(page);
    await hasShipped(shop, orderOn(page), 1);
  });

  test('an order is shipped even if the browser is closed', { timeout: 60_000 }, async () => {
    const [, placed] = await Promise.all([
      openPopup().then(payExactly),
      page.waitForResponse(`${shop.url}/orders`),
    ]);
    const { order_id } = await placed.json();
    for (const opened of browser.context.pages().slice(1)) if (opened !== page) await opened.close();
    await page.goto('about:blank');
    await hasShipped(shop, order_id, 1);
    expect(await stateOf(shop, order_id)).toBe('shipped');
    // Makes the service send the webhook again.
    const { testnet_key: apiKey } = JSON.parse(await readFile(join(data, 'data/demo.json'), 'utf8'));
    const client = createPaymentIntentsClient({ baseUrl: service.url, apiKey });
    const { items } = await client.listEvents({ type: 'payment_intent.succeeded' }).page();
    const event = items.find(({ data }) => data.paymentIntent?.metadata.order_id === order_id)?.id ?? '';
    const attemptsOf = async () => {
      const [endpoint] = (await client.listWebhookEndpoints().page()).items;
      const { items } = await client
        .listWebhookDeliveries(endpoint?.id ?? '', { status: 'delivered' })
        .page();
      return items.find((delivery) => delivery.event === event)?.attempts.length;
    };
    await expect.poll(attemptsOf).toBe(1);
    await client.redeliverEvent(event);
    await expect.poll(attemptsOf).toBe(2);
    await hasShipped(shop, order_id, 1);
  });
});
