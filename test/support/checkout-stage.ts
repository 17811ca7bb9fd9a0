// The hosted checkout on a stage: its page, with made-up answers of the service and of a wallet, taken to a state.

import { readFile } from 'node:fs/promises';
import type { BrowserContext, Page, Route } from 'playwright-core';
import { encodeAbiParameters, type Hex, numberToHex, parseEther } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { installWallet, type TestWallet } from './wallet.ts';

/** Nothing listens here: every request of the page is answered by `page.route`. */
export const origin = 'http://127.0.0.1:9';
export const shop = 'https://shop.example';
/** The server's time in every picture. */
export const now = '2026-11-21T12:03:15Z';
export const payer = privateKeyToAccount(`0x${'5a'.repeat(32)}`);
export const hash: Hex = `0x5b2a7e0f8c1d4e6b9a3f2c5d8e7b6a4f1c0d3e2b5a8f7c6d9e1b4a3f0c2d5e8b`;

export const intent = {
  id: 'pi_01m7yzn0mtexwagr0spq4wg7vz',
  status: 'requires_payment',
  mode: 'testnet',
  merchant_name: 'Example Shop',
  lane: 'sdk',
  chain: 'base',
  chain_id: 84532,
  confirmations_required: 10,
  amount_units: 12_500_000,
  decimals: 6,
  token_symbol: 'USDC',
  token_address: '0x036CbD53842c5426634e7929541eC2318f3dCF7e',
  expected_wallet: '0xDDf6EDe5C9525Bd7A5BF244C600195c559358Ab2',
  expires_at: '2026-11-21T12:30:15.514Z',
  amount_received_units: 0,
  payments_count: 0,
  allowed_origins: [shop],
};

export const secret = `${intent.id}_secret_${'0'.repeat(43)}`;

export type Answer = Partial<typeof intent> & Record<string, unknown>;

/** What a state's `act` can do. */
export interface Stage {
  page: Page;
  /** The service answers with this from now on; `undefined` is no answer at all. */
  service(answer: Answer | 401 | undefined): Promise<void>;
  wallet: TestWallet;
  press(action: string): Promise<void>;
  sees(view: string): Promise<void>;
}

export interface State {
  name: string;
  view: string;
  notices?: readonly string[];
  /** The first answer of the service; that of an unpaid intent unless given. */
  answer?: Answer | 401 | 'none' | 'late';
  /** Installed wallets; one unless given. */
  wallets?: 0 | 1 | 2;
  /** What follows the fragment's `#`; the secret unless given. */
  fragment?: string;
  /** A page of the shop opens it, before it has a secret. */
  isPopup?: boolean;
  /** What the service says to a payment by a signature: status and body; nothing unless given. */
  paid?: readonly [status: number, body: object];
  /** Names of stand-in chains. */
  standIns?: string;
  /** May return another page, which then has the state. */
  act?(stage: Stage): Promise<unknown>;
}

export const units = (value: bigint | number) => encodeAbiParameters([{ type: 'uint256' }], [BigInt(value)]);
const files: Record<string, string> = {
  '/checkout': 'page.html',
  '/checkout/page.js': 'page.js',
  '/checkout/page.css': 'page.css',
  '/checkout/icon.svg': 'icon.svg',
};
const types: Record<string, string> = {
  html: 'text/html; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
};
const policy =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

async function answerWithFile(route: Route, standIns: string): Promise<void> {
  const name = files[new URL(route.request().url()).pathname];
  if (name === undefined) return route.fulfill({ status: 404 });
  const text = await readFile(new URL(`../../src/checkout/gen/${name}`, import.meta.url), 'utf8');
  await route.fulfill({
    body: text.replace('name="test-wallet" content=""', `name="test-wallet" content="${standIns}"`),
    headers: {
      'content-type': types[name.split('.').at(-1) as string] as string,
      'content-security-policy': policy,
    },
  });
}

async function installStubWallet(context: BrowserContext, info = {}): Promise<TestWallet> {
  const wallet = await installWallet(context, { account: payer, nodes: { 84532: origin }, info });
  const honest = {
    eth_call: units(100_000_000),
    eth_estimateGas: numberToHex(62_000),
    eth_gasPrice: numberToHex(1_000_000),
    eth_getBalance: numberToHex(parseEther('0.1')),
    eth_getTransactionCount: '0x7',
    eth_sendTransaction: hash,
    eth_getTransactionReceipt: null,
    eth_getTransactionByHash: null,
  };
  for (const [method, result] of Object.entries(honest)) wallet.answer(method, () => result);
  // The token's name and version, and the balance.
  const texts: Record<string, string> = { '0x06fdde03': 'USDC', '0x54fd4d50': '2' };
  wallet.answer('eth_call', (_, { params: [{ data }] }) => {
    const text = texts[data];
    return text === undefined ? honest.eth_call : encodeAbiParameters([{ type: 'string' }], [text]);
  });
  return wallet;
}

// These run in a page.

type Shop = { open(url: string): Shop; popup: Shop; postMessage(message: object, to: string): void };

export function sayOnline(): void {
  (globalThis as unknown as EventTarget).dispatchEvent(new Event('online'));
}

export function openInPage(url: string): void {
  const tab = globalThis as unknown as Shop;
  tab.popup = tab.open(url);
}

export function sendToPopup({ message, to }: { message: object; to: string }): void {
  (globalThis as unknown as Shop).popup.postMessage(message, to);
}

/** Opens the page from a page of the shop, as the SDK does while the shop makes the intent. */
async function openPopup(context: BrowserContext): Promise<Page> {
  await context.route(`${shop}/**`, (route) => route.fulfill({ body: 'shop' }));
  const opener = await context.newPage();
  await opener.goto(`${shop}/`);
  const [popup] = await Promise.all([
    opener.waitForEvent('popup'),
    opener.evaluate(openInPage, `${origin}/checkout#opener=${encodeURIComponent(shop)}`),
  ]);
  return popup;
}

/** Opens the page in a new context and takes it to the state. */
export async function openState(context: BrowserContext, state: State): Promise<Page> {
  const { wallets = 1, fragment = secret, isPopup = false, standIns = '', answer: first = {} } = state;
  const wallet = wallets === 0 ? undefined : await installStubWallet(context);
  if (wallets === 2)
    await installStubWallet(context, { name: 'Another wallet', rdns: 'com.example.another' });
  let answer: Answer | 401 | undefined = typeof first === 'string' ? undefined : first;
  let etag = 0;
  await context.route('**/*', (route) => answerWithFile(route, standIns));
  await context.route('**/v1/checkout/pay', (route) => {
    const [status, json] = state.paid ?? [];
    return status === undefined ? route.abort('connectionrefused') : route.fulfill({ status, json });
  });
  await context.route('**/v1/checkout', async (route) => {
    // Never answered: the page is still loading.
    if (first === 'late') return;
    if (answer === undefined) return route.abort('connectionrefused');
    const headers = { date: new Date(now).toUTCString(), etag: `"${etag++}"` };
    if (answer === 401) return route.fulfill({ status: 401, headers, json: { error: {} } });
    return route.fulfill({ headers, json: { ...intent, ...answer } });
  });
  const page = await (isPopup ? openPopup(context) : context.newPage());
  const sees = (view: string, on = page) =>
    on.locator(`main[data-view="${view}"]`).waitFor({ state: 'attached', timeout: 10_000 });
  if (!isPopup) await page.goto(`${origin}/checkout#${fragment}`);
  const other = await state.act?.({
    page,
    // A state without a wallet asks nothing of it.
    wallet: wallet as TestWallet,
    sees,
    press: (action) => page.locator(`[data-action="${action}"]`).first().click(),
    async service(next) {
      answer = next;
      // The page asks at once when the network is back.
      await page.evaluate(sayOnline);
    },
  });
  const shown = (other as Page | undefined) ?? page;
  await sees(state.view, shown);
  for (const notice of state.notices ?? []) await shown.locator(`[data-notice="${notice}"]`).waitFor();
  return shown;
}
