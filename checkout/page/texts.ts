// Every word of the page. Amounts and names are filled in; nothing of them is markup.

import type { Funds, Notice, ViewName } from './state.ts';

/** What the sentences are about. */
export interface Words {
  merchant: string;
  /** What is still missing, with the token: `12.50 USDC`. */
  missing: string;
  received: string;
  token: string;
  chain: string;
  feeToken: string;
  /** The wallet's own name, if one is in use. */
  wallet: string;
  /** Until when, in the payer's time zone: `14:05`. */
  until: string;
}

interface Said {
  title: string;
  /** The sentences below it. */
  lines?: readonly string[];
}

/** The title and the sentences of each view. */
export const views: { readonly [name in ViewName]: (words: Words) => Said } = {
  loading: () => ({ title: 'Loading the payment' }),
  'waiting-for-shop': () => ({
    title: 'Preparing your payment',
    lines: ['The shop is preparing your payment. Keep this window open.'],
  }),
  'shop-failed': () => ({
    title: 'The payment was not prepared',
    lines: [
      'The shop could not prepare the payment. Nothing was charged. Close this window and try again there.',
    ],
  }),
  invalid: () => ({
    title: 'This link does not open a payment',
    lines: [
      'It may be cut off or too old. If you have already paid, do not pay again: ask the shop. Otherwise go back to the shop and open the payment from there again.',
    ],
  }),
  unreachable: () => ({
    title: 'The payment cannot be loaded',
    lines: [
      'There is no answer at the moment. The page keeps trying. If you have already paid, do not pay again: your payment is still seen.',
    ],
  }),
  'test-wallet': ({ chain }) => ({
    title: 'Pay with test money',
    lines: [
      `This payment is on a practice copy of ${chain} that runs on this machine. Its money is worth nothing, and a wallet of your own cannot reach it.`,
    ],
  }),
  'choose-wallet': () => ({ title: 'Choose your wallet' }),
  'no-wallet': ({ token, chain }) => ({
    title: 'No wallet found in this browser',
    lines: [`Open this page where you have a wallet with ${token} on ${chain}, or send the payment by hand.`],
  }),
  connecting: ({ wallet }) => ({
    title: `Connecting to ${wallet}`,
    lines: ['If your wallet asks, allow this page to see your account. That moves no money.'],
  }),
  'wrong-chain': ({ wallet, chain }) => ({
    title: `Change to ${chain}`,
    lines: [`${wallet} is on another network. The payment is made on ${chain}. Changing it costs nothing.`],
  }),
  ready: ({ missing, merchant }) => ({
    title: 'Ready to pay',
    lines: [`Your wallet will ask you to confirm ${missing} to ${merchant}.`],
  }),
  'too-little-token': ({ token, chain, missing }) => ({
    title: `Not enough ${token}`,
    lines: [`This account needs ${missing} on ${chain}. Add ${token} there, or choose another account.`],
  }),
  'too-little-gas': ({ feeToken, chain }) => ({
    title: `Not enough ${feeToken} for the fee`,
    lines: [
      `The network takes a small fee in ${feeToken} for each payment. Add some ${feeToken} on ${chain} to this account, or choose another account.`,
    ],
  }),
  'refused-by-token': ({ token }) => ({ title: `${token} does not allow this payment` }),
  'confirm-in-wallet': ({ wallet, missing }) => ({
    title: `Confirm in ${wallet}`,
    lines: [
      `Your wallet shows a request to send ${missing}. Confirm it there. If you do not see it, open your wallet.`,
    ],
  }),
  'paying-elsewhere': () => ({
    title: 'You are paying in another tab',
    lines: ['Another tab of this browser has asked your wallet. Go on there; this page follows.'],
  }),
  unknown: () => ({
    title: 'Did your wallet send the payment?',
    lines: [
      'Your wallet was asked to send the payment, and has not answered clearly. Look at the activity in your wallet. If the payment was sent, wait: it appears here by itself.',
    ],
  }),
  sent: ({ chain }) => ({
    title: 'Payment sent',
    lines: [
      `${chain} has not included it yet. That takes seconds, sometimes a minute. Do not pay again. You can leave this page open or come back to it.`,
    ],
  }),
  'taken-back': ({ chain }) => ({
    title: 'The network is putting your payment in order',
    lines: [
      `${chain} has moved its newest blocks, and your payment is not in them yet. It usually returns by itself. Do not pay again.`,
    ],
  }),
  manual: ({ token, chain, until }) => ({
    title: 'Send the payment by hand',
    lines: [
      `Send ${token} on ${chain}, exactly this amount, to this address, before ${until}. Another token or another network does not count, and may be lost.`,
    ],
  }),
  processing: ({ merchant }) => ({
    title: 'Payment received',
    lines: [`The network is confirming it. You can close this page: ${merchant} is told by itself.`],
  }),
  succeeded: ({ merchant }) => ({
    title: 'Paid',
    lines: [`${merchant} has been told of your payment. You have nothing more to do.`],
  }),
  'time-is-up': ({ chain }) => ({
    title: 'The time to pay is over',
    lines: [
      `Do not send anything now. What you sent in time still counts: the page is waiting for the last blocks of ${chain}.`,
    ],
  }),
  expired: ({ merchant }) => ({
    title: 'This payment has expired',
    lines: [`Do not send anything now. To buy from ${merchant}, start again there.`],
  }),
  canceled: ({ merchant }) => ({
    title: 'This payment was canceled',
    lines: [`${merchant} has canceled it. Do not send anything now.`],
  }),
};

/** What the page says besides its view. */
export const notices: { readonly [name in Notice]: (words: Words) => string } = {
  offline: () => 'You are offline. What is shown here may be old.',
  unreachable: () =>
    'There is no answer at the moment. What is shown here may be old; the page keeps trying.',
  'wallet-still-asks': () => 'If your wallet still asks you to confirm this payment, reject it there.',
  'partly-paid': ({ received, missing }) => `${received} has arrived. ${missing} is still missing.`,
  underpaid: ({ received, merchant }) =>
    `${received} arrived, which is less than the price. Ask ${merchant} what happens with it.`,
  late: ({ merchant }) =>
    `Money arrived that does not count for this payment. ${merchant} sees it: ask there for it.`,
  'wrong-token': ({ token, merchant }) =>
    `Something other than ${token} arrived. It does not count for this payment. ${merchant} sees it: ask there for it.`,
  overpaid: ({ merchant }) => `More than the price arrived. ${merchant} sees it: ask there for the rest.`,
  reorganised: ({ merchant }) =>
    `The network has moved blocks after the payment was confirmed. ${merchant} is looking into it.`,
  hurry: () => 'Less than a minute is left. A payment that arrives later does not count.',
  rejected: () => 'You rejected the request in your wallet. Nothing was sent.',
  'wallet-busy': () => 'Your wallet already shows a request. Open it and answer that one first.',
  'wallet-failed': () => 'Your wallet did not answer as it should. Nothing was sent by this page.',
  'chain-refused': ({ chain }) =>
    `Your wallet did not change to ${chain}. Change the network there yourself.`,
  reverted: () => 'The network undid the payment, so no money moved but the fee. You can pay again.',
  storage: () =>
    'This browser stores nothing, so the page could not keep you from paying twice. Leave private browsing, or send the payment by hand.',
  changed: () => 'Something changed while you were paying. Look at the amount again before you go on.',
  'test-wallet': () => 'The test wallet could not pay. The log of the service says why.',
};

/** Why the token refuses the payment. */
export const refusals: {
  readonly [reason in Extract<Funds, { kind: 'refused' }>['reason']]: (words: Words) => string;
} = {
  blacklisted: ({ token }) =>
    `The issuer of ${token} has blocked this account or the receiving one. Choose another account, or ask the shop.`,
  paused: ({ token, chain }) =>
    `The issuer has paused ${token} on ${chain}. Nobody can pay with it at the moment. Try again later.`,
  other: ({ token }) => `The contract of ${token} refuses it. Choose another account, or ask the shop.`,
};

export const labels = {
  amountDue: 'Amount due',
  pay: ({ missing }: Words) => `Pay ${missing}`,
  switchChain: ({ chain }: Words) => `Change to ${chain}`,
  checkAgain: 'Check again',
  tryAnyway: 'My wallet pays the fee in another way: go on',
  otherWallet: 'Choose another wallet',
  manual: 'Send by hand instead',
  wallets: 'Pay with a wallet of this browser',
  reload: 'Try again now',
  notSent: 'My wallet has not sent it: pay again',
  notSentHint:
    'Only if your wallet shows no such payment. If it still shows the request, reject it there first; otherwise you may pay twice.',
  noAnswer: 'Your wallet shows nothing?',
  waitedLong: 'Waited for long?',
  notComing:
    'Look the transaction up in your wallet. If it says failed or dropped, the payment does not come, and you can pay again. Otherwise wait.',
  address: 'Address',
  amount: 'Amount',
  network: 'Network',
  copyAddress: 'Copy address',
  copyAmount: 'Copy amount',
  copyLink: 'Copy link to this page',
  copied: 'Copied',
  notCopied: 'Select and copy it by hand',
  qr: 'Open this page on your phone',
  qrHint: 'The code opens this page on your phone. It pays nothing by itself.',
  waiting: 'Waiting for your payment. It appears here by itself.',
  openInWallet: 'Open this page in a wallet app',
  openInWalletHint:
    'These open the app if it is installed. If nothing happens, copy the link and paste it into the browser of your wallet app.',
  testExact: ({ missing }: Words) => `Pay ${missing} with the test wallet`,
  testLess: 'Pay too little',
  testMore: 'Pay too much',
  standIn: 'Practice chain on this machine: no real money',
  testnet: 'Test network: no real money',
  timeLeft: (time: string) => `${time} left to pay`,
  confirmations: (count: number, required: number) => `${count} of ${required} confirmations`,
  leave: ({ merchant }: Words) => `Back to ${merchant} without paying`,
  back: ({ merchant }: Words) => `Back to ${merchant}`,
  closeWindow: 'You can close this window.',
  receipt: 'Receipt',
  paidAmount: 'Paid',
  transaction: 'Transaction',
  seeTransaction: 'See it on the explorer',
  to: 'To',
  date: 'Date',
  reference: 'Reference',
  account: 'Account',
  balance: 'It has',
};
