// All texts of the page. Amounts and names are filled in, never as markup.

/** The values in the texts. */
export interface Words {
  merchant: string;
  /** What is still missing, with the token: `12.50 USDC`. */
  missing: string;
  received: string;
  /** What was returned and confirmed. */
  returned: string;
  token: string;
  chain: string;
  feeToken: string;
  /** The wallet's own name, if one is in use. */
  wallet: string;
  /** Until when, in the payer's time zone: `14:05 CET`. */
  until: string;
  /** Until when a signed payment can arrive; empty if that is not known yet. */
  signedUntil: string;
  /** The account that pays may have other owners. */
  hasOwners: boolean;
}

/** A title, and the sentences below it. */
type Said = readonly [title: string, ...lines: string[]];

const leaving = (merchant: string) =>
  `You can close this page: we will let ${merchant} know when it arrives. To look again, open it from there.`;

/** The title and the sentences of each view. */
export const views = {
  loading: () => ['Loading your payment'],
  'waiting-for-shop': () => [
    'Preparing your payment',
    'The shop is preparing your payment. Keep this window open.',
  ],
  'shop-failed': () => [
    'Your payment could not be started',
    'Something went wrong at the shop. You were not charged. Close this window and try again.',
  ],
  invalid: () => [
    'This payment link does not work',
    'Part of it may be missing, or it is too old.',
    'If you have already paid, do not pay again: contact the shop. Otherwise go back to the shop and start the payment again.',
  ],
  unreachable: () => [
    'Your payment could not be loaded',
    'There is a problem with the connection. This page keeps trying.',
    'If you have already paid, do not pay again: your payment still counts.',
  ],
  outdated: () => [
    'Reload this page',
    'It was opened before an update, and cannot show how your payment stands now.',
    'If you have already paid, do not pay again: your payment still counts.',
  ],
  'test-wallet': ({ chain }) => [
    'Pay with test money',
    `This is a practice payment, on a copy of ${chain} that runs on this computer. You cannot pay it with a wallet of your own.`,
  ],
  'choose-wallet': () => ['Choose your wallet'],
  'no-wallet': ({ token, chain }) => [
    'No wallet found in this browser',
    `To pay, you need a wallet with ${token} on ${chain}.`,
  ],
  connecting: ({ wallet }) => [
    `Connecting to ${wallet}`,
    'If your wallet asks, let this page see your account. No money moves yet.',
  ],
  'wrong-chain': ({ wallet, chain }) => [
    `Switch to ${chain}`,
    `${wallet} is using another network. This payment is made on ${chain}. Switching is free.`,
  ],
  ready: ({ missing, merchant }) => [
    'Ready to pay',
    `Your wallet will ask you to confirm ${missing} to ${merchant}.`,
  ],
  'ready-to-sign': ({ missing, merchant, wallet, feeToken }) => [
    'Ready to pay',
    `You pay no network fee, and need no ${feeToken}. ${wallet} will show a request to sign, which may be called “TransferWithAuthorization”: it allows one payment of ${missing} to ${merchant}, and nothing else.`,
  ],
  'sign-in-wallet': ({ wallet, missing, merchant }) => [
    `Sign in ${wallet}`,
    `Open your wallet and sign the request there. It allows one payment of ${missing} to ${merchant}, and nothing else.`,
  ],
  signed: ({ chain, signedUntil, merchant }) => [
    'Payment on its way',
    `You have signed it, and it is being sent to ${chain}. That usually takes a few seconds, sometimes minutes.`,
    ...(signedUntil === ''
      ? ['Keep this page open until it is sent, and do not pay in another way.']
      : [
          `Do not pay in another way: it can arrive until ${signedUntil}. If it does not, nothing is charged. Some minutes later that is certain, and you can pay again.`,
          leaving(merchant),
        ]),
  ],
  'too-little-token': ({ token, chain, missing }) => [
    `Not enough ${token}`,
    `You need ${missing} on ${chain} in this account. Add ${token} to it, or choose another account in your wallet.`,
  ],
  'too-little-gas': ({ feeToken, chain }) => [
    `Not enough ${feeToken} for the fee`,
    `${chain} charges a small fee in ${feeToken} for every payment. Add some ${feeToken} on ${chain} to this account, or choose another account in your wallet.`,
  ],
  'refused-by-token': ({ token }) => [`${token} does not allow this payment`],
  'confirm-in-wallet': ({ wallet, missing }) => [
    `Confirm in ${wallet}`,
    `Open your wallet and confirm the payment of ${missing} there.`,
  ],
  'reject-in-wallet': ({ wallet, received, missing }) => [
    `Reject the request in ${wallet}`,
    `The amount to pay has changed: ${received} has arrived so far. Your wallet is still asking for the earlier amount. Reject that request. You can then pay the missing ${missing}.`,
  ],
  'paying-elsewhere': () => [
    'You are paying in another tab',
    'Continue in the tab where you opened your wallet. You can also see the result here.',
  ],
  unknown: () => [
    'Did your wallet send the payment?',
    'Your wallet did not tell us. Check its recent activity.',
    'If the payment is there, do not pay again. You will see it here soon after it arrives.',
  ],
  sent: ({ chain, merchant, hasOwners, until }) => [
    'Payment sent',
    `It has not arrived on ${chain} yet. That usually takes a few seconds, sometimes a minute. Do not pay again.`,
    ...(hasOwners
      ? [`If this account has other owners, they have to confirm before ${until}: later it does not count.`]
      : []),
    leaving(merchant),
  ],
  'taken-back': ({ chain }) => [
    'Your payment is delayed',
    `${chain} has replaced its newest blocks, and your payment is not in the new ones yet. This is rare, and the payment usually comes back. Do not pay again.`,
  ],
  manual: ({ token, chain, until }) => [
    'Send the payment by hand',
    `Send exactly this amount to this address before ${until}. Use ${token} on ${chain} only: anything else does not count and may be lost.`,
    `Have you sent it? Do not send it again. It is shown here once it is on ${chain}, which can take a while from an exchange.`,
  ],
  processing: ({ merchant }) => [
    'Payment received',
    `The network is confirming it. You can close this page: we will let ${merchant} know when it is done.`,
  ],
  succeeded: ({ merchant }) => ['Paid', `Thank you. Your payment to ${merchant} is complete.`],
  'time-is-up': ({ chain }) => [
    'The time to pay is over',
    'Do not send any money now.',
    `If you paid in time, your payment still counts: we are checking the last blocks on ${chain}. While ${chain} is not producing blocks, this takes longer, but your payment is not lost.`,
  ],
  expired: ({ merchant }) => [
    'This payment has expired',
    `Do not send any money now. If you have sent it already, do not pay again: contact ${merchant}. Otherwise you can start again there.`,
  ],
  canceled: ({ merchant }) => [
    'This payment was canceled',
    `${merchant} canceled it. Do not send any money now. If you have sent it already, contact them.`,
  ],
} satisfies Record<string, (words: Words) => Said>;

/** Why an attempt to pay has failed. */
export const failures = {
  rejected: () => 'You rejected the request in your wallet. Nothing was sent.',
  'transfer-rejected': () =>
    'Your wallet says that you rejected the payment. If a hardware wallet or a phone still shows it, reject it there, too: otherwise you may pay twice.',
  'wallet-busy': () =>
    'Your wallet is already showing another request. Open your wallet and answer it first.',
  'wallet-failed': () =>
    'Something went wrong in your wallet. Nothing was sent. Try again, or choose another wallet.',
  'device-old': () =>
    'Your hardware wallet could not sign the payment. Nothing was sent. Update its Ethereum app, to 1.20 or newer on a Ledger, or choose another wallet.',
  'chain-refused': ({ chain }) =>
    `Your wallet did not switch to ${chain}. Switch the network in your wallet.`,
  reverted: () =>
    'The payment failed on the network. You paid the network fee, and no other money moved. You can pay again.',
  storage: () =>
    'Your browser does not let this page save anything, so it cannot protect you from paying twice. Leave private browsing, or send the payment by hand.',
  changed: () => 'Something changed while you were paying. Check the amount before you continue.',
  'not-asked': () => 'The service did not answer, so your wallet was not asked. Try again.',
  'sign-refused': () =>
    'The payment was not accepted, and you were not charged. Pay with the network fee, or choose another account in your wallet.',
  'sign-too-little': ({ missing, token }) =>
    `This account does not have ${missing}. You were not charged. Add ${token} to it, or choose another account in your wallet.`,
  'sign-contract': ({ token }) =>
    `${token} does not accept signatures from this account. You were not charged. Pay with the network fee, or choose another account in your wallet.`,
  'sign-lapsed': () =>
    'The payment that you signed was not sent in time, and can no longer arrive. You were not charged. Pay again.',
  'sign-wallet': () => 'Your wallet did not sign. Nothing was sent. Try again, or pay with the network fee.',
  'test-wallet': () => 'The test wallet could not pay. The log of the service says why.',
} satisfies Record<string, (words: Words) => string>;

/** What the page says besides its view. */
export const notices = {
  offline: () => 'You are offline. This page may be out of date. If you have paid, do not pay again.',
  unreachable: () =>
    'There is a problem with the connection. This page may be out of date, and keeps trying. If you have paid, do not pay again.',
  'wallet-still-asks': () => 'If your wallet still asks you to confirm this payment, reject it there.',
  'partly-paid': ({ received, missing }) => `${received} has arrived. ${missing} is still missing.`,
  'returned-before-the-rest': ({ merchant }) =>
    `${merchant} has returned or is returning money that you paid. Ask them before you pay the rest.`,
  underpaid: ({ received, merchant }) =>
    `Only ${received} arrived, which is less than the price. Contact ${merchant} about it.`,
  late: ({ merchant }) =>
    `Money arrived that does not count towards this payment. ${merchant} can see it: contact them about it.`,
  'found-late': ({ merchant }) =>
    `Money that you sent in time was found only after the expiry. ${merchant} can see it: contact them about it, and do not pay again.`,
  'wrong-token': ({ token, merchant }) =>
    `Something other than ${token} arrived. It does not count towards this payment. ${merchant} can see it: contact them about it.`,
  overpaid: ({ merchant }) =>
    `More than the price arrived. ${merchant} can see it: contact them about the difference.`,
  reorganised: ({ merchant }) =>
    `The network replaced some of its blocks after your payment was confirmed. ${merchant} can see it. Do not pay again.`,
  returning: ({ merchant }) =>
    `${merchant} is returning money. The network is still confirming the transfer below.`,
  returned: ({ merchant, returned }) =>
    `${merchant} has returned ${returned}. The date and the account are below.`,
  hurry: () => 'Less than a minute is left. A payment that arrives later does not count.',
  'not-sent': () =>
    'Your signed payment could not be sent. You were not charged. Try again, or pay with the network fee.',
  ...failures,
} satisfies Record<string, (words: Words) => string>;

/** Why the token refuses the payment. */
export const refusals = {
  blacklisted: ({ token }) =>
    `The issuer of ${token} has blocked this account or the account of the shop. Choose another account in your wallet, or contact the shop.`,
  paused: ({ token, chain }) =>
    `The issuer has paused ${token} on ${chain}. Nobody can pay with it at the moment. Try again later.`,
  other: ({ token }) =>
    `${token} cannot be sent from this account. Choose another account in your wallet, or contact the shop.`,
} satisfies Record<string, (words: Words) => string>;

export const labels = {
  amountDue: 'Amount due',
  on: 'on',
  payBefore: 'Pay before',
  timeLeft: (time: string) => `${time} left`,
  pay: ({ missing }: Words) => `Pay ${missing}`,
  sign: ({ missing }: Words) => `Pay ${missing} without network fee`,
  withFee: 'Pay with the network fee',
  testSign: 'Pay without network fee',
  switchChain: ({ chain }: Words) => `Switch to ${chain}`,
  checkAgain: 'Check again',
  tryAnyway: 'My wallet pays the fee in another way',
  otherWallet: 'Choose another wallet',
  manual: 'Send the payment by hand',
  wallets: 'Pay with a wallet',
  reload: 'Try again',
  reloadPage: 'Reload',
  notSent: 'It was not sent: pay again',
  failed: 'It failed: pay again',
  notSentHint:
    'If your wallet did not send it, you can pay again. If your wallet still shows the request, reject it first, or you may pay twice.',
  notSignedHint:
    'Nothing is sent before you sign. If your wallet still shows the request, reject it there, and start again.',
  signAgain: 'Start again',
  noAnswer: 'No request in your wallet?',
  waitedLong: 'Taking too long?',
  notComing:
    'Look up the payment in your wallet. If it failed or was dropped, it will not arrive, and you can pay again. Otherwise keep waiting.',
  address: 'Address',
  amount: 'Amount',
  network: 'Network',
  link: 'Link to this page',
  copy: 'Copy',
  copied: 'Copied',
  notCopied: 'Not copied',
  notCopiedHint: 'Your browser did not copy it. Select the text and copy it yourself.',
  qr: 'Continue on your phone',
  qrHint: 'Scan this code with the phone that has your wallet. It opens this page there.',
  waiting: 'Waiting for your payment',
  openInWallet: 'Open this page in a wallet app',
  openInWalletHint:
    'If nothing happens, the app is not installed. You can also copy the link and open it in the browser of your wallet app. If this page is already open there, reload it.',
  testLess: 'Pay too little',
  testMore: 'Pay too much',
  testMoney: 'Test money',
  confirmations: (count: number, required: number) => `${count} of ${required} confirmations`,
  leave: ({ merchant }: Words) => `Back to ${merchant} without paying`,
  back: ({ merchant }: Words) => `Back to ${merchant}`,
  closeWindow: 'You can close this window.',
  /** A payment is not called paid until it is final. */
  payment: 'Payment',
  receipt: 'Receipt',
  paidAmount: 'Paid',
  refund: 'Money returned',
  returnedAmount: 'Returned',
  otherToken: 'Another token',
  transaction: 'Transaction',
  seeTransaction: 'on the explorer',
  to: 'To',
  date: 'Date',
  reference: 'Reference',
  account: 'Account',
  balance: 'Balance',
};
