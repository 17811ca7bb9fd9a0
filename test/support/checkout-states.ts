// Every state of the hosted checkout, so that each can be looked at and checked. checkout/states.md has them with the words
// of the page. The tests also bring them about for real.
//
//   npm run checkout:states [-- FOLDER [NAME...]]    takes a picture of each, wide and narrow, dark and light

import { mkdir, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { RefusalReason } from '../../src/contract/x402.ts';
import { openBrowser } from './browser.ts';
import {
  type Answer,
  hash,
  intent,
  now,
  openState,
  origin,
  payer,
  type Stage,
  type State,
  secret,
  sendToPopup,
  shop,
  units,
} from './checkout-stage.ts';
import { holdBack, reject, WalletError } from './wallet.ts';

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

/** The answer with payments, of which all but those taken back are counted. */
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

const refuse = (message: string) => () => {
  throw new WalletError(3, `execution reverted: ${message}`);
};

const gasless = { gasless: true };
const submitted = { status: 'submitted', expires_at: '2026-11-21T12:08:15.000Z' };

async function sign(stage: Stage): Promise<void> {
  await connect(stage);
  await stage.sees('ready-to-sign');
  await stage.press('sign');
}

/** The state, what the page says, and why the service refuses what was signed. */
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
    async act(stage) {
      stage.wallet.answer('eth_requestAccounts', holdBack().answer);
      await connect(stage);
    },
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
    async act(stage) {
      stage.wallet.answer('eth_call', () => units(4_250_000));
      await connect(stage);
    },
  },
  {
    name: 'too-little-gas',
    view: 'too-little-gas',
    async act(stage) {
      stage.wallet.answer('eth_getBalance', () => '0x0');
      await connect(stage);
    },
  },
  { name: 'ready-to-sign', view: 'ready-to-sign', answer: gasless, act: connect },
  {
    name: 'ready-to-sign-without-fee',
    view: 'ready-to-sign',
    answer: gasless,
    async act(stage) {
      stage.wallet.answer('eth_getBalance', () => '0x0');
      await connect(stage);
    },
  },
  {
    name: 'sign-in-wallet',
    view: 'sign-in-wallet',
    answer: gasless,
    async act(stage) {
      stage.wallet.answer('eth_signTypedData_v4', holdBack().answer);
      await sign(stage);
    },
  },
  {
    name: 'sign-rejected',
    view: 'ready-to-sign',
    notices: ['rejected'],
    answer: gasless,
    async act(stage) {
      stage.wallet.answer('eth_signTypedData_v4', reject);
      await sign(stage);
    },
  },
  {
    name: 'sign-failed',
    view: 'ready-to-sign',
    notices: ['sign-wallet'],
    answer: gasless,
    async act(stage) {
      stage.wallet.answer('eth_signTypedData_v4', () => 'nonsense');
      await sign(stage);
    },
  },
  // The service does not answer, so it may have been sent.
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
    async act(stage) {
      stage.wallet.answer('eth_estimateGas', refuse('Blacklistable: account is blacklisted'));
      await connect(stage);
    },
  },
  {
    name: 'paused',
    view: 'refused-by-token',
    async act(stage) {
      stage.wallet.answer('eth_estimateGas', refuse('Pausable: paused'));
      await connect(stage);
    },
  },
  {
    name: 'confirm-in-wallet',
    view: 'confirm-in-wallet',
    async act(stage) {
      stage.wallet.answer('eth_sendTransaction', holdBack().answer);
      await pay(stage);
    },
  },
  {
    name: 'reject-in-wallet',
    view: 'reject-in-wallet',
    notices: ['partly-paid'],
    async act(stage) {
      stage.wallet.answer('eth_sendTransaction', holdBack().answer);
      await pay(stage);
      await stage.sees('confirm-in-wallet');
      await stage.service(paid({}, { amount_units: 11_500_000 }));
    },
  },
  {
    name: 'rejected',
    view: 'ready',
    notices: ['rejected'],
    async act(stage) {
      stage.wallet.answer('eth_sendTransaction', reject);
      await pay(stage);
    },
  },
  {
    name: 'wallet-failed',
    view: 'ready',
    notices: ['wallet-failed'],
    async act(stage) {
      stage.wallet.answer('eth_sendTransaction', () => {
        throw new WalletError(-32602, 'invalid params');
      });
      await pay(stage);
    },
  },
  {
    name: 'wallet-busy',
    view: 'choose-wallet',
    notices: ['wallet-busy'],
    async act(stage) {
      stage.wallet.answer('eth_requestAccounts', () => {
        throw new WalletError(-32002, 'a request is already pending');
      });
      await connect(stage);
    },
  },
  {
    name: 'paying-elsewhere',
    view: 'paying-elsewhere',
    async act(stage) {
      stage.wallet.answer('eth_sendTransaction', holdBack().answer);
      await pay(stage);
      await stage.sees('confirm-in-wallet');
      const second = await stage.page.context().newPage();
      await second.goto(`${origin}/checkout#${secret}`);
      return second;
    },
  },
  { name: 'sent', view: 'sent', act: pay },
  {
    name: 'unknown',
    view: 'unknown',
    async act(stage) {
      stage.wallet.answer('eth_sendTransaction', holdBack().answer);
      await pay(stage);
      await stage.sees('confirm-in-wallet');
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
    name: 'taken-back',
    view: 'taken-back',
    answer: paid({ labels: ['reorged'] }, { status: 'reorged' }),
  },
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
  {
    name: 'time-is-up',
    view: 'time-is-up',
    answer: { expires_at: '2026-11-21T12:03:00.000Z' },
  },
  { name: 'expired', view: 'expired', answer: { status: 'expired' } },
  {
    name: 'expired-in-wallet',
    view: 'expired',
    notices: ['wallet-still-asks'],
    async act(stage) {
      stage.wallet.answer('eth_sendTransaction', holdBack().answer);
      await pay(stage);
      await stage.sees('confirm-in-wallet');
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
  { name: 'unreachable', view: 'unreachable', answer: 'none' },
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
