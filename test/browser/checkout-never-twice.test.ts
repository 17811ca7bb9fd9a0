// biome-ignore-all lint/performance/useDomNodeTextContent: what is hidden is not shown
// While a transfer may still arrive, the checkout page offers no second one, whatever happens to the page.

import { type Address, type Hex, parseGwei } from 'viem';
import type { PrivateKeyAccount } from 'viem/accounts';
import { afterEach, describe, expect, test } from 'vitest';
import { bridgedUsdcAddresses } from '../../src/contract/chains.ts';
import { hasBrowser, useOpened } from '../support/browser.ts';
import type { Call } from '../support/chain.ts';
import { amountUnits, type CheckoutPage, startCheckoutWorld } from '../support/checkout-page.ts';
import { holdBack, reject, sendSilently, WalletError } from '../support/wallet.ts';

describe.skipIf(!hasBrowser)('never twice:', () => {
  const world = useOpened(startCheckoutWorld);
  afterEach(() => world.closeDevices());

  async function begin(fields: object = {}) {
    const account = await world.createPayer();
    const device = await world.openDevice();
    const wallet = await device.installWallet(account);
    const intent = await world.createIntent(fields);
    const checkout = await device.open(intent);
    /** The number of requests to send a transfer, and of the payer's transfers on the chain. */
    const counts = async () => ({
      asked: wallet.requestsOf('eth_sendTransaction').length,
      transfers: await world.transfersOf(account.address),
    });
    return { account, device, wallet, intent, checkout, counts };
  }

  /** Goes on until the wallet is asked. It does not answer before `letGo`. */
  async function beginToPay() {
    const started = await begin();
    const held = holdBack();
    started.wallet.answer('eth_sendTransaction', held.answer);
    await started.checkout.connect();
    await started.checkout.press('pay');
    await started.wallet.asked('eth_sendTransaction');
    await started.checkout.view('confirm-in-wallet');
    return {
      ...started,
      /** The payer confirms the request in the wallet. */
      async letGo() {
        held.letGo();
        await expect.poll(() => started.wallet.sent).toHaveLength(1);
      },
      reject: () => held.letGo(reject),
    };
  }

  /** Pays, without mining a block. */
  async function paySoFar() {
    const started = await begin();
    await started.checkout.connect();
    await started.checkout.press('pay');
    await started.checkout.view('sent');
    return started;
  }

  async function arrives(checkout: CheckoutPage): Promise<void> {
    await world.mine();
    await checkout.refresh();
    await checkout.view('processing');
    expect(await checkout.offersNoPayment()).toBe(true);
  }

  const once = { asked: 1, transfers: 1 };

  test('pressing the button twice makes one request', async () => {
    const { wallet, checkout, counts } = await begin();
    await checkout.connect('ready');
    await checkout.action('pay').evaluate(clickOn, 3);
    await checkout.view('sent');
    await arrives(checkout);
    expect(wallet.sent).toHaveLength(1);
    expect(await counts()).toEqual(once);
  });

  test('while the wallet asks, and after it has sent, nothing else is offered', async () => {
    const { checkout, counts, letGo } = await beginToPay();
    expect(await checkout.offersNoPayment()).toBe(true);
    await letGo();
    await checkout.view('sent');
    expect(await checkout.offersNoPayment()).toBe(true);
    await arrives(checkout);
    expect(await counts()).toEqual(once);
  });

  describe('a reload', () => {
    test('while the wallet asks makes the page ask what became of it, and the payment is found', async () => {
      const { checkout, counts, letGo } = await beginToPay();
      await checkout.page.reload();
      await checkout.view('unknown');
      expect(await checkout.offersNoPayment()).toBe(true);
      await letGo();
      await world.mine();
      await checkout.refresh();
      await checkout.view('processing');
      expect(await counts()).toEqual(once);
    });

    test('while the wallet asks lets the payer pay again after a rejection', async () => {
      const { wallet, checkout, counts, ...payer } = await beginToPay();
      await checkout.page.reload();
      await checkout.view('unknown');
      payer.reject();
      await checkout.press('not-sent');
      wallet.answer('eth_sendTransaction');
      if ((await checkout.view('choose-wallet', 'ready')) === 'choose-wallet') await checkout.connect();
      await checkout.press('pay', 'sent');
      await arrives(checkout);
      expect(await counts()).toEqual({ asked: 2, transfers: 1 });
    });

    test('after the wallet has sent offers no second payment', async () => {
      const { checkout, counts } = await paySoFar();
      await checkout.page.reload();
      await checkout.view('sent');
      expect(await checkout.offersNoPayment()).toBe(true);
      await arrives(checkout);
      await checkout.page.reload();
      await checkout.view('processing');
      await world.mine(9);
      await checkout.page.reload();
      await checkout.view('succeeded');
      expect(await counts()).toEqual(once);
    });

    test('before the wallet is asked starts over', async () => {
      const { checkout, counts } = await begin();
      await checkout.connect('ready');
      await checkout.page.reload();
      await checkout.view('choose-wallet');
      expect(await counts()).toEqual({ asked: 0, transfers: 0 });
    });
  });

  describe('a second tab', () => {
    test('opened while the wallet asks waits for the first', async () => {
      const { device, intent, checkout, counts, letGo } = await beginToPay();
      const second = await device.open(intent);
      await second.view('paying-elsewhere');
      expect(await second.offersNoPayment()).toBe(true);
      await letGo();
      await checkout.view('sent');
      await second.view('sent');
      await arrives(second);
      await arrives(checkout);
      expect(await counts()).toEqual(once);
    });

    test('in which the payer presses at the same time does not ask the wallet', async () => {
      const { device, wallet, intent, checkout, counts } = await begin();
      const held = holdBack();
      wallet.answer('eth_sendTransaction', held.answer);
      const second = await device.open(intent);
      for (const each of [checkout, second]) {
        await each.connect('ready');
      }
      // Both tabs ask the service again, and go on at the same time.
      const answer = await device.holdAnswers();
      for (const each of [checkout, second]) await each.action('pay').evaluate(clickOn);
      answer();
      await wallet.asked('eth_sendTransaction');
      const views = () => Promise.all([checkout, second].map(({ main }) => main.getAttribute('data-view')));
      await expect
        .poll(async () => (await views()).sort())
        .toEqual(['confirm-in-wallet', 'paying-elsewhere']);
      held.letGo();
      await checkout.view('sent');
      await second.view('sent');
      await arrives(second);
      expect(await counts()).toEqual(once);
    });

    test('continues where the first tab was closed', async () => {
      const { device, intent, checkout, counts, letGo } = await beginToPay();
      await checkout.page.close();
      const second = await device.open(intent);
      await second.view('unknown');
      expect(await second.offersNoPayment()).toBe(true);
      await letGo();
      await arrives(second);
      expect(await counts()).toEqual(once);
    });

    test('notices when the first tab is closed while the wallet asks', async () => {
      const { device, intent, checkout } = await beginToPay();
      const second = await device.open(intent);
      await second.view('paying-elsewhere');
      await checkout.page.close();
      await second.view('unknown');
      expect(await second.offersNoPayment()).toBe(true);
    });

    test('opened with the same link after the payment shows the receipt', async () => {
      const { device, intent, checkout, counts } = await paySoFar();
      await checkout.page.close();
      await world.mine(10);
      const reopened = await device.open(intent);
      await reopened.view('succeeded');
      expect(await reopened.offersNoPayment()).toBe(true);
      expect(await counts()).toEqual(once);
    });
  });

  test('a second device follows as soon as the transfer is in a block', async () => {
    const { intent, account, checkout, counts } = await paySoFar();
    const device = await world.openDevice();
    const wallet = await device.installWallet(account);
    const second = await device.open(intent);
    await second.connect('ready');
    await arrives(second);
    expect(wallet.requestsOf('eth_sendTransaction')).toEqual([]);
    await checkout.view('processing');
    expect(await counts()).toEqual(once);
  });

  test('the service is asked again right before the wallet', async () => {
    const { intent, checkout, counts } = await begin();
    await checkout.connect('ready');
    // Another device has paid, and this page does not know that yet.
    await world.transferTo(intent);
    await world.mine();
    await checkout.press('pay', 'processing');
    expect(await counts()).toEqual({ asked: 0, transfers: 0 });
  });

  test.each([
    ['while the wallet asks', beginToPay, ['confirm-in-wallet', 'unknown']],
    ['after it has sent', paySoFar, ['sent']],
  ] as const)('going back and forward %s offers no second payment', async (_, start, views) => {
    const { checkout, counts, ...rest }: Awaited<ReturnType<typeof begin>> & { letGo?: () => Promise<void> } =
      await start();
    await checkout.page.goto('about:blank');
    await checkout.page.goBack();
    await checkout.view(...views);
    expect(await checkout.offersNoPayment()).toBe(true);
    if (rest.letGo) await rest.letGo();
    await arrives(checkout);
    await checkout.page.goForward();
    await checkout.page.goBack();
    await checkout.view('processing');
    expect(await counts()).toEqual(once);
  });

  test('a page that is back from the history knows what another tab has sent meanwhile', async () => {
    const { account, intent, checkout } = await begin();
    await checkout.connect();
    // As if the page had been frozen: a change in its own tab causes no event either.
    const sent = { from: account.address, wallet: '', askedAtMs: Date.now(), hash: `0x${'1'.repeat(64)}` };
    await checkout.page.evaluate(([key, value]) => localStorage.setItem(key, value), [
      `payment-intents-checkout:${intent.id}`,
      JSON.stringify(sent),
    ] as const);
    await checkout.page.evaluate(`dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))`);
    await checkout.view('sent');
    expect(await checkout.offersNoPayment()).toBe(true);
  });

  describe('offline', () => {
    test('after the transfer was sent: the page says so, offers nothing, and recovers', async () => {
      const { device, checkout, counts } = await paySoFar();
      await device.context.setOffline(true);
      await checkout.connection('offline');
      await checkout.view('sent');
      await world.mine();
      expect(await checkout.offersNoPayment()).toBe(true);
      await device.context.setOffline(false);
      await checkout.view('processing');
      await checkout.connection('ok');
      // As with a closed laptop, whose timers have not run for hours.
      await world.mine(9);
      await checkout.view('succeeded');
      expect(await counts()).toEqual(once);
      device.allowFailedRequests();
    });

    test('the wallet is not asked without a current answer of the service', async () => {
      const { device, wallet, checkout } = await begin();
      await checkout.connect('ready');
      await device.context.setOffline(true);
      await checkout.connection('offline');
      await checkout.action('pay').evaluate(clickOn);
      await checkout.notice('not-asked');
      expect(wallet.requestsOf('eth_sendTransaction')).toEqual([]);
      device.allowFailedRequests();
    });
  });

  test('the wallet is not asked if the service does not answer right before', async () => {
    const { device, wallet, checkout } = await begin();
    await checkout.connect('ready');
    await checkout.page.route('**/v1/checkout', (route) => route.abort('connectionrefused'));
    await checkout.press('pay');
    await checkout.connection('unreachable');
    await checkout.notice('not-asked');
    expect(wallet.requestsOf('eth_sendTransaction')).toEqual([]);
    device.allowFailedRequests();
  });

  test('the wallet is asked for the rest once, even if the first part came from the same account', async () => {
    const { account, wallet, intent, checkout, counts } = await begin();
    const part = { from: account.address, to: intent.expected_wallet as Address, amountUnits: 4_000_000n };
    await world.chain.transfer({ ...part, suffix: world.suffixOf(intent) });
    await world.mine();
    await checkout.refresh();
    await checkout.notice('partly-paid');
    await checkout.connect();
    await checkout.press('pay');
    await wallet.asked('eth_sendTransaction');
    await expect.poll(() => wallet.sent).toHaveLength(1);
    await checkout.view('sent');
    await checkout.refresh();
    await checkout.refresh();
    await checkout.view('sent');
    expect(await checkout.offersNoPayment()).toBe(true);
    await checkout.page.reload();
    await checkout.view('sent');
    await arrives(checkout);
    expect(await counts()).toEqual({ asked: 1, transfers: 2 });
  });

  test('if the wallet answers after the time has passed, the page has said to reject, and reports a late payment', async () => {
    const { intent, checkout, counts, letGo } = await beginToPay();
    const at = new Date(Date.now() + 1_000);
    await world.expireAt(intent, at);
    await checkout.refresh();
    await checkout.view('time-is-up');
    expect(await checkout.notice('wallet-still-asks')).toMatch(/reject/);
    await world.passExpiry(at);
    await checkout.refresh();
    await checkout.view('expired');
    expect(await checkout.notice('wallet-still-asks')).toMatch(/reject/);
    expect(await checkout.offersNoPayment()).toBe(true);
    await letGo();
    await world.mine();
    await checkout.refresh();
    await checkout.notice('late');
    await checkout.view('expired');
    expect(await checkout.offersNoPayment()).toBe(true);
    expect(await counts()).toEqual(once);
  });

  test('a payment is recognised if the wallet has replaced its transaction by one with another hash', async () => {
    const { wallet, checkout, counts } = await begin();
    // The payer has sped it up in the wallet: same nonce, another hash.
    wallet.answer('eth_sendTransaction', async (carryOut) => {
      await carryOut();
      return `0x${'ab'.repeat(32)}`;
    });
    await checkout.connect();
    await checkout.press('pay', 'sent');
    await arrives(checkout);
    await world.mine(9);
    await checkout.refresh();
    await checkout.view('succeeded');
    await checkout.page.reload();
    await checkout.view('succeeded');
    expect(await counts()).toEqual(once);
  });

  test('an error of the wallet that does not say whether it has sent is taken for a possible payment', async () => {
    const { wallet, checkout, counts } = await begin();
    wallet.answer('eth_sendTransaction', async (carryOut) => {
      await carryOut();
      throw new Error('the popup was closed');
    });
    await checkout.connect();
    await checkout.press('pay', 'unknown');
    expect(await checkout.offersNoPayment()).toBe(true);
    await arrives(checkout);
    expect(await counts()).toEqual(once);
  });

  test('a wallet that already shows a request for the same payment is not asked again', async () => {
    const { wallet, checkout, counts, letGo } = await beginToPay();
    await checkout.page.reload();
    await checkout.press('not-sent');
    wallet.answer('eth_sendTransaction', () => {
      throw new WalletError(-32002, 'a request is already pending');
    });
    if ((await checkout.view('choose-wallet', 'ready')) === 'choose-wallet') await checkout.connect();
    await checkout.press('pay', 'unknown');
    expect(await checkout.offersNoPayment()).toBe(true);
    await letGo();
    await arrives(checkout);
    expect(await counts()).toEqual({ asked: 2, transfers: 1 });
  });

  test('if the wallet sends the first of two requests, the page says to reject the other', async () => {
    const { wallet, checkout, counts, letGo } = await beginToPay();
    const second = holdBack();
    wallet.answer('eth_sendTransaction', second.answer);
    await checkout.page.locator('summary').click();
    await checkout.press('not-sent');
    await checkout.press('pay');
    await expect.poll(() => wallet.requestsOf('eth_sendTransaction')).toHaveLength(2);
    await letGo();
    await checkout.view('sent');
    expect(await checkout.notice('wallet-still-asks')).toMatch(/reject/);
    second.letGo(reject);
    await arrives(checkout);
    expect(await counts()).toEqual({ asked: 2, transfers: 1 });
  });

  test('a second tab offers nothing once the first request is sent', async () => {
    const { device, wallet, intent, checkout, counts, letGo } = await beginToPay();
    await checkout.page.locator('summary').click();
    await checkout.press('not-sent');
    const [other, asked] = [await device.open(intent), holdBack()];
    wallet.answer('eth_sendTransaction', asked.answer);
    await other.connect();
    await other.press('pay');
    await wallet.asked('eth_sendTransaction', 2);
    await letGo();
    await checkout.view('sent');
    await other.view('sent');
    expect(await other.notice('wallet-still-asks')).toMatch(/reject/);
    asked.letGo(reject);
    await expect.poll(() => other.notices()).toEqual([]);
    await checkout.page.reload();
    await checkout.view('sent');
    await arrives(other);
    expect(await counts()).toEqual({ asked: 2, transfers: 1 });
  });

  test('an account that the payer leaves before the service answers is not asked', async () => {
    const { device, wallet, checkout, counts } = await begin();
    await checkout.connect('ready');
    const answer = await device.holdAnswers();
    await checkout.press('pay');
    const other = await world.createPayer();
    await wallet.changeAccount(other);
    const balances = () => JSON.stringify(wallet.requestsOf('eth_getBalance')).toLowerCase();
    await expect.poll(balances).toContain(other.address.toLowerCase());
    await checkout.view('ready');
    answer();
    const locks = () => checkout.page.evaluate(async () => (await navigator.locks.query()).held?.length);
    await expect.poll(locks).toBe(0);
    await checkout.press('pay', 'sent');
    expect(wallet.requestsOf('eth_sendTransaction').map(({ params }) => params[0].from)).toEqual([
      other.address,
    ]);
    expect(await counts()).toEqual({ asked: 1, transfers: 0 });
  });

  test('nothing is offered while a payment is reorged, until it returns', async () => {
    const { wallet, checkout, counts } = await paySoFar();
    await arrives(checkout);
    await world.mine(2);
    const serializedTransaction = await rawOf(wallet.sent[0] as Hex);
    await world.reorg(3);
    await checkout.refresh();
    await checkout.view('taken-back', 'sent');
    expect(await checkout.offersNoPayment()).toBe(true);
    await checkout.page.reload();
    await checkout.view('taken-back', 'sent');
    expect(await checkout.offersNoPayment()).toBe(true);
    await world.chain.client.sendRawTransaction({ serializedTransaction });
    await arrives(checkout);
    expect(await counts()).toEqual(once);
  });

  test('the wallet is not asked if the browser blocks site data, and a reload keeps the link', async () => {
    const device = await world.openDevice();
    await device.context.addInitScript(() => {
      const { Storage, LockManager } = globalThis as unknown as Record<string, { prototype: object }>;
      const refuse = { value: () => Promise.reject(new Error('SecurityError')) };
      if (LockManager) Object.defineProperties(LockManager.prototype, { request: refuse, query: refuse });
      Object.defineProperty(Storage?.prototype, 'setItem', {
        value() {
          throw new Error('QuotaExceededError');
        },
      });
    });
    const wallet = await device.installWallet(await world.createPayer());
    const checkout = await device.open(await world.createIntent());
    await checkout.connect();
    await checkout.press('pay');
    await checkout.notice('storage');
    expect(wallet.requestsOf('eth_sendTransaction')).toEqual([]);
    await checkout.page.reload();
    await checkout.press('manual', 'manual');
  });

  test('the time is up for a page that stood still with an answer on its way', async () => {
    const device = await world.openDevice();
    await device.context.addInitScript(() => {
      const page = globalThis as unknown as { stoodMs: number };
      const now = Date.now.bind(Date);
      page.stoodMs = 0;
      Date.now = () => now() + page.stoodMs;
    });
    const intent = await world.createIntent();
    const checkout = await device.open(intent);
    await checkout.press('manual', 'manual');
    await world.expireAt(intent, new Date(Date.now() + 50_000));
    await checkout.refresh();
    await checkout.notice('hurry');
    let isFirst = true;
    await checkout.page.route('**/v1/checkout', async (route) => {
      if (!isFirst) return;
      isFirst = false;
      const response = await route.fetch();
      await checkout.page.evaluate('stoodMs = 60_000');
      await route.fulfill({ response });
    });
    await checkout.view('time-is-up');
    await checkout.page.unrouteAll({ behavior: 'ignoreErrors' });
  });

  test.each([true, false])(
    'the way back leads to the checkout of the order before, past another page: %s',
    async (isPast) => {
      const device = await world.openDevice();
      const [first, second] = [await world.createIntent(), await world.createIntent()];
      const { page, text } = await device.open(first);
      if (isPast) await page.goto(`${world.service.publicUrl}/docs`);
      await page.goto(`${world.service.publicUrl}/checkout#${second.client_secret}`);
      await expect.poll(text).toContain(second.id);
      await page.reload();
      await expect.poll(text).toContain(second.id);
      if (isPast) await page.goBack();
      await page.goBack();
      await expect.poll(text).toContain(first.id);
    },
  );

  test.each(['ready', 'manual'])('once the time has passed, “%s” offers no payment', async (view) => {
    const { intent, checkout, counts } = await begin();
    if (view === 'ready') await checkout.connect();
    else await checkout.press('manual');
    await checkout.view(view);
    const at = new Date(Date.now() + 500);
    await world.expireAt(intent, at);
    await checkout.refresh();
    await checkout.view('time-is-up');
    expect(await checkout.offersNoPayment()).toBe(true);
    await world.passExpiry(at);
    await checkout.refresh();
    await checkout.view('expired');
    expect(await checkout.offersNoPayment()).toBe(true);
    expect(await counts()).toEqual({ asked: 0, transfers: 0 });
  });

  test('nothing is offered once the merchant has canceled the intent', async () => {
    const { intent, checkout } = await begin();
    await checkout.connect('ready');
    await world.merchant.cancelIntent(intent.id);
    await checkout.refresh();
    await checkout.view('canceled');
    expect(await checkout.offersNoPayment()).toBe(true);
  });

  test('the page shows changes within three seconds', async () => {
    const { checkout } = await paySoFar();
    await world.mine();
    const began = Date.now();
    await checkout.view('processing');
    expect(Date.now() - began).toBeLessThan(3_000 + slowMachineMs);
  });

  test('the overpaid amount is shown', async () => {
    const { intent, checkout } = await begin();
    await checkout.view('choose-wallet');
    await world.transferTo(intent, { units: amountUnits + 1n });
    await world.mine();
    await checkout.refresh();
    await checkout.notice('overpaid');
    expect(await checkout.offersNoPayment()).toBe(true);
  });

  /** Signs a call as a wallet does that always takes the same fees: the same nonce and call give the same hash. */
  async function signAndSend(account: PrivateKeyAccount, { to, data }: Call, gas = 150_000n): Promise<Hex> {
    const { client } = world.chain;
    const nonce = await client.getTransactionCount({ address: account.address, blockTag: 'pending' });
    const fees = { maxFeePerGas: parseGwei('20'), maxPriorityFeePerGas: parseGwei('2') };
    const { chainId } = world.chain.network;
    const of = { type: 'eip1559', chainId, nonce, to, data, gas, ...fees } as const;
    return client.sendRawTransaction({ serializedTransaction: await account.signTransaction(of) });
  }

  const rawOf = (hash: Hex) =>
    world.chain.client.request<RawTransaction>({ method: 'eth_getRawTransactionByHash', params: [hash] });

  /** A paid checkout whose payment was reorged. */
  async function paidAndReorged() {
    const started = await paySoFar();
    await arrives(started.checkout);
    const serializedTransaction = await rawOf(started.wallet.sent[0] as Hex);
    const payAgain = () => world.chain.client.sendRawTransaction({ serializedTransaction });
    await world.reorg(1);
    await started.checkout.refresh();
    await started.checkout.view('taken-back');
    return { ...started, payAgain };
  }

  async function giveUp(checkout: CheckoutPage): Promise<void> {
    await checkout.page.locator('summary').click();
    await checkout.press('not-sent', 'ready');
  }

  test('a late receipt of a payment that has failed does not forget the one after it', async () => {
    const { account, wallet, checkout } = await begin();
    wallet.answer('eth_sendTransaction', (_, { params: [call] }) => signAndSend(account, call, 28_000n));
    const held = holdBack();
    wallet.answer('eth_getTransactionReceipt', held.answer);
    await checkout.connect('ready');
    await checkout.press('pay', 'sent');
    await wallet.asked('eth_getTransactionReceipt');
    await world.mine();
    await giveUp(checkout);
    wallet.answer('eth_sendTransaction');
    await checkout.press('pay', 'sent');
    const isAskedAgain = wallet.asked('eth_getTransactionReceipt', 2);
    wallet.answer('eth_getTransactionReceipt');
    held.letGo();
    await isAskedAgain;
    expect(await checkout.offersNoPayment()).toBe(true);
  });

  test('a part that was reorged may return, although the transfer beside it was not sent', async () => {
    const { wallet, intent, checkout } = await begin();
    const amount = { amountUnits: amountUnits / 2n, suffix: world.suffixOf(intent) };
    const part = world.chain.transferCall({ to: intent.expected_wallet as Address, ...amount });
    await signAndSend(await world.createPayer(), part);
    await world.mine();
    await checkout.refresh();
    await checkout.connect('ready');
    await checkout.press('pay', 'sent');
    await world.chain.client.dropTransaction({ hash: wallet.sent[0] as Hex });
    await world.reorg(1);
    await checkout.refresh();
    await checkout.page.locator('summary').click();
    await checkout.press('not-sent', 'taken-back');
  });

  test('a reorged payment is sent again with the same hash', async () => {
    const { wallet, checkout } = await paidAndReorged();
    await giveUp(checkout);
    wallet.answer('eth_sendTransaction', () => wallet.sent[0]);
    await checkout.press('pay', 'taken-back');
    expect(await checkout.offersNoPayment()).toBe(true);
  });

  test('a payment that was given up returns, and is reorged again', async () => {
    const { checkout, payAgain } = await paidAndReorged();
    await giveUp(checkout);
    await payAgain();
    await arrives(checkout);
    await world.reorg(1);
    await checkout.refresh();
    await checkout.view('taken-back');
  });

  test('a payment of a wallet that does not answer is reorged', async () => {
    const { wallet, checkout } = await begin();
    wallet.answer('eth_sendTransaction', sendSilently);
    await checkout.connect('ready');
    await checkout.press('pay', 'confirm-in-wallet');
    await expect.poll(() => wallet.sent).toHaveLength(1);
    await arrives(checkout);
    await world.reorg(1);
    await checkout.refresh();
    await checkout.view('taken-back');
  });

  test('a wrong token that was reorged stops no payment', async () => {
    const { intent, checkout } = await begin();
    await world.transferTo(intent, { token: bridgedUsdcAddresses.usdbC });
    await world.mine();
    await checkout.refresh();
    await checkout.notice('wrong-token');
    await world.reorg(1);
    await checkout.refresh();
    await expect.poll(() => checkout.notices()).toEqual([]);
    await checkout.view('choose-wallet');
  });
});

interface RawTransaction {
  Method: 'eth_getRawTransactionByHash';
  Parameters: [Hex];
  ReturnType: Hex;
}

const slowMachineMs = 2_000;

/** Runs in the page, because a person could not click that fast. */
function clickOn(button: unknown, times = 1): void {
  for (let i = 0; i < times; i++) (button as { click(): void }).click();
}
