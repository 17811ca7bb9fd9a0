// Every state of the checkout page can be read and used by everybody: axe finds nothing in light or dark, nothing overflows at
// 320 px or with text of twice the size, nothing moves for those who do not want it, and the keyboard is enough.

import { readFile } from 'node:fs/promises';
import type { Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { openState, states } from '../../checkout/states.ts';
import { hasBrowser, openBrowser, type TestBrowser } from '../support/browser.ts';
import { type CheckoutWorld, startCheckoutWorld, wrapPage } from '../support/checkout-page.ts';

describe.skipIf(!hasBrowser)('the state', () => {
  let browser: TestBrowser;

  beforeAll(async () => {
    browser = await openBrowser();
  });
  afterAll(() => browser.close());

  test.each(states)('$name', async (state) => {
    const context = await browser.newContext();
    const complaints: string[] = [];
    context.on('console', (message) => {
      // The browser itself says that a request has failed, which some states need.
      if (message.type() === 'error' && !message.text().startsWith('Failed to load resource')) {
        complaints.push(message.text());
      }
    });
    context.on('weberror', (error) => complaints.push(String(error.error())));
    const page = await openState(context, state);
    const checkout = wrapPage(page);

    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
      expect(await checkout.axe(), colorScheme).toEqual([]);
    }
    expect(await motions(page)).toEqual([]);
    await page.setViewportSize({ width: 320, height: 640 });
    expect(await checkout.overflow(), 'at 320 px').toBe(0);
    // The width of a window that shows a page of 320 px twice as large.
    await page.setViewportSize({ width: 640, height: 640 });
    await page.evaluate(doubleText);
    expect(await checkout.overflow(), 'with text of twice the size').toBe(0);
    // One heading for the page, one for the step; the title of the tab says something.
    expect(await page.title()).toMatch(/^(Payment|Pay .+)$/);
    expect(await page.locator('main').count()).toBe(1);
    expect(complaints).toEqual([]);
    await context.close();
  });

  test('list in states.md is complete', async () => {
    const text = await readFile(new URL('../../checkout/states.md', import.meta.url), 'utf8');
    const listed = [...text.matchAll(/^\| `([\w-]+)` +\|/gm)].map(([, name]) => name);
    expect(listed).toEqual(states.map(({ name }) => name));
  });
});

describe.skipIf(!hasBrowser)('the keyboard alone', () => {
  let world: CheckoutWorld;

  beforeAll(async () => {
    world = await startCheckoutWorld();
  });
  afterEach(() => world.closeDevices());
  afterAll(() => world.close());

  /** Presses Tab until the element has the focus, which has to be visible. */
  async function tabTo(page: Page, selector: string): Promise<void> {
    for (let presses = 0; presses < 20; presses++) {
      await page.keyboard.press('Tab');
      const focused = page.locator(`${selector}:focus-visible`);
      if ((await focused.count()) === 0) continue;
      const style = await focused.evaluate(focusStyle);
      expect(style).toMatch(/[1-9]/);
      return;
    }
    throw new Error(`Tab does not reach ${selector}`);
  }

  test('leads from the link to the way back', async () => {
    await world.setOrigins('https://shop.example');
    const device = await world.openDevice();
    await device.installWallet(await world.createPayer(), { chainId: 1 });
    const intent = await world.createIntent();
    const checkout = await device.open(intent, { return_url: 'https://shop.example/orders/1' });
    await checkout.view('choose-wallet');
    await tabTo(checkout.page, '[data-action="wallet"]');
    await checkout.page.keyboard.press('Enter');
    await checkout.view('wrong-chain');
    await tabTo(checkout.page, '[data-action="switch-chain"]');
    await checkout.page.keyboard.press('Space');
    await checkout.view('ready');
    await tabTo(checkout.page, '[data-action="pay"]');
    await checkout.page.keyboard.press('Enter');
    await checkout.view('sent');
    await world.mine(10);
    await checkout.refresh();
    await checkout.view('succeeded');
    await tabTo(checkout.page, '[data-action="return"]');
  });

  test('pays by hand: address and amount are copied, and the buttons say so', async () => {
    const device = await world.openDevice({ permissions: ['clipboard-read', 'clipboard-write'] });
    const intent = await world.createIntent({ amount_units: 1_234_500_000 });
    const checkout = await device.open(intent);
    await checkout.view('no-wallet');
    await tabTo(checkout.page, '[data-action="manual"]');
    await checkout.page.keyboard.press('Enter');
    await checkout.view('manual');
    const expected = {
      amount: '1234.5',
      address: intent.expected_wallet,
    };
    for (const [what, text] of Object.entries(expected)) {
      await tabTo(checkout.page, `[data-action="copy-${what}"]`);
      await checkout.page.keyboard.press('Enter');
      await expect.poll(() => checkout.action(`copy-${what}`).textContent()).toBe('Copied');
      expect(await checkout.page.evaluate(readClipboard)).toBe(text);
    }
    // Whole, and in groups that are not part of it.
    expect(await checkout.page.locator('[data-value="address"]').textContent()).toBe(intent.expected_wallet);
  });

  test('keeps its place when the page goes on', async () => {
    const device = await world.openDevice();
    await device.installWallet(await world.createPayer());
    const checkout = await device.open(await world.createIntent());
    await checkout.view('choose-wallet');
    await tabTo(checkout.page, '[data-action="wallet"]');
    await checkout.page.keyboard.press('Enter');
    await checkout.view('ready');
    // The button that was pressed has gone: the title of the step has the focus, and is read out.
    expect(await checkout.page.locator('#title:focus').count()).toBe(1);
  });
});

// These run in the page.

interface InPage {
  document: {
    documentElement: { style: { fontSize: string } };
    getAnimations(): { playState: string; animationName?: string }[];
  };
  navigator: { clipboard: { readText(): Promise<string> } };
  getComputedStyle(element: unknown): { outlineWidth: string; outlineStyle: string; boxShadow: string };
}

const motions = (page: Page) =>
  page.evaluate(() =>
    (globalThis as unknown as InPage).document
      .getAnimations()
      .filter(({ playState }) => playState === 'running')
      .map(({ animationName }) => animationName ?? 'a transition'),
  );

function doubleText(): void {
  (globalThis as unknown as InPage).document.documentElement.style.fontSize = '200%';
}

function readClipboard(): Promise<string> {
  return (globalThis as unknown as InPage).navigator.clipboard.readText();
}

function focusStyle(element: unknown): string {
  const { outlineWidth, outlineStyle } = (globalThis as unknown as InPage).getComputedStyle(element);
  return outlineStyle === 'none' ? '' : outlineWidth;
}
