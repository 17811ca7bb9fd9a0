// biome-ignore-all lint/performance/useDomNodeTextContent: what is hidden is not shown
// The reference page, in a real browser.

import type { Page, Request } from 'playwright-core';
import { afterEach, beforeAll, describe, expect, test } from 'vitest';
import { catalogue, isRetryable } from '../../src/contract/error-catalogue.ts';
import openapi from '../../src/contract/gen/openapi.json' with { type: 'json' };
import { findProblems } from '../support/axe.ts';
import { hasBrowser, openBrowser, useOpened } from '../support/browser.ts';
import { httpRequest, startService } from '../support/service.ts';
import { useService } from '../support/use-service.ts';

const service = await useService();

test('the page loads nothing from elsewhere, and cannot be framed', async () => {
  const answer = await fetch(`${service.publicUrl}/docs`);
  expect(answer.headers.get('content-type')).toBe('text/html; charset=utf-8');
  const policy = answer.headers.get('content-security-policy');
  expect(policy).toMatch(/^default-src 'none';/);
  expect(policy).toMatch(/frame-ancestors 'none'/);
  expect(policy).toMatch(/form-action 'none'/);
  expect(policy).not.toMatch(/unsafe|https?:|data:/);
  const page = await answer.text();
  // Links may lead elsewhere, but nothing is loaded from there.
  expect(page).not.toMatch(/(?:src=|<link[^>]* href=)"(?:https?:)?\/\//);
  expect(page).not.toMatch(/<style| style=|<script>| on[a-z]+="/);
});

test.each(['POST', 'DELETE'])('%s of the page is refused', async (method) => {
  const { status, headers } = await httpRequest(`${service.publicUrl}/docs`, { method });
  expect([status, headers.allow]).toEqual([405, 'GET, HEAD']);
});

const operation = openapi.paths['/v1/payment_intents'].post;
const { CreatePaymentIntentRequest, PaymentIntent } = openapi.components.schemas;

describe.skipIf(!hasBrowser)('in Chromium', () => {
  const browser = useOpened(openBrowser);
  let page: Page;
  const complaints: string[] = [];
  let transferred = 0;

  beforeAll(async () => {
    page = await browser.context.newPage();
    page.on('console', (message) => {
      if (message.type() === 'error' || message.type() === 'warning') complaints.push(message.text());
    });
    page.on('pageerror', (error) => complaints.push(error.message));
    page.on('request', (request) => {
      if (new URL(request.url()).origin !== service.publicUrl) complaints.push(`asked for ${request.url()}`);
    });
    const finished: Request[] = [];
    page.on('requestfinished', (request) => finished.push(request));
    await page.goto(`${service.publicUrl}/docs`);
    await page.waitForSelector('.copy');
    const sizes = await Promise.all(finished.map((request) => request.sizes()));
    for (const each of sizes) transferred += each.responseBodySize + each.responseHeadersSize;
  });

  test('loads less than 55 KB', () => {
    expect(transferred).toBeGreaterThan(5_000);
    expect(transferred).toBeLessThan(55_000);
  });

  /** The visible text. */
  const shown = async (selector: string) => (await page.locator(selector).innerText()).replace(/\s+/g, ' ');
  const plain = (markdown: string) => markdown.replace(/[`*]/g, '').replace(/\s+/g, ' ');

  /** Folds or unfolds everything except the forms. */
  const fold = (isFolded: boolean) =>
    page.evaluate((folded) => {
      for (const each of document.querySelectorAll<HTMLDetailsElement>('main details:not(.try)'))
        each.open = !folded;
    }, isFolded);

  test('shows every field of the request and the response with its type, rules and full description', async () => {
    await fold(false);
    const expectFields = async (properties: object, idPrefix: string) => {
      for (const [name, schema] of Object.entries(properties)) {
        const text = await shown(`[id="${idPrefix}-${name}"]`);
        expect(text).toContain(name);
        if (schema.type === 'array') expect(text).toMatch(/list of/);
        else expect(text).toContain([schema.type].flat()[0]);
        for (const sentence of plain(schema.description.split('\n\n')[0]).split('. ')) {
          expect(text).toContain(sentence);
        }
        if (schema.pattern !== undefined) expect(text).toContain(schema.pattern);
        if (schema.minimum !== undefined) expect(text).toContain(String(schema.minimum));
        if (schema.maximum !== undefined) expect(text).toContain(String(schema.maximum));
        for (const value of (schema.enum ?? schema['x-extensible-enum'] ?? []).filter(Boolean)) {
          expect(text).toContain(String(value));
        }
      }
    };
    await expectFields(CreatePaymentIntentRequest.properties, 'createPaymentIntent-body');
    await expectFields(PaymentIntent.properties, 'object-PaymentIntent');
    expect(await shown('#createPaymentIntent-body-amount_units')).toMatch(/integer required/);
    expect(await shown('#createPaymentIntent-body-chain')).toMatch(/optional.*default base/);
    expect(await shown('#createPaymentIntent-header-Idempotency-Key')).toMatch(/1 to 255 characters/);
    await fold(true);
  });

  test('explains authentication, amounts, idempotency, errors, retries and changes', async () => {
    expect(await shown('#authentication')).toMatch(/API keys belong on servers/);
    expect(await shown('#amounts')).toMatch(/12500000/);
    expect(await shown('#idempotency')).toMatch(/as long as its intent.*order-1001\/2/);
    expect(await shown('#errors-and-retries')).toMatch(/Retry-After/);
    expect(await shown('#what-may-change')).toMatch(/statuses.*chain_id.*error codes/);
  });

  test('shows every error with its status, remedy, example and anchor', async () => {
    for (const [code, { message, httpStatus }] of Object.entries(catalogue)) {
      const text = await shown(`#error-${code}`);
      expect(text).toContain(message);
      expect(text).toContain(`${httpStatus} ${isRetryable(code) ? 'retry' : 'do not retry'}`);
      expect(text).toContain(`"code": "${code}"`);
    }
    await page.goto(`${service.publicUrl}/docs#error-unavailable`);
    await expect
      .poll(() => page.locator('#error-unavailable').evaluate((e) => e.getBoundingClientRect().top))
      .toBeLessThan(200);
    await expect
      .poll(() => page.locator('#nav [aria-current]').getAttribute('href'))
      .toBe('#error-unavailable');
  });

  test('the table of contents lists everything, and every link within the page works', async () => {
    const dead = await page.evaluate(() =>
      [...document.querySelectorAll<HTMLAnchorElement>('a[href^="#"]')]
        .map(({ hash }) => decodeURIComponent(hash.slice(1)))
        .filter((id) => document.getElementById(id) === null),
    );
    expect(dead).toEqual([]);
    const repeated = await page.evaluate(() => {
      const ids = [...document.querySelectorAll('[id]')].map(({ id }) => id);
      return ids.filter((id, i) => ids.indexOf(id) !== i);
    });
    expect(repeated).toEqual([]);
    const contents = await page.locator('#nav').textContent();
    for (const entry of [
      'Authentication',
      'Idempotency',
      'Create payment intent',
      ...Object.keys(catalogue),
    ]) {
      expect(contents).toContain(entry);
    }
  });

  test('shows an example of the request and of the response', async () => {
    const side = (await page.locator('#createPaymentIntent .side').textContent())?.replace(/\s+/g, '');
    const json = (value: object) => JSON.stringify(value).replace(/\s+/g, '');
    expect(side).toContain(json(operation.requestBody.content['application/json'].example));
    expect(side).toContain(json(operation.responses[201].content['application/json'].example));
  });

  test('one language is selected for all samples, by keyboard, too, and kept for the next visit', async () => {
    const visible = () => page.locator('#createPaymentIntent .panel:visible').getAttribute('data-language');
    expect(await visible()).toBe('TypeScript');
    await page.locator('[id="createPaymentIntent-TypeScript"]').focus();
    for (const language of ['curl', 'Python', 'Go']) {
      await page.keyboard.press('ArrowRight');
      expect(await visible()).toBe(language);
    }
    await page.reload();
    expect(await visible()).toBe('Go');
    await page.locator('label[for="createPaymentIntent-curl"]').click();
    expect(await visible()).toBe('curl');
  });

  test('copies the visible text', async () => {
    await browser.context.grantPermissions(['clipboard-read', 'clipboard-write']);
    const blocks = page.locator('.code');
    expect(await page.locator('.copy').count()).toBe(await blocks.count());
    expect(await page.locator('pre').count()).toBeGreaterThan(16);
    // A browser that translates the page would change what is copied.
    expect(await page.locator('pre:not([translate="no"])').count()).toBe(0);
    const samples = page.locator('#createPaymentIntent .samples');
    await samples.locator('label', { hasText: 'Python' }).click();
    await samples.locator('.copy').click();
    await expect.poll(() => samples.locator('.copy').innerText()).toBe('Copied');
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    expect(copied).toBe(await samples.locator('.panel:visible code').textContent());
    expect(copied).toMatch(/^import json\n/);
    await samples.locator('label', { hasText: 'curl' }).click();
  });

  test('samples use the address of the service that served the page', async () => {
    expect(await shown('#samples')).toContain(`export PAYMENTS_URL=${service.publicUrl}`);
  });

  describe('its search', () => {
    const dialog = () => page.locator('dialog.search');
    const selected = () => dialog().locator('[aria-selected=true]').innerText();
    afterEach(() => page.keyboard.press('Escape'));

    const top = (id: string) => page.locator(`[id="${id}"]`).evaluate((e) => e.getBoundingClientRect().top);

    test.each([
      ['a field', '/', 'expires_in_minutes', 'createPaymentIntent-body-expires_in_minutes'],
      ['a folded field', 'Control+k', 'details-field', 'error-body-details-field'],
      ['an error', 'Control+k', 'idempotency reused', 'error-idempotency_key_reused'],
      ['a heading of a guide', '/', 'catch up', 'webhooks-catch-up'],
      ['an operation', '/', 'cancel payment', 'cancelPaymentIntent'],
      ['an operation by its path', 'Control+k', 'v1/transfers/{id}/attribute', 'attributeTransfer'],
    ])('finds %s with %s, and goes there by Enter', async (_, key, words, id) => {
      await page.keyboard.press(key);
      await page.keyboard.type(words);
      await expect.poll(selected).toBeTruthy();
      await page.keyboard.press('Enter');
      expect(await dialog().isVisible()).toBe(false);
      expect(new URL(page.url()).hash).toBe(`#${id}`);
      await expect.poll(() => top(id)).toBeLessThan(200);
      await expect.poll(() => top(id)).toBeGreaterThanOrEqual(0);
    });

    test('says that it could not be loaded, and tries again when it is opened again', async () => {
      const fresh = await page.context().newPage();
      const json = { error: { code: 'unavailable' } };
      await fresh.route('**/docs/search.json', (route) => route.fulfill({ status: 503, json }));
      await fresh.goto(page.url());
      const status = fresh.locator('dialog.search [role=status]');
      await fresh.keyboard.press('/');
      await expect
        .poll(() => status.innerText())
        .toBe('The search could not be loaded. Close it and try again.');
      await fresh.unroute('**/docs/search.json');
      await fresh.keyboard.press('Escape');
      await fresh.locator('dialog.search').waitFor({ state: 'hidden' });
      await fresh.keyboard.press('/');
      await fresh.keyboard.type('amount_units');
      await fresh.locator('dialog.search [aria-selected=true]').waitFor();
      await fresh.close();
    });

    test('is used by keyboard alone, and closed by Escape', async () => {
      const { hash } = new URL(page.url());
      await page.keyboard.press('/');
      await page.keyboard.type('amount_units');
      await expect.poll(selected).toMatch(/Create payment intent/);
      const input = dialog().locator('input');
      expect(await input.evaluate((e) => e === document.activeElement)).toBe(true);
      await page.keyboard.press('ArrowDown');
      expect(await selected()).toMatch(/Payment intent object/);
      const active = await input.getAttribute('aria-activedescendant');
      expect(await dialog().locator('[aria-selected=true]').getAttribute('id')).toBe(active);
      await page.keyboard.press('ArrowUp');
      expect(await selected()).toMatch(/Create payment intent/);
      await input.fill('zzzz');
      expect(await dialog().locator('[role=status]').innerText()).toBe('Nothing found');
      await page.keyboard.press('Escape');
      expect(await dialog().isVisible()).toBe(false);
      expect(new URL(page.url()).hash).toBe(hash);
    });

    test('a slash in a text field is only a slash', async () => {
      await page.locator('#createPaymentIntent .try summary').click();
      await page.locator('#createPaymentIntent textarea').press('/');
      expect(await dialog().isVisible()).toBe(false);
      await page.locator('#createPaymentIntent .try summary').click();
      await page.reload();
    });
  });

  test('child fields and patterns are folded, and a link to one unfolds it', async () => {
    await page.goto(`${service.publicUrl}/docs#createPaymentIntent`);
    const pattern = page.locator('#createPaymentIntent-body-wallet_address details code');
    expect(await pattern.isVisible()).toBe(false);
    await page.locator('#createPaymentIntent-body-wallet_address summary').click();
    expect(await pattern.isVisible()).toBe(true);
    const folded = page.locator('main .nested .fields > li').first();
    const id = await folded.getAttribute('id');
    expect(await folded.isVisible()).toBe(false);
    await page.evaluate((hash) => location.assign(hash), `#${id}`);
    await expect.poll(() => folded.isVisible()).toBe(true);
  });

  test('operations come before objects, and the contents show the current group only', async () => {
    const order = await page
      .locator('main > .topic:has(> .operation) > section')
      .evaluateAll((sections) =>
        sections.map(({ classList, parentElement }) => [parentElement?.id, classList.contains('object')]),
      );
    expect(order.length).toBeGreaterThan(25);
    for (const [i, [topic, isObject]] of order.entries()) {
      if (isObject === false) expect(order.slice(0, i)).not.toContainEqual([topic, true]);
    }
    await page.goto(`${service.publicUrl}/docs#listTransfers`);
    const open = page.locator('#nav details[open] summary');
    await expect.poll(() => open.allInnerTexts()).toEqual(['Transfers']);
    await page.goto(`${service.publicUrl}/docs#webhooks-catch-up`);
    await expect.poll(() => open.allInnerTexts()).toEqual(['Guides']);
    expect(await page.locator('#nav [aria-current]').innerText()).toBe('Webhooks');
  });

  test('the sample is beside the text from 1,120 px, and directly under the endpoint below', async () => {
    const boxOf = async (part: string) => {
      const box = await page.locator(`#createPaymentIntent ${part}`).boundingBox();
      if (box === null) throw new Error(`${part} is not shown`);
      return box;
    };
    await page.setViewportSize({ width: 1120, height: 900 });
    expect((await boxOf('.side')).x).toBeGreaterThan((await boxOf('.text')).x + (await boxOf('.text')).width);
    expect((await page.locator('#nav').boundingBox())?.width).toBeGreaterThan(200);
    await page.setViewportSize({ width: 1119, height: 900 });
    const [endpoint, sample, text] = [
      await boxOf('.endpoint'),
      await boxOf('.samples'),
      await boxOf('.text'),
    ];
    expect(sample.y - endpoint.y - endpoint.height).toBeLessThan(30);
    expect(text.y).toBeGreaterThan(sample.y + sample.height);
    await page.setViewportSize({ width: 1440, height: 900 });
  });

  describe('its theme', () => {
    const brightnessOf = (color: string) => {
      const [r = 0, g = 0, b = 0] = [...color.matchAll(/[\d.]+/g)].map(Number);
      return (r + g + b) / 3;
    };
    const colors = () =>
      page.evaluate(() => {
        const texts = ['h1', 'h3', '.text p', 'td', '.field .name', 'pre code', '#nav a'];
        return {
          background: getComputedStyle(document.body).backgroundColor,
          texts: texts.map((selector) => getComputedStyle(document.querySelector(selector) as Element).color),
        };
      });
    const expectDark = async () => {
      const { background, texts } = await colors();
      expect(brightnessOf(background)).toBeLessThan(60);
      expect(Math.min(...texts.map(brightnessOf))).toBeGreaterThan(130);
    };
    const expectLight = async () => {
      const { background, texts } = await colors();
      expect(brightnessOf(background)).toBeGreaterThan(200);
      expect(Math.max(...texts.map(brightnessOf))).toBeLessThan(120);
    };

    test('follows the light or dark color scheme', async () => {
      await page.emulateMedia({ colorScheme: 'dark' });
      await expectDark();
      await page.emulateMedia({ colorScheme: 'light' });
      await expectLight();
    });

    test('is switched by a button, kept for the next visit, and follows the system again when switched back', async () => {
      await page.emulateMedia({ colorScheme: 'light' });
      await page.locator('.theme').click();
      await expectDark();
      await page.reload();
      await expectDark();
      await page.locator('.theme').click();
      await expectLight();
      await page.emulateMedia({ colorScheme: 'dark' });
      await expectDark();
      await page.emulateMedia({ colorScheme: 'light' });
    });
  });

  test.each([320, 390, 1120])('at %i px nothing overflows the page', async (width) => {
    await page.setViewportSize({ width, height: 900 });
    const [scrollWidth, clientWidth] = await page.evaluate(() => [
      document.documentElement.scrollWidth,
      document.documentElement.clientWidth,
    ]);
    expect(clientWidth).toBe(width);
    expect(scrollWidth).toBeLessThanOrEqual(clientWidth);
  });

  // The page is long, so the second run covers one of each part, by the rules about colours and widths.
  test('axe finds no problems at 1,120 px in light, and at 320 in dark', async () => {
    const tryIt = page.locator('.try').first();
    await tryIt.evaluate((element) => element.setAttribute('open', ''));
    await page.setViewportSize({ width: 1_120, height: 900 });
    await page.emulateMedia({ colorScheme: 'light' });
    expect(await findProblems(page)).toEqual([]);
    await page.setViewportSize({ width: 320, height: 900 });
    await page.emulateMedia({ colorScheme: 'dark' });
    expect(await findProblems(page, ['scrollable-region-focusable'])).toEqual([]);
    const rules = ['color-contrast', 'link-in-text-block', 'target-size'];
    const parts = '.top, #amounts, #createPaymentIntent, #object-Payment, #error-unavailable';
    expect(await findProblems(page, rules, parts)).toEqual([]);
    await tryIt.evaluate((element) => element.removeAttribute('open'));
  });

  test('on a phone the contents open as a drawer, also by keyboard, and close after a choice', async () => {
    await page.setViewportSize({ width: 320, height: 800 });
    const nav = page.locator('#nav');
    expect(await nav.isVisible()).toBe(false);
    await page.locator('.menu').focus();
    await page.keyboard.press('Enter');
    expect(await nav.isVisible()).toBe(true);
    await page.keyboard.press('Escape');
    expect(await nav.isVisible()).toBe(false);
    await page.locator('.menu').click();
    await nav.locator('summary', { hasText: 'Basics' }).click();
    await nav.locator('a[href="#idempotency"]').click();
    expect(await nav.isVisible()).toBe(false);
    await expect
      .poll(() => page.locator('#idempotency').evaluate((e) => e.getBoundingClientRect().top))
      .toBeLessThan(200);
    await page.setViewportSize({ width: 1440, height: 900 });
    expect(await nav.isVisible()).toBe(true);
  });

  describe('trying it', () => {
    const form = () => page.locator('#createPaymentIntent .try form');
    const send = async (key: string, expected: string) => {
      await form().locator('.key').fill(key);
      await form().locator('[type=submit]').click();
      await expect.poll(() => form().locator('.result').innerText()).toContain(expected);
    };

    test('creates an intent with a testnet key, and replays it', async () => {
      await page.locator('#createPaymentIntent .try summary').click();
      await form().locator('[name="Idempotency-Key"]').fill('from-the-page');
      await form().locator('textarea').fill('{"amount_units": 7000000}');
      await send(service.merchant.keys.testnet.apiKey, '201 Created');
      expect(await form().locator('.result').innerText()).toContain('"amount_units": 7000000');
      await send(service.merchant.keys.testnet.apiKey, 'Idempotent-Replayed: true');
      expect(
        await service.query(
          `select amount_units from payment_intents where idempotency_key = 'from-the-page'`,
        ),
      ).toEqual([{ amount_units: '7000000' }]);
    });

    test('shows the complete error', async () => {
      await form().locator('textarea').fill('{"amount_units": 0}');
      await send(service.merchant.keys.testnet.apiKey, '400 Bad Request');
      expect(await form().locator('.result').innerText()).toContain('"field": "amount_units"');
      // The browser itself logs a failed request.
      expect(complaints.splice(0)).toEqual([expect.stringMatching(/400/)]);
      const html = '<h1>Bad Gateway</h1>';
      await page.route('**/v1/**', (route) =>
        route.fulfill({ status: 502, contentType: 'text/html', body: html }),
      );
      await send(service.merchant.keys.testnet.apiKey, html);
      await page.unroute('**/v1/**');
      expect(complaints.splice(0)).toEqual([expect.stringMatching(/502/)]);
    });

    test('a mainnet key is not sent', async () => {
      const lines = service.log.length;
      await send(service.merchant.keys.mainnet.apiKey, 'Not sent: a mainnet key');
      expect(await form().locator('.key').inputValue()).toBe('');
      expect(service.log.length).toBe(lines);
    });

    test('the key is hidden, not autocompleted, and stored nowhere', async () => {
      const key = form().locator('.key');
      await key.fill('sk_testnet_secret');
      expect(await key.getAttribute('autocomplete')).toBe('off');
      expect(await key.evaluate((e) => getComputedStyle(e).getPropertyValue('-webkit-text-security'))).toBe(
        'disc',
      );
      const stored = await page.evaluate(() =>
        JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie]),
      );
      expect(stored).not.toContain('sk_testnet');
      await page.reload();
      expect(await page.locator('.key').first().inputValue()).toBe('');
      await page
        .locator('.key')
        .first()
        .evaluate((e: HTMLInputElement) => {
          e.value = 'sk_testnet_secret';
        });
      await page.goto('about:blank');
      await page.goBack();
      expect(await page.locator('.key').first().inputValue()).toBe('');
    });

    test('a page loaded from another host name has no form', async () => {
      const reboundHost = 'rebound.example';
      const other = await openBrowser({ reboundHost });
      const elsewhere = await other.context.newPage();
      const { port } = new URL(service.publicUrl);
      await elsewhere.goto(`http://${reboundHost}:${port}/docs`);
      await elsewhere.waitForSelector('.copy');
      expect(await elsewhere.locator('.try:visible').count()).toBe(0);
      await other.close();
    });
  });

  test('the browser logs no errors', () => {
    expect(complaints).toEqual([]);
  });
});

describe.skipIf(!hasBrowser)('in Chromium without JavaScript', () => {
  const browser = useOpened(() => openBrowser({ javaScriptEnabled: false }));
  let page: Page;

  beforeAll(async () => {
    page = await browser.context.newPage();
    await page.goto(`${service.publicUrl}/docs`);
  });

  test('all content is readable, in every language; controls that need JavaScript are hidden', async () => {
    const text = await page.locator('main').innerText();
    for (const name of Object.keys(PaymentIntent.properties)) expect(text).toContain(name);
    for (const language of ['TypeScript', 'Python', 'Go', 'curl']) {
      await page.locator('label', { hasText: language }).first().click();
      const panel = page.locator('.operation .panel:visible').first();
      expect(await panel.getAttribute('data-language')).toBe(language);
    }
    expect(await page.locator('.copy').count()).toBe(0);
    expect(await page.locator('.try:visible, .find:visible, .theme:visible').count()).toBe(0);
    // Folded parts open without JavaScript.
    await page.locator('#createPaymentIntent summary', { hasText: 'Errors' }).click();
    expect(await page.locator('#createPaymentIntent a[href="#error-rate_limited"]').isVisible()).toBe(true);
  });

  test('the contents can be opened on a phone', async () => {
    await page.setViewportSize({ width: 320, height: 800 });
    await page.locator('.menu').click();
    expect(await page.locator('#nav').isVisible()).toBe(true);
  });
});

describe.skipIf(!hasBrowser)('in Chromium, of a service with an external database', () => {
  test('has no forms and no field for a key', async () => {
    const external = await startService({}, { embedded: false });
    const browser = await openBrowser();
    const page = await browser.context.newPage();
    await page.goto(`${external.publicUrl}/docs`);
    await page.waitForSelector('.copy');
    expect(await page.locator('form, textarea, .key').count()).toBe(0);
    await browser.close();
    await external.close();
  });
});
