// What came in and what went back, as a file for bookkeeping.

import { useState } from 'preact/hooks';
import { Advice, consoleApi } from './api.ts';
import { dayOf, ownZone, spanOf, zoneWords } from './days.ts';
import { Button, Field, useAction } from './forms.tsx';

export function Export() {
  const [now] = useState(new Date());
  const [from, setFrom] = useState(dayOf(new Date(now.getFullYear(), now.getMonth() - 1, 1).getTime()));
  const [to, setTo] = useState(dayOf(new Date(now.getFullYear(), now.getMonth(), 0).getTime()));
  const action = useAction();
  const begin = (event: Event) => {
    event.preventDefault();
    action.run(async () => {
      const { from: fromTime, before: beforeTime } = spanOf(from, to);
      if (fromTime === undefined || beforeTime === undefined) throw new Advice('Choose two days.');
      if (to < from) throw new Advice('The last day is before the first.');
      const { ticket } = await consoleApi.createExport({ fromTime, beforeTime });
      // An attachment: the page stays.
      location.assign(`/console/export?ticket=${ticket}`);
    });
  };
  return (
    <>
      <h1>Export</h1>
      <p class="lead">
        A line for each transfer, by the time of its block: payments, refunds, and money that names no
        payment. For any spreadsheet. The days are those of {zoneWords(ownZone())}; times in the file are UTC.
      </p>
      <form class="confirm" aria-label="Export" onSubmit={begin}>
        <p class="filters">
          <Field type="date" label="First day" value={from} onInput={setFrom} />
          <Field type="date" label="Last day" value={to} onInput={setTo} />
        </p>
        {action.failure !== undefined && <p role="alert">{action.failure}</p>}
        <p class="actions">
          <Button label="Download the CSV file" isMain isSubmit isBusy={action.isBusy} />
        </p>
      </form>
    </>
  );
}
