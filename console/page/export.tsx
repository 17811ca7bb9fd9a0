// What came in and what went back, as a file for bookkeeping.

import { useState } from 'preact/hooks';
import { Advice, consoleApi } from './api.ts';
import { dayOf, ownZone, spanOf, zoneWords } from './days.ts';
import { Button, Field, useAction } from './forms.tsx';

/** As the service has it. */
const maxDays = 400;

export function Export() {
  const [now] = useState(new Date());
  const [from, setFrom] = useState(dayOf(new Date(now.getFullYear(), now.getMonth() - 1, 1).getTime()));
  const [to, setTo] = useState(dayOf(new Date(now.getFullYear(), now.getMonth(), 0).getTime()));
  const action = useAction();
  const begin = (event: Event) => {
    event.preventDefault();
    if (action.isBusy) return;
    action.run(async () => {
      const { from: fromTime, before: beforeTime } = spanOf(from, to);
      if (fromTime === undefined || beforeTime === undefined) throw new Advice('Choose two days.');
      if (Date.parse(to) - Date.parse(from) >= maxDays * 86_400_000) {
        throw new Advice(`At most ${maxDays} days fit in a file.`);
      }
      if (to < from) throw new Advice('The last day is before the first.');
      const { ticket } = await consoleApi.createExport({ fromTime, beforeTime });
      // A refusal, too, is one of the download: the page stays.
      const link = Object.assign(document.createElement('a'), { download: '' });
      link.href = `/console/export?ticket=${ticket}`;
      link.click();
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
