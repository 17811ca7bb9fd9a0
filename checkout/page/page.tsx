// The page as it looks for what is known. Names of merchants and wallets are text, never markup.

import type { ComponentChildren } from 'preact';
import { encode } from 'uqr';
import { plainAmount, shownAmount } from './amount.ts';
import { chainFacts } from './chains.ts';
import { type Checkout, counts, fewestConfirmations, missingUnits } from './checkout.ts';
import { type Facts, noticesOf, offeringViews, type ViewName, viewOf } from './state.ts';
import { labels, notices, refusals, views, type Words } from './texts.ts';

/** What a payer can do. */
export interface Actions {
  choose(walletId: string): void;
  leaveWallet(): void;
  switchChain(): void;
  checkAgain(): void;
  /** Pays although the account seems to lack the fee. */
  payAnyway(): void;
  pay(): void;
  take(lane: 'wallet' | 'manual'): void;
  reload(): void;
  /** The payer says that nothing is on its way any more. */
  giveUp(): void;
  copy(what: CopyName): void;
  payWithTestWallet(amount: TestAmount): void;
}

export type CopyName = 'address' | 'amount' | 'link';
export type TestAmount = 'exact' | 'too_little' | 'too_much';

interface PageProps {
  facts: Facts;
  act: Actions;
  /** What was copied last, and whether it was. */
  copied: { what: CopyName; isDone: boolean } | undefined;
  /** The URL of this checkout. */
  link: string;
  returnUrl: string | undefined;
  /** The shop has opened this window, so it can be closed. */
  isPopup: boolean;
  isPhone: boolean;
}

export function Page(props: PageProps) {
  const { facts } = props;
  const { checkout } = facts;
  const view = viewOf(facts);
  const words = wordsOf(facts);
  const { title, lines = [] } = views[view](words);
  // Until the amount is known, there is no other heading.
  const Title = checkout === undefined ? 'h1' : 'h2';
  return (
    <main
      data-status={checkout?.status ?? (view === 'invalid' ? 'invalid' : 'loading')}
      data-view={view}
      data-connection={facts.connection}
    >
      {checkout && <Summary checkout={checkout} view={view} words={words} nowMs={facts.nowMs} />}
      <div class="notices" role="status">
        {noticesOf(facts, view).map((notice) => (
          <p key={notice} class="notice" data-notice={notice}>
            {notices[notice](words)}
          </p>
        ))}
      </div>
      <section class="step" aria-labelledby="title" data-tone={toneOf(view)}>
        <div role="status">
          <Title id="title" class="title" tabIndex={-1}>
            <Sign view={view} />
            {title}
          </Title>
        </div>
        {lines.map((line) => (
          <p key={line}>{line}</p>
        ))}
        {checkout ? (
          <Step {...props} checkout={checkout} view={view} words={words} />
        ) : (
          <Start {...props} view={view} />
        )}
        {props.returnUrl !== undefined && offeringViews.includes(view) && (
          <ReturnLink url={props.returnUrl} label={labels.leave(words)} />
        )}
      </section>
      {checkout && <Footer checkout={checkout} isStandIn={facts.isStandIn} />}
    </main>
  );
}

function wordsOf({ checkout, session }: Facts): Words {
  const shown = (units: number) =>
    checkout === undefined ? '' : `${shownAmount(units, checkout.decimals)} ${checkout.token_symbol}`;
  const { name = '', feeToken = '' } = checkout === undefined ? {} : chainFacts(checkout.chain_id);
  return {
    merchant: checkout?.merchant_name ?? '',
    missing: checkout === undefined ? '' : shown(missingUnits(checkout)),
    received: shown(checkout?.amount_received_units ?? 0),
    token: checkout?.token_symbol ?? '',
    chain: name,
    feeToken,
    wallet: session.step === 'none' ? 'your wallet' : session.wallet.name,
    until: checkout === undefined ? '' : timeOfDay(Date.parse(checkout.expires_at)),
  };
}

function timeOfDay(ms: number): string {
  return new Date(ms).toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit' });
}

const good: readonly ViewName[] = ['processing', 'succeeded', 'sent'];
const over: readonly ViewName[] = ['expired', 'canceled', 'invalid', 'shop-failed', 'time-is-up'];
const waiting: readonly ViewName[] = [
  'loading',
  'waiting-for-shop',
  'connecting',
  'confirm-in-wallet',
  'paying-elsewhere',
  'sent',
  'taken-back',
  'time-is-up',
];

function toneOf(view: ViewName): string {
  if (good.includes(view)) return 'good';
  return over.includes(view) ? 'over' : 'plain';
}

/** A sign beside the title: never the only one to say it. */
function Sign({ view }: { view: ViewName }) {
  if (waiting.includes(view)) return <span class="sign spinner" aria-hidden="true" />;
  const path = view === 'succeeded' || view === 'processing' ? 'M5 12.5l4.5 4.5L19 7.5' : undefined;
  if (path !== undefined) return <Icon path={path} />;
  return over.includes(view) ? <Icon path="M12 6v8M12 17.5v.5" /> : null;
}

function Icon({ path }: { path: string }) {
  return (
    <svg class="sign" viewBox="0 0 24 24" aria-hidden="true">
      <circle cx="12" cy="12" r="11" />
      <path d={path} />
    </svg>
  );
}

interface SummaryProps {
  checkout: Checkout;
  view: ViewName;
  words: Words;
  nowMs: number;
}

/** Who is paid, and what. */
function Summary({ checkout, view, words, nowMs }: SummaryProps) {
  const { amount_units, decimals, token_symbol, status, expires_at, mode } = checkout;
  const leftMs = Date.parse(expires_at) - nowMs;
  const isOpen = status === 'requires_payment' && view !== 'time-is-up' && leftMs > 0;
  return (
    <header>
      <p class="merchant">{words.merchant}</p>
      <h1>
        <span class="hidden">{labels.amountDue}: </span>
        <span class="amount">{shownAmount(amount_units, decimals)}</span>{' '}
        <span class="token">{token_symbol}</span>
      </h1>
      <p class="facts">
        <span>on {words.chain}</span>
        {isOpen && <span class="time">{labels.timeLeft(durationOf(leftMs))}</span>}
      </p>
      {mode === 'testnet' && <p class="badge">{labels.testnet}</p>}
    </header>
  );
}

function durationOf(ms: number): string {
  const seconds = Math.ceil(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h` : `${Math.floor(hours / 24)} days`;
}

/** What can be done before the checkout is known. */
function Start({ act, view }: PageProps & { view: ViewName }) {
  if (view !== 'unreachable') return null;
  return <Button action="retry" label={labels.reload} onClick={act.reload} isMain />;
}

interface StepProps extends PageProps {
  checkout: Checkout;
  view: ViewName;
  words: Words;
}

/** What can be done in this view. */
function Step(props: StepProps) {
  const { act, facts, words } = props;
  const { session } = facts;
  switch (props.view) {
    case 'test-wallet':
      return <TestWallet {...props} />;
    case 'choose-wallet':
      return (
        <>
          <ul class="wallets">
            {facts.wallets.map(({ id, name, icon }) => (
              <li key={id}>
                <button type="button" data-action="wallet" data-rdns={id} onClick={() => act.choose(id)}>
                  {icon ? (
                    <img src={icon} alt="" width="32" height="32" />
                  ) : (
                    <span class="letter" aria-hidden="true">
                      {[...name][0]}
                    </span>
                  )}
                  <span class="name">{name}</span>
                </button>
              </li>
            ))}
          </ul>
          <ByHand {...props} />
        </>
      );
    case 'no-wallet':
      return (
        <>
          <Button action="manual" label={labels.manual} onClick={() => act.take('manual')} isMain />
          {props.isPhone && <WalletApps {...props} />}
          <Copy {...props} what="link" label={labels.copyLink} />
        </>
      );
    case 'wrong-chain':
      return (
        <>
          <Button
            action="switch-chain"
            label={labels.switchChain(words)}
            onClick={act.switchChain}
            isBusy={session.step === 'connected' && session.isSwitching === true}
            isMain
          />
          <OtherWallet {...props} />
        </>
      );
    case 'ready':
      return (
        <>
          <Account {...props} />
          <Button action="pay" label={labels.pay(words)} onClick={act.pay} isMain />
          <OtherWallet {...props} />
        </>
      );
    case 'too-little-token':
      return (
        <>
          <Account {...props} />
          <Button action="retry" label={labels.checkAgain} onClick={act.checkAgain} isMain />
          <OtherWallet {...props} />
        </>
      );
    case 'too-little-gas':
      return (
        <>
          <Account {...props} />
          <Button action="retry" label={labels.checkAgain} onClick={act.checkAgain} isMain />
          <Button action="pay" label={labels.tryAnyway} onClick={act.payAnyway} />
          <OtherWallet {...props} />
        </>
      );
    case 'refused-by-token':
      return (
        <>
          {session.step === 'connected' && session.funds.kind === 'refused' && (
            <p>{refusals[session.funds.reason](words)}</p>
          )}
          <Account {...props} />
          <Button action="retry" label={labels.checkAgain} onClick={act.checkAgain} isMain />
          <OtherWallet {...props} />
        </>
      );
    case 'connecting':
      return <OtherWallet {...props} />;
    case 'unknown':
      return (
        <>
          <p>{labels.notSentHint}</p>
          <Button action="not-sent" label={labels.notSent} onClick={act.giveUp} />
        </>
      );
    case 'confirm-in-wallet':
      return <WayOut {...props} question={labels.noAnswer} hint={labels.notSentHint} />;
    case 'sent':
    case 'taken-back':
      return (
        <>
          <OwnTransaction {...props} />
          <WayOut {...props} question={labels.waitedLong} hint={labels.notComing} />
        </>
      );
    case 'manual':
      return <Manual {...props} />;
    case 'processing':
      return (
        <>
          <Confirmations checkout={props.checkout} />
          <Receipt {...props} />
          <WayBack {...props} />
        </>
      );
    case 'succeeded':
      return (
        <>
          <WayBack {...props} isMain />
          <Receipt {...props} />
        </>
      );
    case 'expired':
    case 'canceled':
      return (
        <>
          <WayBack {...props} isMain />
          {(props.checkout.payments?.length ?? 0) > 0 && <Receipt {...props} />}
        </>
      );
    default:
      return null;
  }
}

interface ButtonProps {
  action: string;
  label: string;
  onClick: () => void;
  isMain?: boolean;
  /** It has been pressed, and its work is not done. */
  isBusy?: boolean;
}

function Button({ action, label, onClick, isMain = false, isBusy = false }: ButtonProps) {
  return (
    <button
      type="button"
      class={isMain ? 'main' : 'quiet'}
      data-action={action}
      aria-disabled={isBusy}
      onClick={isBusy ? undefined : onClick}
    >
      {label}
    </button>
  );
}

/** For a payer who knows that nothing is on its way. */
function WayOut({ act, question, hint }: StepProps & { question: string; hint: string }) {
  return (
    <details>
      <summary>{question}</summary>
      <p>{hint}</p>
      <Button action="not-sent" label={labels.notSent} onClick={act.giveUp} />
    </details>
  );
}

function ByHand({ act }: StepProps) {
  return <Button action="manual" label={labels.manual} onClick={() => act.take('manual')} />;
}

function OtherWallet({ act }: StepProps) {
  return <Button action="wallets" label={labels.otherWallet} onClick={act.leaveWallet} />;
}

/** The account that pays. */
function Account({ facts: { session }, checkout }: StepProps) {
  if (session.step !== 'connected') return null;
  const { account, funds } = session;
  return (
    <dl>
      <Row name={labels.account}>
        <code title={account}>{`${account.slice(0, 6)}…${account.slice(-4)}`}</code>
      </Row>
      {funds.kind === 'too-little-token' && (
        <Row name={labels.balance}>
          {shownAmount(funds.balanceUnits, checkout.decimals)} {checkout.token_symbol}
        </Row>
      )}
    </dl>
  );
}

function Row({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div class="row">
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function TestWallet({ act, words }: StepProps) {
  const amounts: readonly [TestAmount, string][] = [
    ['exact', labels.testExact(words)],
    ['too_little', labels.testLess],
    ['too_much', labels.testMore],
  ];
  return (
    <div class="test-wallet">
      {amounts.map(([amount, label]) => (
        <button
          key={amount}
          type="button"
          class={amount === 'exact' ? 'main' : 'quiet'}
          data-action="test-wallet"
          data-amount={amount}
          onClick={() => act.payWithTestWallet(amount)}
        >
          {label}
        </button>
      ))}
    </div>
  );
}

function Manual(props: StepProps) {
  const { checkout, facts, act, words, link } = props;
  return (
    <>
      <dl class="manual">
        <Row name={labels.amount}>
          <span class="value" data-value="amount">
            {words.missing}
          </span>
          <Copy {...props} what="amount" label={labels.copyAmount} />
        </Row>
        <Row name={labels.address}>
          <Address text={checkout.expected_wallet} />
          <Copy {...props} what="address" label={labels.copyAddress} />
        </Row>
        <Row name={labels.network}>
          <span class="value">{words.chain}</span>
        </Row>
      </dl>
      <p class="live">
        <span class="sign spinner" aria-hidden="true" />
        {labels.waiting}
      </p>
      {facts.isStandIn ? (
        <TestWallet {...props} />
      ) : (
        <Button action="wallets" label={labels.wallets} onClick={() => act.take('wallet')} />
      )}
      {!props.isPhone && (
        <details class="phone" open>
          <summary>{labels.qr}</summary>
          <QrCode text={link} />
          <p>{labels.qrHint}</p>
          <Copy {...props} what="link" label={labels.copyLink} />
        </details>
      )}
    </>
  );
}

/** An address, whole. The gaps are not part of what is copied. */
function Address({ text }: { text: string }) {
  const groups = [text.slice(0, 2), ...(text.slice(2).match(/.{4}/g) ?? [])];
  return (
    <code class="address" data-value="address">
      {groups.map((group, i) => (
        <span key={i}>{group}</span>
      ))}
    </code>
  );
}

function Copy({ act, copied, what, label }: StepProps & { what: CopyName; label: string }) {
  const isThis = copied?.what === what;
  return (
    <button type="button" class="copy" data-action={`copy-${what}`} onClick={() => act.copy(what)}>
      <span aria-live="polite">{!isThis ? label : copied.isDone ? labels.copied : labels.notCopied}</span>
    </button>
  );
}

function QrCode({ text }: { text: string }) {
  const { size, data } = encode(text, { border: 2 });
  const path = data
    .flatMap((row, y) => row.map((isDark, x) => (isDark ? `M${x} ${y}h1v1h-1z` : '')))
    .join('');
  return (
    <svg
      class="qr"
      viewBox={`0 0 ${size} ${size}`}
      role="img"
      aria-label={labels.qr}
      shape-rendering="crispEdges"
    >
      <path d={path} />
    </svg>
  );
}

/** Links that open this page inside a wallet's app. They are the apps' own schemes: no server of theirs sees the link. */
function WalletApps({ link }: StepProps) {
  const apps: readonly [string, string][] = [
    ['MetaMask', `metamask://dapp/${link.replace(/^https?:\/\//, '')}`],
    ['Base', `cbwallet://dapp?url=${encodeURIComponent(link)}`],
    ['Trust Wallet', `trust://open_url?coin_id=60&url=${encodeURIComponent(link)}`],
  ];
  return (
    <div class="apps">
      <h3>{labels.openInWallet}</h3>
      <ul class="wallets">
        {apps.map(([name, href]) => (
          <li key={name}>
            <a href={href} rel="noreferrer">
              {name}
            </a>
          </li>
        ))}
      </ul>
      <p>{labels.openInWalletHint}</p>
    </div>
  );
}

function Confirmations({ checkout }: { checkout: Checkout }) {
  const { confirmations_required } = checkout;
  const count = fewestConfirmations(checkout);
  const label = labels.confirmations(count, confirmations_required);
  return (
    <div class="confirmations">
      <progress max={confirmations_required} value={count} aria-label={label} />
      <p>{label}</p>
    </div>
  );
}

function OwnTransaction({ facts: { transfer, isStandIn }, checkout }: StepProps) {
  const hash =
    transfer?.hash ?? checkout.payments?.find(({ status }) => status === 'reorged')?.transaction_hash;
  if (hash === undefined) return null;
  return (
    <dl>
      <Row name={labels.transaction}>
        <Transaction hash={hash} chainId={checkout.chain_id} isStandIn={isStandIn} />
      </Row>
    </dl>
  );
}

function Transaction({ hash, chainId, isStandIn }: { hash: string; chainId: number; isStandIn: boolean }) {
  const short = `${hash.slice(0, 10)}…${hash.slice(-6)}`;
  // No explorer has the chain of this machine.
  if (isStandIn) return <code title={hash}>{short}</code>;
  return (
    <>
      <code title={hash}>{short}</code>{' '}
      <a href={`${chainFacts(chainId).explorer}/tx/${hash}`} target="_blank" rel="noopener noreferrer">
        {labels.seeTransaction}
      </a>
    </>
  );
}

/** What has arrived, and where it is written. */
function Receipt({ checkout, facts, words }: StepProps) {
  const { payments = [], decimals, token_symbol, expected_wallet, chain_id } = checkout;
  const shown = payments.filter(({ status }) => status !== 'reorged');
  return (
    <div class="receipt">
      <h3>{labels.receipt}</h3>
      {shown.map((payment) => (
        <dl key={payment.transaction_hash} class="payment" data-counts={counts(payment)}>
          <Row name={labels.paidAmount}>
            {shownAmount(payment.amount_units, decimals)} {token_symbol}
          </Row>
          <Row name={labels.date}>{new Date(payment.block_time).toLocaleString('en-GB')}</Row>
          <Row name={labels.transaction}>
            <Transaction hash={payment.transaction_hash} chainId={chain_id} isStandIn={facts.isStandIn} />
          </Row>
        </dl>
      ))}
      <dl>
        <Row name={labels.to}>
          {words.merchant},{' '}
          <code title={expected_wallet}>{`${expected_wallet.slice(0, 6)}…${expected_wallet.slice(-4)}`}</code>
        </Row>
      </dl>
    </div>
  );
}

function WayBack({ returnUrl, isPopup, words, isMain = false }: StepProps & { isMain?: boolean }) {
  if (returnUrl !== undefined)
    return <ReturnLink url={returnUrl} label={labels.back(words)} isMain={isMain} />;
  return isPopup ? <p>{labels.closeWindow}</p> : null;
}

function ReturnLink({ url, label, isMain = false }: { url: string; label: string; isMain?: boolean }) {
  return (
    <a class={isMain ? 'main' : 'quiet'} data-action="return" href={url}>
      {label}
    </a>
  );
}

function Footer({ checkout, isStandIn }: { checkout: Checkout; isStandIn: boolean }) {
  return (
    <footer>
      {isStandIn && <p>{labels.standIn}</p>}
      <p>
        {labels.reference} <code>{checkout.id}</code>
      </p>
    </footer>
  );
}

/** The amount as it is copied. */
export function copyText(what: CopyName, checkout: Checkout, link: string): string {
  if (what === 'address') return checkout.expected_wallet;
  return what === 'link' ? link : plainAmount(missingUnits(checkout), checkout.decimals);
}
