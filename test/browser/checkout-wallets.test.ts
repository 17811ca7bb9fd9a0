// biome-ignore-all lint/performance/useDomNodeTextContent: what is hidden is not shown
// What the checkout page asks of a wallet, and how it handles each answer. In Chromium, with a third party's
// wallet and Circle's USDC on anvil.

import { type Address, concatHex, parseEther } from 'viem';
import { afterEach, describe, expect, test } from 'vitest';
import { hasBrowser, useOpened } from '../support/browser.ts';
import type { Intent } from '../support/call.ts';
import { amountUnits, type CheckoutWorld, startCheckoutWorld } from '../support/checkout-page.ts';
import { idBytes } from '../support/settlement.ts';
import { holdBack, reject, sendSilently, WalletError } from '../support/wallet.ts';

const baseSepolia = '0x14a34';

describe.skipIf(!hasBrowser)('a wallet', () => {
  const world = useOpened(startCheckoutWorld);
  afterEach(() => world.closeDevices());

  /** Opens a new intent's page on a device with a wallet of a new account. */
  async function begin({
    payer = {},
    wallet: options = {},
    intent: fields = {},
  }: {
    payer?: Parameters<CheckoutWorld['createPayer']>[0];
    wallet?: object;
    intent?: object;
  } = {}) {
    const account = await world.createPayer(payer);
    const device = await world.openDevice();
    const wallet = await device.installWallet(account, options);
    const intent = await world.createIntent(fields);
    const checkout = await device.open(intent);
    return { account, device, wallet, intent, checkout };
  }

  const callOf = ({ id, expected_wallet }: Intent, units = amountUnits) =>
    world.chain.transferCall({ to: expected_wallet as Address, amountUnits: units, suffix: idBytes(id) });

  test('is asked for exactly one transaction: the transfer, followed by the id of the intent', async () => {
    const { account, wallet, intent, checkout } = await begin();
    await checkout.connect('ready');
    expect(wallet.requestsOf('eth_sendTransaction')).toEqual([]);
    await checkout.press('pay', 'sent');

    const { to, data } = callOf(intent);
    expect(wallet.requestsOf('eth_sendTransaction')).toEqual([
      {
        method: 'eth_sendTransaction',
        params: [{ from: account.address, to, data, value: '0x0', chainId: baseSepolia }],
      },
    ]);
    expect(idBytes(intent.id)).toHaveLength(2 + 2 * 29);
    expect(data).toBe(concatHex([data.slice(0, 2 + 2 * (4 + 64)) as Address, idBytes(intent.id)]));

    const [hash] = wallet.sent as [Address];
    expect(await world.chain.client.getTransaction({ hash })).toMatchObject({ input: data });
    await world.mine();
    await checkout.view('processing');
    await world.mine(9);
    await checkout.view('succeeded');
    expect(await world.merchant.getIntent(intent.id)).toMatchObject({
      status: 'succeeded',
      payments: [{ transaction_hash: hash, from_address: account.address }],
    });
    expect(await world.transfersOf(account.address)).toBe(1);
  });

  test('is asked for no signature, and for nothing before it is chosen', async () => {
    const { wallet, checkout } = await begin();
    await checkout.view('choose-wallet');
    expect(wallet.requests).toEqual([]);
    await checkout.connect('ready');
    expect(wallet.requests.filter(({ method }) => /sign|permissions|send/i.test(method))).toEqual([]);
  });

  test('is asked for the rest after a partial payment', async () => {
    const { wallet, intent, checkout } = await begin();
    await checkout.connect('ready');
    await world.transferTo(intent, { units: 4_000_000n });
    await world.mine();
    await checkout.refresh();
    expect(await checkout.notice('partly-paid')).toMatch(/4\.00 USDC.*8\.50 USDC/);
    await checkout.view('ready');
    // The largest number on the page is the one to pay.
    expect(await checkout.page.locator('h1').textContent()).toBe('Amount due: 8.50 USDC');
    // The amount and its token stay on one line.
    expect(await checkout.action('pay').innerText()).toContain('8.50\u00a0USDC');
    await checkout.press('pay', 'sent');
    expect(wallet.requestsOf('eth_sendTransaction')[0]?.params[0].data).toBe(callOf(intent, 8_500_000n).data);
    await world.mine();
    await checkout.view('processing');
  });

  describe('on another chain', () => {
    test('is asked to switch chains, then to pay', async () => {
      const { wallet, checkout } = await begin({ wallet: { chainId: 1 } });
      await checkout.connect('wrong-chain');
      expect(await checkout.action('pay').count()).toBe(0);
      await checkout.press('switch-chain', 'ready');
      expect(wallet.requestsOf('wallet_switchEthereumChain')).toEqual([
        { method: 'wallet_switchEthereumChain', params: [{ chainId: baseSepolia }] },
      ]);
      expect(wallet.requestsOf('wallet_addEthereumChain')).toEqual([]);
      expect(wallet.chainId()).toBe(84532);
    });

    test.each([
      ['with its error code', undefined],
      [
        'with that code nested in another error',
        () => {
          throw new WalletError(-32603, 'Internal error', { originalError: { code: 4902 } });
        },
      ],
    ])('that does not know the chain is asked to add it: %s', async (_, answer) => {
      const { wallet, checkout } = await begin({ wallet: { chainId: 1, knownChainIds: [1] } });
      wallet.answer('wallet_switchEthereumChain', answer);
      await checkout.connect('wrong-chain');
      await checkout.press('switch-chain', 'ready');
      expect(wallet.requestsOf('wallet_addEthereumChain')).toMatchObject([
        {
          params: [
            {
              chainId: baseSepolia,
              chainName: 'Base Sepolia',
              nativeCurrency: { symbol: 'ETH', decimals: 18 },
              rpcUrls: [expect.stringMatching(/^https:\/\//)],
              blockExplorerUrls: [expect.stringMatching(/^https:\/\//)],
            },
          ],
        },
      ]);
    });

    test('may refuse to switch, and is asked again if the payer wants that', async () => {
      const { wallet, checkout } = await begin({ wallet: { chainId: 1 } });
      wallet.answer('wallet_switchEthereumChain', reject);
      await checkout.connect();
      await checkout.press('switch-chain');
      await checkout.notice('rejected');
      await checkout.view('wrong-chain');
      wallet.answer('wallet_switchEthereumChain');
      await checkout.press('switch-chain', 'ready');
    });

    test('that cannot switch makes the page say so, and the payer switches in the wallet', async () => {
      const { wallet, checkout } = await begin({ wallet: { chainId: 1 } });
      wallet.answer('wallet_switchEthereumChain', () => {
        throw new WalletError(-32601, 'the method does not exist');
      });
      await checkout.connect();
      await checkout.press('switch-chain');
      await checkout.notice('chain-refused');
      await wallet.switchChain(84532);
      await checkout.view('ready');
    });

    test('that claims to have switched but has not is not asked to pay', async () => {
      const { wallet, checkout } = await begin({ wallet: { chainId: 1 } });
      wallet.answer('wallet_switchEthereumChain', () => null);
      await checkout.connect();
      await checkout.press('switch-chain');
      await wallet.asked('wallet_switchEthereumChain');
      await checkout.view('wrong-chain');
      expect(await checkout.action('pay').count()).toBe(0);
    });

    test('that leaves the chain at the last moment is not asked to pay', async () => {
      const { wallet, checkout } = await begin();
      await checkout.connect('ready');
      // It emits no event.
      const held = holdBack();
      wallet.answer('eth_chainId', held.answer);
      await checkout.press('pay');
      // Until it answers, the payer sees that the button was pressed.
      await checkout.page.waitForSelector('[data-action="pay"][aria-disabled="true"]');
      held.letGo(() => '0x1');
      await checkout.view('wrong-chain');
      expect(wallet.requestsOf('eth_sendTransaction')).toEqual([]);
    });
  });

  test('that rejects the payment may be asked again', async () => {
    const { account, wallet, checkout } = await begin();
    wallet.answer('eth_sendTransaction', reject);
    await checkout.connect();
    await checkout.press('pay');
    expect(await checkout.notice('transfer-rejected')).toMatch(/reject it there, too/);
    await checkout.view('ready');
    wallet.answer('eth_sendTransaction');
    await checkout.press('pay', 'sent');
    expect(await checkout.page.locator('[data-notice="transfer-rejected"]').count()).toBe(0);
    await world.mine();
    await checkout.view('processing');
    expect(await world.transfersOf(account.address)).toBe(1);
  });

  test('whose key delegates to code has no other owners, and a rejection is final', async () => {
    const { wallet, checkout } = await begin();
    wallet.answer('eth_getCode', () => `0xef0100${'63'.repeat(20)}`);
    wallet.answer('eth_sendTransaction', reject);
    await checkout.connect();
    await checkout.press('pay');
    await checkout.notice('transfer-rejected');
    await checkout.view('ready');
  });

  test('of several owners may have proposed the payment to the others although it rejects', async () => {
    const { wallet, checkout } = await begin();
    wallet.answer('eth_getCode', () => '0x6080');
    wallet.answer('eth_sendTransaction', reject);
    await checkout.connect();
    await checkout.press('pay', 'unknown');
    expect(await checkout.action('pay').count()).toBe(0);
    await checkout.press('not-sent');
    wallet.answer('eth_sendTransaction');
    await checkout.press('pay', 'sent');
    expect(await checkout.text()).toMatch(/other owners, they have to confirm before/);
  });

  test('that cannot sign the bytes after a transfer has sent nothing, and the page says what helps', async () => {
    const { wallet, checkout } = await begin();
    wallet.answer('eth_sendTransaction', () => {
      throw new WalletError(-32603, 'Ledger device: Invalid data received (0x6a80)');
    });
    await checkout.connect();
    await checkout.press('pay');
    expect(await checkout.notice('device-old')).toMatch(/Nothing was sent. Update its Ethereum app/);
    await checkout.view('ready');
  });

  test.each([84532, '84532'])('that reports its chain as %j can pay', async (chainId) => {
    const { wallet, checkout } = await begin();
    wallet.answer('eth_chainId', () => chainId);
    await checkout.connect('ready');
  });

  test('that rejects the connection leads back to the choice', async () => {
    const { wallet, checkout } = await begin();
    wallet.answer('eth_requestAccounts', reject);
    await checkout.connect();
    await checkout.notice('rejected');
    await checkout.view('choose-wallet');
    wallet.answer('eth_requestAccounts');
    await checkout.connect('ready');
  });

  test('that does not answer can be left for another', async () => {
    const { device, wallet, intent } = await begin();
    const held = holdBack();
    wallet.answer('eth_requestAccounts', held.answer);
    const other = await device.installWallet(await world.createPayer(), {
      info: { name: 'Other wallet', rdns: 'com.example.other' },
    });
    const checkout = await device.open(intent);
    await checkout.connect('connecting', wallet.rdns);
    await checkout.press('wallets');
    await checkout.connect('ready', other.rdns);
    // Its late refusal changes nothing.
    held.letGo(reject);
    await checkout.refresh();
    await checkout.view('ready');
    expect(await checkout.page.locator('[data-notice]').count()).toBe(0);
    await checkout.press('pay', 'sent');
    expect(wallet.requestsOf('eth_sendTransaction')).toEqual([]);
    expect(other.requestsOf('eth_sendTransaction')).toHaveLength(1);
  });

  test('that fails a question of before its account changed stays connected', async () => {
    const { wallet, checkout } = await begin();
    const held = holdBack();
    wallet.answer('eth_estimateGas', held.answer);
    await checkout.connect();
    await wallet.asked('eth_estimateGas');
    wallet.answer('eth_estimateGas');
    await wallet.changeAccount(await world.createPayer());
    await checkout.view('ready');
    held.letGo(() => {
      throw new WalletError(-32603, 'the network changed');
    });
    await checkout.refresh();
    expect([await checkout.view('ready', 'choose-wallet'), await checkout.notices()]).toEqual(['ready', []]);
  });

  test('that reports no account while the payer is asked is still connected by their consent', async () => {
    const { wallet, checkout } = await begin();
    await checkout.connect('ready');
    await checkout.press('wallets', 'choose-wallet');
    const held = holdBack();
    wallet.answer('eth_requestAccounts', held.answer);
    await checkout.connect('connecting');
    wallet.answer('eth_accounts', () => []);
    await wallet.disconnect();
    wallet.answer('eth_accounts');
    held.letGo();
    await checkout.view('ready');
  });

  test('that answers after the payer has left it changes nothing', async () => {
    const { wallet, checkout } = await begin();
    const held = holdBack();
    wallet.answer('eth_requestAccounts', held.answer);
    await checkout.connect('connecting');
    await checkout.press('wallets', 'choose-wallet');
    held.letGo();
    await checkout.press('manual', 'manual');
  });

  test('that was left while it switches chains does not come back', async () => {
    const { device, wallet, intent } = await begin({ wallet: { chainId: 1 } });
    const held = holdBack();
    wallet.answer('wallet_switchEthereumChain', held.answer);
    const checkout = await device.open(intent);
    await checkout.connect('wrong-chain', wallet.rdns);
    await checkout.press('switch-chain');
    await wallet.asked('wallet_switchEthereumChain');
    await checkout.press('wallets', 'choose-wallet');
    held.letGo(reject);
    await checkout.refresh();
    await checkout.view('choose-wallet');
    expect(await checkout.page.locator('[data-notice]').count()).toBe(0);
  });

  test('is offered with its name and icon beside another, and only the chosen one is asked', async () => {
    const device = await world.openDevice();
    const icon = (colour: string) =>
      `data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg'%3E%3Crect fill='${colour}'/%3E%3C/svg%3E`;
    const infos = [
      { name: 'First wallet', rdns: 'com.example.first', icon: icon('red') },
      { name: 'Second wallet', rdns: 'com.example.second', icon: icon('blue') },
    ];
    const wallets = [];
    for (const info of infos) wallets.push(await device.installWallet(await world.createPayer(), { info }));
    const checkout = await device.open(await world.createIntent());
    await checkout.view('choose-wallet');
    const shown = checkout.action('wallet');
    expect((await shown.allInnerTexts()).map((text) => text.trim())).toEqual(infos.map(({ name }) => name));
    expect(
      await shown.locator('img').evaluateAll((images) => images.map((image) => image.getAttribute('src'))),
    ).toEqual(infos.map(({ icon }) => icon));
    await checkout.connect(undefined, 'com.example.second');
    await checkout.press('pay', 'sent');
    expect(wallets.map(({ requests }) => requests.length > 0)).toEqual([false, true]);
  });

  describe('in window.ethereum', () => {
    const legacy = { announcedBy: 'window.ethereum' } as const;

    test('is used if none announces itself', async () => {
      const { account, checkout } = await begin({ wallet: legacy });
      await checkout.view('choose-wallet');
      await checkout.connect();
      await checkout.press('pay', 'sent');
      await world.mine();
      await checkout.view('processing');
      expect(await world.transfersOf(account.address)).toBe(1);
    });

    test('is found late, and stays when another announces itself', async () => {
      const device = await world.openDevice();
      const wallet = await device.installWallet(await world.createPayer(), { announcedBy: 'nothing' });
      const other = { name: 'Other wallet', rdns: 'com.example.other' };
      const late = await device.installWallet(await world.createPayer(), {
        announcedBy: 'nothing',
        info: other,
      });
      const checkout = await device.open(await world.createIntent());
      await checkout.view('no-wallet');
      await wallet.inject();
      await checkout.connect('ready', '');
      await late.announce();
      await checkout.press('pay', 'sent');
      expect(wallet.requestsOf('eth_sendTransaction')).toHaveLength(1);
    });

    test('leaves the other ways to pay if it cannot be read', async () => {
      const device = await world.openDevice();
      await device.context.addInitScript(`
        Object.defineProperty(globalThis, 'ethereum', { get() { throw new Error('locked'); } });`);
      const checkout = await device.open(await world.createIntent());
      await checkout.press('manual', 'manual');
    });

    test('is not offered beside one that announces itself', async () => {
      const { device, intent } = await begin({ wallet: legacy });
      const announced = await device.installWallet(await world.createPayer());
      const checkout = await device.open(intent);
      await checkout.view('choose-wallet');
      expect(await checkout.action('wallet').count()).toBe(1);
      await checkout.connect();
      await announced.asked('eth_requestAccounts');
    });
  });

  test('is not needed: without one, the page says so, and the payer can send by hand', async () => {
    const device = await world.openDevice();
    const intent = await world.createIntent();
    const checkout = await device.open(intent);
    await checkout.view('no-wallet');
    await checkout.press('manual', 'manual');
    await world.transferTo(intent);
    await world.mine();
    await checkout.view('processing');
  });

  test('that appears later is offered', async () => {
    const device = await world.openDevice();
    const wallet = await device.installWallet(await world.createPayer(), { announcedBy: 'nothing' });
    const checkout = await device.open(await world.createIntent());
    await checkout.view('no-wallet');
    await wallet.announce();
    await checkout.view('choose-wallet');
    await checkout.connect('ready');
  });

  describe('whose account cannot pay is not asked to', () => {
    test('too little USDC', async () => {
      const { account, wallet, checkout } = await begin({ payer: { units: 4_250_000n } });
      await checkout.connect('too-little-token');
      expect(await checkout.text()).toMatch(/4\.25 USDC/);
      expect(await checkout.action('pay').count()).toBe(0);
      await world.chain.mint(account.address, amountUnits);
      await world.mine();
      await checkout.press('retry', 'ready');
      expect(wallet.requestsOf('eth_sendTransaction')).toEqual([]);
    });

    test.each([0n, 1_000n])('%i wei for the fee', async (wei) => {
      const { account, checkout } = await begin({ payer: { wei } });
      await checkout.connect('too-little-gas');
      expect(await checkout.text()).toMatch(/ETH/);
      await world.chain.client.setBalance({ address: account.address, value: parseEther('1') });
      await checkout.press('retry', 'ready');
    });

    test('on Circle’s blacklist', async () => {
      const { account, checkout } = await begin();
      await world.chain.blacklist(account.address);
      await world.mine();
      await checkout.connect('refused-by-token');
      expect(await checkout.text()).toMatch(/issuer of USDC has blocked this account/);
      expect(await checkout.action('pay').count()).toBe(0);
    });

    test('while Circle has paused all transfers', async () => {
      const { checkout } = await begin();
      await world.chain.pause();
      await world.mine();
      await checkout.connect('refused-by-token');
      expect(await checkout.text()).toMatch(/paused/);
      await world.chain.unpause();
      await world.mine();
      await checkout.press('retry', 'ready');
    });
  });

  test('has enough once a part has arrived from elsewhere', async () => {
    const { intent, checkout } = await begin({ payer: { units: 10_000_000n } });
    await checkout.connect('too-little-token');
    await world.transferTo(intent, { units: 4_000_000n });
    await world.mine();
    await checkout.view('ready');
  });

  test('that was never heard of has nothing to reject once the payment is final', async () => {
    const { device, wallet, intent, checkout } = await begin();
    wallet.answer('eth_sendTransaction', sendSilently);
    await checkout.connect('ready');
    await checkout.press('pay', 'confirm-in-wallet');
    await expect.poll(() => wallet.sent).toHaveLength(1);
    await checkout.page.close();
    await world.mine(10);
    const again = await device.open(intent);
    await again.view('succeeded');
    await expect.poll(() => again.notices()).toEqual([]);
  });

  test('that switches to another account pays with that one', async () => {
    const { wallet, checkout } = await begin();
    await checkout.connect('ready');
    const poor = await world.createPayer({ units: 0n });
    await wallet.changeAccount(poor);
    await checkout.view('too-little-token');
    const rich = await world.createPayer();
    await wallet.changeAccount(rich);
    await checkout.view('ready');
    await checkout.press('pay', 'sent');
    expect(wallet.requestsOf('eth_sendTransaction')[0]?.params[0].from).toBe(rich.address);
  });

  test('that disconnects the page leads back to the choice', async () => {
    const { wallet, checkout } = await begin();
    await checkout.connect('ready');
    await wallet.disconnect();
    await checkout.view('choose-wallet');
  });

  test('that reads with the page’s own fetch, which the policy refuses, can still send', async () => {
    const { wallet, checkout } = await begin();
    const refused = () => {
      throw new TypeError('Failed to fetch');
    };
    for (const method of ['eth_call', 'eth_estimateGas', 'eth_gasPrice', 'eth_getBalance', 'eth_getCode']) {
      wallet.answer(method, refused);
    }
    await checkout.connect('ready');
    // It may have put the transfer before other owners of the account.
    wallet.answer('eth_sendTransaction', reject);
    await checkout.press('pay', 'unknown');
    await checkout.press('not-sent');
    wallet.answer('eth_sendTransaction');
    if ((await checkout.view('choose-wallet', 'ready')) === 'choose-wallet') await checkout.connect();
    await checkout.press('pay', 'sent');
    expect(wallet.sent).toHaveLength(1);
  });

  test.each([
    ['eth_estimateGas', { code: -32005, message: 'rate limited' }],
    ['eth_gasPrice', { code: -32601, message: 'no such method' }],
    ['eth_getBalance', { code: 4200, message: 'unsupported' }],
  ])('that cannot answer %s can still send', async (method, error) => {
    const { wallet, checkout } = await begin();
    wallet.answer(method, () => {
      throw new WalletError(error.code, error.message);
    });
    await checkout.connect('ready');
    await checkout.press('pay', 'sent');
  });

  test('that does not say what gas costs is not asked to pay if the account has none', async () => {
    const { wallet, checkout } = await begin();
    wallet.answer('eth_gasPrice', () => {
      throw new WalletError(-32601, 'no such method');
    });
    wallet.answer('eth_getBalance', () => '0x0');
    await checkout.connect('too-little-gas');
  });

  test('whose transaction fails on the chain may pay again, and the page says so', async () => {
    const { account, wallet, checkout } = await begin();
    await checkout.connect('ready');
    // Gas is estimated before, and the transaction is executed after.
    const held = holdBack();
    wallet.answer('eth_sendTransaction', held.answer);
    await checkout.press('pay');
    await wallet.asked('eth_sendTransaction');
    held.letGo(async (carryOut) => {
      const hash = await carryOut();
      await world.chain.client.dropTransaction({ hash: hash as Address });
      await world.chain.pause();
      const [request] = wallet.requestsOf('eth_sendTransaction');
      return world.chain.send(account.address, request?.params[0]);
    });
    await checkout.view('sent');
    await world.mine();
    await checkout.notice('reverted');
    await world.chain.unpause();
    await world.mine();
    await checkout.view('ready', 'choose-wallet', 'refused-by-token');
  });
});
