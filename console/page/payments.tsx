// The payments: intents, newest first. New ones wait until they are asked for, so that nothing moves under the pointer.

import { useState } from 'preact/hooks';
import type { PaymentIntent } from '../../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { chainWords, paymentIntentStatusWords } from '../../src/contract/gen/words.ts';
import { intentApi } from './api.ts';
import { spanOf } from './days.ts';
import { ActionButton, Button, Field } from './forms.tsx';
import { Shown, useLoaded } from './loading.tsx';
import { go, Link, pathOf } from './routing.tsx';
import { Table } from './tables.tsx';
import { Badge, chainLabel, chainOf, Labels, Money, When } from './values.tsx';
import { intentStates, labelWords, stateOf } from './words.ts';

const pageSize = 50;
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
      <PaymentList
        key={key}
        name={`payments ${key}`}
        ask={{
          status: paymentIntentStatusWords[filter.status as keyof typeof paymentIntentStatusWords] ?? 0,
          chain: chainWords[filter.chain as keyof typeof chainWords] ?? 0,
          label: filter.label,
          ...(span && { succeededFrom: span.from, succeededBefore: span.before }),
        }}
        empty={
          Object.values(filter).some((value) => value !== '')
            ? 'No payments match. Remove a filter.'
            : 'No payment yet. The first one that your shop creates is shown here.'
        }
      />
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

interface PaymentListProps {
  name: string;
  ask: Parameters<typeof intentApi.listPaymentIntents>[0];
  empty: string;
}

/** A list that goes on when it is asked to, and says how many are new. */
function PaymentList({ name, ask, empty }: PaymentListProps) {
  const newest = useLoaded(name, () => intentApi.listPaymentIntents({ ...ask, pageSize }));
  const [shown, setShown] = useState<{ rows: PaymentIntent[]; next: string }>();
  if (shown === undefined && newest.value !== undefined) {
    setShown({ rows: newest.value.paymentIntents, next: newest.value.nextPageToken });
  }
  return (
    <Shown of={newest}>
      {({ paymentIntents: latest, nextPageToken }) => {
        const now = new Map(latest.map((row) => [row.id, row]));
        const known = shown?.rows ?? latest;
        const ids = new Set(known.map(({ id }) => id));
        const fresh = latest.filter(({ id }) => !ids.has(id)).length;
        // As far down as was asked again, what is not there any more is another's: it has another status now.
        const lowest = nextPageToken === '' ? '' : (latest.at(-1)?.id ?? '');
        const rows = known.flatMap((row) => now.get(row.id) ?? (row.id < lowest ? row : []));
        const next = shown?.next ?? nextPageToken;
        if (rows.length === 0 && fresh === 0 && next === '') return <p class="state">{empty}</p>;
        const goOn = async () => {
          const page = await intentApi.listPaymentIntents({ ...ask, pageSize, pageToken: next });
          setShown({ rows: [...known, ...page.paymentIntents], next: page.nextPageToken });
        };
        return (
          <>
            <p class="news" role="status">
              {fresh > 0 && (
                <Button
                  label={`${fresh === pageSize ? `${fresh} or more` : fresh} new`}
                  onClick={() => setShown({ rows: latest, next: nextPageToken })}
                />
              )}
            </p>
            <PaymentTable rows={rows} />
            {rows.length > pageSize && (
              <p class="soft">
                The newest fifty are kept up to date. Open an older one to see how it stands.
              </p>
            )}
            {next !== '' && <ActionButton label="Show more" onDo={goOn} />}
          </>
        );
      }}
    </Shown>
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
