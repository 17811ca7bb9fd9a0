// The payments: intents, newest first.

import type { PaymentIntent } from '../../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { chainWords, paymentIntentStatusWords } from '../../src/contract/gen/words.ts';
import { intentApi } from './api.ts';
import { spanOf } from './days.ts';
import { Field } from './forms.tsx';
import { LiveList } from './lists.tsx';
import { go, Link, pathOf } from './routing.tsx';
import { Table } from './tables.tsx';
import { Badge, chainLabel, chainOf, Labels, Money, When } from './values.tsx';
import { intentStates, labelWords, stateOf } from './words.ts';

const selects = ['status', 'chain', 'label'] as const;
/** A day is one of `zone`, where it is not the browser's. */
const filtered = [...selects, 'day', 'zone'] as const;
type Filter = Readonly<Record<(typeof filtered)[number], string>>;
const labels = ['late', 'overpaid', 'underpaid', 'wrong_token', 'after_cancel', 'reorged'];

export function Payments({ parameters }: { parameters: URLSearchParams }) {
  const filter = Object.fromEntries(filtered.map((name) => [name, parameters.get(name) ?? ''])) as Filter;
  const key = JSON.stringify(filter);
  const span = spanOf(filter.day, filter.day, filter.zone);
  return (
    <>
      <h1>Payments</h1>
      <Filters filter={filter} />
      <LiveList
        key={key}
        name={`payments ${key}`}
        ask={(page) =>
          intentApi.listPaymentIntents({
            status: paymentIntentStatusWords[filter.status as keyof typeof paymentIntentStatusWords] ?? 0,
            chain: chainWords[filter.chain as keyof typeof chainWords] ?? 0,
            label: filter.label,
            ...(span && { succeededFrom: span.from, succeededBefore: span.before }),
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
  const choose = (name: string, value: string) =>
    go(pathOf('/payments', { ...filter, [name]: value }), { replaces: true });
  const options = {
    status: Object.entries(paymentIntentStatusWords).map(([word, number]) => [
      word,
      intentStates[number].label,
    ]),
    chain: Object.keys(chainWords).map((word) => [word, chainLabel(word)]),
    label: labels.map((word) => [word, labelWords(word)]),
  };
  const names = { status: 'Status', chain: 'Chain', label: 'Problem' };
  return (
    <p class="filters">
      {selects.map((name) => (
        <label key={name}>
          {names[name]}
          <select value={filter[name]} onChange={({ currentTarget }) => choose(name, currentTarget.value)}>
            <option value="">All</option>
            {options[name].map(([word, label]) => (
              <option key={word} value={word}>
                {label}
              </option>
            ))}
          </select>
        </label>
      ))}
      <Field type="date" label="Paid on" value={filter.day} onInput={(day) => choose('day', day)} />
    </p>
  );
}

/** What the merchant calls it: its order, or the first text of its metadata. */
export function orderOf({ metadata }: Pick<PaymentIntent, 'metadata'>): string {
  const texts = Object.entries(metadata ?? {}).filter(([, value]) => typeof value === 'string');
  const [, text] = texts.find(([key]) => /order/i.test(key)) ?? texts[0] ?? [];
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
        Amount: ({ amountUnits, decimals, tokenSymbol }) => (
          <Money units={amountUnits} decimals={decimals} symbol={tokenSymbol} />
        ),
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
