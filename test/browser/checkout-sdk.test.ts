// The checkout SDK in a real browser, with a page on another origin that speaks its protocol on command.

import http from 'node:http';
import { build } from 'esbuild';
import type { Frame, Page, Route } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type * as Sdk from '../../checkout/sdk/index.ts';
import { parseIdentifier } from '../../src/database/identifiers.ts';
import { setOrigins } from '../../src/merchants/administration.ts';
import { hasBrowser, openBrowser, type TestBrowser } from '../support/browser.ts';
import { listen } from '../support/listen.ts';
import { startService, type TestService } from '../support/service.ts';
import { createMerchantCalls } from '../support/settlement.ts';

declare global {
  interface Window {
    sdk: typeof Sdk;
    /** What the button calls. */
    onPay(): unknown;
    /** Callbacks and outcomes, in their order. */
    calls: unknown[];
    /** Messages that the checkout has received. */
    received: unknown[];
    options: Sdk.OpenCheckoutOptions;
  }
}

const id = 'pi_01m7yzn0mtexwagr0spq4wg7vz';
const secret = `${id}_secret_o1sB7ojgJOUHsTO_9idvSsIvG0dcAEY1AlUrN9wnk1s`;
const apiKey = 'sk_testnet_0123456789abcdefghijklmnopqrstuvwxyz';

/** A checkout that records what it receives, and sends only what the test sends. */
const stubPage = `<!doctype html><title>Checkout</title><script>
  window.received = [];
  const opener_ = new URLSearchParams(location.hash.slice(1)).get('opener') ?? sessionStorage.opener;
  if (opener_ && window.opener) {
    sessionStorage.opener = opener_;
    addEventListener('message', ({ source, origin, data }) => {
      if (source === window.opener && origin === opener_) received.push(data);
    });
    window.opener.postMessage({ from: 'payment-intents-checkout', type: 'ready' }, opener_);
  }
</script>`;

const shopPage = `<!doctype html><title>Shop</title><button id="pay">Pay</button><script type="module">
  window.sdk = await import(new URLSearchParams(location.search).get('sdk'));
  window.calls = [];
  window.options = Object.fromEntries(
    ['onProcessing', 'onSuccess', 'onEnd'].map((name) => [name, (told) => calls.push([name, told])]));
  pay.onclick = () => onPay();
  if (location.search.includes('at-once')) sdk.openCheckout({ ...options, baseUrl: new URL(new URLSearchParams(location.search).get('sdk')).origin, clientSecret: async () => '${secret}' });
  document.body.dataset.loaded = 'yes';
</script>`;

describe.skipIf(!hasBrowser)('in Chromium', () => {
  let browser: TestBrowser;
  const closing: (() => Promise<void>)[] = [];
  /** Origins. The shop does not know the third one. */
  let shop: string;
  let pay: string;
  let stranger: string;
  let page: Page;
  let service: TestService;

  async function serve(
    host: string,
    answer: (path: string) => [type: string, body: string, headers?: object],
  ) {
    const server = http.createServer((request, response) => {
      const [type, body, headers] = answer(new URL(request.url ?? '', 'http://x').pathname);
      response.writeHead(200, { 'Content-Type': type, ...headers }).end(body);
    });
    const { port, close } = await listen(server);
    closing.push(close);
    return `http://${host}:${port}`;
  }

  beforeAll(async () => {
    const { outputFiles } = await build({
      ...{ entryPoints: ['checkout/sdk/index.ts'], bundle: true, format: 'esm', write: false },
    });
    const sdk = outputFiles[0]?.text as string;
    shop = await serve(
      'localhost',
      (path) =>
        [
          'text/html',
          shopPage,
          path === '/isolated' && {
            'Cross-Origin-Opener-Policy': 'same-origin',
            'Cross-Origin-Embedder-Policy': 'require-corp',
          },
        ] as [string, string, object],
    );
    pay = await serve('127.0.0.1', (path) =>
      path === '/sdk.js'
        ? [
            'text/javascript',
            sdk,
            { 'Access-Control-Allow-Origin': '*', 'Cross-Origin-Resource-Policy': 'cross-origin' },
          ]
        : ['text/html', stubPage, { 'Cross-Origin-Opener-Policy': 'unsafe-none' }],
    );
    stranger = await serve('127.0.0.1', () => ['text/html', stubPage]);
    service = await startService();
    browser = await openBrowser({ blocksPopups: true });
  });

  afterAll(async () => {
    await browser.close();
    await Promise.all(closing.map((close) => close()));
    await service.close();
  });

  const openShop = async (
    path = '/product',
    fragment = '',
    { context }: Pick<TestBrowser, 'context'> = browser,
  ) => {
    const opened = await context.newPage();
    await opened.goto(`${shop}${path}?sdk=${pay}/sdk.js${fragment}`);
    return opened;
  };

  beforeEach(async () => {
    page = await openShop();
    await page.waitForSelector('[data-loaded]');
  });

  afterEach(async () => {
    for (const opened of browser.context.pages().slice(1)) await opened.close();
  });

  /** Sets what the button does. The code runs in the shop's page, with `baseUrl` and `secret`. */
  const onPay = (code: string, on: Pick<Page, 'evaluate'> = page) =>
    on.evaluate(
      ([code, baseUrl, secret]) => {
        window.onPay = new Function(
          ...['baseUrl', 'secret', `const { sdk, calls, options } = window; ${code}`],
        ).bind(null, baseUrl, secret);
      },
      [code, pay, secret],
    );

  const opening = `sdk.openCheckout({ ...options, baseUrl, clientSecret: secret })
    .then((way) => calls.push(way), (error) => calls.push([error.name, error.message]));`;

  const click = async () => {
    const [popup] = await Promise.all([page.waitForEvent('popup'), page.click('#pay')]);
    await popup.waitForLoadState();
    return popup;
  };
  const calls = () => page.evaluate(() => window.calls);
  const received = (popup: Page) => popup.evaluate(() => window.received);
  const tell = (popup: Page, status: string, paymentIntent = id) =>
    popup.evaluate(
      ([origin, paymentIntent, status]) =>
        window.opener.postMessage(
          { from: 'payment-intents-checkout', type: 'status', paymentIntent, status },
          origin,
        ),
      [shop, paymentIntent, status] as const,
    );
  const theSecret = { from: 'payment-intents-checkout', type: 'secret', clientSecret: secret };

  test('a client secret reaches the popup by message, never in its address', async () => {
    await onPay(opening);
    const popup = await click();
    expect(popup.url()).toBe(`${pay}/checkout#opener=${encodeURIComponent(shop)}`);
    await expect.poll(() => received(popup)).toEqual([theSecret]);
    expect(await calls()).toEqual(['popup']);
    expect(page.url()).toContain(`${shop}/product`);
  });

  test('the popup opens while the backend still creates the intent, even if that outlasts the click', async () => {
    await onPay(
      `options.clientSecret = () => new Promise((resolve) => { window.create = () => resolve(secret); });
       ${opening.replace('clientSecret: secret', '')}`,
    );
    const popup = await click();
    expect([await received(popup), await calls()]).toEqual([[], []]);
    // The popup asks again after a reload.
    await popup.reload();
    await page.waitForTimeout(5_500);
    await page.evaluate(() => (window as unknown as { create(): void }).create());
    await expect.poll(() => received(popup)).toContainEqual(theSecret);
    expect(await calls()).toEqual(['popup']);
  });

  test('every report of the checkout reaches the callbacks, until the popup is closed', async () => {
    await onPay(opening);
    const popup = await click();
    for (const status of ['requires_payment', 'processing', 'processing', 'succeeded', 'succeeded']) {
      await tell(popup, status);
    }
    const processing = ['onProcessing', { paymentIntent: id, status: 'processing' }];
    const success = ['onSuccess', { paymentIntent: id, status: 'succeeded' }];
    const told = ['popup', processing, processing, success, success];
    await expect.poll(() => calls()).toEqual(told);
    await popup.close();
    const end = ['onEnd', { paymentIntent: id, status: 'succeeded' }];
    await expect.poll(() => calls()).toEqual([...told, end]);
    await page.waitForTimeout(1_200);
    expect(await calls()).toEqual([...told, end]);
  });

  test('a popup closed before any payment is reported, with the last known status', async () => {
    await onPay(opening);
    let popup = await click();
    await expect.poll(() => calls()).toEqual(['popup']);
    await popup.close();
    const end = (status?: string) => ['onEnd', { paymentIntent: id, status }];
    await expect.poll(() => calls()).toEqual(['popup', end()]);
    // The next click opens another popup.
    popup = await click();
    await tell(popup, 'requires_payment');
    await popup.close();
    await expect.poll(() => calls()).toEqual(['popup', end(), 'popup', end('requires_payment')]);
  });

  test('messages from another window or another origin are ignored', async () => {
    await onPay(opening);
    const popup = await click();
    // The right origin in another window.
    await page.evaluate(
      (src) =>
        new Promise((resolve) => {
          const frame = document.createElement('iframe');
          frame.onload = resolve;
          frame.src = src;
          document.body.append(frame);
        }),
      `${pay}/other`,
    );
    const frame = page.frames().find((one) => one.url() === `${pay}/other`);
    const forged = {
      from: 'payment-intents-checkout',
      type: 'status',
      paymentIntent: id,
      status: 'succeeded',
    };
    await frame?.evaluate((message) => window.parent.postMessage(message, '*'), forged);
    await page.evaluate((message) => window.postMessage(message, '*'), forged);
    // Not a message of the checkout.
    await popup.evaluate((origin) => {
      for (const data of [null, 'succeeded', { type: 'status', status: 'succeeded' }, { from: 'other' }]) {
        window.opener.postMessage(data, origin);
      }
    }, shop);
    // The right window, after it has navigated to another origin.
    await popup.goto(`${stranger}/checkout#opener=${encodeURIComponent(shop)}`);
    await tell(popup, 'succeeded');
    await page.waitForTimeout(300);
    expect(await calls()).toEqual(['popup']);
    // That page also asked for the secret.
    expect(await received(popup)).toEqual([]);
  });

  test('a second click brings the open popup to the front', async () => {
    await page.evaluate(() => {
      const { open } = window;
      window.open = (...args) => {
        window.calls.push('open');
        const popup = open(...args) as Window;
        return new Proxy({} as Window, {
          get: (_, name) => (name === 'focus' ? () => window.calls.push('focus') : Reflect.get(popup, name)),
        });
      };
    });
    await onPay(opening);
    const popup = await click();
    await page.bringToFront();
    await page.click('#pay');
    await expect.poll(() => calls()).toEqual(['open', 'popup', 'focus', 'popup']);
    expect(browser.context.pages()).toContain(popup);
  });

  test.each<[string, Parameters<Route['fulfill']>[0] | undefined]>([
    ['of the browser', undefined],
    ['of a proxy', { status: 503, json: { error: { code: 'unavailable' } } }],
  ])('a popup that shows an error %s is loaded again by the next click', async (_, answer) => {
    const refuse = (route: Route) => (answer ? route.fulfill(answer) : route.abort());
    await page.context().route(`${pay}/**`, refuse);
    await onPay(opening);
    const popup = await click();
    await page.context().unroute(`${pay}/**`);
    await page.bringToFront();
    await page.click('#pay');
    await expect.poll(() => received(popup)).toEqual([theSecret]);
  });

  test('the signal closes the popup, so that the next click opens one for another order', async () => {
    await onPay(`const stop = (window.stop = new AbortController());
      options.signal = stop.signal; ${opening}`);
    const first = await click();
    await expect.poll(() => received(first)).toEqual([theSecret]);
    await page.evaluate('stop.abort()');
    const second = await click();
    await expect.poll(() => received(second)).toEqual([theSecret]);
    expect(first.isClosed()).toBe(true);
    const end = ['onEnd', { paymentIntent: id, status: undefined }];
    await expect.poll(() => calls()).toEqual(['popup', end, 'popup']);
  });

  test.each(['a popup', 'a redirect'])('%s gets no secret after the signal', async (way) => {
    await onPay(`const stop = new AbortController();
      if (${way === 'a redirect'}) window.open = () => null;
      const clientSecret = async () => { stop.abort(new Error('another order')); return secret; };
      sdk.openCheckout({ ...options, baseUrl, clientSecret, signal: stop.signal })
        .catch((error) => calls.push(error.message));`);
    await page.click('#pay');
    await expect.poll(() => calls()).toContain('another order');
    expect(page.url()).toContain(shop);
    const popups = () => browser.context.pages().filter((opened) => opened.url().startsWith(pay));
    await expect.poll(popups).toEqual([]);
  });

  test.each(['succeeded', 'expired', 'canceled'])(
    'a popup whose payment has %s is replaced by the next click',
    async (status) => {
      await onPay(opening);
      const first = await click();
      await page.evaluate(
        'void (window.heard = new Promise((hear) => addEventListener("message", () => hear())))',
      );
      await tell(first, status);
      await page.evaluate('window.heard');
      const second = await click();
      await expect.poll(() => received(second)).toEqual([theSecret]);
      expect(first.isClosed()).toBe(true);
      const told = (await calls()) as [string, object][];
      expect(told.filter(([name]) => name === 'onEnd')).toEqual([['onEnd', { paymentIntent: id, status }]]);
    },
  );

  test.each([
    ['rejects', `async () => { throw new Error('sold out'); }`, ['Error', 'sold out']],
    ['throws', `() => { throw new Error('sold out'); }`, ['Error', 'sold out']],
    [
      'returns no secret',
      'async () => undefined',
      ['TypeError', expect.stringMatching(/^clientSecret must be the client_secret/)],
    ],
    ['returns an API key', `async () => '${apiKey}'`, ['TypeError', expect.stringMatching(/is an API key/)]],
  ])(
    'a function that %s is reported to the caller and the popup, and the next click tries again',
    async (_, code, told) => {
      await onPay(`options.clientSecret = ${code}; ${opening.replace('clientSecret: secret', '')}`);
      const popup = await click();
      await expect
        .poll(() => received(popup))
        .toEqual([{ from: 'payment-intents-checkout', type: 'failed' }]);
      expect(await calls()).toEqual([told]);
      await onPay(opening);
      const next = await click();
      await expect.poll(() => received(next)).toEqual([theSecret]);
      expect(popup.isClosed()).toBe(true);
    },
  );

  const fragment = (url: string) => url.slice(url.indexOf('#') + 1);

  test('a blocked popup becomes a redirect, which leads back to this page', async () => {
    // No click: the browser blocks it.
    const blocked = await openShop('/product', '&at-once#part');
    await blocked.waitForURL(`${pay}/checkout#*`);
    const back = `${shop}/product?sdk=${pay}/sdk.js&at-once`;
    expect(fragment(blocked.url())).toBe(`${secret}&return_url=${encodeURIComponent(back)}`);
  });

  test('a cross-origin isolated page, which cannot message a popup, redirects', async () => {
    const isolated = await openShop('/isolated');
    await isolated.waitForSelector('[data-loaded]');
    expect(await isolated.evaluate(() => window.crossOriginIsolated)).toBe(true);
    await onPay(`options.returnUrl = '/orders/1'; ${opening}`, isolated);
    await isolated.click('#pay');
    await isolated.waitForURL(`${pay}/checkout#*`);
    expect(fragment(isolated.url())).toBe(`${secret}&return_url=${encodeURIComponent(`${shop}/orders/1`)}`);
  });

  test('in a frame that may not open popups nothing is ordered, and the promise says why', async () => {
    await page.evaluate(() => {
      const frame = document.createElement('iframe');
      frame.setAttribute('sandbox', 'allow-scripts allow-same-origin');
      frame.src = location.href;
      document.body.append(frame);
    });
    await page.frameLocator('iframe').locator('[data-loaded]').waitFor();
    const frame = page.frames()[1] as Frame;
    const ordering = 'clientSecret: () => calls.push("ordered")';
    const code = `sdk.openCheckout({ baseUrl, ${ordering} }).catch(({ message }) => calls.push(message))`;
    await onPay(code, frame);
    await frame.click('#pay');
    await expect.poll(() => frame.evaluate('calls')).toEqual([expect.stringContaining('allow-popups')]);
  });

  test("a wallet app's browser, which has only one window, redirects", async () => {
    const app = await browser.newContext({ hasTouch: true, isMobile: true });
    await app.addInitScript(() => void Object.assign(globalThis, { ethereum: {} }));
    const inApp = await openShop('/product', '', { context: app });
    await inApp.waitForSelector('[data-loaded]');
    await onPay(`${opening}`, inApp);
    await inApp.click('#pay');
    await inApp.waitForURL(`${pay}/checkout#*`);
    expect(fragment(inApp.url())).toContain(secret);
    await app.close();
  });

  test('redirectToCheckout leaves the page', async () => {
    await onPay(
      `sdk.redirectToCheckout({ baseUrl: baseUrl + '/', clientSecret: secret, returnUrl: '/orders/1?a=b#c' })`,
    );
    await page.click('#pay');
    await page.waitForURL(`${pay}/checkout#*`);
    const back = encodeURIComponent(`${shop}/orders/1?a=b#c`);
    expect(page.url()).toBe(`${pay}/checkout#${secret}&return_url=${back}`);
  });

  const wrong: [string, string, RegExp][] = [
    ['no arguments', `{}`, /^baseUrl must be the address/],
    ['no baseUrl', `{ clientSecret: secret }`, /^baseUrl must be the address/],
    ['a path as baseUrl', `{ clientSecret: secret, baseUrl: '/pay' }`, /^baseUrl must be the address/],
    ['a script as baseUrl', `{ clientSecret: secret, baseUrl: 'javascript:alert(1)//' }`, /^baseUrl must be/],
    ['a fragment', `{ clientSecret: secret, baseUrl: baseUrl + '/#a' }`, /^baseUrl must have no query/],
    ['a password', `{ clientSecret: secret, baseUrl: 'https://a:b@pay.example' }`, /^baseUrl must have no/],
    ['no secret', `{ baseUrl }`, /^clientSecret must be the client_secret/],
    ['an id', `{ baseUrl, clientSecret: '${id}' }`, /^clientSecret must be the client_secret/],
    ['half a secret', `{ baseUrl, clientSecret: '${id}_secret_' }`, /^clientSecret must be/],
    ['more than a secret', `{ baseUrl, clientSecret: secret + '&opener=x' }`, /^clientSecret must be/],
    ['an API key', `{ baseUrl, clientSecret: '${apiKey}' }`, /is an API key \(sk_…\).*never.*revoke/],
    ['an API key and a space', `{ baseUrl, clientSecret: ' ${apiKey}' }`, /is an API key/],
  ];

  test('every function refuses a wrong argument with a reason', async () => {
    const address = page.url();
    for (const [what, argument, message] of wrong) {
      for (const name of ['openCheckout', 'redirectToCheckout', 'retrieveCheckout']) {
        await page.evaluate(() => window.calls.splice(0));
        await onPay(
          `(async () => sdk.${name}(${argument}))().catch((error) => calls.push([error.name, error.message]))`,
        );
        await page.click('#pay');
        await expect
          .poll(async () => [what, name, ...(await calls())])
          .toEqual([what, name, ['TypeError', expect.stringMatching(message)]]);
        expect(JSON.stringify(await calls())).not.toContain('0123456789abc');
      }
      expect(browser.context.pages().filter((one) => one.url().startsWith(pay))).toEqual([]);
      expect(page.url()).toBe(address);
    }
  });

  test('a returnUrl outside of the shop is refused', async () => {
    for (const returnUrl of ['javascript:alert(1)', 'data:text/html,x', 'http://', 5]) {
      for (const name of ['openCheckout', 'redirectToCheckout']) {
        const message = await page.evaluate(
          async ([name, baseUrl, clientSecret, returnUrl]) => {
            const call = window.sdk[name as 'openCheckout'];
            return (async () => call({ baseUrl, clientSecret, returnUrl } as Sdk.OpenCheckoutOptions))().then(
              () => 'accepted',
              (error) => error.message,
            );
          },
          [name, pay, secret, returnUrl] as const,
        );
        expect([returnUrl, message]).toEqual([
          returnUrl,
          expect.stringMatching(/^returnUrl must be an address of your shop/),
        ]);
      }
    }
  });

  describe("with the service's own page", () => {
    const open = (clientSecret: string) =>
      onPay(
        `sdk.openCheckout({ ...options, baseUrl: '${service.publicUrl}', clientSecret: ${clientSecret} })
          .then((way) => calls.push(way), (error) => calls.push(error.message));`,
      );
    const setShopOrigins = (origins: string[]) =>
      setOrigins(service.database.orm.em, service.merchant.merchantId, 'testnet', origins);
    /** An intent that has been paid. */
    const paidIntent = async (): Promise<{ id: string; client_secret: string }> => {
      const intent = await createMerchantCalls(service).createIntent();
      await service.query(
        `update payment_intents set status = 'succeeded', amount_received_units = amount_units, succeeded_at = now()
         where id = $1`,
        [parseIdentifier('pi', intent.id)],
      );
      return intent;
    };

    test('a success is reported again when the payer reloads the popup', async () => {
      await setShopOrigins([shop]);
      const { id, client_secret } = await paidIntent();
      await open(`async () => '${client_secret}'`);
      const popup = await click();
      const success = ['onSuccess', { paymentIntent: id, status: 'succeeded' }];
      await expect.poll(() => calls()).toEqual(['popup', success]);
      await popup.reload();
      await expect.poll(() => calls()).toEqual(['popup', success, success]);
      expect(popup.url()).not.toContain('_secret_');
      await popup.close();
      await expect.poll(async () => (await calls()).length).toBe(4);
    });

    test('a shop whose origin is not registered gets no messages, and its payer can still pay', async () => {
      await setShopOrigins(['https://another.example']);
      const { id, client_secret } = await paidIntent();
      await open(`'${client_secret}'`);
      const popup = await click();
      await popup.waitForSelector('main[data-status="succeeded"]');
      await popup.close();
      const end = ['onEnd', { paymentIntent: id, status: undefined }];
      await expect.poll(() => calls()).toEqual(['popup', end]);
    });

    test('a popup whose secret the service refuses is replaced by the next click', async () => {
      await open(`'${secret}'`);
      const popup = await click();
      await popup.waitForSelector('main[data-view="invalid"]');
      const { client_secret } = await paidIntent();
      await open(`'${client_secret}'`);
      const next = await click();
      await next.waitForSelector('main[data-status="succeeded"]');
      expect(popup.isClosed()).toBe(true);
    });

    test('the page says that the shop could not start the payment if the function rejects', async () => {
      await open(`async () => { throw new Error('sold out'); }`);
      const popup = await click();
      await popup.waitForSelector('main[data-view="shop-failed"]');
      expect(await calls()).toEqual(['sold out']);
    });
  });

  describe('retrieveCheckout', () => {
    const retrieve = (clientSecret: string, baseUrl = service.publicUrl) =>
      page.evaluate(
        ([clientSecret, baseUrl]) =>
          window.sdk.retrieveCheckout({ clientSecret, baseUrl }).catch((error) => ({
            isCheckoutError: error instanceof window.sdk.CheckoutError,
            ...error,
            message: error.message,
          })),
        [clientSecret, baseUrl] as const,
      );

    test('returns what a payer may know', async () => {
      const { id, client_secret, expires_at } = await createMerchantCalls(service).createIntent();
      expect(await retrieve(client_secret)).toMatchObject({
        ...{ id, expires_at, status: 'requires_payment', amount_units: 12_500_000 },
        ...{ merchant_name: 'Test merchant', payments_count: 0 },
      });
    });

    test("throws the service's refusal", async () => {
      expect(await retrieve(secret)).toEqual({
        isCheckoutError: true,
        name: 'CheckoutError',
        code: 'client_secret_invalid',
        message: expect.stringMatching(/^The client secret is missing or not accepted/),
        requestId: expect.stringMatching(/^req_[0-9a-f]{32}$/),
        httpStatus: 401,
      });
    });

    test('throws a checkout error if nothing answers, or something other than the service', async () => {
      const nobody = { isCheckoutError: true, code: 'network' };
      expect(await retrieve(secret, 'http://127.0.0.1:1')).toMatchObject(nobody);
      // No CORS headers.
      expect(await retrieve(secret, stranger)).toMatchObject(nobody);
      const other = await serve('localhost', () => ['text/html', '<p>Not found</p>']);
      const elsewhere = await browser.context.newPage();
      await elsewhere.goto(`${shop}/product?sdk=${pay}/sdk.js`);
      await elsewhere.waitForSelector('[data-loaded]');
      const code = (baseUrl: string) =>
        elsewhere.evaluate(
          ([clientSecret, baseUrl]) =>
            window.sdk.retrieveCheckout({ clientSecret, baseUrl }).catch((error) => error.code),
          [secret, baseUrl] as const,
        );
      // The shop's own server answers with a page.
      expect(await code(shop)).toBe('unexpected_answer');
      expect(await code(other)).toBe('network');
    });

    test("throws the signal's reason once the signal is aborted", async () => {
      const reason = await page.evaluate(
        ([clientSecret, baseUrl]) =>
          window.sdk
            .retrieveCheckout({ clientSecret, baseUrl, signal: AbortSignal.abort('left') })
            .catch((error) => error),
        [secret, pay] as const,
      );
      expect(reason).toBe('left');
    });
  });
});
