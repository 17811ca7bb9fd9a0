// Paying without a wallet in this browser: by hand, or on a phone.

import type { ComponentChildren } from 'preact';
import { plainAmount } from './amount.ts';
import { missingUnits } from './checkout.ts';
import { useCopying } from './copying.ts';
import { Button, type StepProps, type TestAmount } from './parts.tsx';
import { QrCode } from './qr-code.tsx';
import { canSign } from './state.ts';
import { labels } from './texts.ts';

/** Buttons of the test wallet, which the service has for a local chain. */
export function TestWallet({ act, words, facts, checkout }: StepProps) {
  const signed: readonly [TestAmount, string] = ['signed', labels.testSign];
  const amounts: readonly (readonly [TestAmount, string])[] = [
    ['exact', labels.pay(words)],
    ...(canSign(facts, checkout) ? [signed] : []),
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

/** What to send and where, with buttons that copy the values. */
export function Manual(props: StepProps) {
  const { checkout, facts, act, words } = props;
  return (
    <>
      <div class="copies">
        <Copyable
          what="amount"
          text={plainAmount(missingUnits(checkout), checkout.decimals)}
          label={labels.amount}
        >
          <span data-value="amount" translate={false}>
            {words.missing}
          </span>
        </Copyable>
        <Copyable what="address" text={checkout.expected_wallet} label={labels.address}>
          <Address text={checkout.expected_wallet} />
        </Copyable>
        <div class="copyable">
          <p class="soft">{labels.network}</p>
          <p class="value" translate={false}>
            {words.chain}
          </p>
        </div>
      </div>
      <p class="soft">
        {labels.waiting}
        <span class="spinner" aria-hidden="true" />
      </p>
      {!props.isPhone && (
        <details>
          <summary>{labels.qr}</summary>
          <OtherDevice {...props} />
        </details>
      )}
      {facts.isLocal ? (
        <TestWallet {...props} />
      ) : (
        <Button action="wallets" label={labels.wallets} onClick={() => act.take('wallet')} />
      )}
    </>
  );
}

/** For a payer whose wallet is on a phone. */
export function OtherDevice(props: StepProps) {
  return (
    <div class="device">
      <div class="scan">
        <QrCode text={props.link} label={labels.qr} />
        <p>{labels.qrHint}</p>
      </div>
      <CopyLink {...props} />
    </div>
  );
}

/** The link is long, so it is shown only if the payer has to select it. */
function CopyLink({ link }: StepProps) {
  return (
    <Copyable what="link" text={link} label={labels.link} isHidden>
      <code translate={false}>{link}</code>
    </Copyable>
  );
}

/** A full address. The gaps are not copied. */
function Address({ text }: { text: string }) {
  const groups = [text.slice(0, 2), ...(text.slice(2).match(/.{4}/g) ?? [])];
  return (
    <code class="address" data-value="address" translate={false}>
      {groups.map((group, i) => (
        <span key={i}>{group}</span>
      ))}
    </code>
  );
}

interface CopyableProps {
  what: string;
  text: string;
  label: string;
  /** Its value is shown only if it could not be copied. */
  isHidden?: boolean;
  children: ComponentChildren;
}

/** A value with its name, and a button that copies it. */
function Copyable({ what, text, label, isHidden = false, children }: CopyableProps) {
  const { outcome, copy } = useCopying(text);
  const isRefused = outcome?.isDone === false;
  return (
    <div class="copyable">
      <p class="soft">{label}</p>
      {(isRefused || !isHidden) && <p class="value">{children}</p>}
      <button type="button" class="quiet" data-action={`copy-${what}`} onClick={copy}>
        {outcome ? (outcome.isDone ? labels.copied : labels.notCopied) : labels.copy}
        <span class="hidden"> {label}</span>
      </button>
      <p role="status" class={isRefused ? 'refused' : 'hidden'}>
        {outcome && (isRefused ? labels.notCopiedHint : labels.copied)}
      </p>
    </div>
  );
}

/** Links that open this page in a wallet's app, by the app's own scheme: no server of theirs sees it. */
export function WalletApps(props: StepProps) {
  const { link } = props;
  const apps: readonly [string, string][] = [
    ['MetaMask', `metamask://dapp/${link.replace(/^https?:\/\//, '')}`],
    ['Base', `cbwallet://dapp?url=${encodeURIComponent(link)}`],
    ['Trust Wallet', `trust://open_url?coin_id=60&url=${encodeURIComponent(link)}`],
  ];
  return (
    <div class="device">
      <ul class="wallets">
        {apps.map(([name, href]) => (
          <li key={name}>
            <a href={href} rel="noreferrer" translate={false}>
              {name}
            </a>
          </li>
        ))}
      </ul>
      <p class="soft">{labels.openInWalletHint}</p>
      <CopyLink {...props} />
    </div>
  );
}
