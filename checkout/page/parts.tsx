// What the parts of the page share.

import type { ComponentChildren } from 'preact';
import { shownAmount } from './amount.ts';
import type { Checkout } from './checkout.ts';
import type { Facts, ViewName } from './state.ts';
import type { Words } from './texts.ts';

/** What a payer can do. */
export interface Actions {
  choose(walletId: string): void;
  leaveWallet(): void;
  switchChain(): void;
  checkAgain(): void;
  /** Pays with the network fee, even if the account seems to lack it. */
  payAnyway(): void;
  pay(): void;
  /** Pays with a signature. */
  sign(): void;
  take(lane: 'wallet' | 'manual'): void;
  reload(): void;
  /** The payer says that nothing is on its way any more. */
  giveUp(): void;
  payWithTestWallet(amount: TestAmount): void;
}

export type TestAmount = 'exact' | 'too_little' | 'too_much' | 'signed';

export interface PageProps {
  facts: Facts;
  act: Actions;
  /** The URL of this checkout. */
  link: string;
  returnUrl: string | undefined;
  /** The shop has opened this window, so the payer can close it. */
  isPopup: boolean;
  isPhone: boolean;
}

/** The same once the checkout is known. */
export interface StepProps extends PageProps {
  checkout: Checkout;
  view: ViewName;
  words: Words;
}

/** `12.50 USDC`, on one line wherever it fits. */
export function amountWithToken(units: number | bigint, { decimals, token_symbol }: Checkout): string {
  return `${shownAmount(units, decimals)}\u00a0${token_symbol}`;
}

/** How a button looks: filled, outlined, or like a link. */
export type Look = 'main' | 'quiet' | 'plain';

interface ButtonProps {
  action: string;
  label: string;
  onClick: () => void;
  look?: Look;
  /** It was pressed, and its work is not done. */
  isBusy?: boolean;
}

export function Button({ action, label, onClick, look = 'quiet', isBusy = false }: ButtonProps) {
  return (
    <button
      type="button"
      class={look}
      data-action={action}
      aria-disabled={isBusy}
      onClick={isBusy ? undefined : onClick}
    >
      {label}
    </button>
  );
}

/** A name and its value, in a `dl`. */
export function Row({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div class="row">
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

export function ShortAddress({ of }: { of: string }) {
  return <code title={of} translate={false}>{`${of.slice(0, 6)}…${of.slice(-4)}`}</code>;
}
