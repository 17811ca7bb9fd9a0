// What the page shows, as a pure function of what it knows. Nothing here touches the browser.

import { lastOfferMs } from '../../src/contract/x402.ts';
import { type Checkout, isKnown, missingUnits } from './checkout.ts';
import type { failures, notices, refusals, views } from './texts.ts';

/** A wallet as the payer sees it. The name and the icon come from the wallet, and are not trusted. */
export interface WalletLabel {
  id: string;
  name: string;
  /** A `data:` URL of an image. */
  icon?: string | undefined;
}

/** Whether the account can pay, according to the wallet's node. */
export type Funds =
  | { kind: 'unknown' }
  | { kind: 'enough' }
  | { kind: 'too-little-token'; balanceUnits: bigint }
  | { kind: 'too-little-gas' }
  | { kind: 'refused'; reason: keyof typeof refusals };

/** What is going on with a wallet in this tab. */
type Session =
  | { step: 'none' }
  | { step: 'connecting'; wallet: WalletLabel }
  | {
      step: 'connected';
      wallet: WalletLabel;
      account: `0x${string}`;
      chainId: number;
      funds: Funds;
      /** The wallet shows a request to change its network. */
      isSwitching?: boolean;
    };

/** A transfer that a wallet was asked for. */
export interface Transfer {
  /** The account that pays. */
  from: string;
  /** EIP-6963 name of the wallet, in reverse domain notation. Empty for a wallet that has none. */
  wallet: string;
  /** Milliseconds since 1970, by the service's clock. */
  askedAtMs: number;
  /** What was missing then. */
  amountUnits?: number;
  /** The account is a contract: other owners may have to confirm. */
  hasOwners?: boolean;
  /** Transactions that had paid for the intent before: none of them is this one. */
  paidBefore?: readonly string[];
  /** The transaction's hash, once the wallet has returned it. */
  hash?: string;
  /** It was given up for another one, which the wallet still shows. */
  isAskedAgain?: boolean;
}

/** What is known of the remembered transfer. */
type TransferPhase =
  /** The wallet shows the request, asked by this tab or by another one. */
  | 'asking'
  | 'asking-elsewhere'
  /** It was asked for, and the tab was closed before the wallet answered. */
  | 'unknown'
  | 'sent';

export interface Facts {
  checkout: Checkout | undefined;
  /** The server's time, in milliseconds since 1970. */
  nowMs: number;
  /** The service knows no such checkout. */
  isInvalid: boolean;
  /** Of a popup without a secret: whether the shop is still making the intent. */
  shop: 'done' | 'working' | 'failed';
  connection: 'ok' | 'offline' | 'unreachable';
  /** The intent's chain is a local stand-in, on the machine of the service. */
  isLocal: boolean;
  wallets: readonly WalletLabel[];
  /** True once wallets had time to announce themselves. */
  hasLooked: boolean;
  /** The way to pay that the payer has chosen. */
  lane: 'wallet' | 'manual' | undefined;
  session: Session;
  transfer: Transfer | undefined;
  transferPhase: TransferPhase;
  /** The payer has pressed a button to pay by a transfer, and that attempt has not ended. */
  isPaying: boolean;
  /** The wallet is asked for a signature, or the signature is sent to the service. */
  signing: 'none' | 'asking' | 'sending';
  /** The last failure, until the payer goes on. */
  failure: keyof typeof failures | undefined;
  /** Hashes of transactions that the payer says will not come back. */
  givenUp: readonly string[];
}

export const factsAtFirst: Omit<Facts, 'nowMs' | 'shop'> = {
  checkout: undefined,
  isInvalid: false,
  connection: 'ok',
  isLocal: false,
  wallets: [],
  hasLooked: false,
  lane: undefined,
  session: { step: 'none' },
  transfer: undefined,
  transferPhase: 'unknown',
  isPaying: false,
  signing: 'none',
  failure: undefined,
  givenUp: [],
};

/** The page's views. Each has its own texts. */
export type ViewName = keyof typeof views;

/** The one thing that the page shows. */
export function viewOf(facts: Facts): ViewName {
  const { checkout } = facts;
  if (facts.isInvalid) return 'invalid';
  if (checkout === undefined) {
    if (facts.shop === 'failed') return 'shop-failed';
    if (facts.shop === 'working') return 'waiting-for-shop';
    return facts.connection === 'ok' ? 'loading' : 'unreachable';
  }
  if (!isKnown(checkout)) return 'outdated';
  if (checkout.status !== 'requires_payment') return checkout.status;
  return whileUnpaid(facts, checkout);
}

/** Views in which the wallet shows a request, or may still show one. */
const askingViews: readonly ViewName[] = [
  'confirm-in-wallet',
  'reject-in-wallet',
  'sign-in-wallet',
  'unknown',
];

function whileUnpaid(facts: Facts, checkout: Checkout): ViewName {
  const onTheWay = whileOnTheWay(facts, checkout);
  const isOver = facts.nowMs > Date.parse(checkout.expires_at);
  const isAsked = onTheWay !== undefined && askingViews.includes(onTheWay);
  if (onTheWay !== undefined && !(isOver && isAsked)) return onTheWay;
  // The chain's clock decides what is in time. Another transfer could only come too late.
  if (isOver) return 'time-is-up';
  // The payer's choice, or what the intent was made for.
  if ((facts.lane ?? checkout.lane) === 'manual') return 'manual';
  // A wallet would pay on the real test network.
  if (facts.isLocal) return 'test-wallet';
  return withWallet(facts, checkout);
}

/** The view while a transfer may still arrive, in which no other one is offered. */
function whileOnTheWay({ transfer, transferPhase, givenUp, signing }: Facts, checkout: Checkout) {
  const { payments = [], authorization } = checkout;
  // Another status is newer than this page, and may still pay.
  if (signing === 'sending' || (authorization && authorization.status !== 'failed')) return 'signed';
  if (signing === 'asking') return 'sign-in-wallet';
  // A wallet that was never heard of has left no hash of what was reorged.
  const own =
    transfer &&
    payments.find(
      (payment) =>
        payment.transaction_hash === transfer.hash ||
        (payment.status === 'reorged' && isOf(transfer, payment)),
    );
  if (transfer !== undefined && own === undefined) {
    const isOutdated = (transfer.amountUnits ?? missingUnits(checkout)) !== missingUnits(checkout);
    if (transferPhase === 'asking') return isOutdated ? 'reject-in-wallet' : 'confirm-in-wallet';
    if (transferPhase === 'asking-elsewhere') return 'paying-elsewhere';
    return transferPhase;
  }
  const mayReturn = payments.some(
    (payment) =>
      payment.status === 'reorged' &&
      payment.token_address === checkout.token_address &&
      !givenUp.includes(payment.transaction_hash),
  );
  return mayReturn ? 'taken-back' : undefined;
}

/** True if the payment is open, and no wallet was asked for anything. */
export const isAtRest = ({ checkout, session, transfer, signing }: Facts): boolean =>
  checkout?.status === 'requires_payment' &&
  transfer === undefined &&
  signing === 'none' &&
  !(session.step === 'connected' && session.isSwitching);

/** The clocks of the service and of a chain differ by less than this. */
const maxClockSkewMs = 120_000;

/** True if the service has seen the transfer or its replacement: a wallet's speed-up keeps the amount. */
export function hasArrived(transfer: Transfer, { payments = [] }: Checkout): boolean {
  return payments.some((payment) => payment.status !== 'reorged' && isOf(transfer, payment));
}

function isOf(transfer: Transfer, payment: NonNullable<Checkout['payments']>[number]): boolean {
  return (
    payment.transaction_hash === transfer.hash ||
    (payment.from_address.toLowerCase() === transfer.from.toLowerCase() &&
      !isWrongToken(payment) &&
      payment.amount_units === (transfer.amountUnits ?? payment.amount_units) &&
      !transfer.paidBefore?.includes(payment.transaction_hash) &&
      Date.parse(payment.block_time) > transfer.askedAtMs - maxClockSkewMs)
  );
}

/** True if a signed payment can still arrive, or the intent no longer waits for one. */
export function isSettling({ status, authorization }: Checkout): boolean {
  return status !== 'requires_payment' || authorization?.status === 'submitted';
}

/** True if a submitted authorization can no longer be used, and has not paid. */
export function isReleased(before: Checkout | undefined, { authorization, ...now }: Checkout): boolean {
  return (
    before?.authorization?.status === 'submitted' &&
    authorization === undefined &&
    now.status === 'requires_payment' &&
    now.amount_received_units <= before.amount_received_units
  );
}

/** True if the payer can pay by signature, without the chain's own coin. */
export function canSign({ nowMs }: Pick<Facts, 'nowMs'>, { gasless, expires_at }: Checkout): boolean {
  return gasless === true && Date.parse(expires_at) - nowMs > lastOfferMs;
}

function withWallet(facts: Facts, checkout: Checkout): ViewName {
  const { session, wallets, hasLooked } = facts;
  const { chain_id } = checkout;
  if (session.step === 'connecting') return 'connecting';
  if (session.step === 'none') {
    if (wallets.length > 0) return 'choose-wallet';
    return hasLooked ? 'no-wallet' : 'loading';
  }
  if (session.chainId !== chain_id) return 'wrong-chain';
  switch (session.funds.kind) {
    case 'unknown':
      return 'connecting';
    case 'enough':
    case 'too-little-gas':
      if (canSign(facts, checkout)) return 'ready-to-sign';
      return session.funds.kind === 'enough' ? 'ready' : 'too-little-gas';
    case 'refused':
      return 'refused-by-token';
    case 'too-little-token':
      return 'too-little-token';
  }
}

/** Something the payer has to know besides the view. */
type Notice = keyof typeof notices;

/** So little time is left that a transfer may come too late. */
const hurryMs = 60_000;

/** Views in which a payer may begin to pay. */
export const offeringViews: readonly ViewName[] = [
  'test-wallet',
  'choose-wallet',
  'no-wallet',
  'wrong-chain',
  'ready',
  'ready-to-sign',
  'too-little-token',
  'too-little-gas',
  'refused-by-token',
  'manual',
];

export function isConnectedTo(session: Session, walletId: string, account: string): boolean {
  if (session.step !== 'connected' || session.wallet.id !== walletId) return false;
  return session.account.toLowerCase() === account.toLowerCase();
}

/** The notices beside the view, the most important first. */
export function noticesOf(facts: Facts, view: ViewName): readonly Notice[] {
  const { checkout, connection, failure } = facts;
  if (checkout === undefined) return [];
  const { labels = [], payments = [], status } = checkout;
  const refunds = returnedIn(checkout);
  const isOffering = offeringViews.includes(view);
  const leftMs = Date.parse(checkout.expires_at) - facts.nowMs;
  const { transfer, transferPhase, signing } = facts;
  const isAsked = (transfer !== undefined && transferPhase !== 'sent') || signing === 'asking';
  const isPartlyPaid = checkout.amount_received_units > 0 && missingUnits(checkout) > 0;
  const isLate = payments.some(
    (payment) =>
      !payment.counts &&
      payment.status !== 'reorged' &&
      !isWrongToken(payment) &&
      !payment.labels?.includes('found_late'),
  );
  const wasFoundLate = labels.includes('found_late');
  const isReturned = refunds.some((refund) => refund.status === 'confirmed');
  const candidates: readonly (readonly [Notice, boolean])[] = [
    ['offline', connection === 'offline'],
    ['unreachable', connection === 'unreachable'],
    // A wallet's window may stay open after its request is obsolete.
    ['wallet-still-asks', transfer?.isAskedAgain || (isAsked && (isSettling(checkout) || leftMs < 0))],
    ['partly-paid', isPartlyPaid && status === 'requires_payment'],
    ['returned-before-the-rest', refunds.length > 0 && isOffering],
    ['underpaid', labels.includes('underpaid')],
    // Payments found late have the label `late`, too.
    ['late', isLate || (labels.includes('late') && !wasFoundLate) || labels.includes('after_cancel')],
    ['found-late', wasFoundLate && !isReturned],
    ['wrong-token', payments.some(isWrongToken)],
    ['overpaid', labels.includes('overpaid')],
    ['reorganised', labels.includes('reorged') && status === 'succeeded'],
    ['returning', refunds.some((refund) => refund.status === 'pending')],
    ['returned', isReturned],
    ['not-sent', isOffering && checkout.authorization?.status === 'failed' && failure === undefined],
    ['hurry', isOffering && leftMs > 0 && leftMs < hurryMs],
  ];
  const notices = candidates.filter(([, applies]) => applies).map(([notice]) => notice);
  return failure !== undefined && isOffering ? [failure, ...notices] : notices;
}

/** The transfers that return money and are on the chain. */
export function returnedIn({ refunds = [] }: Checkout) {
  return refunds.filter(({ status }) => status !== 'reorged');
}

/** A payment in something other than the intent's token. */
export function isWrongToken({ labels = [] }: { labels?: readonly string[] }): boolean {
  return labels.includes('wrong_token');
}
