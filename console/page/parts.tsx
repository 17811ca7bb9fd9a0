// What the views are made of.

import type { JsonObject, JsonValue } from '@bufbuild/protobuf';
import { type Timestamp, timestampDate } from '@bufbuild/protobuf/wkt';
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { shownAmount } from '../../checkout/page/amount.ts';
import { useCopying } from '../../checkout/page/copying.ts';
import { shownDate } from '../../checkout/page/time.ts';
import { chains } from '../../src/contract/chains.ts';
import { wordsOf } from './api.ts';
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

/** A state, also one that only a newer service knows. Its colour says nothing that its word does not. */
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

/** A chain by its name in the contract, for people. */
export const chainLabel = (name: string): string => chains.find(({ chain }) => chain === name)?.name ?? name;

export const chainOf = (chainId: bigint) => chains.find((chain) => BigInt(chain.chainId) === chainId);

interface CopyableProps {
  text: string;
  /** What it is, for who cannot see the button: `address`. */
  what: string;
  /** Shown in the place of the whole text. */
  short?: string;
  href?: string | undefined;
}

/** A text that is copied by its button; with `href`, a link of an explorer. */
export function Copyable({ text, what, short = text, href }: CopyableProps) {
  const { outcome, copy } = useCopying(text);
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
        Copy
      </button>
      <span class="soft" role="status">
        {outcome && (outcome.isDone ? 'Copied' : 'Cannot copy: select it')}
      </span>
    </span>
  );
}

export const shortened = (text: string) => `${text.slice(0, 8)}…${text.slice(-6)}`;

/** What the chain's explorer has a page for. */
function explored(what: 'address' | 'transaction', path: 'address' | 'tx') {
  return ({ of, chainId }: { of: string; chainId: bigint }) => {
    const explorer = chainOf(chainId)?.explorer;
    const href = explorer && `${explorer}/${path}/${of}`;
    return <Copyable text={of} what={what} short={shortened(of)} href={href} />;
  };
}

export const Address = explored('address', 'address');
export const Transaction = explored('transaction', 'tx');

interface ButtonProps {
  label: string;
  onClick?: () => void;
  /** Filled, for the one thing to do. */
  isMain?: boolean;
  /** One of many. */
  isSmall?: boolean;
  isBusy?: boolean;
  /** Sends the form that it stands in, as Enter does. */
  isSubmit?: boolean;
}

export function Button({
  label,
  onClick,
  isMain = false,
  isSmall = false,
  isBusy = false,
  isSubmit = false,
}: ButtonProps) {
  return (
    <button
      type={isSubmit ? 'submit' : 'button'}
      class={isMain ? 'main' : isSmall ? 'small' : ''}
      aria-disabled={isBusy}
      onClick={isBusy ? undefined : onClick}
    >
      {label}
    </button>
  );
}

interface FactsProps {
  /** Values by their names. What is undefined or false is left out. */
  of: Readonly<Record<string, ComponentChildren>>;
  /** Shown behind them, under names that the merchant has chosen. */
  metadata?: JsonObject | undefined;
  look?: 'facts' | 'figures' | 'lines';
}

export function Facts({ of, metadata = {}, look = 'facts' }: FactsProps) {
  const fact = ([name, value]: [string, ComponentChildren]) => (
    <div key={name}>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
  const textOf = (value: JsonValue) => (typeof value === 'string' ? value : JSON.stringify(value));
  return (
    <dl class={look}>
      {Object.entries(of).map((each) => each[1] !== undefined && each[1] !== false && fact(each))}
      {Object.entries(metadata).map(([name, value]) => fact([name, textOf(value)]))}
    </dl>
  );
}

interface FieldProps {
  label: string;
  value: string;
  onInput: (value: string) => void;
  type?: 'date' | 'text';
  inputMode?: 'decimal' | 'text';
}

const maxFieldLength = 500;

export function Field({ label, value, onInput, type = 'text', inputMode = 'text' }: FieldProps) {
  return (
    <label>
      {label}
      <input
        // Preact's types have each type of input apart.
        type={type as 'text'}
        autocomplete="off"
        spellcheck={false}
        inputMode={inputMode}
        maxLength={maxFieldLength}
        value={value}
        onInput={({ currentTarget }) => onInput(currentTarget.value)}
      />
    </label>
  );
}

/** An action of a person: pressed once, with what came of it. */
export function useAction() {
  const [state, setState] = useState<{ isBusy: boolean; failure?: string }>({ isBusy: false });
  const run = (work: () => Promise<unknown>) => {
    setState({ isBusy: true });
    work().then(
      () => setState({ isBusy: false }),
      (reason) => setState({ isBusy: false, failure: wordsOf(reason) }),
    );
  };
  /** Forgets the failure: what is given has changed since. */
  const forget = () => setState(({ isBusy }) => ({ isBusy }));
  return { isBusy: state.isBusy, failure: state.failure, run, forget };
}

interface ActionButtonProps extends Omit<ButtonProps, 'onClick' | 'isBusy'> {
  onDo: () => Promise<unknown>;
}

/** A button that does something at once. What fails is said beside it. */
export function ActionButton({ onDo, ...button }: ActionButtonProps) {
  const { isBusy, failure, run } = useAction();
  return (
    <>
      <Button {...button} isBusy={isBusy} onClick={() => run(onDo)} />
      {failure !== undefined && <span role="alert"> {failure}</span>}
    </>
  );
}

interface OpenerProps {
  /** What opens it. */
  label: string;
  isSmall?: boolean;
  /** What its fields begin with. */
  onOpen?: () => void;
  /** What does it. */
  doLabel: string;
  /** What fails is said beside it. */
  onDo: () => Promise<unknown>;
  children: ComponentChildren;
}

/** An action that says what it will do, and does it when it is pressed a second time. The focus goes with it. */
export function Opener({ label, isSmall = false, onOpen, doLabel, onDo, children }: OpenerProps) {
  const [isOpen, setIsOpen] = useState(false);
  const { isBusy, failure, run, forget } = useAction();
  const place = useRef<HTMLDivElement>(null);
  const wasOpen = useRef(isOpen);
  // At once: a key that is pressed next belongs to it.
  useLayoutEffect(() => {
    if (wasOpen.current === isOpen) return;
    wasOpen.current = isOpen;
    forget();
    const within = (what: string) => place.current?.querySelector<HTMLElement>(what);
    (isOpen ? (within('input') ?? within('form')) : within('button'))?.focus();
  }, [isOpen]);
  const open = () => {
    onOpen?.();
    setIsOpen(true);
  };
  const submit = (event: Event) => {
    event.preventDefault();
    if (isBusy) return;
    run(async () => {
      await onDo();
      setIsOpen(false);
    });
  };
  return (
    <div ref={place} class="opener">
      {isOpen ? (
        <form class="confirm" aria-label={label} tabIndex={-1} onInput={forget} onSubmit={submit}>
          {children}
          {failure !== undefined && <p role="alert">{failure}</p>}
          <p class="actions">
            <Button label={doLabel} isMain isSubmit isBusy={isBusy} />
            <Button label="Leave it" onClick={() => setIsOpen(false)} />
          </p>
        </form>
      ) : (
        <Button label={label} isSmall={isSmall} onClick={open} />
      )}
    </div>
  );
}

interface TableProps<Row> {
  rows: readonly Row[];
  keyOf: (row: Row) => string;
  /** By their names, what a row has in them. The first says what the row is. */
  columns: Readonly<Record<string, (row: Row) => ComponentChildren>>;
  /** The columns of numbers. */
  numbers?: readonly string[];
}

/** On a narrow screen each row is a card, but for a table of sums. */
export function Table<Row>({ rows, keyOf, columns, numbers = [] }: TableProps<Row>) {
  const classOf = (name: string) => numbers.includes(name) && { class: 'number' };
  return (
    <table class={numbers.length > 1 ? 'sums' : 'list'}>
      <thead>
        <tr>
          {Object.keys(columns).map((name) => (
            <th key={name} scope="col" {...classOf(name)}>
              {name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={keyOf(row)}>
            {Object.entries(columns).map(([name, of], place) =>
              place === 0 ? (
                <th key={name} scope="row">
                  {of(row)}
                </th>
              ) : (
                <td key={name} {...classOf(name)}>
                  {of(row)}
                </td>
              ),
            )}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
