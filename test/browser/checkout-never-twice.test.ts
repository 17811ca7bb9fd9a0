// biome-ignore-all lint/performance/useDomNodeTextContent: what is hidden is not shown
// While a transfer may still arrive, the checkout page offers no other, whatever happens to the page meanwhile.

import type { Address, Hex } from 'viem';
import { afterEach, describe, expect, test } from 'vitest';
import { hasBrowser, useOpened } from '../support/browser.ts';
import { amountUnits, type CheckoutPage, startCheckoutWorld } from '../support/checkout-page.ts';
import { holdBack, reject, WalletError } from '../support/wallet.ts';

describe.skipIf(!hasBrowser)('never twice:', () => {
  const world = useOpened(startCheckoutWorld);
  afterEach(() => world.closeDevices());

  async function begin(fields: object = {}) {
    const account = await world.createPayer();
    const device = await world.openDevice();
    const wallet = await device.installWallet(account);
    const intent = await world.createIntent(fields);
    const checkout = await device.open(intent);
    /** Every transfer of the payer on the chain, and every request to send one. */
    const counts = async () => ({
      asked: wallet.requestsOf('eth_sendTransaction').length,
      transfers: await world.transfersOf(account.address),
    });
    return { account, device, wallet, intent, checkout, counts };
  }

  /** Goes as far as the wallet's request, which stays unanswered until `letGo`. */
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
      /** The payer confirms it in the wallet at last. */
      async letGo() {
        held.letGo();
        await expect.poll(() => started.wallet.sent).toHaveLength(1);
      },
      reject: () => held.letGo(reject),
    };
  }

  /** Pays, without a block. */
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

  test('two presses of the button are one request', async () => {
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
    test('while the wallet asks: the payer is asked what became of it, and the payment is found', async () => {
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

    test('while the wallet asks, which rejects: the payer says so, and pays again', async () => {
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

    test('after it has sent', async () => {
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
      // Both ask the service once more, and go on together.
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

    test('continues where a closed first tab was', async () => {
      const { device, intent, checkout, counts, letGo } = await beginToPay();
      await checkout.page.close();
      const second = await device.open(intent);
      await second.view('unknown');
      expect(await second.offersNoPayment()).toBe(true);
      await letGo();
      await arrives(second);
      expect(await counts()).toEqual(once);
    });

    test('is told when the first is closed while the wallet asks', async () => {
      const { device, intent, checkout } = await beginToPay();
      const second = await device.open(intent);
      await second.view('paying-elsewhere');
      await checkout.page.close();
      await second.view('unknown');
      expect(await second.offersNoPayment()).toBe(true);
    });

    test('of the same link, opened after all is paid, shows the receipt', async () => {
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

  test('the service is asked once more right before the wallet', async () => {
    const { intent, checkout, counts } = await begin();
    await checkout.connect('ready');
    // Another device has paid, and this page does not know of it yet.
    await world.transferTo(intent);
    await world.mine();
    await checkout.press('pay', 'processing');
    expect(await counts()).toEqual({ asked: 0, transfers: 0 });
  });

  test.each([
    ['while the wallet asks', beginToPay, ['confirm-in-wallet', 'unknown']],
    ['after it has sent', paySoFar, ['sent']],
  ] as const)('back and forward %s', async (_, start, views) => {
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
      // A closed laptop: hours of timers have not run.
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
      await checkout.notice('changed');
      expect(wallet.requestsOf('eth_sendTransaction')).toEqual([]);
      device.allowFailedRequests();
    });
  });

  test('a service that does not answer right before: the wallet is not asked', async () => {
    const { device, wallet, checkout } = await begin();
    await checkout.connect('ready');
    await checkout.page.route('**/v1/checkout', (route) => route.abort('connectionrefused'));
    await checkout.press('pay');
    await checkout.connection('unreachable');
    await checkout.notice('changed');
    expect(wallet.requestsOf('eth_sendTransaction')).toEqual([]);
    device.allowFailedRequests();
  });

  test('the rest is asked for once, also when the first part came from the same account', async () => {
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

  test('a wallet that answers after the time has passed: the page said to reject, and reports late money', async () => {
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

  test('a wallet that answers with a hash which never comes, while another does', async () => {
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

  test('a wallet whose error says nothing about what was sent', async () => {
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

  test('a wallet that already shows a request, which is for the same payment', async () => {
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

  test('a wallet that sends the first of two requests: the page says to reject the other', async () => {
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

  test('a first request that is sent while a second tab asks: the second offers nothing', async () => {
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

  test('an account that the payer has left before the service answered is not asked', async () => {
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

  test('a reorged payment: nothing is offered, and the payment returns', async () => {
    const { wallet, checkout, counts } = await paySoFar();
    await arrives(checkout);
    await world.mine(2);
    const [hash] = wallet.sent as [Hex];
    const serializedTransaction = await world.chain.client.request<RawTransaction>({
      method: 'eth_getRawTransactionByHash',
      params: [hash],
    });
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

  test('a browser that stores nothing: the wallet is not asked', async () => {
    const device = await world.openDevice();
    await device.context.addInitScript(() => {
      const { Storage } = globalThis as unknown as { Storage: { prototype: object } };
      Object.defineProperty(Storage.prototype, 'setItem', {
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
    await checkout.press('wallets');
    await checkout.press('manual', 'manual');
  });

  test.each(['ready', 'manual'])('once the time has passed, “%s” offers nothing any more', async (view) => {
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

  test('once the merchant has canceled it, nothing is offered', async () => {
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
});

interface RawTransaction {
  Method: 'eth_getRawTransactionByHash';
  Parameters: [Hex];
  ReturnType: Hex;
}

const slowMachineMs = 2_000;

/** Runs in the page: what a person would need longer for. */
function clickOn(button: unknown, times = 1): void {
  for (let i = 0; i < times; i++) (button as { click(): void }).click();
}
