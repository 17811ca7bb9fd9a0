// Lists, newest first, that are kept up to date while nothing moves under the pointer.

import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { ActionButton, Button } from './forms.tsx';
import { Shown, useLoaded } from './loading.tsx';

const pageSize = 50;

interface LiveListProps<Row, Answer> {
  /** What is listed. A list of something else needs another `key`. */
  name: string;
  ask: (page: { pageSize: number; pageToken: string }) => Promise<Answer>;
  rowsOf: (answer: Answer) => readonly Row[];
  /** What the rows are ordered by, from the highest. */
  idOf?: (row: Row) => string;
  /** What is said if there are none. */
  empty: string;
  children: (rows: readonly Row[]) => ComponentChildren;
}

/** Pages without a row that are passed over at once: the service looks through some thousand rows for each. */
const maxEmptyPages = 10;

/** The first page from this one on that has a row, or the last of some. */
export async function firstFound<Row, Answer extends { nextPageToken: string }>(
  ask: LiveListProps<Row, Answer>['ask'],
  rowsOf: (answer: Answer) => readonly Row[],
  pageToken = '',
): Promise<Answer> {
  let answer = await ask({ pageSize, pageToken });
  for (let empty = 1; empty < maxEmptyPages; empty++) {
    if (rowsOf(answer).length > 0 || answer.nextPageToken === '') break;
    answer = await ask({ pageSize, pageToken: answer.nextPageToken });
  }
  return answer;
}

/** A list that goes on when it is asked to, and says how many are new. */
export function LiveList<Row extends { id: string }, Answer extends { nextPageToken: string }>(
  props: LiveListProps<Row, Answer>,
) {
  const { ask, rowsOf, idOf = ({ id }) => id } = props;
  const newest = useLoaded(props.name, () => ask({ pageSize, pageToken: '' }));
  const [shown, setShown] = useState<{ rows: readonly Row[]; next: string }>();
  const show = (answer: Answer, above: readonly Row[] = []) =>
    setShown({ rows: [...above, ...rowsOf(answer)], next: answer.nextPageToken });
  if (shown === undefined && newest.value !== undefined) show(newest.value);
  return (
    <Shown of={newest}>
      {(answer) => {
        const latest = rowsOf(answer);
        const { rows: known, next } = shown ?? { rows: latest, next: answer.nextPageToken };
        const now = new Map(latest.map((row) => [idOf(row), row]));
        const ids = new Set(known.map(idOf));
        const fresh = latest.filter((row) => !ids.has(idOf(row))).length;
        // As far down as was asked again, what is not there any more is of another list now. Nobody knows how far down an
        // empty page was that is not the last.
        const lowest = answer.nextPageToken === '' ? '' : latest.map(idOf).at(-1);
        const rows = known.flatMap(
          (row) => now.get(idOf(row)) ?? (lowest === undefined || idOf(row) < lowest ? row : []),
        );
        if (rows.length === 0 && fresh === 0 && next === '') return <p class="state">{props.empty}</p>;
        const count = fresh === pageSize ? `${fresh} or more` : fresh;
        return (
          <>
            <p class="news" role="status">
              {fresh > 0 && <Button label={`${count} new`} onClick={() => show(answer)} />}
            </p>
            {rows.length > 0 ? props.children(rows) : <p class="state">None among the newest.</p>}
            {rows.length > pageSize && (
              <p class="soft">
                The newest fifty are kept up to date. Open an older one to see how it stands.
              </p>
            )}
            {next !== '' && (
              <ActionButton
                label="Show more"
                onDo={async () => show(await firstFound(ask, rowsOf, next), known)}
              />
            )}
          </>
        );
      }}
    </Shown>
  );
}
