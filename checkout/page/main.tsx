// The payer's page. It asks the service for the payment's state and a wallet for the transfer, and shows what
// `state.ts` derives from both. The service decides: a wallet's answer only changes what is shown.

import './translatable.ts';
import { render } from 'preact';
import { type Checkout, missingUnits } from './checkout.ts';
import { followCheckout } from './feed.ts';
import { Page } from './page.tsx';
import type { Actions } from './parts.tsx';
import { type Opening, rememberOpening, returnUrlOf, secretFromShop, takeOpening, tellShop } from './shop.ts';
import { createSigning, createTestWallet, storedSignatures } from './signing.ts';
import type { Facts, Funds, Transfer } from './state.ts';
import { factsAtFirst, hasArrived, isAtRest, isConnectedTo, isReleased, viewOf } from './state.ts';
import { isBeingAsked, onChangeOfAnotherTab, storedTransfers, withWalletLock } from './transfer.ts';
import {
  cannotRead,
  findWallets,
  inTime,
  isRefusal,
  paymentCall,
  refusalOf,
  type Wallet,
} from './wallets.ts';

/** How often the wallet's node is asked about a transaction that was sent. */
const checkTransferEveryMs = 5_000;

const opening: Opening = takeOpening();
const root = document.getElementById('page') as HTMLElement;
root.replaceChildren();
const standIns = document.querySelector<HTMLMetaElement>('meta[name=test-wallet]')?.content.split(' ') ?? [];
const isPhone = matchMedia('(pointer: coarse) and (max-width: 60rem)').matches;

let feed: ReturnType<typeof followCheckout> | undefined;
const serverNowMs = () => feed?.serverNowMs() ?? Date.now();
let wallets: readonly Wallet[] = [];
/** Increases when the payer leaves a wallet, whose later answers are ignored. */
let sessionNumber = 0;
/** Increases when the payer chooses another way to pay: failures of an earlier one are not shown. */
let choices = 0;
let lastCheckedMs = Number.NEGATIVE_INFINITY;

const facts: Facts = { ...factsAtFirst, nowMs: serverNowMs(), shop: opening.secret ? 'done' : 'working' };

function change(changes: Partial<Facts>): void {
  Object.assign(facts, changes);
  paint();
}

let paintedView = '';

function paint(): void {
  const { checkout } = facts;
  facts.nowMs = serverNowMs();
  const hadFocus = document.activeElement !== document.body;
  render(
    <Page
      facts={facts}
      act={actions}
      link={`${location.origin}${location.pathname}#${opening.secret ?? ''}`}
      returnUrl={checkout && returnUrlOf(opening, checkout)}
      isPopup={window.opener !== null}
      isPhone={isPhone}
    />,
    root,
  );
  const view = viewOf(facts);
  // The button that had the focus is gone.
  if (view !== paintedView && hadFocus && document.activeElement === document.body) {
    document.getElementById('title')?.focus();
  }
  paintedView = view;
  // Like the page itself, it says "paid" only when that is final.
  const word = checkout?.status === 'succeeded' ? 'Paid' : 'Payment';
  document.title = checkout === undefined ? word : `${word} to ${checkout.merchant_name}`;
}

const reorgedIn = ({ payments = [] }: Checkout) =>
  payments.filter(({ status }) => status === 'reorged').map(({ transaction_hash }) => transaction_hash);

/** Follows the checkout that the secret opens. */
function follow(secret: string): void {
  feed = followCheckout(secret, {
    onCheckout(checkout) {
      const isFirst = facts.checkout === undefined;
      const hasChanged = facts.checkout?.status !== checkout.status;
      const isOther = facts.checkout !== undefined && missingUnits(facts.checkout) !== missingUnits(checkout);
      if (facts.signing === 'none' && isReleased(facts.checkout, checkout)) facts.failure = 'sign-lapsed';
      // One that has returned may be reorged again.
      const reorged = reorgedIn(checkout);
      change({
        checkout,
        givenUp: facts.givenUp.filter((hash) => reorged.includes(hash)),
        isLocal: checkout.mode === 'testnet' && standIns.includes(checkout.chain),
      });
      if (isFirst) begin(checkout);
      forgetArrivedTransfer(checkout);
      // The account may have enough for the new amount, or no longer.
      if (isOther && !facts.isPaying && isAtRest(facts)) actions.checkAgain();
      if (hasChanged) tellShop(opening, checkout);
    },
    onInvalid() {
      tellShop(opening);
      rememberOpening({});
      change({ isInvalid: true });
    },
    onConnection: (connection) => change({ connection }),
    isAwaiting: () => ['sent', 'signed'].includes(viewOf(facts)),
  });
}

/** Starts what needs the first answer. */
function begin({ id }: Checkout): void {
  void readMemory(id);
  onChangeOfAnotherTab(id, () => void readMemory(id));
  if (facts.isLocal) return;
  findWallets((found, hasLooked) => {
    wallets = found;
    change({ wallets: found, hasLooked });
    void resumeSession();
  });
}

/** Reads what this browser has stored: another tab may have asked a wallet since. */
function readMemory(intentId: string): Promise<void> {
  signing.resume(intentId);
  return readTransfer(intentId);
}

/** Reads what this browser remembers of a transfer. */
async function readTransfer(intentId: string): Promise<void> {
  const isAsking = facts.transferPhase === 'asking' && facts.transfer !== undefined;
  const transfer = storedTransfers.get(intentId);
  if (transfer?.hash !== undefined) {
    // The payer also has to reject what this tab still asks for.
    const sent = isAsking ? { ...transfer, isAskedAgain: true } : transfer;
    return change({ transfer: sent, transferPhase: 'sent' });
  }
  // This tab is asking a wallet: nothing stored is newer.
  if (isAsking) return;
  const transferPhase = (await isBeingAsked(intentId)) ? 'asking-elsewhere' : 'unknown';
  const now = storedTransfers.get(intentId);
  if (now?.askedAtMs !== transfer?.askedAtMs || now?.hash !== undefined) return readTransfer(intentId);
  change({ transfer, transferPhase });
  if (facts.checkout !== undefined) forgetArrivedTransfer(facts.checkout);
}

/** Forgets the transfer once the service has seen it: from then on, the service reports its state. */
function forgetArrivedTransfer(checkout: Checkout): void {
  const { transfer, transferPhase } = facts;
  // The page has to wait for a wallet that still asks.
  if (transfer === undefined || transferPhase === 'asking' || transfer.isAskedAgain) return;
  if (hasArrived(transfer, checkout)) forgetTransfer(checkout.id);
}

/** Forgets what was only asked for, unless another tab has sent something since. */
function forgetUnsent(intentId: string): void {
  const stored = storedTransfers.get(intentId);
  if (stored?.hash === undefined || stored.hash === facts.transfer?.hash) forgetTransfer(intentId);
  else change({ transfer: stored, transferPhase: 'sent' });
}

function forgetTransfer(intentId: string): void {
  storedTransfers.set(intentId, undefined);
  change({ transfer: undefined, transferPhase: 'unknown' });
}

function walletOfSession(): Wallet | undefined {
  const { session } = facts;
  return session.step === 'none' ? undefined : wallets.find(({ id }) => id === session.wallet.id);
}

/** Reconnects to the wallet of a remembered transfer, without asking the payer. */
async function resumeSession(): Promise<void> {
  const { transfer, session, checkout } = facts;
  const wallet = wallets.find(({ id }) => id === transfer?.wallet);
  if (wallet === undefined || session.step !== 'none' || checkout === undefined) return;
  const account = await wallet.account(true).catch(() => undefined);
  if (account === undefined || facts.session.step !== 'none') return;
  await attempt(() => connectWith(wallet, account));
}

function leaveSession(): number {
  choices++;
  return ++sessionNumber;
}

const subscribed = new Set<string>();

/** Asks the wallet for its chain, and for the funds of the account. */
async function connectWith(wallet: Wallet, account: `0x${string}`): Promise<void> {
  const number = ++sessionNumber;
  await readWallet(wallet, account, number).catch((reason) => {
    // Otherwise it was asked again meanwhile, and only that answer counts.
    if (number === sessionNumber) throw reason;
  });
}

async function readWallet(wallet: Wallet, account: `0x${string}`, number: number): Promise<void> {
  const { checkout } = facts;
  if (checkout === undefined) return;
  const set = (session: Facts['session']) => {
    if (number === sessionNumber) change({ session });
  };
  const connected = { step: 'connected', wallet, account } as const;
  const chainId = await wallet.chainId();
  set({ ...connected, chainId, funds: { kind: 'unknown' } });
  if (!subscribed.has(wallet.id)) {
    subscribed.add(wallet.id);
    wallet.onChange(() => void onWalletChange(wallet));
  }
  if (chainId !== checkout.chain_id) return;
  const funds = await wallet.fundsFor(checkout, account).catch((reason): Funds => {
    // The wallet checks the balance when it sends.
    if (cannotRead(reason)) return { kind: 'enough' };
    throw reason;
  });
  set({ ...connected, chainId, funds });
}

async function onWalletChange(wallet: Wallet): Promise<void> {
  // The same wallet may have been found again since, as another object.
  if (walletOfSession()?.id !== wallet.id) return;
  await attempt(async () => {
    const account = await wallet.account(true);
    if (account !== undefined) await connectWith(wallet, account);
    // While the payer is asked, the wallet itself says whether they refuse.
    else if (facts.session.step !== 'connecting') actions.leaveWallet();
  });
}

/** Runs work that asks a wallet. A failure is shown, and the payer returns to the choice of wallets. */
async function attempt(work: () => Promise<void>): Promise<void> {
  const before = choices;
  try {
    await work();
  } catch (reason) {
    // The payer has gone on without that wallet.
    if (choices !== before) return;
    sessionNumber++;
    change({ failure: refusalOf(reason), session: { step: 'none' } });
  }
}

/** Asks the wallet for the transfer, unless something has changed meanwhile. */
async function askForTransfer(wallet: Wallet, isFeeChecked: boolean): Promise<void> {
  const { checkout: before, session } = facts;
  if (before === undefined || session.step !== 'connected') return;
  const { account } = session;
  const chainId = await inTime(wallet.chainId());
  // An account that cannot be read may have other owners.
  const hasOwners = await inTime(wallet.isContract(account)).catch(cannotRead);
  // Gets the service's newest answer, right before asking.
  await feed?.refresh();
  const { checkout } = facts;
  // The payer may have gone on with another wallet or account.
  if (checkout === undefined || !isConnectedTo(facts.session, wallet.id, account)) return;
  const isSame =
    checkout.amount_received_units === before.amount_received_units &&
    chainId === checkout.chain_id &&
    facts.connection === 'ok' &&
    storedTransfers.get(checkout.id) === undefined &&
    storedSignatures.get(checkout.id) === undefined &&
    ['ready', ...(isFeeChecked ? [] : ['too-little-gas', 'ready-to-sign'])].includes(viewOf(facts));
  if (!isSame) {
    change({ failure: facts.connection === 'ok' ? 'changed' : 'not-asked' });
    void readMemory(checkout.id);
    void attempt(() => connectWith(wallet, account));
    return;
  }
  const paidBefore = (checkout.payments ?? []).map(({ transaction_hash }) => transaction_hash);
  const amountUnits = missingUnits(checkout);
  const asked = { from: account, wallet: wallet.id, askedAtMs: serverNowMs(), amountUnits, paidBefore };
  const transfer = { ...asked, ...(hasOwners && { hasOwners }) };
  try {
    storedTransfers.set(checkout.id, transfer);
  } catch {
    return change({ failure: 'storage' });
  }
  change({ transfer, transferPhase: 'asking', failure: undefined });
  const answered = wallet.send(paymentCall(checkout), account, checkout.chain_id).then(
    (hash) => noteHash(checkout.id, transfer, hash),
    (reason) => noteRefusal(checkout.id, transfer, reason),
  );
  // A wallet whose window was closed may never answer. A late answer is still noted.
  await Promise.race([answered, new Promise<void>((resolve) => (onGiveUp = resolve))]);
}

let onGiveUp = () => {};

/** The wallet has sent the transfer, maybe while it asks for another one that the payer has begun since. */
function noteHash(intentId: string, transfer: Transfer, hash: string): void {
  const other = facts.transfer === transfer ? undefined : facts.transfer;
  if (other?.hash === undefined) noteSent(intentId, { ...transfer, hash, isAskedAgain: other !== undefined });
}

function noteSent(intentId: string, sent: Transfer): void {
  storedTransfers.set(intentId, sent);
  // A wallet that signs the same transaction again gets the same hash.
  const givenUp = facts.givenUp.filter((hash) => hash !== sent.hash);
  change({ transfer: sent, transferPhase: 'sent', givenUp });
  if (facts.checkout !== undefined) forgetArrivedTransfer(facts.checkout);
}

/** The wallet has not sent the transfer, or its answer is unclear. */
function noteRefusal(intentId: string, transfer: Transfer, reason: unknown): void {
  if (facts.transfer !== transfer) return;
  const refusal = refusalOf(reason);
  const isRejected = refusal === 'rejected';
  // A wallet may also report this for a transaction that it has put before the account's other owners.
  if (isRefusal(reason) && !(isRejected && transfer.hasOwners)) {
    forgetUnsent(intentId);
    change({ failure: isRejected ? 'transfer-rejected' : refusal });
  } else change({ transferPhase: 'unknown' });
}

function pay(isFeeChecked: boolean): void {
  const wallet = walletOfSession();
  const { checkout } = facts;
  if (wallet === undefined || checkout === undefined || facts.isPaying) return;
  change({ isPaying: true });
  void attempt(async () => {
    const failure = await withWalletLock(checkout.id, () => askForTransfer(wallet, isFeeChecked));
    if (failure === undefined) return;
    await readMemory(checkout.id);
    if (facts.transfer === undefined && facts.signing === 'none') change({ failure });
  }).finally(() => {
    change({ isPaying: false });
    const { transfer } = facts;
    if (transfer?.isAskedAgain) noteSent(checkout.id, { ...transfer, isAskedAgain: false });
  });
}

const context = {
  facts,
  secret: () => opening.secret ?? '',
  change,
  refresh: async () => feed?.refresh(),
  readMemory,
  serverNowMs,
};
const signing = createSigning(context);
const payWithTestWallet = createTestWallet(context);

/** Checks whether another tab has finished, and whether the transaction that was sent has reverted. */
async function checkTransfer(): Promise<void> {
  const { transfer, transferPhase, checkout } = facts;
  if (transfer === undefined || checkout === undefined) return;
  if (transferPhase === 'asking-elsewhere') return readTransfer(checkout.id);
  const wallet = walletOfSession();
  if (transfer.hash === undefined || wallet === undefined) return;
  // Not the time of day, which may be set back.
  if (performance.now() - lastCheckedMs < checkTransferEveryMs) return;
  lastCheckedMs = performance.now();
  if (!(await wallet.isReverted(transfer.hash))) return;
  // Meanwhile the payer may have begun another payment, also in another tab.
  if (storedTransfers.get(checkout.id)?.hash !== transfer.hash) return;
  forgetTransfer(checkout.id);
  change({ failure: 'reverted' });
}

const actions: Actions = {
  choose(walletId) {
    const wallet = wallets.find(({ id }) => id === walletId);
    if (wallet === undefined) return;
    const number = leaveSession();
    change({ failure: undefined, session: { step: 'connecting', wallet } });
    void attempt(async () => {
      const account = await wallet.account();
      // The payer has gone on without it.
      if (number === sessionNumber && account !== undefined) await connectWith(wallet, account);
    });
  },
  leaveWallet() {
    leaveSession();
    change({ session: { step: 'none' }, failure: undefined });
  },
  switchChain() {
    const { session, checkout } = facts;
    const wallet = walletOfSession();
    if (wallet === undefined || checkout === undefined || session.step !== 'connected') return;
    change({ failure: undefined, session: { ...session, isSwitching: true } });
    const choice = choices;
    wallet
      .switchChain(checkout.chain_id)
      .catch((reason) => {
        const refusal = refusalOf(reason);
        if (choice === choices) change({ failure: refusal === 'wallet-failed' ? 'chain-refused' : refusal });
      })
      .then(() => {
        // The payer may have gone on without it.
        if (choice === choices) void attempt(() => connectWith(wallet, session.account));
      });
  },
  checkAgain() {
    const { session } = facts;
    const wallet = walletOfSession();
    if (wallet === undefined || session.step !== 'connected') return;
    void attempt(() => connectWith(wallet, session.account));
  },
  pay: () => pay(true),
  sign: () => void signing.sign(walletOfSession()),
  payAnyway: () => pay(false),
  take(lane) {
    leaveSession();
    change({ lane, session: { step: 'none' }, failure: undefined });
  },
  reload: () => void feed?.refresh(),
  giveUp() {
    const { checkout } = facts;
    if (facts.signing === 'asking') return signing.giveUp();
    if (checkout === undefined) return;
    // The payer speaks of what the page shows: a reorged payment beside the transfer may still return.
    const givenUp = viewOf(facts) === 'taken-back' ? reorgedIn(checkout) : facts.givenUp;
    change({ givenUp, failure: undefined });
    forgetUnsent(checkout.id);
    onGiveUp();
  },
  payWithTestWallet: (amount) => void payWithTestWallet(amount),
};

// A page that is back from the browser's history has missed what other tabs did.
addEventListener('pageshow', ({ persisted }) => {
  if (persisted && facts.checkout !== undefined && !facts.isLocal) void readMemory(facts.checkout.id);
});
// The way back led to another checkout of this tab, or another link was opened in it.
const { opening: openedAs } = history.state ?? {};
addEventListener('popstate', () => {
  if (history.state?.opening !== openedAs) location.reload();
});
addEventListener('hashchange', () => {
  if (location.hash.length > 1) location.reload();
});
setInterval(() => {
  paint();
  void checkTransfer().catch(() => {});
}, 1_000);

if (opening.secret !== undefined) follow(opening.secret);
else if (opening.opener !== undefined && window.opener !== null) {
  const onLate = () => opening.secret === undefined && change({ shop: 'failed' });
  void secretFromShop(opening.opener, onLate).then((secret) => {
    if (secret === undefined) return change({ shop: 'failed' });
    opening.secret = secret;
    rememberOpening(opening);
    change({ shop: 'done' });
    follow(secret);
  });
} else facts.isInvalid = true;
paint();
