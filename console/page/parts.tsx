// What the views are made of.

import { type Timestamp, timestampDate } from '@bufbuild/protobuf/wkt';
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { shownAmount } from '../../checkout/page/amount.ts';
import { shownDate } from '../../checkout/page/time.ts';
import { chains } from '../../src/contract/chains.ts';
import { labelWords, type Tone } from './words.ts';

/** USDC, the only token that is paid in, has six decimal places on every chain. */
const usdc = { decimals: 6, symbol: 'USDC' };

interface MoneyProps {
  units: bigint | string;
  decimals?: number;
  symbol?: string;
}

export const moneyText = ({ units, decimals = usdc.decimals, symbol = usdc.symbol }: MoneyProps): string =>
  `${shownAmount(BigInt(units), decimals)}\u00a0${symbol}`;

export function Money(props: MoneyProps) {
  return <span class="money">{moneyText(props)}</span>;
}

export function When({ at }: { at: Timestamp | undefined }) {
  if (at === undefined) return <span class="soft">–</span>;
  const date = timestampDate(at);
  return (
    <time dateTime={date.toISOString()} title={`${date.toISOString()} (UTC)`}>
      {shownDate(date.getTime())}
    </time>
  );
}

/** A state: its colour says nothing that its word does not say. */
/** Says so of a state that only a newer service knows, too. */
export function Badge({ label = 'Unknown', tone = 'over' }: { label?: string; tone?: Tone }) {
  return <span class={`badge ${tone}`}>{label}</span>;
}

export function Labels({ of }: { of: readonly string[] }) {
  return (
    <>
      {of.map((label) => (
        <span key={label}>
          <Badge label={labelWords(label)} tone="bad" />{' '}
        </span>
      ))}
    </>
  );
}

export const chainOf = (chainId: bigint) => chains.find((chain) => BigInt(chain.chainId) === chainId);

interface CopyableProps {
  text: string;
  /** What it is, for who cannot see the button: `address`. */
  what: string;
  /** Shown in the place of the whole text. */
  short?: string;
  href?: string | undefined;
}

const copiedMs = 2_000;

/** A text that is copied by its button; with `href`, a link of an explorer. */
export function Copyable({ text, what, short = text, href }: CopyableProps) {
  const [said, setSaid] = useState('');
  const copy = () => {
    // Pages without TLS have no clipboard.
    (navigator.clipboard?.writeText(text) ?? Promise.reject()).then(
      () => setSaid('Copied'),
      () => setSaid('Select it'),
    );
    setTimeout(() => setSaid(''), copiedMs);
  };
  const shown = <code title={text}>{short}</code>;
  return (
    <span class="copyable">
      {href === undefined ? (
        shown
      ) : (
        <a href={href} target="_blank" rel="noreferrer">
          {shown}
        </a>
      )}
      <button type="button" class="small" onClick={copy} aria-label={`Copy ${what} ${short}`}>
        {said || 'Copy'}
      </button>
    </span>
  );
}

const shortened = (text: string) => `${text.slice(0, 8)}…${text.slice(-6)}`;

export function Address({ of, chainId }: { of: string; chainId: bigint }) {
  const explorer = chainOf(chainId)?.explorer;
  return (
    <Copyable text={of} what="address" short={shortened(of)} href={explorer && `${explorer}/address/${of}`} />
  );
}

export function Transaction({ hash, chainId }: { hash: string; chainId: bigint }) {
  const explorer = chainOf(chainId)?.explorer;
  return (
    <Copyable
      text={hash}
      what="transaction"
      short={shortened(hash)}
      href={explorer && `${explorer}/tx/${hash}`}
    />
  );
}

interface ButtonProps {
  label: string;
  onClick: () => void;
  /** Filled, for the one thing to do. */
  isMain?: boolean;
  /** One of many. */
  isSmall?: boolean;
  isBusy?: boolean;
}

export function Button({ label, onClick, isMain = false, isSmall = false, isBusy = false }: ButtonProps) {
  return (
    <button
      type="button"
      class={isMain ? 'main' : isSmall ? 'small' : ''}
      aria-disabled={isBusy}
      onClick={isBusy ? undefined : onClick}
    >
      {label}
    </button>
  );
}

/** A name and its value, in a `dl`. */
export function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div class="fact">
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

interface ConfirmProps {
  /** What opens it. */
  label: string;
  /** What will happen, before it does. */
  children: ComponentChildren;
  /** What does it. */
  doLabel: string;
  isBusy: boolean;
  failure: string | undefined;
  onDo: () => void;
}

/** An action that says what it will do, and does it when it is pressed a second time. */
export function Confirm({ label, children, doLabel, isBusy, failure, onDo }: ConfirmProps) {
  const [isOpen, setIsOpen] = useState(false);
  if (!isOpen) return <Button label={label} onClick={() => setIsOpen(true)} />;
  return (
    <section class="confirm" aria-label={label}>
      {children}
      {failure !== undefined && <p role="alert">{failure}</p>}
      <p class="actions">
        <Button label={doLabel} isMain isBusy={isBusy} onClick={onDo} />
        <Button label="Leave it" onClick={() => setIsOpen(false)} />
      </p>
    </section>
  );
}
