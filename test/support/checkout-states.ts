// Every state of the hosted checkout, to be looked at and checked. checkout/states.md lists them with the
// text of the page. The tests also produce these states for real.
//
//   npm run checkout:states [-- FOLDER [NAME...]]    takes a picture of each, wide and narrow, dark and light

import { mkdir, mkdtemp, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { BrowserContext, Page, Route } from 'playwright-core';
import { encodeAbiParameters, type Hex, numberToHex, parseEther } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import type { RefusalReason } from '../../src/contract/x402.ts';
import { openBrowser } from './browser.ts';
import { holdBack, installWallet, reject, type TestWallet, WalletError } from './wallet.ts';

// Takes the page of the checkout to a state, with made-up answers of the service and of a wallet.

/** Nothing listens here: every request of the page is answered by `page.route`. */
const origin = 'http://127.0.0.1:9';
const shop = 'https://shop.example';
/** The server's time in every picture. */
const now = '2026-11-21T12:03:15Z';
const payer = privateKeyToAccount(`0x${'5a'.repeat(32)}`);
const hash: Hex = `0x5b2a7e0f8c1d4e6b9a3f2c5d8e7b6a4f1c0d3e2b5a8f7c6d9e1b4a3f0c2d5e8b`;

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

const secret = `${intent.id}_secret_${'0'.repeat(43)}`;

type Answer = Partial<typeof intent> & Record<string, unknown>;

/** What a state's `act` can do. */
interface Stage {
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
  /** The first answer of the service. Default: that of an unpaid intent. */
  answer?: Answer | 401 | 'none' | 'late';
  /** The number of installed wallets. Default: 1. */
  wallets?: 0 | 1 | 2;
  /** The fragment after its `#`. Default: the secret. */
  fragment?: string;
  /** A page of the shop opens the checkout before it has a secret. */
  isPopup?: boolean;
  /** The service's answer to a payment by a signature: status and body. Default: none. */
  paid?: readonly [status: number, body: object];
  /** Names of stand-in chains. */
  standIns?: string;
  /** Takes the page to the state. May return another page, which then has the state. */
  act?(stage: Stage): Promise<unknown>;
}

const units = (value: bigint | number) => encodeAbiParameters([{ type: 'uint256' }], [BigInt(value)]);
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
    eth_getCode: '0x',
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

// Everything below runs in a page.

type Shop = { open(url: string): Shop; popup: Shop; postMessage(message: object, to: string): void };

export function sayOnline(): void {
  (globalThis as unknown as EventTarget).dispatchEvent(new Event('online'));
}

function openInPage(url: string): void {
  const tab = globalThis as unknown as Shop;
  tab.popup = tab.open(url);
}

function sendToPopup({ message, to }: { message: object; to: string }): void {
  (globalThis as unknown as Shop).popup.postMessage(message, to);
}

/** Opens the checkout from a page of the shop, as the SDK does while the shop creates the intent. */
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
    // A state without a wallet does not use this.
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

const payment = {
  transaction_hash: hash,
  log_index: 41,
  block_number: 21_450_112,
  block_hash: `0x9c1f3b5d7e8a6c4b2d0f1e3a5c7b9d8f6e4a2c0b1d3f5e7a9c8b6d4f2e0a1c3b`,
  block_time: '2026-11-21T12:02:40.000Z',
  from_address: payer.address,
  to_address: intent.expected_wallet,
  token_address: intent.token_address,
  amount_units: intent.amount_units,
  confirmations: 4,
  status: 'pending',
};

/** Returns the answer with payments, of which all but reorged ones count. */
function paid(fields: Answer, ...payments: Partial<typeof payment & { labels: string[] }>[]): Answer {
  const whole = payments.map((each) => ({
    ...payment,
    ...each,
    counts: each.status !== 'reorged' && each.labels === undefined,
  }));
  const counted = whole.filter(({ counts }) => counts);
  return {
    payments: whole,
    payments_count: whole.length,
    amount_received_units: counted.reduce((sum, { amount_units }) => sum + amount_units, 0),
    ...fields,
  };
}

async function connect({ press, sees }: Stage): Promise<void> {
  await sees('choose-wallet');
  await press('wallet');
}

async function pay(stage: Stage): Promise<void> {
  await connect(stage);
  await stage.sees('ready');
  await stage.press('pay');
}

async function byHand({ press, sees }: Stage): Promise<void> {
  await sees('choose-wallet');
  await press('manual');
}

const fail = (code: number, message: string) => () => {
  throw new WalletError(code, message);
};
const refuse = (message: string) => fail(3, `execution reverted: ${message}`);

/** The wallet answers a method like this when the payer goes on. */
const answering =
  (method: string, answer: Parameters<TestWallet['answer']>[1], goOn = pay) =>
  (stage: Stage) => {
    stage.wallet.answer(method, answer);
    return goOn(stage);
  };

/** Goes on until the wallet asks the payer, who does not answer. */
async function beAsked(stage: Stage): Promise<void> {
  await answering('eth_sendTransaction', holdBack().answer)(stage);
  await stage.sees('confirm-in-wallet');
}

const gasless = { gasless: true };
const submitted = { status: 'submitted', expires_at: '2026-11-21T12:08:15.000Z' };

async function sign(stage: Stage): Promise<void> {
  await connect(stage);
  await stage.sees('ready-to-sign');
  await stage.press('sign');
}

/** The state, the page's notice, and the service's reason for refusing the signature. */
const refusedSignatures: readonly (readonly [string, string, RefusalReason])[] = [
  ['sign-refused', 'sign-refused', 'invalid_exact_evm_transaction_simulation_failed'],
  ['sign-too-little', 'sign-too-little', 'invalid_exact_evm_insufficient_balance'],
  ['sign-contract', 'sign-contract', 'invalid_exact_evm_signature'],
  ['sign-changed', 'changed', 'invalid_exact_evm_authorization_value'],
  ['sign-late', 'sign-lapsed', 'invalid_exact_evm_payload_authorization_valid_before'],
  ['sign-lapsed', 'sign-lapsed', 'authorization_released'],
];

/** Every state, in the order in which a payer may see them. */
export const states: readonly State[] = [
  { name: 'loading', view: 'loading', answer: 'late' },
  { name: 'waiting-for-shop', view: 'waiting-for-shop', isPopup: true },
  {
    name: 'shop-failed',
    view: 'shop-failed',
    isPopup: true,
    async act({ page, sees }) {
      await sees('waiting-for-shop');
      const message = { from: 'payment-intents-checkout', type: 'failed' };
      await (await page.opener())?.evaluate(sendToPopup, { message, to: origin });
    },
  },
  { name: 'choose-wallet', view: 'choose-wallet', wallets: 2 },
  { name: 'no-wallet', view: 'no-wallet', wallets: 0 },
  {
    name: 'connecting',
    view: 'connecting',
    act: answering('eth_requestAccounts', holdBack().answer, connect),
  },
  {
    name: 'wrong-chain',
    view: 'wrong-chain',
    async act(stage) {
      await stage.wallet.switchChain(1);
      await connect(stage);
    },
  },
  { name: 'ready', view: 'ready', act: connect },
  {
    name: 'too-little-token',
    view: 'too-little-token',
    act: answering('eth_call', () => units(4_250_000), connect),
  },
  { name: 'too-little-gas', view: 'too-little-gas', act: answering('eth_getBalance', () => '0x0', connect) },
  { name: 'ready-to-sign', view: 'ready-to-sign', answer: gasless, act: connect },
  {
    name: 'ready-to-sign-without-fee',
    view: 'ready-to-sign',
    answer: gasless,
    act: answering('eth_getBalance', () => '0x0', connect),
  },
  {
    name: 'sign-in-wallet',
    view: 'sign-in-wallet',
    answer: gasless,
    act: answering('eth_signTypedData_v4', holdBack().answer, sign),
  },
  {
    name: 'sign-rejected',
    view: 'ready-to-sign',
    notices: ['rejected'],
    answer: gasless,
    act: answering('eth_signTypedData_v4', reject, sign),
  },
  {
    name: 'sign-failed',
    view: 'ready-to-sign',
    notices: ['sign-wallet'],
    answer: gasless,
    act: answering('eth_signTypedData_v4', () => 'nonsense', sign),
  },
  // The service does not answer, so the signature may have been sent.
  { name: 'signed', view: 'signed', answer: gasless, act: sign },
  { name: 'signed-and-submitted', view: 'signed', answer: { authorization: submitted } },
  {
    name: 'signed-and-released',
    view: 'choose-wallet',
    notices: ['sign-lapsed'],
    answer: { authorization: submitted },
    async act(stage) {
      await stage.sees('signed');
      await stage.service(gasless);
    },
  },
  ...refusedSignatures.map(
    ([name, notice, errorReason]): State => ({
      name,
      view: 'ready-to-sign',
      notices: [notice],
      answer: gasless,
      paid: [402, { errorReason }],
      act: sign,
    }),
  ),
  {
    name: 'not-sent',
    view: 'ready-to-sign',
    notices: ['not-sent'],
    answer: gasless,
    paid: [402, { errorReason: 'facilitator_unreachable' }],
    async act(stage) {
      stage.wallet.answer('eth_signTypedData_v4', async (carryOut) => {
        await stage.service({ ...gasless, authorization: { ...submitted, status: 'failed' } });
        return carryOut();
      });
      await sign(stage);
    },
  },
  {
    name: 'blacklisted',
    view: 'refused-by-token',
    act: answering('eth_estimateGas', refuse('Blacklistable: account is blacklisted'), connect),
  },
  {
    name: 'paused',
    view: 'refused-by-token',
    act: answering('eth_estimateGas', refuse('Pausable: paused'), connect),
  },
  {
    name: 'confirm-in-wallet',
    view: 'confirm-in-wallet',
    act: answering('eth_sendTransaction', holdBack().answer),
  },
  {
    name: 'reject-in-wallet',
    view: 'reject-in-wallet',
    notices: ['partly-paid'],
    async act(stage) {
      await beAsked(stage);
      await stage.service(paid({}, { amount_units: 11_500_000 }));
    },
  },
  {
    name: 'rejected',
    view: 'ready',
    notices: ['transfer-rejected'],
    act: answering('eth_sendTransaction', reject),
  },
  {
    name: 'device-old',
    view: 'ready',
    notices: ['device-old'],
    act: answering('eth_sendTransaction', fail(-32603, 'Ledger device: Invalid data received (0x6a80)')),
  },
  {
    name: 'wallet-failed',
    view: 'ready',
    notices: ['wallet-failed'],
    act: answering('eth_sendTransaction', fail(-32602, 'invalid params')),
  },
  {
    name: 'wallet-busy',
    view: 'choose-wallet',
    notices: ['wallet-busy'],
    act: answering('eth_requestAccounts', fail(-32002, 'a request is already pending'), connect),
  },
  {
    name: 'paying-elsewhere',
    view: 'paying-elsewhere',
    async act(stage) {
      await beAsked(stage);
      const second = await stage.page.context().newPage();
      await second.goto(`${origin}/checkout#${secret}`);
      return second;
    },
  },
  { name: 'sent', view: 'sent', act: pay },
  { name: 'sent-to-owners', view: 'sent', act: answering('eth_getCode', () => '0x60') },
  {
    name: 'unknown',
    view: 'unknown',
    async act(stage) {
      await beAsked(stage);
      await stage.page.reload();
    },
  },
  { name: 'processing', view: 'processing', answer: paid({ status: 'processing' }, {}) },
  {
    name: 'partly-paid',
    view: 'choose-wallet',
    notices: ['partly-paid'],
    answer: paid({}, { amount_units: 4_000_000 }),
  },
  {
    name: 'returned-before-the-rest',
    view: 'choose-wallet',
    notices: ['partly-paid', 'returned-before-the-rest', 'returned'],
    answer: paid(
      {
        refunds: [
          {
            ...payment,
            transaction_hash: `0x${'cd'.repeat(32)}`,
            status: 'confirmed',
            amount_units: 4_000_000,
          },
        ],
      },
      { amount_units: 4_000_000 },
    ),
  },
  { name: 'taken-back', view: 'taken-back', answer: paid({ labels: ['reorged'] }, { status: 'reorged' }) },
  {
    name: 'succeeded',
    view: 'succeeded',
    fragment: `${secret}&return_url=${encodeURIComponent(`${shop}/orders/1001`)}`,
    answer: paid(
      { status: 'succeeded', succeeded_at: now },
      { status: 'confirmed', confirmations: intent.confirmations_required },
    ),
  },
  {
    name: 'overpaid',
    view: 'succeeded',
    notices: ['overpaid'],
    answer: paid(
      { status: 'succeeded', labels: ['overpaid'] },
      { status: 'confirmed', confirmations: intent.confirmations_required, amount_units: 13_000_000 },
    ),
  },
  {
    name: 'returned',
    view: 'succeeded',
    notices: ['returned'],
    answer: paid(
      {
        status: 'succeeded',
        refunds: [
          {
            ...payment,
            transaction_hash: `0x${'cd'.repeat(32)}`,
            status: 'confirmed',
            amount_units: 5_000_000,
          },
        ],
      },
      { status: 'confirmed', confirmations: intent.confirmations_required },
    ),
  },
  {
    name: 'returning-after-cancellation',
    view: 'canceled',
    notices: ['late', 'returning'],
    answer: paid(
      {
        status: 'canceled',
        labels: ['after_cancel'],
        refunds: [{ ...payment, transaction_hash: `0x${'cd'.repeat(32)}`, status: 'pending' }],
      },
      { status: 'confirmed', labels: ['after_cancel'] },
    ),
  },
  {
    name: 'reorganised-after-success',
    view: 'succeeded',
    notices: ['reorganised'],
    answer: paid({ status: 'succeeded', labels: ['reorged'] }, { status: 'reorged' }),
  },
  { name: 'manual', view: 'manual', act: byHand },
  {
    name: 'manual-partly-paid',
    view: 'manual',
    notices: ['partly-paid'],
    answer: paid({ lane: 'manual' }, { amount_units: 4_000_000 }),
  },
  {
    name: 'wrong-token',
    view: 'choose-wallet',
    notices: ['wrong-token'],
    answer: paid({ labels: ['wrong_token'] }, { labels: ['wrong_token'] }),
  },
  {
    name: 'hurry',
    view: 'choose-wallet',
    notices: ['hurry'],
    answer: { expires_at: '2026-11-21T12:03:50.000Z' },
  },
  { name: 'time-is-up', view: 'time-is-up', answer: { expires_at: '2026-11-21T12:03:00.000Z' } },
  { name: 'expired', view: 'expired', answer: { status: 'expired' } },
  {
    name: 'expired-in-wallet',
    view: 'expired',
    notices: ['wallet-still-asks'],
    async act(stage) {
      await beAsked(stage);
      await stage.service({ status: 'expired' });
    },
  },
  {
    name: 'underpaid',
    view: 'expired',
    notices: ['underpaid'],
    answer: paid({ status: 'expired', labels: ['underpaid'] }, { amount_units: 4_000_000 }),
  },
  {
    name: 'late',
    view: 'expired',
    notices: ['late'],
    answer: paid({ status: 'expired', labels: ['late'] }, { labels: ['late'] }),
  },
  {
    name: 'found-late',
    view: 'expired',
    notices: ['found-late'],
    answer: paid({ status: 'expired', labels: ['late', 'found_late'] }, { labels: ['late', 'found_late'] }),
  },
  { name: 'canceled', view: 'canceled', answer: { status: 'canceled' } },
  { name: 'invalid', view: 'invalid', answer: 401 },
  {
    name: 'offline',
    view: 'choose-wallet',
    notices: ['offline'],
    async act({ page, sees }) {
      await sees('choose-wallet');
      await page.context().setOffline(true);
    },
  },
  {
    name: 'unreachable-later',
    view: 'choose-wallet',
    notices: ['unreachable'],
    async act({ service, sees }) {
      await sees('choose-wallet');
      await service(undefined);
    },
  },
  {
    name: 'not-asked',
    view: 'ready',
    notices: ['not-asked', 'unreachable'],
    async act(stage) {
      await connect(stage);
      await stage.sees('ready');
      await stage.service(undefined);
      await stage.press('pay');
    },
  },
  { name: 'unreachable', view: 'unreachable', answer: 'none' },
  { name: 'outdated', view: 'outdated', answer: { status: 'on_hold' as 'processing' } },
  { name: 'test-wallet', view: 'test-wallet', standIns: 'base' },
  { name: 'test-wallet-gasless', view: 'test-wallet', standIns: 'base', answer: gasless },
];

export const looks = (['light', 'dark'] as const).flatMap((colorScheme) =>
  [1280, 390, 320].map((width) => ({ colorScheme, width })),
);

/** Takes pictures of all states, or of those whose names are given. */
async function takePictures(folder: string, names: readonly string[]): Promise<void> {
  await mkdir(folder, { recursive: true });
  const browser = await openBrowser();
  for (const state of states) {
    if (names.length > 0 && !names.includes(state.name)) continue;
    const context = await browser.newContext({ locale: 'en-GB', timezoneId: 'UTC' });
    try {
      const page = await openState(context, state);
      for (const { colorScheme, width } of looks) {
        await page.setViewportSize({ width, height: 800 });
        await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
        await page.screenshot({
          path: join(folder, `${state.name}-${width}-${colorScheme}.png`),
          fullPage: true,
        });
      }
    } catch (error) {
      console.error(`${state.name}: ${error instanceof Error ? error.message : error}`);
      process.exitCode = 1;
    } finally {
      await context.close();
    }
  }
  await browser.close();
  console.log(folder);
}

if (import.meta.main) {
  const [folder, ...names] = process.argv.slice(2);
  await takePictures(folder ?? (await mkdtemp(join(tmpdir(), 'checkout-states-'))), names);
}
