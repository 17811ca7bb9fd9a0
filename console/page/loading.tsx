// Views of loaded data: loading, empty, failed, and reloaded while the tab is visible.

import type { ComponentChildren } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { changes, isMissing, isWorthAsking, newAnswersCount, useScope, wordsOf } from './api.ts';
import { ActionButton, Button, say } from './forms.tsx';

const askAgainMs = 3_000;
/** For calls that cost more than a list. */
export const rarelyMs = 15_000;

interface Loaded<T> {
  value?: T;
  /** Why the last call failed. `value` stays as it was before. */
  failure?: unknown;
}

/**
 * Loads something: whenever `key` changes, every `everyMs` while the tab is visible, when it becomes visible
 * again, and after each change that this tab makes. After a temporary failure it loads again even if
 * `everyMs` is 0. A value loaded for another key is not shown.
 */
export function useLoaded<T>(key: string, load: () => Promise<T>, everyMs = askAgainMs): Loaded<T> {
  const [state, setState] = useState<{ key: string; value?: T; failure?: unknown }>({ key });
  const latest = useRef(load);
  latest.current = load;
  /** How many new answers there were at the last redraw. */
  const drawnAt = useRef(-1);
  useEffect(() => {
    // Only the newest call counts: an older answer must not replace a newer one.
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
        // Nothing is redrawn without news: a thousand rows take longer than a frame.
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
  /** It is the whole view, with its heading. */
  isView?: boolean;
  children: (value: T) => ComponentChildren;
}

/** Shows what was loaded, or why it is missing. */
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
      {isView && value === undefined && <h1>{isMissing(failure) ? 'Not found' : 'Not loaded'}</h1>}
      {failure !== undefined && (
        <div class="notice" role="alert">
          <p>
            {isMissing(failure) ? 'Not found, or this session may not see it.' : wordsOf(failure)}
            {value !== undefined && ' Showing the last known state.'}
            {isWorthAsking(failure) && ' Retrying…'}
          </p>
          {!isWorthAsking(failure) && !isMissing(failure) && (
            <Button label="Try again" onClick={() => changes.dispatchEvent(new Event('change'))} />
          )}
        </div>
      )}
      {value !== undefined && children(value)}
    </>
  );
}

interface HeadProps {
  /** What it is. */
  kind: string;
  /** With the kind, its name for the tab and for those who do not see the page. */
  name: string;
  /** The heading, if it is more than the name. */
  heading?: ComponentChildren;
  children: ComponentChildren;
}

/** The beginning of the view of one thing. */
export function Head({ kind, name, heading, children }: HeadProps) {
  const { merchant } = useScope();
  useEffect(() => {
    document.title = `${kind}, ${name} · ${merchant.name}`;
    say(`${kind}, ${name}`);
  }, [kind, name]);
  return (
    <header class="head">
      <p class="soft">{kind}</p>
      {heading === undefined ? <h1 class="url">{name}</h1> : <h1>{heading}</h1>}
      {children}
    </header>
  );
}

const pageSize = 50;

/** What a list shows, and where. The way back leads there again. */
interface Kept {
  shown?: { rows: readonly unknown[]; next: string };
  scrollY?: number;
}

/** By the entry of the browser's history, the last used at the end. */
const keptLists = new Map<string, Kept>();
const maxKept = 20;

function keptOf(place: string): Kept {
  const kept = keptLists.get(place) ?? {};
  keptLists.delete(place);
  keptLists.set(place, kept);
  const [oldest = ''] = keptLists.keys();
  if (keptLists.size > maxKept) keptLists.delete(oldest);
  return kept;
}

interface LiveListProps<Row, Answer> {
  /** What is listed. A list of something else needs another `key`. */
  name: string;
  ask: (page: { pageSize: number; pageToken: string }) => Promise<Answer>;
  rowsOf: (answer: Answer) => readonly Row[];
  /** What the rows are ordered by, descending. */
  idOf?: (row: Row) => string;
  /** Shown if there are no rows. */
  empty: string;
  children: (rows: readonly Row[]) => ComponentChildren;
}

/** How many pages without a row are skipped at once: the service scans some thousand rows for each. */
const maxEmptyPages = 10;

/** Returns the first page from this one on that has a row, or the last one tried. */
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

/** A list, newest first, with buttons for more rows and for new ones: none of these moves the others. */
export function LiveList<Row extends { id: string }, Answer extends { nextPageToken: string }>(
  props: LiveListProps<Row, Answer>,
) {
  const { ask, rowsOf, idOf = ({ id }) => id } = props;
  const newest = useLoaded(props.name, () => ask({ pageSize, pageToken: '' }));
  const { id, mode } = useScope().merchant;
  const [kept] = useState(() => keptOf(`${history.state} ${id} ${mode} ${props.name}`));
  const [shown, setShown] = useState(kept.shown as { rows: readonly Row[]; next: string } | undefined);
  const list = useRef<HTMLDivElement>(null);
  const show = (answer: Answer, above: readonly Row[] = []) => {
    const now = { rows: [...above, ...rowsOf(answer)], next: answer.nextPageToken };
    kept.shown = now;
    setShown(now);
  };
  useLayoutEffect(() => {
    if (newest.value === undefined) return;
    if (kept.scrollY !== undefined) scrollTo(0, kept.scrollY);
    return () => {
      kept.scrollY = scrollY;
    };
  }, [newest.value === undefined]);
  if (shown === undefined && newest.value !== undefined) show(newest.value);
  return (
    <Shown of={newest}>
      {(answer) => {
        const latest = rowsOf(answer);
        const { rows: known, next } = shown ?? { rows: latest, next: answer.nextPageToken };
        const now = new Map(latest.map((row) => [idOf(row), row]));
        const ids = new Set(known.map(idOf));
        // Where one has left the list, an older one has moved up, which is not new.
        const end = next === '' ? undefined : known.at(-1);
        const isFresh = (row: Row) => !ids.has(idOf(row)) && (end === undefined || idOf(row) > idOf(end));
        const fresh = latest.filter(isFresh).length;
        // A row that is missing from the range just reloaded is in another list now. An empty page that is
        // not the last covers an unknown range.
        const lowest = answer.nextPageToken === '' ? '' : latest.map(idOf).at(-1);
        const isBelow = (row: Row) => lowest === undefined || idOf(row) < lowest;
        const rows = known.flatMap((row) => now.get(idOf(row)) ?? (isBelow(row) ? row : []));
        if (rows.length === 0 && fresh === 0 && next === '') return <p class="state">{props.empty}</p>;
        const count = fresh === pageSize ? `${fresh} or more` : fresh;
        const more = async () => {
          const pressed = document.activeElement;
          const answer = await firstFound(ask, rowsOf, next);
          const hasMoved = document.activeElement !== pressed;
          show(answer, known);
          // The button has moved below the new rows, or is gone.
          requestAnimationFrame(() => {
            const row = list.current?.querySelectorAll('tbody tr')[rows.length];
            if (!hasMoved) row?.querySelector('a')?.focus();
          });
        };
        return (
          <div ref={list}>
            <p class="news" role="status">
              {fresh > 0 && <Button label={`${count} new`} onClick={() => show(answer)} />}
            </p>
            {rows.length > 0 && props.children(rows)}
            {rows.length === 0 && fresh === 0 && <p class="state">None among the newest.</p>}
            {rows.length > pageSize && (
              <p class="soft">
                Only the newest fifty update automatically. Open an older one to see its current state.
              </p>
            )}
            {next !== '' && <ActionButton label="Show more" onDo={more} />}
          </div>
        );
      }}
    </Shown>
  );
}
