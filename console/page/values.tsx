// Money, times, states, and what is on a chain, as the views show them.

import { type Timestamp, timestampDate } from '@bufbuild/protobuf/wkt';
import { shownAmount } from '../../checkout/page/amount.ts';
import { useCopying } from '../../checkout/page/copying.ts';
import { shownDate } from '../../checkout/page/time.ts';
import { chains, isRightToken, networks } from '../../src/contract/chains.ts';
import { labelWords, type Tone } from './words.ts';

interface MoneyProps {
  units: bigint | string;
  /** The token's contract. Default: USDC. */
  token?: string | undefined;
}

export function moneyText({ units, token }: MoneyProps) {
  const known = networks.find((network) => isRightToken(network, token || network.tokenAddress));
  return `${shownAmount(BigInt(units), known?.decimals ?? 6)}\u00a0${known?.tokenSymbol ?? 'of another token'}`;
}

export const Money = (props: MoneyProps) => (
  <span class="money" translate={false}>
    {moneyText(props)}
  </span>
);

export function When({ at }: { at: Timestamp | undefined }) {
  if (at === undefined) return <span class="soft">–</span>;
  const date = timestampDate(at);
  return (
    <time dateTime={date.toISOString()} title={`${date.toISOString()} (UTC)`}>
      {shownDate(date.getTime())}
    </time>
  );
}

/** A state, even one that only a newer service knows. Its colour says nothing that its word does not. */
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
  /** What it is, for those who cannot see the button: `address`. */
  what: string;
  /** Shown in place of the whole text. */
  short?: string;
  href?: string | undefined;
}

/** A text that is copied by its button; with `href`, a link to an explorer. */
export function Copyable({ text, what, short = text, href }: CopyableProps) {
  const { outcome, copy } = useCopying(text);
  const shown = (
    <code title={text} translate={false}>
      {outcome?.isDone === false ? text : short}
    </code>
  );
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

/** Returns a component that links to the chain's explorer. */
function explored(what: 'address' | 'transaction', path: 'address' | 'tx') {
  return ({ of, chainId }: { of: string; chainId: bigint }) => {
    const explorer = chainOf(chainId)?.explorer;
    const href = explorer && `${explorer}/${path}/${of}`;
    return <Copyable text={of} what={what} short={shortened(of)} href={href} />;
  };
}

export const Address = explored('address', 'address');
export const Transaction = explored('transaction', 'tx');
