// Views of what the service has: loading, empty, failed, and what is asked again while the tab is seen.

import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { changes, isMissing, isWorthAsking, newAnswersCount, wordsOf } from './api.ts';
import { Button } from './forms.tsx';

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
