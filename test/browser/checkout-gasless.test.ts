// The checkout page and a wallet that signs: payments without the chain's own coin. In Chromium, with
// Circle's USDC on anvil, and a facilitator that does what the test tells it to.

import { createServer } from 'node:http';
import { afterEach, describe, expect, onTestFinished, test } from 'vitest';
import { uuidInNonce } from '../../src/contract/eip-3009.ts';
import { parseIdentifier } from '../../src/database/identifiers.ts';
import { hasBrowser, openBrowser, useOpened } from '../support/browser.ts';
import { amountUnits, startCheckoutWorld } from '../support/checkout-page.ts';
import { sayOnline } from '../support/checkout-states.ts';
import { listenInTest } from '../support/listen.ts';
import { holdBack, reject } from '../support/wallet.ts';
import { paymentHeader, sign } from '../support/x402.ts';

describe.skipIf(!hasBrowser)('a wallet that signs', () => {
  const world = useOpened(() => startCheckoutWorld({ isGasless: true }));
  afterEach(async () => {
    world.facilitator.behaviour = {};
    await world.closeDevices();
  });

  /** A payer without the coin for fees, and the page of a new intent. */
  async function begin(payer = { wei: 0n }) {
    const account = await world.createPayer(payer);
    const device = await world.openDevice();
    const wallet = await device.installWallet(account);
    const intent = await world.createIntent();
    const checkout = await device.open(intent);
    await checkout.connect('ready-to-sign');
    return { account, device, wallet, intent, checkout };
  }

  const pays = async ({ checkout }: Awaited<ReturnType<typeof begin>>) => {
    await world.mine();
    await checkout.view('processing');
    await world.mine(9);
    await checkout.view('succeeded');
  };
  const holdsBack = { '/verify': () => ({ isValid: false }) };

  test('pays with USDC only, by one signature', async () => {
    const stage = await begin();
    const { account, wallet, intent, checkout } = stage;
    expect(await checkout.text()).toContain('need no ETH');
    // Some wallets write 0 and 1 instead of 27 and 28.
    wallet.answer('eth_signTypedData_v4', async (carryOut) =>
      String(await carryOut()).replace(/1([bc])$/, (_, v) => `0${v === 'b' ? 0 : 1}`),
    );
    const asked = world.facilitator.nextSent();
    await checkout.press('sign', 'signed');
    await asked;
    await pays(stage);
    expect(wallet.requestsOf('eth_sendTransaction')).toEqual([]);
    const [request, ...others] = wallet.requestsOf('eth_signTypedData_v4');
    expect(others).toEqual([]);
    const { domain, message, primaryType } = JSON.parse(request?.params[1]);
    expect([domain, primaryType]).toEqual([
      { name: 'USDC', version: '2', chainId: 84532, verifyingContract: intent.token_address },
      'TransferWithAuthorization',
    ]);
    expect(message).toMatchObject({
      from: account.address,
      to: intent.expected_wallet,
      value: String(amountUnits),
    });
    expect(uuidInNonce(message.nonce)).toBe(parseIdentifier('pi', intent.id));
    expect(await world.transfersOf(account.address)).toBe(1);
    expect(await world.chain.client.getBalance(account)).toBe(0n);
  });

  test('pays by a transaction with a fee if the payer prefers that', async () => {
    const { wallet, checkout } = await begin({ wei: 10n ** 19n });
    await checkout.press('pay', 'sent');
    expect(wallet.sent).toHaveLength(1);
    expect(wallet.requestsOf('eth_signTypedData_v4')).toEqual([]);
    await world.mine();
    await checkout.view('processing');
  });

  test('can be left if it does not answer, and a signature that it makes later is dropped', async () => {
    const { wallet, checkout, account } = await begin();
    const held = holdBack();
    wallet.answer('eth_signTypedData_v4', held.answer);
    await checkout.press('sign', 'sign-in-wallet');
    await wallet.asked('eth_signTypedData_v4');
    const asked = world.facilitator.asked.length;
    await checkout.page.locator('summary').click();
    await checkout.press('not-sent', 'ready-to-sign');
    // As if the wallet's window had been closed without an answer.
    wallet.answer('eth_signTypedData_v4', reject);
    await checkout.press('sign');
    await checkout.notice('rejected');
    held.letGo();
    expect(world.facilitator.asked.length).toBe(asked);
    expect(await world.transfersOf(account.address)).toBe(0);
  });

  test('a reload, a second tab and another device show the submitted payment, and offer none', async () => {
    const { checkout, device, intent } = await begin();
    world.facilitator.behaviour = holdsBack;
    await checkout.press('sign', 'signed');
    await expect.poll(() => checkout.text()).toMatch(/it can arrive until/);
    await checkout.page.reload();
    await checkout.view('signed');
    const tab = await device.open(intent);
    await tab.view('signed');
    const elsewhere = await (await world.openDevice()).open(intent);
    await elsewhere.view('signed');
    for (const each of [checkout, tab, elsewhere]) expect(await each.page.locator('button').count()).toBe(0);
  });

  test('a page that was closed before the service answered sends the signature again, and the payer pays once', async () => {
    const { checkout, device, intent, account, wallet } = await begin();
    // The request is lost.
    await device.context.route('**/v1/checkout/pay', (route) => route.abort());
    await checkout.press('sign', 'signed');
    await wallet.asked('eth_signTypedData_v4');
    await expect.poll(() => checkout.page.evaluate(() => localStorage.length)).toBe(1);
    await checkout.page.close();
    await device.context.unroute('**/v1/checkout/pay');
    device.complaints.length = 0;
    const asked = world.facilitator.nextSent();
    const again = await device.open(intent);
    await again.view('signed');
    await asked;
    await world.mine();
    await again.view('processing');
    expect(wallet.requestsOf('eth_signTypedData_v4')).toHaveLength(1);
    expect(await world.transfersOf(account.address)).toBe(1);
    await expect.poll(() => again.page.evaluate(() => localStorage.length)).toBe(0);
  });

  test('is not asked after the payer has gone on, however late the service answers', async () => {
    const { wallet, checkout, device } = await begin();
    const answer = await device.holdAnswers();
    await checkout.press('sign', 'sign-in-wallet');
    await checkout.page.locator('summary').click();
    await checkout.press('not-sent', 'ready-to-sign');
    const answered = checkout.page.waitForResponse('**/v1/checkout');
    answer();
    await answered;
    await checkout.press('wallets', 'choose-wallet');
    expect(wallet.requestsOf('eth_signTypedData_v4')).toEqual([]);
  });

  test('is not asked while a payment that was reorged may return', async () => {
    const { wallet, checkout, device, intent } = await begin();
    const answer = await device.holdAnswers();
    await checkout.press('sign', 'sign-in-wallet');
    await world.transferTo(intent, { units: 4_000_000n });
    await world.mine();
    await world.reorg(1);
    answer();
    await checkout.view('taken-back');
    expect(wallet.requestsOf('eth_signTypedData_v4')).toEqual([]);
  });

  test('is not asked to sign for an account that the payer has left', async () => {
    const { wallet, checkout, device } = await begin();
    const answer = await device.holdAnswers();
    await checkout.press('sign', 'sign-in-wallet');
    const other = await world.createPayer();
    await wallet.changeAccount(other);
    const balances = () => JSON.stringify(wallet.requestsOf('eth_getBalance')).toLowerCase();
    await expect.poll(balances).toContain(other.address.toLowerCase());
    answer();
    await checkout.notice('changed');
    expect(wallet.requestsOf('eth_signTypedData_v4')).toEqual([]);
  });

  test('that has signed in one tab is not asked in another', async () => {
    const { wallet, checkout, device, intent } = await begin();
    world.facilitator.behaviour = holdsBack;
    const other = await device.open(intent);
    await other.connect('ready-to-sign');
    // The service is unreachable, so the signature is only in the browser.
    await device.context.route('**/v1/checkout/pay', (route) => route.abort('connectionrefused'));
    await checkout.press('sign');
    await wallet.asked('eth_signTypedData_v4');
    await other.view('signed');
    expect(await other.offersNoPayment()).toBe(true);
    await checkout.page.close();
    await other.page.reload();
    await other.view('signed');
    expect(wallet.requestsOf('eth_signTypedData_v4')).toHaveLength(1);
    // The page sends the signature again until it is closed.
    await other.page.close();
    device.allowFailedRequests();
  });

  test('the page says if the service no longer takes signatures', async () => {
    const { checkout, device, account } = await begin();
    await device.context.route('**/v1/checkout/pay', (route) =>
      route.request().headers()['payment-signature'] === undefined
        ? route.continue()
        : route.fulfill({ status: 409, json: { error: { code: 'invalid_state' } } }),
    );
    await checkout.press('sign', 'ready-to-sign');
    await checkout.notice('sign-refused');
    // The browser logs the status.
    expect(device.complaints.splice(0)).toEqual([expect.stringContaining('409')]);
    expect(await world.transfersOf(account.address)).toBe(0);
  });

  test('an answer from before the signature was stored offers nothing', async () => {
    const { checkout, device } = await begin();
    world.facilitator.behaviour = holdsBack;
    const { promise: late, resolve: letGo } = Promise.withResolvers<void>();
    let isHeld = false;
    await device.context.route('**/v1/checkout', async (route) => {
      const response = await route.fetch();
      if (isHeld) await late;
      await route.fulfill({ response });
    });
    await device.context.route('**/v1/checkout/pay', async (route) => {
      // The page asks for its checkout, and gets the answer after it has paid.
      isHeld = true;
      const asked = checkout.page.waitForRequest('**/v1/checkout');
      await checkout.page.evaluate(sayOnline);
      await asked;
      await route.continue();
    });
    const paid = checkout.page.waitForResponse('**/v1/checkout/pay');
    await checkout.press('sign');
    expect((await paid).status()).toBe(202);
    isHeld = false;
    const views: (string | null)[] = [];
    const main = checkout.page.locator('main');
    letGo();
    while (!/it can arrive until/.test(await checkout.text())) {
      views.push(await main.getAttribute('data-view'));
    }
    expect(new Set(views)).toEqual(new Set(['signed']));
    await device.context.unrouteAll({ behavior: 'wait' });
  });

  test('a page of another origin pays as the published client does', async () => {
    const account = await world.createPayer({ wei: 0n });
    const { client_secret: secret } = await world.createIntent();
    const browser = await openBrowser();
    onTestFinished(() => browser.close());
    const page = await browser.context.newPage();
    await page.goto(await listenInTest(createServer((_, response) => response.end('a shop'))));
    const url = `${world.service.publicUrl}/v1/checkout/pay`;
    const headers = {
      authorization: `Bearer ${secret}`,
      'content-type': 'application/json',
      'access-control-expose-headers': 'PAYMENT-RESPONSE,X-PAYMENT-RESPONSE',
    };
    const offered = await page.evaluate(postInPage, { url, headers });
    expect(offered).toMatchObject({ status: 402, 'payment-response': null });
    const { accepts } = JSON.parse(Buffer.from(String(offered['payment-required']), 'base64').toString());
    const signature = paymentHeader(await sign(account, accepts[0]), accepts[0]);
    const sent = world.facilitator.nextSent();
    const paid = page.evaluate(postInPage, { url, headers: { ...headers, 'payment-signature': signature } });
    await sent;
    await world.mine();
    expect(await paid).toMatchObject({ status: 200, 'payment-response': expect.any(String) });
    const refused = await page.evaluate(postInPage, {
      url,
      headers: { ...headers, authorization: 'Bearer x' },
    });
    expect(refused.status).toBe(401);
  });
});

// Runs in a page.
async function postInPage({ url, headers }: { url: string; headers: Record<string, string> }) {
  const answer = await fetch(url, { method: 'POST', headers });
  const read = (name: string) => answer.headers.get(name);
  return {
    status: answer.status,
    'payment-required': read('payment-required'),
    'payment-response': read('payment-response'),
  };
}
