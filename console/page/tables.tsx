// Facts about one thing, and tables of many.

import type { JsonObject, JsonValue } from '@bufbuild/protobuf';
import type { ComponentChildren } from 'preact';

interface FactsProps {
  /** Values by their names. What is undefined or false is left out. */
  of: Readonly<Record<string, ComponentChildren>>;
  /** Shown after them, under names that the merchant has chosen. */
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

interface TableProps<Row> {
  rows: readonly Row[];
  keyOf: (row: Row) => string;
  /** What a row has in each column, by the column's name. The first column says what the row is. */
  columns: Readonly<Record<string, (row: Row) => ComponentChildren>>;
  numbers?: readonly string[];
}

/** On a narrow screen each row is a card, except in a table of sums. */
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
                <td key={name} data-name={name} {...classOf(name)}>
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
