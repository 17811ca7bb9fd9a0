// Renders the page from the known facts. Names of merchants and wallets are text, never markup.

import type { ComponentChildren } from 'preact';
import { shownAmount } from './amount.ts';
import { Manual, OtherDevice, TestWallet, WalletApps } from './by-hand.tsx';
import { type Checkout, findChain, missingUnits } from './checkout.ts';
import type { Look, PageProps, StepProps } from './parts.tsx';
import { amountWithToken, Button, Row, ShortAddress } from './parts.tsx';
import { Confirmations, OwnTransaction, Receipt, Returned } from './receipt.tsx';
import { type Facts, noticesOf, offeringViews, returnedIn, type ViewName, viewOf } from './state.ts';
import { labels, notices, refusals, views, type Words } from './texts.ts';
import { shownDuration, shownTime, spokenZoneAt } from './time.ts';

export function Page(props: PageProps) {
  const { facts } = props;
  const { checkout } = facts;
  const view = viewOf(facts);
  const words = wordsOf(facts);
  const [title, ...lines] = views[view](words);
  const Step = steps[view];
  const due = checkout !== undefined && !heroViews.includes(view) ? checkout : undefined;
  return (
    <main
      data-status={checkout?.status ?? (view === 'invalid' ? 'invalid' : 'loading')}
      data-view={view}
      data-connection={facts.connection}
    >
      <header>
        <p class="merchant" translate={false}>
          {checkout === undefined ? labels.payment : words.merchant}
        </p>
        {checkout?.mode === 'testnet' && <p class="badge">{labels.testMoney}</p>}
      </header>
      <div class="hero">
        <div role="status">
          {due === undefined ? (
            <h1 id="title" tabIndex={-1}>
              {view === 'succeeded' && <Tick />}
              {title}
              <Spinner view={view} />
            </h1>
          ) : (
            <h1>
              <span class="hidden">{labels.amountDue}: </span>
              <Amount units={missingUnits(due)} checkout={due} />
            </h1>
          )}
        </div>
        {checkout && <HeroFacts checkout={checkout} due={due} words={words} nowMs={facts.nowMs} />}
      </div>
      <div class="notices" role="status">
        {noticesOf(facts, view).map((notice) => (
          <p key={notice} class="notice" data-notice={notice}>
            {notices[notice](words)}
          </p>
        ))}
      </div>
      <div role="status">
        {due && (
          <h2 id="title" tabIndex={-1}>
            {title}
            <Spinner view={view} />
          </h2>
        )}
      </div>
      <section class="step" aria-labelledby="title">
        <div class="lines" role="status">
          {lines.map((line) => (
            <p key={line}>{line}</p>
          ))}
        </div>
        {checkout && Step && <Step {...props} checkout={checkout} view={view} words={words} />}
        {checkout && <Returned {...props} checkout={checkout} view={view} words={words} />}
        {view === 'unreachable' && (
          <Button action="retry" label={labels.reload} onClick={props.act.reload} look="main" />
        )}
        {view === 'outdated' && (
          <Button action="reload" label={labels.reloadPage} onClick={() => location.reload()} look="main" />
        )}
        {props.returnUrl !== undefined && offeringViews.includes(view) && (
          <ReturnLink url={props.returnUrl} label={labels.leave(words)} look="plain" />
        )}
      </section>
      {checkout && (
        <footer>
          {labels.reference} <code translate={false}>{checkout.id}</code>
        </footer>
      )}
    </main>
  );
}

function wordsOf({ checkout, session, transfer, nowMs }: Facts): Words {
  const timeOf = (text?: string) => (text === undefined ? '' : shownTime(Date.parse(text), nowMs));
  const shown = (units: number) => (checkout === undefined ? '' : amountWithToken(units, checkout));
  const refunds = checkout === undefined ? [] : returnedIn(checkout);
  const returned = refunds.filter(({ status }) => status === 'confirmed');
  const chain = checkout && findChain(checkout.chain_id);
  return {
    merchant: checkout?.merchant_name ?? '',
    missing: checkout === undefined ? '' : shown(missingUnits(checkout)),
    received: shown(checkout?.amount_received_units ?? 0),
    returned: shown(returned.reduce((sum, { amount_units }) => sum + amount_units, 0)),
    token: checkout?.token_symbol ?? '',
    chain: chain?.name ?? checkout?.chain ?? '',
    feeToken: chain?.feeToken ?? '',
    wallet: session.step === 'none' ? 'your wallet' : session.wallet.name,
    until: timeOf(checkout?.expires_at),
    signedUntil: timeOf(checkout?.authorization?.expires_at),
    hasOwners: transfer?.hasOwners === true,
  };
}

/** Views in which nothing has to be paid: the title is larger than the amount. */
const heroViews: readonly ViewName[] = [
  'outdated',
  ...(['sent', 'signed', 'taken-back', 'processing', 'succeeded'] as const),
  ...(['time-is-up', 'expired', 'canceled'] as const),
];
/** Views that end without the payer doing anything on this page. */
const waitingViews: readonly ViewName[] = [
  ...(['loading', 'waiting-for-shop', 'connecting', 'confirm-in-wallet', 'sign-in-wallet'] as const),
  ...(['signed', 'paying-elsewhere', 'sent', 'taken-back', 'time-is-up'] as const),
];

/** A sign beside the title, which says the same in words. */
function Spinner({ view }: { view: ViewName }) {
  return waitingViews.includes(view) ? <span class="spinner" aria-hidden="true" /> : null;
}

function Tick() {
  return (
    <svg class="tick" viewBox="0 0 24 24" aria-hidden="true">
      <circle cx="12" cy="12" r="12" />
      <path d="M7 12.5l3.5 3.5L17 9" />
    </svg>
  );
}

function Amount({ units, checkout }: { units: number; checkout: Checkout }) {
  return (
    <span translate={false}>
      <span class="amount">{shownAmount(units, checkout.decimals)}</span>{' '}
      <span class="token">{checkout.token_symbol}</span>
    </span>
  );
}

interface HeroFactsProps {
  checkout: Checkout;
  /** The checkout again, if it is still to be paid. */
  due: Checkout | undefined;
  words: Words;
  nowMs: number;
}

/** What to pay, on which chain, and until when. */
function HeroFacts({ checkout, due, words, nowMs }: HeroFactsProps) {
  const expiresAtMs = Date.parse(checkout.expires_at);
  const leftMs = expiresAtMs - nowMs;
  return (
    <>
      <p class="price">
        {due === undefined && <Amount units={checkout.amount_units} checkout={checkout} />}{' '}
        <span class="soft">
          {labels.on} <span translate={false}>{words.chain}</span>
        </span>
      </p>
      {due && leftMs > 0 && (
        <p class="soft">
          {labels.payBefore}{' '}
          <time dateTime={checkout.expires_at}>
            {words.until}
            <span class="hidden">{`, ${spokenZoneAt(expiresAtMs)}`}</span>
          </time>
          , {labels.timeLeft(shownDuration(leftMs))}
        </p>
      )}
    </>
  );
}

function Wallets({ facts, act }: StepProps) {
  return (
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
            <span class="name" translate={false}>
              {name}
            </span>
          </button>
        </li>
      ))}
    </ul>
  );
}

/** The account that pays and its actions: pay, sign, or check again once it has what it lacks. */
function WithAccount(props: StepProps) {
  const { act, view, words, checkout, facts } = props;
  if (facts.session.step !== 'connected') return null;
  const { account, funds } = facts.session;
  const withFee = funds.kind === 'enough' ? labels.withFee : labels.tryAnyway;
  return (
    <>
      {funds.kind === 'refused' && <p>{refusals[funds.reason](words)}</p>}
      <dl>
        <Row name={labels.account}>
          <ShortAddress of={account} />
        </Row>
        {funds.kind === 'too-little-token' && (
          <Row name={labels.balance}>{amountWithToken(funds.balanceUnits, checkout)}</Row>
        )}
      </dl>
      {/* Keyed, so that a focused button does not turn into another one. */}
      {view === 'ready' ? (
        <Button
          key="pay"
          action="pay"
          label={labels.pay(words)}
          onClick={act.pay}
          isBusy={facts.isPaying}
          look="main"
        />
      ) : view === 'ready-to-sign' ? (
        <Button key="sign" action="sign" label={labels.sign(words)} onClick={act.sign} look="main" />
      ) : (
        <Button key="retry" action="retry" label={labels.checkAgain} onClick={act.checkAgain} look="main" />
      )}
      {['ready-to-sign', 'too-little-gas'].includes(view) && (
        <Button action="pay" label={withFee} onClick={act.payAnyway} isBusy={facts.isPaying} />
      )}
      <OtherWallet {...props} />
    </>
  );
}

/** A payment that has ended, in any way. */
function Ended(props: StepProps) {
  const { status, payments = [] } = props.checkout;
  return (
    <>
      <WayBack {...props} look="main" />
      {props.facts.transfer?.hash && status !== 'succeeded' && <OwnTransaction {...props} />}
      {(status === 'succeeded' || payments.length > 0) && <Receipt {...props} />}
    </>
  );
}

/** A payment that is in no block, or no longer in one. The payer cannot give up a signed one. */
function OnTheWay(props: StepProps) {
  return (
    <>
      <OwnTransaction {...props} />
      {props.view !== 'signed' && (
        <WayOut {...props} question={labels.waitedLong} hint={labels.notComing} label={labels.failed} />
      )}
      <WayBack {...props} look="quiet" />
    </>
  );
}

function WrongChain(props: StepProps) {
  const { act, words, facts } = props;
  return (
    <>
      <Button
        action="switch-chain"
        label={labels.switchChain(words)}
        onClick={act.switchChain}
        isBusy={facts.session.step === 'connected' && facts.session.isSwitching === true}
        look="main"
      />
      <OtherWallet {...props} />
    </>
  );
}

/** The actions of each view. The other views have none. */
const steps: Readonly<Partial<Record<ViewName, (props: StepProps) => ComponentChildren>>> = {
  'test-wallet': TestWallet,
  'choose-wallet': (props) => (
    <>
      <Wallets {...props} />
      <ByHand {...props} look="plain" />
      {/* A browser on a phone may have a wallet of its own, which is not the payer's. */}
      {props.isPhone && (
        <details>
          <summary>{labels.openInWallet}</summary>
          <WalletApps {...props} />
        </details>
      )}
    </>
  ),
  'no-wallet': (props) => (
    <>
      {props.isPhone && <h3>{labels.openInWallet}</h3>}
      {props.isPhone ? <WalletApps {...props} /> : <OtherDevice {...props} />}
      <ByHand {...props} look="quiet" />
    </>
  ),
  connecting: OtherWallet,
  'wrong-chain': WrongChain,
  ready: WithAccount,
  'ready-to-sign': WithAccount,
  'too-little-token': WithAccount,
  'too-little-gas': WithAccount,
  'refused-by-token': WithAccount,
  unknown: ({ act }) => (
    <>
      <p>{labels.notSentHint}</p>
      <Button action="not-sent" label={labels.notSent} onClick={act.giveUp} />
    </>
  ),
  'confirm-in-wallet': WalletAsks,
  'reject-in-wallet': WalletAsks,
  'sign-in-wallet': (props) => (
    <WayOut {...props} question={labels.noAnswer} hint={labels.notSignedHint} label={labels.signAgain} />
  ),
  signed: OnTheWay,
  sent: OnTheWay,
  'taken-back': OnTheWay,
  manual: Manual,
  processing: (props) => (
    <>
      <Confirmations checkout={props.checkout} />
      <Receipt {...props} />
      <WayBack {...props} look="quiet" />
    </>
  ),
  succeeded: Ended,
  'time-is-up': Ended,
  expired: Ended,
  canceled: Ended,
};

function WalletAsks(props: StepProps) {
  return <WayOut {...props} question={labels.noAnswer} hint={labels.notSentHint} label={labels.notSent} />;
}

/** For a payer who knows that nothing is on its way. */
function WayOut({ act, question, hint, label }: StepProps & Record<'question' | 'hint' | 'label', string>) {
  return (
    <details>
      <summary>{question}</summary>
      <p>{hint}</p>
      <Button action="not-sent" label={label} onClick={act.giveUp} />
    </details>
  );
}

function ByHand({ act, look }: StepProps & { look: Look }) {
  return <Button action="manual" label={labels.manual} onClick={() => act.take('manual')} look={look} />;
}

function OtherWallet({ act }: StepProps) {
  return <Button action="wallets" label={labels.otherWallet} onClick={act.leaveWallet} />;
}

function WayBack({ returnUrl, isPopup, words, look }: StepProps & { look: Look }) {
  if (returnUrl !== undefined) return <ReturnLink url={returnUrl} label={labels.back(words)} look={look} />;
  return isPopup ? <p>{labels.closeWindow}</p> : null;
}

function ReturnLink({ url, label, look }: { url: string; label: string; look: Look }) {
  return (
    <a class={look} data-action="return" href={url}>
      {label}
    </a>
  );
}
