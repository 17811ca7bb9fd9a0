// What came in and what went back, as a file for bookkeeping.

import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { useState } from 'preact/hooks';
import { Advice, consoleApi } from './api.ts';

import { Button, useAction } from './parts.tsx';

/** The first of this month, or of the last one, in the viewer's time zone. */
function firstOfMonth(monthsAgo: number): Date {
  const now = new Date();
  return new Date(now.getFullYear(), now.getMonth() - monthsAgo, 1);
}

/** As a date field has it. */
const fieldOf = (date: Date) =>
  [date.getFullYear(), date.getMonth() + 1, date.getDate()]
    .map((part) => String(part).padStart(2, '0'))
    .join('-');

export function Export() {
  const lastMonth = firstOfMonth(1);
  const [from, setFrom] = useState(fieldOf(lastMonth));
  const [to, setTo] = useState(fieldOf(new Date(firstOfMonth(0).getTime() - 1)));
  const action = useAction();
  const begin = () =>
    action.run(async () => {
      // Without a zone, a date with a time is of the viewer's.
      const first = new Date(`${from}T00:00`);
      const last = new Date(`${to}T00:00`);
      if (Number.isNaN(first.getTime()) || Number.isNaN(last.getTime())) throw new Advice('Choose two days.');
      const before = new Date(last.getFullYear(), last.getMonth(), last.getDate() + 1);
      if (before <= first) throw new Advice('The last day is before the first.');
      const { ticket } = await consoleApi.createExport({
        fromTime: timestampFromMs(first.getTime()),
        beforeTime: timestampFromMs(before.getTime()),
      });
      // An attachment: the page stays.
      location.assign(`/console/export?ticket=${ticket}`);
    });
  return (
    <>
      <h1>Export</h1>
      <p class="lead">
        A line for each transfer, by the time of its block: payments, refunds, and money that names no
        payment. For any spreadsheet; times in the file are UTC.
      </p>
      <form
        class="confirm"
        aria-label="Export"
        onSubmit={(event) => {
          event.preventDefault();
          begin();
        }}
      >
        <p class="filters">
          <Day label="First day" value={from} onInput={setFrom} />
          <Day label="Last day" value={to} onInput={setTo} />
        </p>
        {action.failure !== undefined && <p role="alert">{action.failure}</p>}
        <p class="actions">
          <Button label="Download the CSV file" isMain isSubmit isBusy={action.isBusy} />
        </p>
      </form>
    </>
  );
}

function Day({ label, value, onInput }: { label: string; value: string; onInput: (value: string) => void }) {
  return (
    <label>
      {label}
      <input type="date" value={value} onInput={({ currentTarget }) => onInput(currentTarget.value)} />
    </label>
  );
}
