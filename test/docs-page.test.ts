// The reference page, in a real browser.

import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type BrowserContext, chromium, type Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { catalogue } from '../src/errors.ts';
import openapi from '../src/gen/openapi.json' with { type: 'json' };
import { httpRequest } from './support/doors.ts';
import { startService, type TestService } from './support/service.ts';

/** Where Debian and others put it. */
const browser = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((path) =>
  existsSync(path),
);
if (browser === undefined) console.log('skipped: no Chromium is installed (apt-get install chromium)');

let service: TestService;

beforeAll(async () => {
  service = await startService();
});

afterAll(() => service.close());

test('the page takes nothing from anywhere else, and cannot be put into a frame', async () => {
  const answer = await fetch(`${service.publicUrl}/docs`);
  expect(answer.headers.get('content-type')).toBe('text/html; charset=utf-8');
  const policy = answer.headers.get('content-security-policy');
  expect(policy).toMatch(/^default-src 'none';/);
  expect(policy).toMatch(/frame-ancestors 'none'/);
  expect(policy).not.toMatch(/unsafe|https?:/);
  expect(await answer.text()).not.toMatch(/(?:src|href)="(?:https?:)?\/\//);
});

test.each(['POST', 'DELETE'])('%s is not what a page answers', async (method) => {
  const { status, headers } = await httpRequest(`${service.publicUrl}/docs`, { method });
  expect([status, headers.allow]).toEqual([405, 'GET, HEAD']);
});

describe.skipIf(browser === undefined)('in Chromium', () => {
  let profile: string;
  let context: BrowserContext;
  let page: Page;
  const complaints: string[] = [];

  beforeAll(async () => {
    profile = await mkdtemp(join(tmpdir(), 'pi-browser-'));
    context = await chromium.launchPersistentContext(profile, {
      executablePath: browser as string,
      headless: true,
      args: [
        ...['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run'],
        ...['--disable-background-networking', '--disable-component-update', '--disable-sync'],
      ],
    });
    page = await context.newPage();
    page.on('console', (message) => {
      if (message.type() === 'error' || message.type() === 'warning') complaints.push(message.text());
    });
    page.on('pageerror', (error) => complaints.push(error.message));
    page.on('request', (request) => {
      const { origin, protocol } = new URL(request.url());
      if (protocol !== 'data:' && origin !== service.publicUrl) complaints.push(`asked for ${request.url()}`);
    });
    await page.goto(`${service.publicUrl}/docs`);
    await page.waitForSelector('.opblock .responses-table');
  });

  afterAll(async () => {
    await context.close();
    await rm(profile, { recursive: true, force: true });
  });

  test('shows every field of the request and the response', async () => {
    // biome-ignore lint/performance/useDomNodeTextContent: what is hidden is not shown
    const text = await page.locator('#reference').innerText();
    const { CreatePaymentIntentRequest, PaymentIntent } = openapi.components.schemas;
    for (const schema of [CreatePaymentIntentRequest, PaymentIntent]) {
      for (const name of Object.keys(schema.properties)) expect(text).toContain(name);
    }
    expect(text).toContain('API keys belong on servers');
  });

  test('shows every refusal', async () => {
    // biome-ignore lint/performance/useDomNodeTextContent: what is hidden is not shown
    const text = await page.locator('.responses-table').innerText();
    for (const [code, { message }] of Object.entries(catalogue)) {
      if (code === 'not_found' || code === 'method_not_allowed') continue;
      expect(text).toContain(code);
      expect(text).toContain(message);
    }
  });

  test('shows an example of the request, of the answer, and of every refusal', async () => {
    // biome-ignore lint/performance/useDomNodeTextContent: what is hidden is not shown
    const text = (await page.locator('#reference').innerText()).replace(/\s+/g, '');
    const { post } = openapi.paths['/v1/payment_intents'];
    const examples = [
      post.requestBody.content['application/json'].example,
      ...Object.values(post.responses).flatMap(({ content }) => {
        const { example, examples = {} } = content['application/json'] as {
          example?: object;
          examples?: Record<string, { value: object }>;
        };
        return example ?? Object.values(examples).map(({ value }) => value);
      }),
    ];
    expect(examples.length).toBeGreaterThan(13);
    for (const example of examples) expect(text).toContain(JSON.stringify(example).replace(/\s+/g, ''));
  });

  test('offers to send nothing, and no place for a key', async () => {
    expect(
      await page.locator('button.authorize, .authorization__btn, input').filter({ visible: true }).count(),
    ).toBe(0);
    expect(await page.locator('button', { hasText: /try it out|execute/i }).count()).toBe(0);
  });

  test('follows light and dark', async () => {
    const brightnessOf = (color: string) => {
      const [r = 0, g = 0, b = 0, alpha = 1] = [...color.matchAll(/[\d.]+/g)].map(Number);
      // What is transparent shows the white of the window.
      return alpha === 0 ? 255 : (r + g + b) / 3;
    };
    const background = async () =>
      brightnessOf(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
    const texts = async () => {
      const colors = await page.evaluate(() =>
        [
          '.info p',
          '.opblock-summary-path',
          '.opblock-description p',
          '.response-col_description p',
          'td',
        ].map((selector) => {
          const element = document.querySelector(`.swagger-ui ${selector}`);
          return element === null ? `nothing is ${selector}` : getComputedStyle(element).color;
        }),
      );
      return colors.map(brightnessOf);
    };
    await page.emulateMedia({ colorScheme: 'dark' });
    await expect.poll(background).toBeLessThan(60);
    expect(Math.min(...(await texts()))).toBeGreaterThan(130);
    await page.emulateMedia({ colorScheme: 'light' });
    await expect.poll(background).toBeGreaterThan(200);
    expect(Math.max(...(await texts()))).toBeLessThan(120);
  });

  test("fits a phone's width", async () => {
    await page.setViewportSize({ width: 390, height: 844 });
    const { scrollWidth, clientWidth } = await page.evaluate(() => ({
      scrollWidth: document.documentElement.scrollWidth,
      clientWidth: document.documentElement.clientWidth,
    }));
    expect(scrollWidth).toBeLessThanOrEqual(clientWidth);
  });

  test('without a complaint of the browser', () => {
    expect(complaints).toEqual([]);
  });
});
