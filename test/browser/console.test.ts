// biome-ignore-all lint/performance/useDomNodeTextContent: what is hidden is not shown
// The console in Chromium: every view and every action, on a real service with Circle's USDC on anvil.

import { readFile } from 'node:fs/promises';
import type { BrowserContext, Page, Request, Response } from 'playwright-core';
import { type Address, type Hex, parseEther } from 'viem';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { dayOf } from '../../console/page/days.ts';
import { createLink, revokeSession } from '../../src/console/sessions.ts';
import { parseIdentifier } from '../../src/database/identifiers.ts';
import { createMetadataIndexing } from '../../src/payment-intents/metadata-index.ts';
import { findProblems } from '../support/axe.ts';
import { hasBrowser, openBrowser, type TestBrowser } from '../support/browser.ts';
import { type CheckoutWorld, startCheckoutWorld } from '../support/checkout-page.ts';
import { insertOf } from '../support/intent-rows.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { idBytes } from '../support/settlement.ts';
import { insertTransfers } from '../support/transfer-rows.ts';
import { holdBack, installWallet, reject } from '../support/wallet.ts';

const timezoneId = 'Europe/Berlin';
const hostile = '<img src=x onerror="alert(1)">';

describe.skipIf(!hasBrowser)('the console', () => {
  let world: CheckoutWorld;
  let browser: TestBrowser;
  let receiver: Receiver;
  let context: BrowserContext;
  let page: Page;
  let url: string;
  /** Errors that the browser reports. No test may cause any. */
  let complaints: string[];
  let endpointStatus = 204;

  beforeAll(async () => {
    world = await startCheckoutWorld({ roles: 'api,deliveries' });
    browser = await openBrowser();
    receiver = await startReceiver((_, response) => response.writeHead(endpointStatus).end(hostile));
    url = `http://127.0.0.1:${world.service.server.ports.console}`;
    await world.setMerchantName(hostile);
  });
  afterAll(async () => {
    await browser.close();
    await world.close();
    await receiver.close();
  });
  beforeEach(async () => {
    complaints = [];
    context = await browser.newContext({ viewport: { width: 1_280, height: 900 }, timezoneId });
    page = await newPage();
  });
  afterEach(async () => {
    await context.close();
    expect(complaints).toEqual([]);
  });

  async function newPage(): Promise<Page> {
    const opened = await context.newPage();
    opened.on('pageerror', ({ message }) => complaints.push(message));
    opened.on('dialog', (dialog) => complaints.push(`dialog: ${dialog.message()}`));
    opened.on('console', (message) => {
      if (message.type() === 'error') complaints.push(message.text());
    });
    return opened;
  }

  async function openTab(address: string, from?: BrowserContext): Promise<Page> {
    const tab = await (from?.newPage() ?? newPage());
    await tab.goto(address);
    return tab;
  }

  const merchant = () => ({ id: world.service.merchant.merchantId, mode: 'testnet' as const });

  async function newLink(options: Partial<Parameters<typeof createLink>[2]> = {}) {
    const { em } = world.service.database.orm;
    const peppers = world.service.database.keyRing('API_KEY_PEPPERS');
    const link = {
      name: 'Anna Meier',
      merchant: merchant(),
      isReadOnly: false,
      lastsMs: 3_600_000,
      ...options,
    };
    const { code, sessionId } = await createLink(em, peppers, link);
    return { link: `${url}/#${code}`, sessionId };
  }

  async function signIn(path = '/', options?: Parameters<typeof newLink>[0]) {
    const { link, sessionId } = await newLink(options);
    await page.goto(link.replace('/#', `${path}#`));
    await page.waitForSelector('h1');
    return sessionId;
  }

  const see = (text: string | RegExp) => page.getByText(text).first().waitFor();
  const press = (name: string) => page.getByRole('button', { name, exact: true }).first().click();

  /** An intent with a confirmed payment. */
  async function createPaid(fields: object = {}) {
    const intent = await world.createIntent(fields);
    const hash = await world.transferTo(intent);
    await world.mine(11);
    return { ...intent, hash };
  }

  describe('a link', () => {
    test('signs in once; its code leaves the address and the history', async () => {
      const { link } = await newLink();
      await page.goto(link);
      await see('Nothing needs you.');
      expect(page.url()).toBe(`${url}/`);
      await page.goto(`${url}/payments`);
      await page.goBack();
      await see('Nothing needs you.');
      expect(page.url()).toBe(`${url}/`);
      expect(await page.evaluate('history.length')).toBeLessThanOrEqual(3);

      const stranger = await browser.newContext();
      const other = await openTab(link, stranger);
      await other.getByText('works once').waitFor();
      await stranger.close();
    });

    test('signs in where a page may store nothing, and copy nothing', async () => {
      const { id, hash } = await createPaid();
      await page.addInitScript(`{
        const refuse = () => { throw new DOMException('', 'SecurityError'); };
        Object.defineProperty(globalThis, 'sessionStorage', { get: refuse });
        globalThis.BroadcastChannel = class { constructor() { refuse(); } };
        navigator.clipboard.writeText = async () => refuse();
      }`);
      await signIn(`/payments/${id}`);
      const name = new RegExp(`^Copy .*${hash.slice(0, 8)}`);
      await page.getByRole('button', { name }).first().click();
      await see(/Cannot copy: select it/);
      await see(hash);
    });

    test('signs in a new tab of the same browser, and no other browser', async () => {
      await signIn();
      const tab = await openTab(`${url}/refunds`);
      await tab.getByText('No refund yet.').waitFor();
      const stranger = await browser.newContext();
      const other = await openTab(`${url}/refunds`, stranger);
      await other.getByText('Not signed in').waitFor();
      await stranger.close();
    });

    test('signs in a new tab even if the other was too busy to answer at once', async () => {
      await signIn();
      await page.evaluate(`{
        const { postMessage } = BroadcastChannel.prototype;
        BroadcastChannel.prototype.postMessage = function (data) {
          addEventListener('answer', () => postMessage.call(this, data));
        };
      }`);
      const tab = await openTab(`${url}/refunds`);
      await tab.getByText('Not signed in').waitFor();
      await page.evaluate(`dispatchEvent(new Event('answer'))`);
      await tab.getByText('No refund yet.').waitFor();
    });

    test('is not replaced by a link that somebody else has sent', async () => {
      await signIn('/payments');
      const tab = await context.newPage();
      const asked = tab.waitForEvent('dialog');
      const opened = tab.goto((await newLink({ name: 'Mallory' })).link);
      await (await asked).dismiss();
      await opened;
      await tab.getByText('Anna Meier').waitFor();
    });

    test('ends in every tab when the user signs out', async () => {
      await signIn('/payments');
      const tab = await openTab(`${url}/refunds`);
      await tab.getByText('No refund yet.').waitFor();
      await press('Sign out');
      await see('You have signed out.');
      await tab.getByText('The session has ended. Ask for a new link.').waitFor();
      await page.reload();
      await see('Not signed in');
      complaints = complaints.filter((text) => !text.includes('401'));
    });

    test('works, also in new tabs, beside a forgotten tab whose session has ended', async () => {
      await signIn();
      await page.evaluate("Object.defineProperty(document, 'hidden', { get: () => true })");
      await world.service.query("update console_sessions set used_at = used_at - interval '2 hours'");
      const fresh = await context.newPage();
      fresh.on('dialog', (dialog) => dialog.accept());
      await fresh.goto((await newLink()).link);
      await fresh.getByText('Nothing needs you.').waitFor();
      // Either tab may answer first.
      for (let i = 0; i < 5; i++) {
        const tab = await context.newPage();
        await tab.goto(`${url}/refunds`);
        await tab.getByText('No refund yet.').waitFor();
        await tab.close();
      }
    });

    test('opens links in a new tab as the tab they are in, and ends instead of becoming another', async () => {
      // This tab answers later than the other.
      await page.addInitScript(`{
        const { postMessage } = BroadcastChannel.prototype;
        BroadcastChannel.prototype.postMessage = function (data) { setTimeout(() => postMessage.call(this, data), 20); };
      }`);
      const sessionId = await signIn();
      const live = await context.newPage();
      live.on('dialog', (dialog) => dialog.accept());
      await live.goto((await newLink({ merchant: { ...merchant(), mode: 'mainnet' } })).link);
      await live.getByText('Live', { exact: true }).waitFor();
      const link = page.getByRole('link', { name: 'Refunds', exact: true });
      const [tab] = await Promise.all([context.waitForEvent('page'), link.click({ modifiers: ['Control'] })]);
      await tab.getByText('No refund yet.').waitFor();
      expect(await tab.locator('.mode').textContent()).toBe('Test');
      await tab.close();
      await revokeSession(world.service.database.orm.em, sessionId);
      await see('The session has ended. Ask for a new link.');
      // Several calls fail.
      await page.close();
      complaints = complaints.filter((text) => !text.includes('401'));
    });

    test('of an operator goes on with another link, and with the mode that the tab shows', async () => {
      const sessionId = await signIn('/payments', { merchant: undefined as never });
      await page.getByLabel('Merchant').waitFor();
      const tab = await context.newPage();
      tab.on('dialog', (dialog) => dialog.accept());
      const { link, sessionId: next } = await newLink({ merchant: undefined as never });
      await tab.goto(link);
      await tab.getByLabel('Mode').selectOption('mainnet');
      await revokeSession(world.service.database.orm.em, sessionId);
      const taken = `JSON.parse(sessionStorage.getItem('console-session') ?? '{}').id`;
      await expect.poll(() => page.evaluate(taken)).toBe(next);
      expect(await page.getByLabel('Mode').inputValue()).toBe('testnet');
      await page.close();
      complaints = complaints.filter((text) => !text.includes('401'));
    });

    test('that is opened in an open tab of an operator asks, and is used', async () => {
      await signIn('/', { merchant: undefined as never });
      await page.getByLabel('Merchant').waitFor();
      page.removeAllListeners('dialog');
      page.on('dialog', (dialog) => dialog.accept());
      await page.goto((await newLink({ merchant: undefined as never, name: 'Ben Okafor' })).link);
      await see('Ben Okafor');
    });

    test('that is revoked while the page is open ends the session', async () => {
      const sessionId = await signIn('/payments');
      await revokeSession(world.service.database.orm.em, sessionId);
      await see('The session has ended. Ask for a new link.');
      expect(await page.evaluate('sessionStorage.length')).toBe(0);
      complaints = complaints.filter((text) => !text.includes('401'));
    });
  });

  test('a payment is found and refunded, and its whole history is shown', async () => {
    endpointStatus = 500;
    const hooks = { url: `${receiver.url}/hooks` };
    const { json: endpoint } = await world.service.call('createWebhookEndpoint', hooks);
    const intent = await createPaid({ metadata: { order_id: 'order-7', note: hostile } });
    await receiver.arrived(1);
    await signIn('/payments');
    await page.getByRole('link', { name: 'order-7' }).click();
    for (const words of ['The money is there.', 'Succeeded: the money is there', hostile, 'answered 500']) {
      await see(words);
    }

    endpointStatus = 204;
    await press('Send again');
    await see('Delivered');
    await see('sent it to the shop again');
    await page.getByText('what is sent').first().click();
    await see(/"type": "payment_intent\.processing"/);

    await press('Give money back');
    expect(await page.getByLabel('Amount in USDC').inputValue()).toBe('12.5');
    await page.getByLabel('Amount in USDC').fill('12.51');
    await see('No more than 12.50 USDC can go back.');
    await page.getByLabel('Amount in USDC').fill('five');
    await press('Prepare the refund');
    await see('Write the amount as digits, such as 12.50.');
    await page.getByLabel('Amount in USDC').fill('4,5');
    await see('Prepares a refund of 4.50 USDC.');
    // Thousands, where a comma separates them.
    await page.getByLabel('Amount in USDC').fill('4,500');
    await page.getByText('Prepares a refund').waitFor({ state: 'detached' });
    await page.getByLabel('Amount in USDC').fill('5');
    await press('Prepare the refund');
    await see(/The address must be/);
    await press('Use this address');
    await press('Prepare the refund');
    await see('To be signed');
    await see('Anna Meier');
    await see('prepared a refund');
    const { refunds } = (await world.service.call('listRefunds', { payment_intent: intent.id })).json;
    const refund = refunds[0] as NonNullable<(typeof refunds)[0]>;
    expect(refund).toMatchObject({ amount_units: 5_000_000, status: 'requires_transfer' });

    // The wallet that was paid sends the prepared transaction.
    const wallet = intent.expected_wallet as Address;
    await world.chain.client.setBalance({ address: wallet, value: parseEther('1') });
    const { to, data } = refund.transaction as { to: Address; data: Hex };
    const returned = await world.chain.send(wallet, { to, data });
    await world.mine(11);
    await see('5.00 USDC went back to the payer.');
    await page.goto(`${url}/refunds`);
    await see('Returned');
    await page.getByRole('searchbox').fill(returned);
    await page.keyboard.press('Enter');
    await page.waitForURL(`${url}/payments/${intent.id}`);
    await world.service.call('deleteWebhookEndpoint', { id: endpoint.id });
    complaints = complaints.filter((text) => !text.includes('400'));
  });

  test('money that a refund may still return is not offered again, also while its refunds cannot be loaded', async () => {
    const intent = await createPaid();
    const refund = { payment_intent: intent.id, destination: `0x${'a'.repeat(40)}`, amount_units: 5_000_000 };
    const { json } = await world.service.call('createRefund', refund);
    await page.route('**/ListRefunds', (route) => route.abort());
    await signIn(`/payments/${intent.id}`);
    await see(/Retrying/);
    expect(await page.getByRole('button', { name: 'Give money back' }).count()).toBe(0);
    await page.unroute('**/ListRefunds');
    await press('Give money back');
    await page.getByLabel('Amount in USDC').fill('7.51');
    await see('No more than 7.50 USDC can go back.');
    // Leaves nothing to do for other tests.
    await world.service.call('cancelRefund', { id: json.id });
    complaints = complaints.filter((text) => !text.includes('ERR_FAILED'));
  });

  test('the form of a refund shows what came from each address', async () => {
    const intent = await world.createIntent();
    await world.transferTo(intent, { units: 12_499_999n });
    // From another account, as anybody can send it.
    const { address: from } = world.chain.accounts[1];
    await world.chain.mint(from, 1n);
    const to = intent.expected_wallet as Address;
    await world.chain.transfer({ from, to, amountUnits: 1n, suffix: idBytes(intent.id) });
    await world.mine(11);
    await signIn(`/payments/${intent.id}`);
    await press('Give money back');
    await see('compare the whole address');
    const lines = await page.locator('p', { hasText: ' came from ' }).allTextContents();
    expect(lines).toEqual([
      expect.stringMatching(/^12\.499999\sUSDC came from 0x/),
      expect.stringMatching(new RegExp(`^0\\.000001\\sUSDC came from ${from}`)),
    ]);
  });

  /** Changes the row of an intent, as events would that are hard to cause. */
  const change = ({ id }: { id: string }, to: string) =>
    world.service.query(`update payment_intents set ${to} where id = $1`, [parseIdentifier('pi', id)]);

  test('of a payment with more transfers than are sent, its surplus is offered, and not its price', async () => {
    const intent = await createPaid();
    await change(intent, 'payments_count = 130, amount_received_units = amount_units + 300000');
    await signIn(`/payments/${intent.id}`);
    await see('0.30 USDC is more than you asked for: return it.');
    await press('Give money back');
    expect(await page.getByLabel('Amount in USDC').inputValue()).toBe('0.3');
  });

  test('a payment that was made in time and seen late is not to be returned', async () => {
    const intent = await world.createIntent();
    await world.transferTo(intent);
    await world.mine(11);
    await world.service.query(`update transfers set labels = '{found_late}' where payment_intent = $1`, [
      parseIdentifier('pi', intent.id),
    ]);
    await change(intent, `status = 'expired', expired_at = now(), labels = '{late, found_late}'`);
    await signIn();
    await see(/^12\.50\sUSDC were paid in time and seen late: look before you return it\./);
    await page.goto(`${url}/payments/${intent.id}`);
    await see('was paid in time and seen late: treat it as paid');
    // Of a larger price, it is a part.
    await change(intent, "amount_units = amount_units * 2, labels = '{late, found_late, underpaid}'");
    await see(/It expired: only 12\.50\sUSDC of it had arrived/);
    // Leaves nothing to do for other tests.
    await change(intent, 'labels = null');
  });

  test('whoever is asked about a reorged payment is not told that nothing has arrived', async () => {
    const intent = await world.createIntent();
    const row = { paymentIntent: intent.id, state: 'reorged' as const, amountUnits: intent.amount_units };
    await insertTransfers(world.service, world.service.merchant, [row]);
    await change(intent, 'payments_count = 1');
    await signIn(`/payments/${intent.id}`);
    await see('Its payment was reorged, and usually comes back: the payer should not pay again.');
    // Of a larger price, it is no reason to wait.
    await change(intent, 'amount_units = amount_units * 2');
    await see('Nothing that pays it has arrived.');
  });

  test('an unsigned refund is canceled, and the focus stays in place', async () => {
    const intent = await createPaid();
    const refund = { payment_intent: intent.id, destination: '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed' };
    const { json } = await world.service.call('createRefund', refund);
    await signIn(`/payments/${intent.id}`);
    const focused = () =>
      page.evaluate(
        'document.activeElement.getAttribute("aria-label") ?? document.activeElement.textContent',
      );
    await press('Cancel this refund');
    expect(await focused()).toBe('Cancel this refund');
    await press('Close');
    expect(await focused()).toBe('Cancel this refund');
    await press('Cancel this refund');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await see('canceled a refund');
    // Its button is gone.
    await expect.poll(() => page.evaluate('document.activeElement.id')).toBe('content');
    expect((await world.service.call('getRefund', { id: json.id })).json.status).toBe('canceled');
  });

  test('a refund is prepared behind a proxy without TLS, too', async () => {
    const { id } = await createPaid();
    // As browsers do where the address is neither https nor of this machine.
    await page.addInitScript('delete Crypto.prototype.randomUUID; delete Navigator.prototype.clipboard;');
    await signIn(`/payments/${id}`);
    await press('Give money back');
    await press('Use this address');
    await press('Prepare the refund');
    await see('The refund is prepared.');
    const { refunds } = (await world.service.call('listRefunds', { payment_intent: id })).json;
    await world.service.call('cancelRefund', { id: refunds?.[0]?.id });
  });

  describe('a refund that waits for its transfer', () => {
    const destination = '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed';
    const start = async (options?: Parameters<typeof signIn>[1]) => {
      // The wallet that was paid has a key, gas and money.
      const account = await world.createPayer();
      const intent = await createPaid({ wallet_address: account.address });
      const { json: refund } = await world.service.call('createRefund', {
        payment_intent: intent.id,
        destination,
      });
      const nodes = { [world.chain.network.chainId]: world.chain.url };
      const other = await world.createPayer();
      const wallets = await Promise.all([
        installWallet(context, { account, nodes, info: { name: 'Right', rdns: 'org.right' } }),
        installWallet(context, { account: other, nodes, info: { name: 'Wrong', rdns: 'org.wrong' } }),
      ]);
      await signIn(`/payments/${intent.id}`, options);
      await page.getByText('Sign it', { exact: true }).click();
      const status = async () => (await world.service.call('getRefund', { id: refund.id })).json.status;
      return { account, intent, refund, wallets, status };
    };

    test('is signed once, by the wallet that was paid', async () => {
      const { wallets, status } = await start();
      const [right, wrong] = wallets;
      await press('Sign with Wrong');
      await see(/The money went to 0x\w+. Choose that account in Wrong/);
      right.answer('eth_sendTransaction', reject);
      await press('Sign with Right');
      await see('It was not signed, and nothing was sent.');
      right.answer('eth_sendTransaction');
      await press('Sign with Right');
      await see(/A wallet of this browser was asked to send it\./);
      await page.reload();
      await page.getByText('Sign it', { exact: true }).click();
      await see(/A wallet of this browser was asked to send it\./);
      expect(await page.getByRole('button', { name: 'Sign with Right' }).count()).toBe(0);
      // The first transaction stays remembered if the wallet rejects a second one.
      await press('It has sent nothing: sign it again');
      right.answer('eth_sendTransaction', reject);
      await press('Sign with Right');
      await see('It was not signed, and nothing was sent.');
      await page.reload();
      await page.getByText('Sign it', { exact: true }).click();
      await see(/A wallet of this browser was asked to send it\./);
      expect([right.sent.length, wrong.sent.length]).toEqual([1, 0]);
      await world.mine(11);
      await page.locator('.badge', { hasText: 'Returned' }).waitFor();
      expect(await status()).toBe('succeeded');
    });

    test('is not signed again if the wallet sends it after all', async () => {
      const { wallets } = await start();
      const held = holdBack();
      wallets[0].answer('eth_sendTransaction', held.answer);
      await press('Sign with Right');
      await see(/has not answered yet/);
      await press('It has sent nothing: sign it again');
      await page.getByRole('button', { name: 'Sign with Right', exact: true }).waitFor();
      held.letGo();
      await see(/A wallet of this browser was asked to send it\./);
      expect(await page.getByRole('button', { name: 'Sign with Right', exact: true }).count()).toBe(0);
      await world.mine(11);
      await page.locator('.badge', { hasText: 'Returned' }).waitFor();
    });

    test('is signed in only one of two tabs', async () => {
      const { wallets } = await start();
      const second = await openTab(page.url());
      await second.getByText('Sign it', { exact: true }).click();
      const sign = { name: 'Sign with Right', exact: true };
      await second.getByRole('button', sign).waitFor();
      const held = holdBack();
      wallets[0].answer('eth_requestAccounts', held.answer);
      await press('Sign with Right');
      await wallets[0].asked('eth_requestAccounts');
      await second.getByRole('button', sign).click();
      await second.getByText('Another tab is asking a wallet for this refund. Continue there.').waitFor();
      wallets[0].answer('eth_requestAccounts');
      held.letGo();
      await second.getByText(/A wallet of this browser was asked to send it\./).waitFor();
      // Once one tab has given up, another may ask the wallet.
      await press('It has sent nothing: sign it again');
      const again = { name: 'It has sent nothing: sign it again', exact: true };
      await second.getByRole('button', again).click();
      await second.getByRole('button', sign).click();
      await expect.poll(() => wallets[0].sent).toHaveLength(2);
      await see(/A wallet of this browser was asked to send it\./);
      expect(await page.getByRole('button', sign).count()).toBe(0);
      await world.mine(11);
      await page.locator('.badge', { hasText: 'Returned' }).waitFor();
      // Leaves nothing to do for other tests.
      await world.service.query('update refunds set labels = null');
    });

    test('is not signed again if it is on the chain already', async () => {
      const { account, refund, wallets } = await start();
      const sign = page.getByRole('button', { name: 'Sign with Right', exact: true });
      await sign.waitFor();
      // A hidden tab, and the older rows of a list, know nothing new.
      await page.evaluate("Object.defineProperty(document, 'hidden', { value: true, configurable: true })");
      await page.route('**/ListRefunds', (route) => route.abort());
      const { to, data } = refund.transaction as { to: Address; data: Hex };
      await world.chain.send(account.address, { to, data });
      await world.mine();
      await sign.click();
      await see('This refund no longer needs a transfer.');
      expect(wallets[0].sent).toEqual([]);
      await page.evaluate('delete document.hidden');
      await page.getByText('Sign it', { exact: true }).click();
      await page.getByText('Sign it', { exact: true }).click();
      await sign.waitFor({ state: 'detached' });
      await see('This refund no longer needs a transfer.');
      await page.unroute('**/ListRefunds');
      complaints = complaints.filter((text) => !text.includes('ERR_FAILED'));
    });

    test('is not signed without a word if it cannot be looked up whether it was sent', async () => {
      await page.route('**/FindRefundTransfers', (route) => route.abort());
      const { refund } = await start();
      await see('It could not be looked up whether this money has gone back already.');
      await world.service.call('cancelRefund', { id: refund.id });
      complaints = complaints.filter((text) => !text.includes('ERR_FAILED'));
    });

    test('is not signed without a word if another amount has gone out for it', async () => {
      const {
        account: { address: from },
        refund,
      } = await start();
      const sent = { from, to: destination as Address, amountUnits: 1_000_000n };
      await world.chain.transfer({ ...sent, suffix: idBytes(refund.id) });
      await world.mine();
      await see(/^1\.00\sUSDC have gone out for this refund already/);
      // On its way, it cannot go back a second time, whatever becomes of the refund.
      await world.service.call('cancelRefund', { id: refund.id });
      await press('Give money back');
      await page.getByLabel('Amount in USDC').fill('12');
      await see('No more than 11.50 USDC can go back.');
      await world.service.query('update refunds set labels = null');
    });

    test('is copied or scanned by an operator, and confirmed with its transaction', async () => {
      const { account, refund, status } = await start({ merchant: undefined as never });
      expect(await page.getByRole('button', { name: 'Sign with Right' }).count()).toBe(0);
      await see('QR code for a phone');
      await page.getByText('QR code for a phone').click();
      await page.getByRole('img', { name: /QR code of the transfer/ }).waitFor();
      const hash = await world.chain.transfer({
        from: account.address,
        to: destination,
        amountUnits: BigInt(refund.amount_units),
      });
      await world.mine(11);
      expect(await status()).toBe('requires_transfer');
      await press('It was sent without this data');
      await page.getByLabel('Transaction hash').fill(hash);
      await press('This was it');
      await page.locator('.badge', { hasText: 'Returned' }).waitFor();
      expect(await status()).toBe('succeeded');
    });
  });

  test('a payment that is reorged after success is marked as not to be shipped', async () => {
    const intent = await createPaid();
    const uuid = parseIdentifier('pi', intent.id);
    await world.service.query(
      "update payment_intents set labels = '{reorged}', amount_received_units = 0 where id = $1",
      [uuid],
    );
    await signIn(`/payments/${intent.id}`);
    await see(/Do not ship/);
    await page.goto(`${url}/`);
    await see(/A payment needs a decision \(reorganised\)/);
    await press('Done');
    await page.getByLabel('What was done').fill('sent it back to the warehouse');
    // Meanwhile something else has happened to it.
    await world.service.query("update payment_intents set labels = '{late,reorged}' where id = $1", [uuid]);
    const listed = page.waitForResponse('**/ListAttention');
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))");
    await listed;
    await press('It is done');
    await see('has changed since');
    await press('Close');
    await press('Done');
    await press('It is done');
    await see('Nothing needs you.');
    complaints = complaints.filter((text) => !text.includes('400'));
    await page.goto(`${url}/payments/${intent.id}`);
    await see(/said that it is done: “sent it back to the warehouse”/);
  });

  test('a payment is canceled after a confirmation', async () => {
    const { id } = await world.createIntent();
    await signIn(`/payments/${id}`);
    await press('Cancel this payment');
    await press('Close');
    await press('Cancel this payment');
    expect((await world.merchant.getIntent(id)).status).toBe('requires_payment');
    await press('Cancel it');
    await see('canceled the payment');
    expect((await world.merchant.getIntent(id)).status).toBe('canceled');
  });

  test('an unattributed transfer is attributed, and detached again', async () => {
    const intent = await world.createIntent({ amount_units: 3_000_000, metadata: { order_id: 'order-9' } });
    await world.transferTo(intent, { units: 2_000_000n, suffix: '0x' });
    await world.mine(11);
    await signIn();
    await see('2.00 USDC arrived without a payment.');
    await page.getByRole('link', { name: 'Whose is it?' }).click();
    await page.getByRole('link', { name: 'order-9' }).waitFor();
    await see('1.00 USDC less');
    // A payment that is not among the five suggestions is given by its id.
    const named = await world.createIntent({ amount_units: 1_000_000, metadata: { order_id: 'order-10' } });
    await page.getByLabel('Another payment, by its id').fill(` ${named.id}`);
    await page.getByRole('link', { name: 'order-10' }).last().waitFor();
    await see('1.00 USDC more');
    await world.service.call('cancelPaymentIntent', { id: named.id });
    await press('It is this one');
    await see('The payment gets a part of its money, and keeps waiting for the rest.');
    await press('Attribute the transfer');
    await see('It belongs to');
    expect((await world.merchant.getIntent(intent.id)).amount_received_units).toBe(2_000_000);

    await press('It is not for that payment');
    await press('Detach it');
    await see('It names no payment on its chain.');
    expect((await world.merchant.getIntent(intent.id)).amount_received_units).toBe(0);

    await page.goto(`${url}/`);
    await press('Done');
    await page.getByLabel('What was done').fill('asked the customer');
    await press('It is done');
    await see('Nothing needs you.');
    await world.service.call('cancelPaymentIntent', { id: intent.id });
  });

  test('an endpoint shows its deliveries and their answers, and a delivery is sent again', async () => {
    endpointStatus = 500;
    const { json: endpoint } = await world.service.call('createWebhookEndpoint', {
      url: `${receiver.url}/other`,
    });
    const { id } = await world.createIntent();
    await world.service.call('cancelPaymentIntent', { id });
    const deliveries = () => world.service.call('listWebhookDeliveries', { id: endpoint.id });
    const attempts = async () => (await deliveries()).json.webhook_deliveries[0]?.attempts ?? [];
    await expect.poll(attempts).toHaveLength(1);
    await world.service.query(
      `update webhook_deliveries set status = 'failed', next_attempt_at = null where status = 'pending'`,
    );
    await signIn();
    await see(/One event was not delivered to/);
    await page.getByRole('link', { name: 'Webhooks' }).click();
    await page.locator('li', { hasText: '/other' }).getByText('Not all delivered').waitFor();
    await page.goBack();
    await page.getByRole('link', { name: 'Send again' }).click();
    await page.waitForSelector('h1.url');
    await page.locator('.badge', { hasText: 'Failed' }).waitFor();
    await page.getByLabel('Show').selectOption('Delivered');
    await see('Nothing.');
    await page.reload();
    await see('Nothing.');
    await page.getByLabel('Show').selectOption('Everything');
    endpointStatus = 204;
    await press('Send all that failed');
    await press('Send them');
    await see('1 delivery is being sent again.');
    await page.locator('.badge', { hasText: 'Delivered' }).waitFor();
    const tests: Request[] = [];
    page.on(
      'request',
      (request) => void (request.url().endsWith('/PingWebhookEndpoint') && tests.push(request)),
    );
    await press('Send a test');
    await see('A test is on its way.');
    // The second click of a double click, once the first was answered.
    await page.getByRole('button', { name: 'Send a test' }).dispatchEvent('click', { detail: 2 });
    await page.getByText('Who changed it').click();
    expect(tests).toHaveLength(1);
    await page.locator('li', { hasText: 'Anna Meier sent a test' }).waitFor();
    await world.service.call('updateWebhookEndpoint', { id: endpoint.id, enabled: false });
    await press('Enable it');
    await see('It is enabled.');
    await page.route('**/PingWebhookEndpoint', (route) => route.abort());
    await press('Send a test');
    await see('The service does not answer.');
    expect(await page.getByText('It is enabled.').count()).toBe(0);
    complaints = complaints.filter((text) => !text.includes('ERR_FAILED'));
    await page.locator('.delivery').first().getByRole('button', { name: 'Send again' }).click();
    await see('It is being sent again.');
    await world.service.call('deleteWebhookEndpoint', { id: endpoint.id });
  });

  test('items that are not among the newest are found', async () => {
    const { id } = world.service.merchant;
    const dayMs = 86_400_000;
    const wallet = '0x00000000000000000000000000000000000000aa';
    const old = { status: `'succeeded'`, succeeded_at: 'now()', labels: `'{overpaid}'` };
    const columns = { ...old, expected_wallet: `'\\x${wallet.slice(2)}'` };
    await world.service.query(
      ...insertOf({ merchantId: id, count: 1, firstAtMs: Date.now() - 3 * dayMs, columns }),
    );
    const expired = { status: `'expired'`, expired_at: 'now()' };
    const newer = { merchantId: id, count: 25_000, firstAtMs: Date.now() - dayMs, columns: expired };
    await world.service.query(...insertOf(newer));
    await signIn('/payments?label=overpaid');
    await see('None among the newest.');
    await press('Show more');
    await expect.poll(() => page.locator('#said').textContent()).toBe('Show more: done');
    // The first new row has the focus.
    await page.keyboard.press('Enter');
    await expect.poll(() => page.title()).toMatch(/^Payment, 1\.00\sUSDC ·/);
    await page.goBack();
    await page.locator('tbody tr').waitFor();
    await page.goto(`${url}/search?q=${wallet}`);
    await page.locator('tbody tr').waitFor();
    await world.service.query(
      `delete from payment_intents where status = 'expired' or labels = '{overpaid}'`,
    );
  });

  test('the search finds what customers give to support, and says what it looked for', async () => {
    const { id, hash } = await createPaid({
      metadata: { border: 'red', order_total: '12.50', order_id: 'EU:21' },
    });
    await signIn();
    const input = page.getByRole('searchbox');
    const search = async (text: string) => {
      await input.fill(text);
      await input.press('Enter');
    };
    await page.keyboard.press('/');
    expect(await input.evaluate((node) => node === node.ownerDocument.activeElement)).toBe(true);
    const copied = [`\u200b${hash}\u200b`, hash.replace('0x', '0X')];
    for (const text of [id, hash, ...copied, `https://sepolia.basescan.org/tx/${hash}#eventlog`]) {
      await page.goto(`${url}/`);
      await page.waitForSelector('h1');
      await search(text);
      await page.waitForURL(`${url}/payments/${id}`);
      // The search is empty again once the page is there.
      await see('The money is there.');
    }
    const { payments } = (await world.service.call('getPaymentIntent', { id })).json;
    await search(`https://sepolia.basescan.org/token/0x${'ab'.repeat(20)}?a=${payments?.[0]?.from_address}`);
    await page.getByRole('heading', { name: 'Transfers' }).waitFor();
    await search('EU:21');
    await see(/Nothing was found/);
    const entries = await page.evaluate('history.length');
    await createMetadataIndexing(world.service.database.orm.em)();
    // The same again, because it may be there by now.
    await input.press('Enter');
    await page.getByRole('link', { name: 'EU:21' }).waitFor();
    expect(await page.evaluate('history.length')).toBe(entries);
    await page.getByRole('link', { name: 'EU:21' }).click();
    await page.waitForURL(`${url}/payments/${id}`);
    await see('The money is there.');
    await search('we_nothing-of-the-kind');
    await see(/Looked for an order “we_nothing-of-the-kind”/);
    await see(/order_id:1001/);
    await search(`0x${'ab'.repeat(32)}`);
    await see(/It may be on another chain, or on none yet/);
    // Words that only an edited address has.
    await page.goto(`${url}/payments?status=constructor&chain=constructor&lane=constructor`);
    await page.getByRole('link', { name: 'EU:21' }).waitFor();
  });

  test('Home shows what was received today, and a hidden tab sends no requests', async () => {
    await page.clock.install();
    /** Whether each call is said to be the page's own: it keeps no session open then. */
    const unattended: boolean[] = [];
    page.on('request', (request) => {
      const headers = request.headers();
      if ('authorization' in headers) unattended.push(headers['x-unattended'] === '1');
    });
    await signIn();
    const today = async () =>
      Number((await page.locator('dd .money').first().innerText()).split('\u00a0')[0]);
    const before = await today();
    expect(unattended).toContain(false);
    await page.evaluate(`Object.defineProperty(document, 'hidden', { value: true, configurable: true })`);
    await page.clock.fastForward(20_000);
    const asked: string[] = [];
    page.on('request', (request) => asked.push(request.url()));
    await createPaid();
    await page.clock.fastForward(60_000);
    expect([asked, await today()]).toEqual([[], before]);
    await page.evaluate(`delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))`);
    await expect.poll(today).toBeCloseTo(before + 12.5, 6);
    expect(unattended.at(-1)).toBe(true);
  });

  test('a list keeps its place when new rows arrive, and says how many there are', async () => {
    await signIn('/payments');
    await page.waitForSelector('tbody tr');
    const first = await page.locator('tbody tr').first().innerText();
    // The next poll finds nothing new.
    await page.waitForResponse((response) => response.status() === 304);
    await world.createIntent({ metadata: { order_id: ' \u2060', customer: 'the newest' } });
    await page.getByRole('button', { name: '1 new' }).waitFor();
    expect(await page.locator('tbody tr').first().innerText()).toBe(first);
    await press('1 new');
    await page.getByRole('link', { name: 'the newest' }).waitFor();
  });

  test('after a lost connection the page says so, keeps its content, and recovers by itself', async () => {
    await signIn('/payments');
    await page.waitForSelector('tbody tr');
    await page.route('**/payments.v1.*/**', (route) => route.abort());
    await see(/The service does not answer. Showing the last known state./);
    expect(await page.locator('tbody tr').count()).toBeGreaterThan(0);
    await page.unroute('**/payments.v1.*/**');
    await page.getByText('The service does not answer.').waitFor({ state: 'detached' });
    complaints = complaints.filter((text) => !text.includes('ERR_FAILED'));
  });

  test('an operator can see any merchant, and a reader can change nothing', async () => {
    const other = await world.service.newMerchant();
    await world.service.newMerchant();
    const { id } = await world.createIntent();
    await signIn(`/payments/${id}`, { merchant: undefined as never, isReadOnly: true });
    await page.getByLabel('Merchant').selectOption(merchant().id);
    const names = await page.getByLabel('Merchant').locator('option').allTextContents();
    expect(names).toContain(`Test merchant (…${other.merchantId.slice(-6)})`);
    await see('Nothing has arrived yet.');
    const tab = await openTab(`${url}/payments/${id}`);
    await tab.getByText('Nothing has arrived yet.').waitFor();
    expect(await page.getByRole('button', { name: 'Cancel this payment' }).count()).toBe(0);
    expect(await page.getByRole('link', { name: 'Chains' }).count()).toBe(0);
    const address = page.url();
    await page.getByRole('link', { name: 'Skip to the content' }).press('Enter');
    await page.waitForURL(address);
    const entries = Number(await page.evaluate('history.length'));
    await page.getByRole('link', { name: 'Refunds' }).dblclick();
    await page.getByLabel('Merchant').selectOption(other.merchantId);
    await see('No refund yet.');
    expect(await page.evaluate('history.length')).toBe(entries + 1);
    await page.goBack();
    await see('Nothing has arrived yet.');
    await page.getByLabel('Merchant').selectOption(other.merchantId);
    await see('Not found, or this session may not see it.');
    // The address that an operator sends to another one.
    await page.goto(address);
    await see('Nothing has arrived yet.');
    await page.getByLabel('Merchant').selectOption(other.merchantId);
    // The list of one merchant is never shown as that of another.
    await page.getByRole('link', { name: 'Payments' }).click();
    await page.getByLabel('Merchant').selectOption(merchant().id);
    await page.locator('tbody tr').first().waitFor();
    await page.getByLabel('Merchant').selectOption(other.merchantId);
    await see('No payment yet.');
    complaints = complaints.filter((text) => !text.includes('404'));
  });

  test('an export is a file with what was received, including unattributed transfers', async () => {
    const intent = await createPaid({ metadata: { order_id: 'order-31' } });
    // A transfer that may pay either of two intents pays neither.
    await Promise.all([world.createIntent(), world.createIntent()]);
    const wallet = world.service.merchant.wallets.testnet.base as Address;
    await world.transferTo({ expected_wallet: wallet } as never, { units: 1_770_000n, suffix: '0x' });
    await world.mine(2);
    await signIn('/export');
    // With a day on each side, because of the chain's clock.
    const day = (ms: number) => new Date(Date.now() + ms).toISOString().slice(0, 10);
    await page.getByLabel('First day').fill(day(86_400_000));
    await press('Download the CSV file');
    await see('The last day is before the first.');
    await page.getByLabel('First day').fill(day(-86_400_000));
    await page.getByLabel('Last day').fill(day(86_400_000));
    const [download] = await Promise.all([page.waitForEvent('download'), press('Download the CSV file')]);
    expect(download.suggestedFilename()).toBe(`payments-${day(-86_400_000)}-${day(86_400_000)}.csv`);
    const text = await readFile(await download.path(), 'utf8');
    expect(text).toMatch(/^time,type,payment_intent,.*,recorded_at\r\n/);
    expect(text).toContain(`,payment,${intent.id},`);
    expect(text).toMatch(/,unattributed,,,.*,1\.77,1770000,/);
    // The list of a day has the payments of that day.
    const { succeeded_at } = (await world.service.call('getPaymentIntent', { id: intent.id })).json;
    const paidOn = dayOf(Date.parse(succeeded_at as string), timezoneId);
    await page.goto(`${url}/payments?paid_from=${paidOn}&paid_to=${paidOn}`);
    await page.getByRole('link', { name: 'order-31' }).waitFor();
    await page.getByLabel('Paid to').fill('2020-01-01');
    await see('No payments match. Remove a filter.');
    await page.goto(`${url}/payments?paid_from=${paidOn}&created_from=${paidOn}&lane=sdk`);
    await page.getByRole('link', { name: 'order-31' }).waitFor();
    await page.getByLabel('Paid through').selectOption('A transfer of their own');
    await see('No payments match. Remove a filter.');
    await page.getByLabel('Paid through').selectOption('All');
    await page.getByLabel('Created to').fill('2020-01-01');
    await see('No payments match. Remove a filter.');
  });

  test('an operator sees the chains, the merchants and their keys, and can change none of them', async () => {
    await signIn('/chains', { merchant: undefined as never });
    await see('Base Sepolia');
    await page.getByRole('link', { name: 'Home' }).click();
    await page.getByLabel('Mode').selectOption('mainnet');
    await see('Payments on this chain are not being seen.');
    await page.getByRole('link', { name: 'Look at the chains' }).first().click();
    await see('Nobody sees payments here. Set RPC_URL_POLYGON to the addresses of two nodes, and restart.');
    await page.getByRole('link', { name: 'Merchants and keys' }).click();
    await page.getByLabel('Merchant').selectOption(merchant().id);
    await see(/^sk_testnet_/);
    const hints = await page.locator('tbody th code').allTextContents();
    expect(hints.join()).not.toContain(world.service.merchant.keys.testnet.apiKey);
  });

  test('from 390 px in dark to 1,920: nothing overflows, and axe finds no problems', {
    timeout: 120_000,
  }, async () => {
    const { id } = await createPaid({ metadata: { order_id: 'x'.repeat(80) } });
    const wallet = world.service.merchant.wallets.testnet.base as Address;
    await world.transferTo({ expected_wallet: wallet } as never, { units: 1_230_000n, suffix: '0x' });
    await world.mine(2);
    const { json: endpoint } = await world.service.call('createWebhookEndpoint', {
      url: `${receiver.url}/${'long'.repeat(60)}`,
    });
    const [transfer] = (await world.service.call('listTransfers', { status: 'unattributed' })).json.transfers;
    const returned = { payment_intent: id, amount_units: 1_000_000, destination: `0x${'a'.repeat(40)}` };
    const { json: refund } = await world.service.call('createRefund', returned);
    await signIn('/', { merchant: undefined as never, name: 'anna.meier@shop.example'.repeat(4) });
    await page.getByLabel('Merchant').selectOption(merchant().id);
    const paths = [
      ...['/chains', '/merchants', '/export'],
      '/',
      '/payments',
      `/payments/${id}`,
      '/unattributed',
      `/unattributed/${transfer?.id}`,
      '/refunds',
      '/webhooks',
      `/webhooks/${endpoint.id}`,
      '/search?q=a%3Ab',
    ];
    for (const path of paths) {
      await page.goto(url + path);
      await page.waitForSelector('h1');
      await page.getByText('Loading…').first().waitFor({ state: 'detached' });
      for (const details of await page.locator('details > summary').all()) await details.click();
      if (path.startsWith('/payments/')) await press('Give money back');
      for (const [width, colorScheme, hasRules] of [
        [390, 'dark', true],
        [1_280, 'light', true],
        // These layouts have no rules of their own.
        [720, 'light', false],
        [920, 'light', false],
        [1_920, 'dark', false],
      ] as const) {
        await page.setViewportSize({ width, height: 900 });
        await page.emulateMedia({ colorScheme });
        const fits = await page.evaluate('document.documentElement.scrollWidth <= innerWidth');
        const problems = hasRules ? await findProblems(page) : [];
        expect([path, width, fits, problems]).toEqual([path, width, true, []]);
      }
    }
    await world.service.call('deleteWebhookEndpoint', { id: endpoint.id });
    await world.service.call('cancelRefund', { id: refund.id });
  });

  test('loads at most 120 KB in all, compressed, and nothing from elsewhere', async () => {
    const lengths: Promise<string | null>[] = [];
    const hosts = new Set<string>();
    const note = (response: Response) => {
      hosts.add(new URL(response.url()).host);
      lengths.push(response.headerValue('content-length'));
    };
    page.on('response', note);
    await signIn();
    await see(/Needs attention/);
    page.off('response', note);
    expect([...hosts]).toEqual([new URL(url).host]);
    const sizes = (await Promise.all(lengths)).map(Number);
    expect(sizes.reduce((all, size) => all + size, 0)).toBeLessThan(120_000);
  });
});
