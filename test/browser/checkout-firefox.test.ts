// The hosted checkout in Firefox, as Debian has it: payers do not all use Chromium. Playwright drives only a Firefox of its
// own; Puppeteer drives this one, over WebDriver BiDi.

import { existsSync } from 'node:fs';
import puppeteer, { type Browser, type Page } from 'puppeteer-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type CheckoutWorld, startCheckoutWorld } from '../support/checkout-page.ts';
import { idBytes } from '../support/settlement.ts';

const executablePath = ['/usr/bin/firefox-esr', '/usr/bin/firefox'].find((path) => existsSync(path));
if (executablePath === undefined) {
  console.log('skipped: no Firefox is installed (apt-get install firefox-esr)');
}

describe.skipIf(executablePath === undefined)('in Firefox', () => {
  let world: CheckoutWorld;
  let browser: Browser;
  let page: Page;
  const complaints: string[] = [];

  beforeAll(async () => {
    [world, browser] = await Promise.all([
      startCheckoutWorld(),
      puppeteer.launch({ browser: 'firefox', executablePath: executablePath as string, headless: true }),
    ]);
    page = await browser.newPage();
    await page.setViewport({ width: 390, height: 844 });
    await page.emulateTimezone('Europe/Berlin');
    page.on('console', (message) => {
      if (['error', 'warn'].includes(message.type())) complaints.push(message.text());
    });
    // Firefox reports what the content security policy blocks like an error that nothing has caught.
    page.on('pageerror', (error) => complaints.push(String(error)));
    page.on('requestfailed', (request) => complaints.push(`failed: ${request.url()}`));
  });
  afterAll(async () => {
    await browser.close();
    await world.close();
  });

  const sees = (selector: string) => page.waitForSelector(selector, { timeout: 15_000 });
  const text = async () => String(await page.evaluate('document.querySelector("main").innerText'));
  /** Lets the page ask at once, as it does when the network is back. */
  const refresh = () => page.evaluate('dispatchEvent(new Event("online"))');
  const widthAt = async (width: number) => {
    await page.setViewport({ width, height: 844 });
    return page.evaluate('document.documentElement.scrollWidth');
  };

  test('a payer pays by hand, and the page follows the payment until it is final', async () => {
    const intent = await world.createIntent();
    await page.goto(`${world.service.publicUrl}/checkout#${intent.client_secret}`);
    await sees('main[data-view="no-wallet"]');
    expect(page.url()).toBe(`${world.service.publicUrl}/checkout`);
    expect(await page.$eval('.qr', (code) => code.getBoundingClientRect().width)).toBeGreaterThan(100);

    await page.click('[data-action="manual"]');
    await sees('main[data-view="manual"][data-status="requires_payment"]');
    expect(await text()).toMatch(/12\.50\sUSDC/);
    expect(await text()).toMatch(/Pay before .*\d\d:\d\d\sCES?T/);
    expect(await page.$eval('[data-value="address"]', (address) => address.textContent)).toBe(
      intent.expected_wallet,
    );
    await page.click('[data-action="copy-address"]');
    await page.waitForFunction(
      `document.querySelector('[data-action="copy-address"]').textContent === 'Copied'`,
    );
    expect(await widthAt(320)).toBeLessThanOrEqual(320);

    await world.transferTo(intent, { suffix: idBytes(intent.id) });
    await world.mine();
    await refresh();
    await sees('main[data-status="processing"]');
    expect(await page.$eval('h1', (title) => title.textContent)).toBe('Payment received');
    expect(await page.$eval('progress', (bar) => bar.getAttribute('aria-label'))).toBe(
      '1 of 10 confirmations',
    );

    await world.mine(10);
    await refresh();
    await sees('main[data-status="succeeded"]');
    expect(await page.$eval('h1', (title) => title.textContent)).toBe('Paid');
    expect(await page.title()).toMatch(/^Paid to /);
    expect(complaints).toEqual([]);

    // A violation would have been seen.
    await page.evaluate('document.body.setAttribute("style", "color: red")');
    await expect.poll(() => complaints.join()).toMatch(/Content-Security-Policy.*style-src/);
  });
});
