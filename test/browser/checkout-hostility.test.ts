// biome-ignore-all lint/performance/useDomNodeTextContent: what is hidden is not shown
// Malicious pages, shops, links, merchants and wallets.

import http from 'node:http';
import type { Page } from 'playwright-core';
import { afterEach, beforeAll, describe, expect, test } from 'vitest';
import { hasBrowser, useOpened } from '../support/browser.ts';
import { type Device, startCheckoutWorld } from '../support/checkout-page.ts';
import { listenInTest } from '../support/listen.ts';
import type { WalletAnswer } from '../support/wallet.ts';

const shop = 'https://shop.example';
const evil = 'https://evil.example';

describe.skipIf(!hasBrowser)('hostility:', () => {
  const world = useOpened(startCheckoutWorld);

  beforeAll(async () => {
    await world.setOrigins(shop, 'http://localhost:3000');
  });
  afterEach(() => world.closeDevices());

  test('a page cannot frame the checkout', async () => {
    const { client_secret } = await world.createIntent();
    const framing = http.createServer((_, response) => {
      response.setHeader('Content-Type', 'text/html');
      // Without an icon of its own the page would make the browser request one at any time.
      response.end(
        `<link rel="icon" href="data:,"><iframe src="${world.service.publicUrl}/checkout#${client_secret}"></iframe>`,
      );
    });
    const framingUrl = await listenInTest(framing);
    const device = await world.openDevice();
    const page = await device.context.newPage();
    await page.goto(framingUrl);
    await expect.poll(() => device.complaints.join()).toMatch(/frame-ancestors/);
    expect(device.requests.map(({ url }) => url).filter((url) => /page\.js|v1/.test(url))).toEqual([]);
    await page.close();
    device.complaints.splice(0);
    device.requests.splice(0);
  });

  test('the way back leads only to an origin of the shop', async () => {
    const device = await world.openDevice();
    const intent = await world.createIntent();
    await world.merchant.cancelIntent(intent.id);
    const own = [`${shop}/`, 'http://localhost:3000/orders?payment_intent=pi_other'];
    for (const to of [
      ...['javascript:alert(1)', ' javascript:alert(1)', 'java\nscript:alert(1)', 'data:text/html,hello'],
      ...[`blob:${shop}/0d1e`, `${evil}/`, `${shop}.evil.example/`, `${shop}@evil.example/`],
      ...[`https://evil.example/${shop}`, '//evil.example/', '/orders', 'http://shop.example/'],
      ...['https://shop.example:8443/', 'http://localhost:3001/', 'not a url', ...own],
    ]) {
      const checkout = await device.open(intent, { return_url: to });
      await checkout.view('canceled');
      const expected = own.includes(to) ? [[new URL(to).origin, [intent.id]]] : [];
      expect([to, await checkout.action('return').count()]).toEqual([to, expected.length]);
      const links = await checkout.page
        .locator('a')
        .evaluateAll((each) => each.map((link) => link.getAttribute('href')));
      const places = links.map((link) => new URL(link ?? ''));
      const found = places.map((place) => [place.origin, place.searchParams.getAll('payment_intent')]);
      expect([to, found]).toEqual([to, expected]);
      await checkout.page.close();
    }
  });

  test('a browser that translates the page still shows the current state', async () => {
    const translating = await world.openDevice();
    await translating.context.addInitScript(translate);
    const intent = await world.createIntent({ lane: 'manual' });
    const pages = [await (await world.openDevice()).open(intent), await translating.open(intent)];
    const shows = async (view: string, fact: string) => {
      const [plain = '', translated] = await Promise.all(
        pages.map(async (checkout) => {
          await checkout.refresh();
          await checkout.view(view);
          await expect.poll(checkout.text).toContain(fact);
          return (await checkout.text()).replace(/\d+ min left/, '');
        }),
      );
      expect(translated).toBe(plain);
    };
    await shows('manual', '12.50 USDC');
    // A word such as Base would be translated, and has to be found in another program.
    const network = pages[1]?.page.locator('.copyable .value', { hasText: 'Base Sepolia' });
    expect(await network?.getAttribute('translate')).toBe('no');
    await translating.context.grantPermissions(['clipboard-write']);
    await pages[1]?.press('copy-amount');
    await expect.poll(() => pages[1]?.action('copy-amount').innerText()).toContain('Copied');
    await world.transferTo(intent, { units: 4_000_000n });
    await world.mine();
    await expect.poll(() => pages[1]?.action('copy-amount').innerText()).toContain('Copy');
    await shows('manual', '8.50 USDC is still missing');
    await world.transferTo(intent, { units: 8_500_000n });
    await world.mine();
    await shows('processing', '1 of 10 confirmations');
    await world.mine(5);
    await shows('processing', '6 of 10 confirmations');
    await world.mine(4);
    await shows('succeeded', 'Paid');
  });

  describe('a page that has opened the checkout', () => {
    /** Opens the checkout from a page of an origin, which records the messages that it gets. */
    async function openFrom(device: Device, origin: string, fragment: string): Promise<[Page, Page]> {
      await device.context.route(`${origin}/**`, (route) => route.fulfill({ body: 'shop' }));
      const opener = await device.context.newPage();
      await opener.goto(`${origin}/`);
      const [popup] = await Promise.all([
        opener.waitForEvent('popup'),
        opener.evaluate(openAndListen, `${world.service.publicUrl}/checkout#${fragment}`),
      ]);
      return [opener, popup];
    }
    const heardBy = (opener: Page) =>
      opener.evaluate(() => (globalThis as unknown as { heard: object[] }).heard);

    /** Requests for the opener's page are not requests of the checkout. */
    const ignoreRequestsOf = (device: Device) =>
      device.requests.splice(0, Infinity, ...device.requests.filter(({ url }) => !/example/.test(url)));

    test('gets the status if its origin is registered, and never the secret', async () => {
      const device = await world.openDevice();
      const intent = await world.createIntent();
      const [opener, popup] = await openFrom(
        device,
        shop,
        `${intent.client_secret}&opener=${encodeURIComponent(shop)}`,
      );
      await device.wrap(popup).view('no-wallet');
      await world.merchant.cancelIntent(intent.id);
      await device.wrap(popup).refresh();
      await device.wrap(popup).view('canceled');
      const message = { from: 'payment-intents-checkout', type: 'status', paymentIntent: intent.id };
      await expect
        .poll(() => heardBy(opener))
        .toEqual([
          { ...message, status: 'requires_payment' },
          { ...message, status: 'canceled' },
        ]);
      ignoreRequestsOf(device);
    });

    test.each([
      ['names its own origin', evil],
      ['claims the origin of the shop', shop],
      ['claims any origin', '*'],
    ])('gets no messages if it %s and is not registered', async (_, said) => {
      const device = await world.openDevice();
      const intent = await world.createIntent();
      const [opener, popup] = await openFrom(
        device,
        evil,
        `${intent.client_secret}&opener=${encodeURIComponent(said)}`,
      );
      await device.wrap(popup).view('no-wallet');
      await world.merchant.cancelIntent(intent.id);
      await device.wrap(popup).refresh();
      await device.wrap(popup).view('canceled');
      expect(await heardBy(opener)).toEqual([]);
      // The browser logs messages that it did not deliver.
      device.complaints.splice(0, Infinity, ...device.complaints.filter((text) => !/postMessage/.test(text)));
      ignoreRequestsOf(device);
    });

    test('cannot send a secret on behalf of the shop', async () => {
      const device = await world.openDevice();
      const { client_secret } = await world.createIntent();
      const [opener, popup] = await openFrom(device, evil, `opener=${encodeURIComponent(shop)}`);
      const checkout = device.wrap(popup);
      await checkout.view('waiting-for-shop');
      await opener.evaluate(postToPopup, {
        message: { from: 'payment-intents-checkout', type: 'secret', clientSecret: client_secret },
        to: world.service.publicUrl,
      });
      await opener.evaluate(postToPopup, {
        message: { from: 'payment-intents-checkout', type: 'failed' },
        to: world.service.publicUrl,
      });
      // Messages arrive in order, so the page has handled the earlier ones by then.
      await popup.evaluate(() => new Promise((resolve) => setTimeout(resolve, 300)));
      await checkout.view('waiting-for-shop');
      expect(await heardBy(opener)).toEqual([]);
      device.complaints.splice(0, Infinity, ...device.complaints.filter((text) => !/postMessage/.test(text)));
      ignoreRequestsOf(device);
    });

    test('can send the secret in a message if it has the claimed origin', async () => {
      const device = await world.openDevice();
      const { client_secret } = await world.createIntent();
      const [opener, popup] = await openFrom(device, shop, `opener=${encodeURIComponent(shop)}`);
      await device.wrap(popup).view('waiting-for-shop');
      await expect.poll(() => heardBy(opener)).toEqual([{ from: 'payment-intents-checkout', type: 'ready' }]);
      for (const clientSecret of ['<b>', 42, null, client_secret]) {
        await opener.evaluate(postToPopup, {
          message: { from: 'payment-intents-checkout', type: 'secret', clientSecret },
          to: world.service.publicUrl,
        });
      }
      await device.wrap(popup).view('no-wallet');
      expect(popup.url()).toBe(`${world.service.publicUrl}/checkout`);
      ignoreRequestsOf(device);
    });
  });

  test.each(['', '<img src=x onerror=alert(1)>', '%00'])(
    'the link with #%s opens nothing',
    async (fragment) => {
      const device = await world.openDevice();
      const checkout = await device.open({ client_secret: fragment });
      await checkout.view('invalid');
      expect(await checkout.offersNoPayment()).toBe(true);
      expect(device.requests.filter(({ url }) => url.includes('/v1/'))).toEqual([]);
    },
  );

  test('without its script the page says what to do, and not to pay again', async () => {
    const { context, complaints } = await world.openDevice();
    await context.route('**/page.js', (route) => route.abort());
    const page = await context.newPage();
    await page.goto(`${world.service.publicUrl}/checkout`);
    await expect.poll(() => page.locator('body').innerText()).toMatch(/reload this page.*do not pay again/);
    complaints.splice(0);
  });

  test('a guessed secret of the right form opens nothing', async () => {
    const device = await world.openDevice();
    const { client_secret } = await world.createIntent();
    const last = client_secret.at(-2) === 'A' ? 'B' : 'A';
    const checkout = await device.open({
      client_secret: `${client_secret.slice(0, -2)}${last}${client_secret.slice(-1)}`,
    });
    await checkout.view('invalid');
    // It stays so, and is not asked for again whenever the tab is shown.
    await checkout.page.evaluate(`dispatchEvent(new Event('online'))`);
    await checkout.page.evaluate(`fetch('/checkout/icon.svg')`);
    const asked = device.requests.filter(({ url }) => /v1.checkout|icon/.test(url));
    expect(asked.map(({ url }) => url.slice(-11))).toEqual(['v1/checkout', expect.stringMatching('icon')]);
    device.allowFailedRequests();
  });

  test("the merchant's name is shown as text", async () => {
    const name = `<img src=x onerror="document.title='owned'"> & <b>Shop</b> \u202Egnp.exe`;
    await world.setMerchantName(name);
    const device = await world.openDevice();
    const checkout = await device.open(await world.createIntent());
    await checkout.view('no-wallet');
    expect(await checkout.text()).toContain('<img src=x');
    expect(await checkout.page.locator('main img, main b').count()).toBe(0);
    expect(await checkout.page.title()).not.toBe('owned');
    await checkout.page.setViewportSize({ width: 320, height: 640 });
    expect(await checkout.overflow()).toBe(0);
    await world.setMerchantName('Test merchant');
  });

  describe('a wallet', () => {
    async function begin(info: object, answers: Record<string, WalletAnswer> = {}) {
      const device = await world.openDevice();
      const wallet = await device.installWallet(await world.createPayer(), { info });
      for (const [method, answer] of Object.entries(answers)) wallet.answer(method, answer);
      return { device, wallet, checkout: await device.open(await world.createIntent()) };
    }

    test.each([
      ['that is HTML', { name: '<img src=x onerror=alert(1)><script>alert(1)</script>' }],
      ['that is very long', { name: 'x'.repeat(100_000) }],
      ['that is not text', { name: { toString: 'no' } as unknown as string }],
      ['that is empty', { name: '' }],
      ['that is blank', { name: ' \n' }],
      ['that turns the text around', { name: '\u202Ekrow' }],
    ])('with a name %s', async (_, info) => {
      const { checkout } = await begin(info);
      await checkout.view('choose-wallet');
      expect(await checkout.page.locator('main script').count()).toBe(0);
      expect((await checkout.action('wallet').innerText()).trim()).toMatch(/^[\s\S]{1,100}$/);
      await checkout.page.setViewportSize({ width: 320, height: 640 });
      expect(await checkout.overflow()).toBe(0);
      await checkout.connect('ready');
    });

    test.each([
      ['from elsewhere', `${evil}/icon.png`],
      [
        'with a script in it',
        `data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'%3E%3Cscript%3Ealert(1)%3C/script%3E%3Cimage href='${evil}/x.png'/%3E%3C/svg%3E`,
      ],
      ['that is not text', 42 as unknown as string],
    ])('with an icon %s', async (_, icon) => {
      const { device, checkout } = await begin({ icon });
      let dialogs = 0;
      checkout.page.on('dialog', (dialog) => {
        dialogs++;
        void dialog.dismiss();
      });
      await checkout.view('choose-wallet');
      await checkout.connect('ready');
      expect(dialogs).toBe(0);
      expect(device.foreignRequests()).toEqual([]);
    });

    test('is found despite empty announcements', async () => {
      const device = await world.openDevice();
      await device.context.addInitScript(() => {
        // Runs in the page.
        const page = globalThis as unknown as EventTarget;
        page.addEventListener('eip6963:requestProvider', () => {
          for (const detail of [null, {}, { info: null }, { info: {} }]) {
            page.dispatchEvent(new CustomEvent('eip6963:announceProvider', { detail }));
          }
        });
      });
      await device.installWallet(await world.createPayer(), {});
      const checkout = await device.open(await world.createIntent());
      await checkout.view('choose-wallet');
      expect(await checkout.action('wallet').count()).toBe(1);
      await checkout.connect('ready');
    });

    test('that claims the name of another is not asked instead of that', async () => {
      const device = await world.openDevice();
      const rdns = 'com.example.honest';
      const impostor = await device.installWallet(await world.createPayer(), {
        info: { rdns, name: 'Honest' },
      });
      const honest = await device.installWallet(await world.createPayer(), {
        info: { rdns, name: 'Honest' },
      });
      const checkout = await device.open(await world.createIntent());
      await checkout.view('choose-wallet');
      const count = await checkout.action('wallet').count();
      await checkout.action('wallet').last().click();
      await checkout.view('ready');
      // Either both are offered and the chosen one is asked, or only one of that name is offered.
      const asked = [impostor, honest].map(({ requests }) => requests.length > 0);
      expect(asked).toEqual(count === 2 ? [false, true] : expect.toSatisfy((each) => each[0] !== each[1]));
    });

    test.each<[string, unknown]>([
      ['eth_requestAccounts', null],
      ['eth_requestAccounts', [42]],
      ['eth_requestAccounts', ['0x12']],
      ['eth_chainId', null],
      ['eth_chainId', `0x${'f'.repeat(200)}`],
      ['eth_call', '0x'],
      ['eth_call', null],
      ['eth_estimateGas', 'none'],
      ['eth_gasPrice', '0x'],
      ['eth_getBalance', []],
    ])('that answers %s with %j is not asked to pay', async (method, nonsense) => {
      const { wallet, checkout } = await begin({}, { [method]: () => nonsense });
      await checkout.view('choose-wallet');
      await checkout.connect();
      await wallet.asked(method);
      await checkout.view('choose-wallet', 'wrong-chain', 'too-little-token', 'too-little-gas');
      expect(wallet.requestsOf('eth_sendTransaction')).toEqual([]);
      wallet.answer(method);
      if ((await checkout.action('wallets').count()) > 0) await checkout.press('wallets');
      await checkout.connect('ready');
    });

    test.each(['0x', `0x${'z'.repeat(64)}`])(
      'that answers the payment with %j may have sent it',
      async (nonsense) => {
        const { wallet, checkout } = await begin(
          {},
          {
            async eth_sendTransaction(carryOut) {
              await carryOut();
              return nonsense;
            },
          },
        );
        await checkout.connect();
        await checkout.press('pay', 'unknown');
        expect(await checkout.offersNoPayment()).toBe(true);
        await world.mine();
        await checkout.refresh();
        await checkout.view('processing');
        expect(wallet.sent).toHaveLength(1);
      },
    );

    test('that pays less than it was asked to makes the page show the rest', async () => {
      const { wallet, checkout } = await begin({});
      wallet.answer('eth_sendTransaction', async (_, { params: [{ from, to, data }] }) => {
        const half = `${data.slice(0, 74)}${(6_000_000).toString(16).padStart(64, '0')}${data.slice(138)}`;
        return world.chain.send(from, { to, data: half as `0x${string}` });
      });
      await checkout.connect();
      await checkout.press('pay', 'sent');
      await world.mine();
      await checkout.refresh();
      expect(await checkout.notice('partly-paid')).toMatch(/6\.00 USDC.*6\.50 USDC/);
      await checkout.view('ready');
    });
  });
});

// Everything below runs in a page.

interface Opener {
  heard: unknown[];
  popup: Opener;
  open(url: string): Opener;
  postMessage(message: object, to: string): void;
  addEventListener(type: 'message', listener: (event: { data: unknown }) => void): void;
}

function openAndListen(url: string): void {
  const tab = globalThis as unknown as Opener;
  tab.heard = [];
  tab.addEventListener('message', ({ data }) => tab.heard.push(data));
  tab.popup = tab.open(url);
}

interface TextNode {
  data: string;
  parentElement: { tagName: string; closest(selector: string): object | null } | null;
  replaceWith(other: unknown): void;
}

/** Like Chrome, replaces every text with elements, also texts that appear later. */
function translate(): void {
  const { document, MutationObserver } = globalThis as unknown as {
    document: {
      createTreeWalker(root: unknown, what: number): { nextNode(): TextNode | null };
      createElement(name: string): { append(child: unknown): void };
    };
    MutationObserver: new (
      listener: () => void,
    ) => { observe(target: unknown, options: Record<string, boolean>): void };
  };
  new MutationObserver(() => {
    const walker = document.createTreeWalker(document, 4);
    const found: TextNode[] = [];
    for (let node = walker.nextNode(); node !== null; node = walker.nextNode()) found.push(node);
    for (const node of found) {
      if (node.parentElement?.closest('font, head, noscript, [translate="no"]') !== null) continue;
      const [outer, inner] = [document.createElement('font'), document.createElement('font')];
      node.replaceWith(outer);
      outer.append(inner);
      inner.append(node.data);
    }
  }).observe(document, { childList: true, subtree: true });
}

function postToPopup({ message, to }: { message: object; to: string }): void {
  (globalThis as unknown as Opener).popup.postMessage(message, to);
}
