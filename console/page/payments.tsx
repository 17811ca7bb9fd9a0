// The payments: intents, newest first.

import { useRef } from 'preact/hooks';
import type { PaymentIntent } from '../../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { chainWords, type Lane, laneWords, paymentIntentStatusWords } from '../../src/contract/gen/words.ts';
import { api } from './api.ts';
import { spanOf } from './days.ts';
import { Choice, Field } from './forms.tsx';
import { LiveList } from './loading.tsx';
import { go, Link, numberIn, pathOf } from './routing.tsx';
import { Table } from './tables.tsx';
import { Badge, chainLabel, chainOf, Labels, Money, When } from './values.tsx';
import { intentStates, labelWords, stateOf } from './words.ts';

const lanes: Record<Lane, string> = { sdk: 'The checkout', manual: 'A transfer of their own' };
const statuses = Object.entries(paymentIntentStatusWords);
type Options = readonly (readonly [string, string])[];
const options = {
  status: statuses.map(([word, of]) => [word, intentStates[of].label] as const),
  chain: Object.keys(chainWords).map((word) => [word, chainLabel(word)] as const),
  label: ['late', 'found_late', 'overpaid', 'underpaid', 'wrong_token', 'after_cancel', 'reorged'].map(
    (word) => [word, labelWords(word)] as const,
  ),
  lane: Object.entries(lanes),
} satisfies Record<string, Options>;
/** As they are named in the address. Days are in `zone`, or in the browser's zone if that is empty. */
const filtered = [
  ...(['status', 'chain', 'label', 'lane'] as const),
  ...(['paid_from', 'paid_to', 'created_from', 'created_to', 'zone'] as const),
] as const;
type Name = (typeof filtered)[number];
type Filter = Readonly<Record<Name, string>>;

export function Payments({ parameters }: { parameters: URLSearchParams }) {
  const filter = Object.fromEntries(filtered.map((name) => [name, parameters.get(name) ?? ''])) as Filter;
  const key = JSON.stringify(filter);
  const paid = spanOf(filter.paid_from, filter.paid_to, filter.zone);
  const created = spanOf(filter.created_from, filter.created_to, filter.zone);
  return (
    <>
      <h1>Payments</h1>
      <Filters filter={filter} />
      <LiveList
        key={key}
        name={`payments ${key}`}
        ask={(page) =>
          api.listPaymentIntents({
            status: numberIn(paymentIntentStatusWords, filter.status),
            chain: numberIn(chainWords, filter.chain),
            lane: numberIn(laneWords, filter.lane),
            label: filter.label,
            succeededFrom: paid.from,
            succeededBefore: paid.before,
            createdFrom: created.from,
            createdBefore: created.before,
            ...page,
          })
        }
        rowsOf={({ paymentIntents }) => paymentIntents}
        empty={
          Object.values(filter).some((value) => value !== '')
            ? 'No payments match. Remove a filter.'
            : 'No payment yet. The first one that your shop creates is shown here.'
        }
      >
        {(rows) => <PaymentTable rows={rows} />}
      </LiveList>
    </>
  );
}

function Filters({ filter }: { filter: Filter }) {
  const choose = (name: Name) => (value: string) => {
    const { zone, ...chosen } = { ...filter, [name]: value };
    const hasDay = [chosen.paid_from, chosen.paid_to, chosen.created_from, chosen.created_to].some(Boolean);
    go(pathOf('/payments', { ...chosen, zone: hasDay ? zone : '' }), { replaces: true });
  };
  // Stays open when its last filter is removed.
  const hasMore = useRef(false);
  hasMore.current ||= filter.lane + filter.created_from + filter.created_to !== '';
  const choice = (name: keyof typeof options, label: string) => {
    const all: Options = [['', 'All'], ...options[name]];
    return <Choice label={label} value={filter[name]} options={all} onChoose={choose(name)} />;
  };
  const day = (name: Name, label: string) => (
    <Field type="date" label={label} value={filter[name]} onInput={choose(name)} />
  );
  return (
    <>
      <p class="filters">
        {choice('status', 'Status')} {choice('chain', 'Chain')} {choice('label', 'Problem')}
        {day('paid_from', 'Paid from')} {day('paid_to', 'Paid to')}
      </p>
      <details open={hasMore.current}>
        <summary>More filters</summary>
        <p class="filters">
          {choice('lane', 'Paid through')} {day('created_from', 'Created from')}
          {day('created_to', 'Created to')}
        </p>
      </details>
    </>
  );
}

/** What the merchant calls it: its order, or the first text of its metadata. */
export function orderOf({ metadata }: Pick<PaymentIntent, 'metadata'>): string {
  const texts = Object.entries(metadata ?? {}).filter(
    ([, value]) => typeof value === 'string' && /[^\s\p{Default_Ignorable_Code_Point}]/u.test(value),
  );
  // Not `order_total` or `border`, if there is a number.
  const [, text] =
    texts.find(([key]) => /^order(?:[_ -]?(?:id|no|nr|number|ref|reference))?$/i.test(key)) ??
    texts.find(([key]) => /order/i.test(key)) ??
    texts[0] ??
    [];
  return typeof text === 'string' ? text : '';
}

export function PaymentTable({ rows }: { rows: readonly PaymentIntent[] }) {
  return (
    <Table
      rows={rows}
      keyOf={({ id }) => id}
      numbers={['Amount']}
      columns={{
        Payment: (row) => <Link to={`/payments/${row.id}`}>{orderOf(row) || row.id}</Link>,
        Amount: ({ amountUnits: units, tokenAddress: token }) => <Money units={units} token={token} />,
        Status: (row) => (
          <>
            <Badge {...stateOf(row)} /> <Labels of={row.labels} />
          </>
        ),
        Chain: ({ chainId }) => chainOf(chainId)?.name,
        Created: ({ createdAt }) => <When at={createdAt} />,
      }}
    />
  );
}
