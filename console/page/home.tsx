// The first view: what came in, and what needs a person.

import { useRef, useState } from 'preact/hooks';
import { shownAmount } from '../../checkout/page/amount.ts';
import type { AttentionItem, Day, Summary } from '../../src/contract/gen/console/v1/console_service_pb.ts';
import { AttentionKind, ChainState } from '../../src/contract/gen/console/v1/console_service_pb.ts';
import { api, useScope } from './api.ts';
import { dayOf, ownZone, zoneWords } from './days.ts';
import { Button, Choice, Field, Opener } from './forms.tsx';
import { rarelyMs, Shown, useLoaded } from './loading.tsx';
import { orderOf } from './payments.tsx';
import { go, Link, pathOf } from './routing.tsx';
import { Facts, Table } from './tables.tsx';
import { chainLabel, chainOf, Money, moneyText, When } from './values.tsx';
import { labelWords } from './words.ts';

const chartDays = 30;
/** How many items are shown, until all are asked for. */
const shownItems = 12;

/** The kinds of items, as a list of each is named. */
const kinds: readonly (readonly [AttentionKind, string])[] = [
  [AttentionKind.CHAIN, 'Chains'],
  [AttentionKind.ENDPOINT, 'Disabled endpoints'],
  [AttentionKind.DELIVERIES, 'Not delivered'],
  [AttentionKind.UNATTRIBUTED, 'Without a payment'],
  [AttentionKind.PAYMENT, 'To return or decide'],
  [AttentionKind.REFUND, 'To sign'],
  [AttentionKind.UNEXPECTED_REFUND, 'Refunds that differ'],
];

export function Home({ parameters }: { parameters: URLSearchParams }) {
  const chosen = parameters.get('show') ?? '';
  const show = (what: string) => go(pathOf('/', { show: what }), { replaces: true });
  const summary = useLoaded('summary', summarize, rarelyMs);
  const attention = useLoaded('attention', () => api.listAttention({}), rarelyMs);
  return (
    <>
      <h1>Home</h1>
      <Shown of={summary}>{(found) => <Figures of={found} />}</Shown>
      <section aria-labelledby="attention">
        <h2 id="attention">Needs attention</h2>
        <Shown of={attention}>
          {({ items }) => {
            if (items.length === 0) return <p class="state">Nothing needs you.</p>;
            const of = (kind: number) => items.filter((item) => item.kind === kind);
            const ofKind = of(Number(chosen));
            // The last item of the chosen kind may have ended since.
            const view = chosen === 'all' || ofKind.length > 0 ? chosen : '';
            const some = ofKind.length > 0 ? ofKind : items;
            const shown = view === '' ? some.slice(0, shownItems) : some;
            const present = kinds.filter(([kind]) => of(kind).length > 0);
            // At most fifty of each kind are listed.
            const counted = (count: number) => (count < 50 ? count : `${count} or more`);
            const options = [
              ['', 'The newest'] as const,
              ['all', 'All'] as const,
              ...present.map(([kind, words]) => [kind, `${words}: ${counted(of(kind).length)}`] as const),
            ];
            return (
              <>
                <p class="filters">
                  <Choice label="Show" value={view} options={options} onChoose={show} />
                </p>
                <ul class="cards">
                  {shown.map((item) => (
                    // Its id also has its state: what was typed stays when that changes.
                    <Item key={item.id.split(':', 2).join()} of={item} />
                  ))}
                </ul>
                {shown.length < some.length && (
                  <p class="more">
                    <Button label={`Show all ${some.length}`} onClick={() => show('all')} />
                  </p>
                )}
              </>
            );
          }}
        </Shown>
      </section>
    </>
  );
}

const dayMs = 86_400_000;

function summarize(): Promise<Summary> {
  const now = Date.now();
  return api.getSummary({
    firstDay: dayOf(now - (chartDays + 1) * dayMs),
    // In a zone that is not whole hours from UTC, the days are UTC days, which may be a day ahead.
    lastDay: dayOf(now + dayMs),
    timeZone: ownZone(),
  });
}

const sum = (values: readonly bigint[]) => values.reduce((all, value) => all + value, 0n);

/** A day of the chart, even if nothing happened on it. */
function barOf(date: string, day: Day | undefined) {
  const { chains = [], succeededCount = 0n, expiredCount = 0n, canceledCount = 0n } = day ?? {};
  return {
    date,
    chains,
    received: sum(chains.map(({ receivedUnits }) => BigInt(receivedUnits))),
    refunded: sum(chains.map(({ refundedUnits }) => BigInt(refundedUnits))),
    paid: succeededCount,
    unpaid: expiredCount + canceledCount,
  };
}

type Bar = ReturnType<typeof barOf>;

function Figures({ of: { days, timeZone } }: { of: Summary }) {
  const today = Date.parse(dayOf(Date.now(), timeZone));
  const byDate = new Map(days.map((day) => [day.date, day]));
  const shown = Array.from({ length: chartDays }, (_, i) => {
    const date = new Date(today - (chartDays - 1 - i) * dayMs).toISOString().slice(0, 10);
    return barOf(date, byDate.get(date));
  });
  const sinceMonday = (new Date(today).getUTCDay() + 6) % 7;
  const week = shown.slice(-1 - sinceMonday);
  const received = (some: readonly Bar[]) => sum(some.map((bar) => bar.received));
  const paid = sum(shown.map((bar) => bar.paid));
  const ended = paid + sum(shown.map((bar) => bar.unpaid));
  return (
    <>
      <Facts
        look="figures"
        of={{
          'Received today': <Money units={received(shown.slice(-1))} />,
          'This week': <Money units={received(week)} />,
          [`Paid, of ${ended.toLocaleString('en-GB')} that ended in 30 days`]:
            ended === 0n ? '–' : `${Number((1000n * paid) / ended) / 10} %`,
        }}
      />
      <Chart days={shown} zone={timeZone === 'UTC' ? timeZone : ''} />
      <p class="soft">
        Days in {zoneWords(timeZone)}. Past days may change, through reorganisations and manual attribution.
      </p>
    </>
  );
}

/** `2026-11-24` as `Tue 24 Nov`. */
const dayWords = (date: string) =>
  new Date(`${date}T12:00:00Z`).toLocaleDateString('en-GB', {
    weekday: 'short',
    day: 'numeric',
    month: 'short',
    timeZone: 'UTC',
  });

const width = 900;
const height = 180;
/** Below the axis, for what was returned. */
const below = 36;

/** A bar for each of thirty days: received by chain, and returned below. A table shows the same. */
function Chart({ days, zone }: { days: readonly Bar[]; zone: string }) {
  const names = [...new Set(days.flatMap(({ chains }) => chains.map(({ chain }) => chain)))].sort();
  const [most = 0n] = days.map(({ received }) => received).sort((a, b) => Number(b - a));
  const axis = height - below;
  const scale = (units: bigint) => (Number((units * 1_000n) / (most || 1n)) / 1_000) * axis;
  const step = width / days.length;
  return (
    <figure class="chart">
      <svg
        viewBox={`0 0 ${width} ${height}`}
        role="img"
        aria-label="Received and returned in 30 days. The table below says the same."
      >
        {days.map(({ date, chains, received, refunded }, i) => {
          let top = axis;
          const bar = (of: string, y: number, size: number) => (
            <rect key={of} class={`bar ${of}`} x={i * step + 3} y={y} width={step - 6} height={size} rx="1" />
          );
          return (
            <g key={date}>
              {names.map((name, place) => {
                const of = chains.find(({ chain }) => chain === name);
                const size = scale(BigInt(of?.receivedUnits ?? 0));
                top -= size;
                return bar(`chain-${place}`, top, size);
              })}
              {refunded > 0n && bar('refunded', axis + 2, Math.min(below - 2, Math.max(2, scale(refunded))))}
              <title>{`${dayWords(date)}: ${received === 0n ? 'nothing' : moneyText({ units: received })}`}</title>
            </g>
          );
        })}
        <line class="axis" x1="0" x2={width} y1={axis + 0.5} y2={axis + 0.5} />
      </svg>
      <figcaption>
        {names.map((name, place) => (
          <span key={name} class={`key chain-${place}`}>
            {chainLabel(name)}
          </span>
        ))}
        <span class="key refunded">Returned</span>
        <span class="soft">
          {dayWords(days[0]?.date ?? '')} to {dayWords(days.at(-1)?.date ?? '')}
        </span>
        <span class="soft">Highest day: {moneyText({ units: most })}</span>
      </figcaption>
      <details>
        <summary>As a table</summary>
        <Table
          rows={days.toReversed()}
          keyOf={({ date }) => date}
          numbers={['Received', 'Returned', 'Paid', 'Not paid']}
          columns={{
            Day: ({ date: day }) => (
              <Link to={pathOf('/payments', { paid_from: day, paid_to: day, zone })}>{dayWords(day)}</Link>
            ),
            Received: ({ received }) => shownAmount(received, 6),
            Returned: ({ refunded }) => shownAmount(refunded, 6),
            Paid: ({ paid }) => String(paid),
            'Not paid': ({ unpaid }) => String(unpaid),
          }}
        />
      </details>
    </figure>
  );
}

function Item({ of: item }: { of: AttentionItem }) {
  const { isReadOnly, isOperator } = useScope();
  const [sentence, to, way] = reasonOf(item, isOperator && !isReadOnly);
  const about = [orderOf(item), chainOf(item.chainId)?.name].filter(Boolean).join(' · ');
  const [note, setNote] = useState('');
  // What the user looked at, although the list is loaded again meanwhile.
  const opened = useRef(item.id);
  const open = () => {
    opened.current = item.id;
  };
  const resolve = () => api.resolveAttention({ id: opened.current, note });
  return (
    <li>
      <p>{sentence}</p>
      <p class="soft">
        {item.at !== undefined && <When at={item.at} />}
        {item.at !== undefined && about !== '' && ' · '}
        {about}
      </p>
      <div class="actions">
        {way !== '' && (
          <Link isButton to={to}>
            {isReadOnly ? 'Look at it' : way}
          </Link>
        )}
        {!isReadOnly && item.kind !== AttentionKind.CHAIN && (
          <Opener label="Done" onOpen={open} doLabel="It is done" onDo={resolve}>
            <Field label="What was done, for those who ask later" value={note} onInput={setNote} />
          </Opener>
        )}
      </div>
    </li>
  );
}

/** Why the item needs attention, and the link to act on it. */
function reasonOf(item: AttentionItem, seesChains: boolean): [sentence: string, to: string, way: string] {
  const { kind, subject, amountUnits: units, count, labels, url, paymentIntent, chainState } = item;
  const money = moneyText({ units, token: item.tokenAddress });
  const why = labels.map(labelWords).join(', ').toLowerCase();
  const events = count === 1 ? 'One event was' : `${count} events were`;
  const inARow = ` (failures in a row: ${count})`;
  const [payment, endpoint] = [`/payments/${paymentIntent || subject}`, `/webhooks/${subject}`];
  switch (kind) {
    case AttentionKind.UNATTRIBUTED:
      return [`${money} arrived without a payment.`, `/unattributed/${subject}`, 'Whose is it?'];
    case AttentionKind.PAYMENT:
      if (labels.includes('found_late') && units > 0n) {
        return [
          `${money} were paid in time and seen late: look before you return it.`,
          payment,
          'Look at it',
        ];
      }
      return units > 0n
        ? [`${money} of a payment are not yours to keep (${why}).`, payment, 'Return it']
        : [`A payment needs a decision (${why}).`, payment, 'Look at it'];
    case AttentionKind.DELIVERIES:
      return [`${events} not delivered to ${url}.`, endpoint, 'Send again'];
    case AttentionKind.ENDPOINT:
      if (count === 0) return [`${url} was disabled. No events are sent to it.`, endpoint, 'Enable it'];
      return [`Events do not reach ${url}${inARow}. They are tried again.`, endpoint, 'Look at it'];
    case AttentionKind.REFUND:
      return [`A refund of ${money} waits for your wallet's signature.`, payment, 'Sign it'];
    case AttentionKind.UNEXPECTED_REFUND:
      return [`A refund of ${money} differs from what was prepared (${why}).`, payment, 'Look at it'];
    case AttentionKind.CHAIN:
      return [
        chainState === ChainState.BEHIND
          ? 'Payments appear late: the service is catching up with this chain.'
          : `Payments on this chain are not being seen.${chainState === ChainState.UNWATCHED ? '' : ' They will be found later: make sure that nobody pays twice.'}`,
        '/chains',
        seesChains ? 'Look at the chains' : '',
      ];
    default:
      return ['Something that only a newer console knows: load this page again.', '/', ''];
  }
}
