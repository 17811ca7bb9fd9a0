// The hosted checkout in Debian's Firefox, and in WebKit, the engine of Safari. Playwright drives only builds
// of its own. Puppeteer drives this Firefox over WebDriver BiDi. Nothing on npm drives this WebKit without
// further programs, so the few requests of WebDriver (https://www.w3.org/TR/webdriver2/) are made here.

import { existsSync } from 'node:fs';
import puppeteer from 'puppeteer-core';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { type CheckoutWorld, startCheckoutWorld } from '../support/checkout-page.ts';
import { closedPort } from '../support/listen.ts';
import { startProgram } from '../support/program.ts';
import { idBytes } from '../support/settlement.ts';

interface Browser {
  goto(url: string): Promise<unknown>;
  click(selector: string): Promise<unknown>;
  evaluate(expression: string): Promise<unknown>;
  /** Makes the window this wide, or as narrow as it gets. */
  resize(width: number): Promise<unknown>;
  /** Errors that are uncaught or logged, and blocked or failed requests. */
  complaints(): Promise<string[]>;
  close(): Promise<unknown>;
}

async function openFirefox(executablePath: string): Promise<Browser> {
  const browser = await puppeteer.launch({ browser: 'firefox', executablePath, headless: true });
  const page = await browser.newPage();
  const complaints: string[] = [];
  await page.emulateTimezone('Europe/Berlin');
  page.on('console', (message) => {
    if (['error', 'warn'].includes(message.type())) complaints.push(message.text());
  });
  // Firefox reports violations of the content security policy as uncaught errors.
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('requestfailed', (request) => complaints.push(`failed: ${request.url()}`));
  return {
    goto: (url) => page.goto(url),
    click: (selector) => page.click(selector),
    evaluate: (expression) => page.evaluate(expression),
    resize: (width) => page.setViewport({ width, height: 844 }),
    complaints: async () => complaints,
    close: () => browser.close(),
  };
}

async function openWebKit(driver: string): Promise<Browser> {
  const screen = startProgram(['Xvfb', '-displayfd', '1'], {});
  const [display] = await screen.until(/^\d+$/m);
  const port = await closedPort();
  const env = { ...process.env, DISPLAY: `:${display}`, TZ: 'Europe/Berlin' };
  const program = startProgram([driver, `--port=${port}`], { env });
  let session = '';
  const ask = async (method: string, path: string, body?: object) => {
    const request = { method, ...(body && { body: JSON.stringify(body) }) };
    const { value } = (await (await fetch(`http://127.0.0.1:${port}${session}${path}`, request)).json()) as {
      value: never;
    };
    if ((value as { error?: string } | null)?.error) throw new Error(JSON.stringify(value));
    return value;
  };
  await vi.waitFor(() => ask('GET', '/status'), { timeout: 10_000 });
  const { sessionId } = await ask('POST', '/session', { capabilities: {} });
  session = `/session/${sessionId}`;
  const evaluate = (expression: string) =>
    ask('POST', '/execute/sync', { script: `return (${expression});`, args: [] });
  return {
    async goto(url) {
      await ask('POST', '/url', { url });
      await evaluate(
        `complaints = [], ${['error', 'unhandledrejection', 'securitypolicyviolation'].map(
          (type) => `addEventListener('${type}', (e) =>
          complaints.push([e.message, e.reason, e.violatedDirective && 'Content-Security-Policy ' + e.violatedDirective].join('')))`,
        )}`,
      );
    },
    async click(selector) {
      const found = await ask('POST', '/element', { using: 'css selector', value: selector });
      await ask('POST', `/element/${Object.values(found)[0]}/click`, {});
    },
    evaluate,
    resize: (width) => ask('POST', '/window/rect', { width, height: 844 }),
    complaints: () => evaluate('complaints'),
    async close() {
      await ask('DELETE', '');
      await program.end();
      await screen.end();
    },
  };
}

describe.each([
  ['Firefox', ['/usr/bin/firefox-esr', '/usr/bin/firefox'], openFirefox, 'firefox-esr'],
  [
    'WebKit',
    existsSync('/usr/bin/Xvfb') ? ['/usr/bin/WebKitWebDriver'] : [],
    openWebKit,
    'webkit2gtk-driver xvfb',
  ],
] as const)('in %s', (name, paths, open, packages) => {
  const path = paths.find((each) => existsSync(each));
  if (path === undefined) console.log(`skipped: no ${name} is installed (apt-get install ${packages})`);
  let world: CheckoutWorld;
  let browser: Browser;
  beforeAll(async () => {
    if (path !== undefined) [world, browser] = await Promise.all([startCheckoutWorld(), open(path)]);
  });
  afterAll(async () => {
    await browser?.close();
    await world?.close();
  });

  const poll = (expression: string) =>
    expect.poll(() => browser.evaluate(expression), { timeout: 15_000, message: expression });
  const sees = (selector: string) => poll(`document.querySelector('${selector}') !== null`).toBe(true);
  const textOf = (selector: string) => browser.evaluate(`document.querySelector('${selector}').innerText`);
  /** Makes the page ask the service at once, as it does when the network is back. */
  const refresh = () => browser.evaluate('dispatchEvent(new Event("online"))');

  test.skipIf(path === undefined)(
    'a payer pays by hand, and sees the payment until it is final',
    async () => {
      const intent = await world.createIntent();
      await browser.resize(390);
      await browser.goto(`${world.service.publicUrl}/checkout#${intent.client_secret}`);
      await sees('main[data-view="no-wallet"]');
      expect(await browser.evaluate('location.href')).toBe(`${world.service.publicUrl}/checkout`);
      expect(
        await browser.evaluate('document.querySelector(".qr").getBoundingClientRect().width'),
      ).toBeGreaterThan(100);

      await browser.click('[data-action="manual"]');
      await sees('main[data-view="manual"][data-status="requires_payment"]');
      expect(await textOf('main')).toMatch(/12\.50\sUSDC/);
      expect(await textOf('main')).toMatch(/Pay before .*\d\d:\d\d\sCES?T/);
      const address = 'document.querySelector(\'[data-value="address"]\').textContent';
      expect(await browser.evaluate(address)).toBe(intent.expected_wallet);
      await browser.click('[data-action="copy-address"]');
      await poll(`document.querySelector('[data-action="copy-address"]').textContent`).toMatch(/^Copied /);
      await browser.resize(320);
      expect(await browser.evaluate('document.documentElement.scrollWidth - innerWidth')).toBeLessThanOrEqual(
        0,
      );

      await world.transferTo(intent, { suffix: idBytes(intent.id) });
      await world.mine();
      await refresh();
      await sees('main[data-status="processing"]');
      expect(await textOf('h1')).toBe('Payment received');
      expect(await browser.evaluate('document.querySelector("progress").getAttribute("aria-label")')).toBe(
        '1 of 10 confirmations',
      );

      await world.mine(10);
      await refresh();
      await sees('main[data-status="succeeded"]');
      expect(await textOf('h1')).toBe('Paid');
      expect(await browser.evaluate('document.title')).toMatch(/^Paid to /);
      expect(await browser.complaints()).toEqual([]);

      // The test does see violations.
      await browser.evaluate('document.body.setAttribute("style", "color: red")');
      await expect
        .poll(async () => (await browser.complaints()).join())
        .toMatch(/Content-Security-Policy.*style-src/);
    },
  );
});
