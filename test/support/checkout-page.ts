// biome-ignore-all lint/performance/useDomNodeTextContent: what is hidden is not shown
// The hosted checkout: a service, a chain on which a block is mined only when the test says so, the watcher
// between them, and devices that open the page in Chromium. Records the errors and requests of each device.

import type { BrowserContext, BrowserContextOptions, Page } from 'playwright-core';
import type { Address, Hex } from 'viem';
import { generatePrivateKey, type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts';
import { expect } from 'vitest';
import { parseIdentifier } from '../../src/database/identifiers.ts';
import { setOrigins } from '../../src/merchants/administration.ts';
import { findProblems } from './axe.ts';
import { openBrowser, type TestBrowser } from './browser.ts';
import type { Intent } from './call.ts';
import { startChain } from './chain.ts';
import { startService } from './service.ts';
import { createMerchantCalls, createTestWatcher, idBytes } from './settlement.ts';
import { installWallet, type TestWallet, type WalletOptions } from './wallet.ts';
import { gaslessLine, startTestFacilitator, type TestFacilitator } from './x402.ts';

export type CheckoutWorld = Awaited<ReturnType<typeof startCheckoutWorld>>;

/** The default amount of an intent. */
export const amountUnits = 12_500_000n;

/** Starts everything. The caller closes it. */
export async function startCheckoutWorld({ isGasless = false, roles = 'api' } = {}) {
  const chain = await startChain();
  const facilitator = isGasless ? await startTestFacilitator(chain) : undefined;
  const service = await startService({
    ROLES: roles,
    RATE_LIMIT_CHECKOUT: '0',
    ...(facilitator && {
      RPC_URL_BASE_SEPOLIA: chain.url,
      X402_FACILITATOR_URL_BASE_SEPOLIA: facilitator.url,
    }),
  });
  if (isGasless) await service.loggedLine(({ message }) => message === gaslessLine);
  // Not started for a test that brings another browser.
  let chromium: Promise<TestBrowser> | undefined;
  const merchant = createMerchantCalls(service);
  // The console reports a chain whose lease has ended. Nothing is read while a browser starts.
  const watcher = createTestWatcher(service, { urls: [chain.url], leaseMs: 600_000 });
  await watcher.catchUp();
  const devices: Device[] = [];

  /** Mines, and lets the service see the blocks. */
  async function mine(...args: Parameters<typeof chain.mine>): Promise<void> {
    await watcher.catchUp(chain.mine(...args));
  }

  /** A new account with this much USDC and ETH. */
  async function createPayer({
    units = amountUnits * 10n,
    wei = 10n ** 19n,
  } = {}): Promise<PrivateKeyAccount> {
    const account = privateKeyToAccount(generatePrivateKey());
    await chain.client.setBalance({ address: account.address, value: wei });
    if (units > 0n) {
      await chain.mint(account.address, units);
      await mine();
    }
    return account;
  }

  const uuidOf = ({ id }: Pick<Intent, 'id'>) => parseIdentifier('pi', id);

  return {
    service,
    chain,
    /** Defined if payers can pay by a signature. */
    facilitator: facilitator as TestFacilitator,
    watcher,
    merchant,
    mine,
    createPayer,
    createIntent: (fields: object = {}): Promise<Intent> => merchant.createIntent(fields),
    /** Sends a transfer that the page did not ask for, for the next block. */
    async transferTo(
      { id, expected_wallet }: Intent,
      {
        units = amountUnits,
        suffix = idBytes(id),
        token,
      }: { units?: bigint; suffix?: Hex; token?: Address } = {},
    ): Promise<Hex> {
      const { address: from } = chain.accounts[0];
      await chain.mint(from, units, token);
      return chain.transfer({ from, to: expected_wallet as Address, amountUnits: units, suffix, token });
    },
    /** Changes the moment until which an intent can be paid. Its chain has not reached it yet. */
    async expireAt(intent: Intent, at: Date): Promise<void> {
      await service.query(
        `update payment_intents
            set created_at = created_at - expires_at + $2::timestamptz, expires_at = $2::timestamptz
          where id = $1`,
        [uuidOf(intent), at],
      );
    },
    /** Lets the chain pass the moment, so that the intent expires. */
    async passExpiry(at: Date): Promise<void> {
      // Earlier tests may have taken the chain past it already.
      const { timestamp: last } = await chain.client.getBlock();
      await chain.mine(1, { timestamp: Math.max(Math.ceil(at.getTime() / 1000), Number(last)) + 1 });
      await mine(12);
    },
    async setOrigins(...origins: string[]): Promise<void> {
      await setOrigins(service.database.orm.em, service.merchant.merchantId, 'testnet', origins);
    },
    async setMerchantName(name: string): Promise<void> {
      await service.query('update merchants set name = $2 where id = $1', [service.merchant.id, name]);
    },
    /** The number of this payer's USDC transfers to the merchant on the chain. */
    async transfersOf(payer: Address): Promise<number> {
      const logs = await chain.client.getLogs({
        address: chain.usdc,
        event: transferEvent,
        args: { from: payer },
        fromBlock: 0n,
      });
      return logs.length;
    },
    /** The bytes of the intent's id, as the page appends them. */
    suffixOf: ({ id }: Intent) => idBytes(id),
    /** A reorganisation, which the watcher accepts when it sees it a second time. */
    async reorg(...args: Parameters<typeof chain.reorg>): Promise<void> {
      await chain.reorg(...args);
      await chain.mine();
      await expect(watcher.catchUp()).rejects.toThrow('asked again');
      await watcher.catchUp();
    },
    /** A browser of its own, with its own storage. */
    async openDevice(options: BrowserContextOptions = {}): Promise<Device> {
      chromium ??= openBrowser();
      const context = await (await chromium).newContext(options);
      const device = await prepareDevice(context, service.publicUrl, { 84532: chain.url });
      devices.push(device);
      return device;
    },
    /** Closes the devices, and checks what they recorded. */
    async closeDevices(): Promise<void> {
      const closing = devices.splice(0);
      await Promise.all(closing.map(({ context }) => context.close()));
      expect(closing.flatMap(({ complaints }) => complaints)).toEqual([]);
      expect(closing.flatMap(({ foreignRequests }) => foreignRequests())).toEqual([]);
    },
    async close(): Promise<void> {
      await (await chromium)?.close();
      await watcher.release();
      await service.close();
      await facilitator?.close();
      await chain.stop();
    },
  };
}

const transferEvent = {
  type: 'event',
  name: 'Transfer',
  inputs: [
    { name: 'from', type: 'address', indexed: true },
    { name: 'to', type: 'address', indexed: true },
    { name: 'value', type: 'uint256', indexed: false },
  ],
} as const;

/** Removes from a page what the oldest supported browsers do not have (checkout/build.ts). */
function forgetNewerThanFloor(): void {
  for (const [of, names] of [
    [URL, ['parse', 'canParse']],
    [Promise, ['withResolvers', 'try']],
    [Object, ['groupBy']],
    [Map, ['groupBy']],
    [Array, ['fromAsync']],
    [AbortSignal, ['any']],
    [Array.prototype, ['toReversed', 'toSorted', 'toSpliced', 'with']],
    [Set.prototype, ['union', 'intersection', 'difference']],
  ] as const) {
    for (const name of names) Reflect.deleteProperty(of, name);
  }
}

export interface SeenRequest {
  url: string;
  method: string;
  headers: Record<string, string>;
}

export interface Device {
  context: BrowserContext;
  /** Violations of the content security policy, errors on the console, and uncaught errors. */
  complaints: string[];
  /** Drops the browser's complaints about requests that the test made fail. */
  allowFailedRequests(): void;
  /** Holds back the service's answers about checkouts until the returned function is called. */
  holdAnswers(): Promise<() => void>;
  /** Every request of every page. */
  requests: SeenRequest[];
  /** The requests to anything but the service. */
  foreignRequests(): string[];
  /** Puts a wallet into the pages that are opened from now on. */
  installWallet(account: PrivateKeyAccount, options?: Partial<WalletOptions>): Promise<TestWallet>;
  /** Opens the checkout of an intent in a new tab. */
  open(intent: Pick<Intent, 'client_secret'>, fragment?: Record<string, string>): Promise<CheckoutPage>;
  /** Wraps a page that was opened otherwise. */
  wrap(page: Page): CheckoutPage;
}

async function prepareDevice(
  context: BrowserContext,
  publicUrl: string,
  nodes: Record<number, string>,
): Promise<Device> {
  const complaints: string[] = [];
  const requests: SeenRequest[] = [];
  await context.exposeBinding('reportViolation', (_, violation: string) => void complaints.push(violation));
  await context.addInitScript(() => {
    const page = globalThis as unknown as {
      reportViolation(text: string): void;
      addEventListener(type: string, listener: (event: Record<string, string>) => void): void;
    };
    page.addEventListener('securitypolicyviolation', ({ violatedDirective, blockedURI }) =>
      page.reportViolation(`CSP: ${violatedDirective} ${blockedURI}`),
    );
  });
  await context.addInitScript(forgetNewerThanFloor);
  context.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') complaints.push(message.text());
  });
  context.on('weberror', (error) => complaints.push(String(error.error())));
  context.on('request', (request) => {
    const seen: SeenRequest = { url: request.url(), method: request.method(), headers: request.headers() };
    requests.push(seen);
    // These include the headers that the network stack adds, such as the referrer.
    request.allHeaders().then(
      (headers) => Object.assign(seen, { headers }),
      () => {},
    );
  });
  const isForeign = ({ url }: SeenRequest) =>
    !/^(data|blob|about):/.test(url) && new URL(url).origin !== publicUrl;
  return {
    context,
    complaints,
    allowFailedRequests() {
      const others = complaints.filter((text) => !text.startsWith('Failed to load resource'));
      complaints.splice(0, Infinity, ...others);
    },
    async holdAnswers() {
      const { promise, resolve } = Promise.withResolvers<void>();
      await context.route('**/v1/checkout', async (route) => {
        await promise;
        await route.continue();
      });
      return resolve;
    },
    requests,
    foreignRequests: () => requests.filter(isForeign).map(({ url }) => url),
    installWallet: (account, options = {}) => installWallet(context, { account, nodes, ...options }),
    async open({ client_secret }, fragment = {}) {
      const page = await context.newPage();
      const rest = Object.entries(fragment).map(([name, value]) => `&${name}=${encodeURIComponent(value)}`);
      await page.goto(`${publicUrl}/checkout#${client_secret}${rest.join('')}`);
      return wrapPage(page);
    },
    wrap: wrapPage,
  };
}

/** Long enough for two polls on a busy machine. */
const stateTimeoutMs = 12_000;

export type CheckoutPage = ReturnType<typeof wrapPage>;

export function wrapPage(page: Page) {
  const main = page.locator('main');
  const action = (name: string) => page.locator(`[data-action="${name}"]`);
  /** Resolves once the page shows one of these views. */
  const view = async (...views: string[]): Promise<string> => {
    const seen = async () => (await main.getAttribute('data-view')) ?? '';
    await expect.poll(seen, { timeout: stateTimeoutMs, interval: 30 }).toBeOneOf(views);
    return seen();
  };
  return {
    page,
    main,
    /** Makes the page ask at once, as it does when the network is back, instead of in a few seconds. */
    refresh: () =>
      page.evaluate(() => {
        const { dispatchEvent } = globalThis as unknown as { dispatchEvent(event: Event): void };
        dispatchEvent(new Event('online'));
      }),
    view,
    /** Resolves once the page shows this status. */
    async status(status: string): Promise<void> {
      const seen = () => main.getAttribute('data-status');
      await expect.poll(seen, { timeout: stateTimeoutMs, interval: 30 }).toBe(status);
    },
    async connection(connection: string): Promise<void> {
      const seen = () => main.getAttribute('data-connection');
      await expect.poll(seen, { timeout: stateTimeoutMs, interval: 30 }).toBe(connection);
    },
    /** Resolves with the text of this notice once the page shows it. */
    async notice(name: string): Promise<string> {
      const notice = page.locator(`[data-notice="${name}"]`);
      await notice.waitFor({ timeout: stateTimeoutMs });
      return (await notice.innerText()).replace(/\s+/g, ' ');
    },
    notices: () =>
      page.locator('[data-notice]').evaluateAll((all) => all.map((one) => one.getAttribute('data-notice'))),
    action,
    /** Chooses the wallet, the first unless another is named, and resolves once the page shows the view, if one is given. */
    async connect(shown?: string, rdns?: string): Promise<void> {
      const button = rdns === undefined ? action('wallet').first() : page.locator(`[data-rdns="${rdns}"]`);
      await button.click({ timeout: stateTimeoutMs });
      if (shown !== undefined) await view(shown);
    },
    /** Presses the button, and resolves once the page shows the view, if one is given. */
    async press(name: string, shown?: string): Promise<void> {
      await action(name).click({ timeout: stateTimeoutMs });
      if (shown !== undefined) await view(shown);
    },
    /** True if nothing on the page would send money, or lead to it. */
    async offersNoPayment(): Promise<boolean> {
      const offers = ['pay', 'wallet', 'manual', 'wallets', 'copy-address', 'copy-amount', 'switch-chain'];
      return (await page.locator(offers.map((name) => `[data-action="${name}"]`).join()).count()) === 0;
    },
    /** The text of the page as a payer sees it. */
    text: async () => (await main.innerText()).replace(/\s+/g, ' '),
    /** The problems that axe finds, by all of its rules or by these. */
    axe: (rules?: string[]) => findProblems(page, rules),
    /** Pixels by which the page is wider than its window. */
    overflow: () =>
      page.evaluate(() => {
        const { document } = globalThis as unknown as {
          document: { documentElement: { scrollWidth: number; clientWidth: number } };
        };
        const { scrollWidth, clientWidth } = document.documentElement;
        return Math.max(0, scrollWidth - clientWidth);
      }),
    /** Everything that the tab and its origin have stored. */
    storage: (): Promise<{ session: string; local: string; cookies: string; url: string; history: number }> =>
      page.evaluate(() => {
        const tab = globalThis as unknown as {
          sessionStorage: object;
          localStorage: object;
          document: { cookie: string };
          location: { href: string };
          history: { length: number };
        };
        return {
          session: JSON.stringify({ ...tab.sessionStorage }),
          local: JSON.stringify({ ...tab.localStorage }),
          cookies: tab.document.cookie,
          url: tab.location.href,
          history: tab.history.length,
        };
      }),
  };
}
