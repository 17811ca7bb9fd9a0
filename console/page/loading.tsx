// Views of what the service has: loading, empty, failed, and what is asked again while the tab is seen.

import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { changes, isMissing, isWorthAsking, newAnswersCount, wordsOf } from './api.ts';
import { ActionButton, Button } from './forms.tsx';

const askAgainMs = 3_000;
/** For what costs more than a list. */
export const rarelyMs = 15_000;

interface Loaded<T> {
  value?: T;
  /** Why the last call failed. What was known before is still there. */
  failure?: unknown;
}

/**
 * Loads something, anew whenever `key` changes, and again at this interval while the tab is seen: at once after it was
 * hidden, and after each change that this tab makes. After a failure that may pass it is asked again in any case. What was loaded for another key is not shown.
 */
export function useLoaded<T>(key: string, load: () => Promise<T>, everyMs = askAgainMs): Loaded<T> {
  const [state, setState] = useState<{ key: string; value?: T; failure?: unknown }>({ key });
  const latest = useRef(load);
  latest.current = load;
  /** How many new answers there were when this was drawn last. */
  const drawnAt = useRef(-1);
  useEffect(() => {
    // The newest call only: an older answer must not replace a newer one.
    let turn = 0;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const run = async () => {
      clearTimeout(timer);
      if (document.hidden) return;
      const own = ++turn;
      let isWanted = everyMs > 0;
      try {
        const value = await latest.current();
        if (own !== turn) return;
        const isNew = newAnswersCount() !== drawnAt.current;
        drawnAt.current = newAnswersCount();
        // Without news nothing is drawn again: a thousand rows take longer than a frame.
        setState((known) =>
          isNew || known.key !== key || !('value' in known) || 'failure' in known ? { key, value } : known,
        );
      } catch (failure) {
        isWanted = isWorthAsking(failure);
        if (own === turn) setState((known) => (known.key === key ? { ...known, failure } : { key, failure }));
      }
      if (isWanted && own === turn) timer = setTimeout(run, everyMs || askAgainMs);
    };
    run();
    document.addEventListener('visibilitychange', run);
    changes.addEventListener('change', run);
    return () => {
      turn = Number.POSITIVE_INFINITY;
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', run);
      changes.removeEventListener('change', run);
    };
  }, [key, everyMs]);
  return state.key === key ? state : {};
}

interface ShownProps<T> {
  of: Loaded<T>;
  /** It is all of the view, with its heading. */
  isView?: boolean;
  children: (value: T) => ComponentChildren;
}

/** What was loaded, or that it is not there. */
export function Shown<T>({ of: { value, failure }, isView = false, children }: ShownProps<T>) {
  if (value === undefined && failure === undefined) {
    return (
      <p class="state" role="status">
        Loading…
      </p>
    );
  }
  return (
    <>
      {isView && value === undefined && <h1>{isMissing(failure) ? 'Not here' : 'Not loaded'}</h1>}
      {failure !== undefined && (
        <div class="notice" role="alert">
          <p>
            {isMissing(failure)
              ? 'There is no such thing, or this session may not see it.'
              : wordsOf(failure)}
            {value !== undefined && ' This is how it was.'}
            {isWorthAsking(failure) && ' Asking again…'}
          </p>
          {!isWorthAsking(failure) && !isMissing(failure) && (
            <Button label="Ask again" onClick={() => changes.dispatchEvent(new Event('change'))} />
          )}
        </div>
      )}
      {value !== undefined && children(value)}
    </>
  );
}

// Lists, newest first, that are kept up to date while nothing moves under the pointer.

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
        const isBelow = (row: Row) => lowest === undefined || idOf(row) < lowest;
        const rows = known.flatMap((row) => now.get(idOf(row)) ?? (isBelow(row) ? row : []));
        if (rows.length === 0 && fresh === 0 && next === '') return <p class="state">{props.empty}</p>;
        const count = fresh === pageSize ? `${fresh} or more` : fresh;
        const more = async () => show(await firstFound(ask, rowsOf, next), known);
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
            {next !== '' && <ActionButton label="Show more" onDo={more} />}
          </>
        );
      }}
    </Shown>
  );
}
