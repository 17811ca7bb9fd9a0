// Every state of the checkout page is accessible: axe finds nothing in light or dark, nothing overflows at
// 320 px or with text of twice the size, everything begins at one edge, nothing moves for those who prefer
// reduced motion, and the keyboard is enough.

import { readFile } from 'node:fs/promises';
import type { Page } from 'playwright-core';
import { afterEach, describe, expect, test } from 'vitest';
import { hasBrowser, openBrowser, useOpened } from '../support/browser.ts';
import { startCheckoutWorld, wrapPage } from '../support/checkout-page.ts';
import { openState, type State, states } from '../support/checkout-states.ts';

describe.skipIf(!hasBrowser)('the state', () => {
  const browser = useOpened(openBrowser);

  test.each(states)('$name', async (state) => {
    const context = await browser.newContext();
    const complaints: string[] = [];
    context.on('console', (message) => {
      // The browser logs failed requests, which some states need.
      if (message.type() === 'error' && !message.text().startsWith('Failed to load resource')) {
        complaints.push(message.text());
      }
    });
    context.on('weberror', (error) => complaints.push(String(error.error())));
    const page = await openState(context, state);
    const checkout = wrapPage(page);

    expect(await page.evaluate(leftEdges), 'one axis').toHaveLength(1);
    await page.emulateMedia({ colorScheme: 'light', reducedMotion: 'reduce' });
    expect(await checkout.axe(), 'light').toEqual([]);
    // Only the colours differ.
    await page.emulateMedia({ colorScheme: 'dark', reducedMotion: 'reduce' });
    expect(await checkout.axe(['color-contrast']), 'dark').toEqual([]);
    expect(await motions(page)).toEqual([]);
    await page.setViewportSize({ width: 320, height: 640 });
    expect(await checkout.overflow(), 'at 320 px').toBe(0);
    // The width of a window that shows a page of 320 px twice as large.
    await page.setViewportSize({ width: 640, height: 640 });
    await page.evaluate(doubleText);
    expect(await checkout.overflow(), 'with text of twice the size').toBe(0);
    // The title of the tab names the payment.
    const isPaid = state.view === 'succeeded';
    expect(await page.title()).toMatch(isPaid ? /^Paid to .+$/ : /^Payment( to .+)?$/);
    expect(await page.locator('main').count()).toBe(1);
    // Only a final payment is called paid, and its heading comes first.
    expect(await page.locator('h1', { hasText: /^Paid$/ }).count()).toBe(isPaid ? 1 : 0);
    expect(await page.locator('h2, h3, dt', { hasText: /^Paid$/ }).count()).toBe(
      isPaid && hasPayment(state) ? 1 : 0,
    );
    expect((await checkout.text()).match(/test (network|money)|real money/gi)?.length ?? 0).toBe(
      (await page.locator('.badge').count()) + (state.view === 'test-wallet' ? 1 : 0),
    );
    // Phrases that no person would say.
    expect(await checkout.text()).not.toMatch(/by itself|is told/);
    expect(complaints).toEqual([]);
    await context.close();
  });

  test('list in states.md is complete', async () => {
    const text = await readFile(new URL('../../checkout/states.md', import.meta.url), 'utf8');
    const listed = [...text.matchAll(/^\| `([\w-]+)` +\|/gm)].map(([, name]) => name);
    expect(listed).toEqual(states.map(({ name }) => name));
  });
});

describe.skipIf(!hasBrowser)('a payer sees', () => {
  const browser = useOpened(openBrowser);
  let page: Page;

  afterEach(() => page.context().close());

  /** Opens the state at 390 px, as on a phone, in Berlin. */
  async function open(name: string): Promise<void> {
    const context = await browser.newContext({
      viewport: { width: 390, height: 844 },
      timezoneId: 'Europe/Berlin',
    });
    page = await openState(context, states.find((state) => state.name === name) as State);
  }

  const actions = () =>
    page.locator('[data-action]').evaluateAll((all) => all.map((one) => one.getAttribute('data-action')));
  const boxOf = async (selector: string) => (await page.locator(selector).boundingBox()) as Box;

  test('wallets first, and the payment by hand last', async () => {
    await open('choose-wallet');
    expect(await actions()).toEqual(['wallet', 'wallet', 'manual']);
  });

  test('the QR code for a phone if there is no wallet, and the payment by hand last', async () => {
    await open('no-wallet');
    expect(await page.locator('.qr').isVisible()).toBe(true);
    expect(await actions()).toEqual(['copy-link', 'manual']);
    await page.locator('[data-action="manual"]').click();
    // It can still be opened.
    expect(await page.locator('.qr').isVisible()).toBe(false);
    await page.locator('summary').click();
    expect(await page.locator('.qr').isVisible()).toBe(true);
    expect(await actions()).toEqual(['copy-amount', 'copy-address', 'copy-link', 'wallets']);
  });

  test.each(['ready', 'test-wallet'])('the button that pays on one line: %s', async (name) => {
    await open(name);
    const button = page.locator('[data-action="pay"], [data-amount="exact"]');
    expect(((await button.textContent()) ?? '').replace(/\s/g, ' ')).toBe('Pay 12.50 USDC');
    expect(await button.evaluate(linesOf)).toBe(1);
  });

  test('in each row by hand, a button at the right edge that copies it', async () => {
    await open('manual');
    const { x, width } = await boxOf('header');
    for (const what of ['amount', 'address']) {
      const [button, value] = [
        await boxOf(`[data-action="copy-${what}"]`),
        await boxOf(`[data-value="${what}"]`),
      ];
      expect(button.x + button.width).toBeCloseTo(x + width, 0);
      expect(button.x).toBeGreaterThan(value.x + value.width);
      // Beside the value, not below it.
      expect(button.y).toBeLessThan(value.y + value.height);
      expect(button.y + button.height).toBeGreaterThan(value.y);
    }
  });

  test('what to do if the browser does not copy the address or the link', async () => {
    await open('manual');
    await page.locator('summary').click();
    await page.evaluate(refuseToCopy);
    for (const what of ['address', 'link']) {
      await page.locator(`[data-action="copy-${what}"]`).click();
      const row = page.locator('.copyable', { has: page.locator(`[data-action="copy-${what}"]`) });
      await row.getByText('Not copied').waitFor();
      await row.getByText('Select the text and copy it yourself').waitFor();
    }
    expect(await page.locator('.copyable code').last().textContent()).toContain('/checkout#pi_');
  });

  test('space around the bar of confirmations', async () => {
    await open('processing');
    const [bar, above, below] = [
      await boxOf('progress'),
      await boxOf('.lines > p'),
      await boxOf('progress + p'),
    ];
    expect(bar.y - above.y - above.height).toBeGreaterThanOrEqual(16);
    expect(below.y - bar.y - bar.height).toBeGreaterThanOrEqual(8);
  });

  test('the deadline and the time of the payment, with the time zone', async () => {
    await open('manual');
    const { text } = wrapPage(page);
    expect(await text()).toMatch(/Pay before 13:30 CET ?, Central European Standard Time ?, 27 min left/);
    expect(await text()).toMatch(/to this address before 13:30 CET\./);
    await page.context().close();
    await open('succeeded');
    expect(await wrapPage(page).text()).toMatch(/21 Nov 2026, 13:02 CET/);
  });
});

describe.skipIf(!hasBrowser)('the keyboard alone', () => {
  const world = useOpened(startCheckoutWorld);
  afterEach(() => world.closeDevices());

  /** Presses Tab until the element has the focus. The focus has to be visible each time. */
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
    const expected = { amount: '1234.5', address: intent.expected_wallet };
    for (const [what, text] of Object.entries(expected)) {
      await tabTo(checkout.page, `[data-action="copy-${what}"]`);
      await checkout.page.keyboard.press('Enter');
      const said = checkout.action(`copy-${what}`).locator('~ [role="status"]');
      await expect.poll(() => said.textContent()).toBe('Copied');
      expect(await checkout.page.evaluate(readClipboard)).toBe(text);
    }
    // The address is complete, and its groups add no characters.
    expect(await checkout.page.locator('[data-value="address"]').textContent()).toBe(intent.expected_wallet);
  });

  test('keeps its place when the page moves on', async () => {
    const device = await world.openDevice();
    await device.installWallet(await world.createPayer());
    const checkout = await device.open(await world.createIntent());
    await checkout.view('choose-wallet');
    await tabTo(checkout.page, '[data-action="wallet"]');
    await checkout.page.keyboard.press('Enter');
    await checkout.view('ready');
    // The pressed button is gone, so the title of the step has the focus and is read out.
    expect(await checkout.page.locator('#title:focus').count()).toBe(1);
  });
});

const hasPayment = ({ name }: State) => name !== 'reorganised-after-success';

type Box = Record<'x' | 'y' | 'width' | 'height', number>;

// Everything below runs in the page.

interface Element {
  matches(selector: string): boolean;
  getBoundingClientRect(): { left: number };
  getClientRects(): { length: number };
}

interface InPage {
  document: {
    documentElement: { style: { fontSize: string } };
    getAnimations(): { playState: string; animationName?: string }[];
    querySelectorAll(selector: string): Iterable<Element>;
    createRange(): { selectNodeContents(node: unknown): void; getClientRects(): Iterable<{ top: number }> };
  };
  navigator: { clipboard: { readText(): Promise<string>; writeText(text: string): Promise<void> } };
  getComputedStyle(element: unknown): Record<'outlineWidth' | 'outlineStyle' | 'textAlign', string>;
}

const motions = (page: Page) =>
  page.evaluate(() =>
    (globalThis as unknown as InPage).document
      .getAnimations()
      .filter(({ playState }) => playState === 'running')
      .map(({ animationName }) => animationName ?? 'a transition'),
  );

/** Returns where the parts of the page begin, in pixels. */
function leftEdges(): number[] {
  const { document, getComputedStyle } = globalThis as unknown as InPage;
  const parts = document.querySelectorAll(
    'header, .merchant, h1, h2, h3, footer, .hero > p, .notice, .step > *, .step dt, .step .soft',
  );
  const edges = [...parts]
    .filter((part) => part.getClientRects().length > 0)
    // Centered text does not begin where its box does. Buttons are visible as boxes.
    .map((part) =>
      getComputedStyle(part).textAlign === 'center' && !part.matches('button, a')
        ? -1
        : part.getBoundingClientRect().left,
    );
  return [...new Set(edges.map(Math.round))];
}

/** Returns the number of lines of its text. */
function linesOf(button: unknown): number {
  const { document } = globalThis as unknown as InPage;
  const range = document.createRange();
  range.selectNodeContents(button);
  return new Set([...range.getClientRects()].map(({ top }) => Math.round(top))).size;
}

function refuseToCopy(): void {
  const { navigator } = globalThis as unknown as InPage;
  navigator.clipboard.writeText = () => Promise.reject(new Error('refused'));
}

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
