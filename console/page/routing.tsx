// Where the console is: its paths, links that do not load the page anew, and the way back.

import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { changes } from './api.ts';

/** A path with the fragment that names an operator's merchant, unless it has its own. */
const addressOf = (path: string): string =>
  path.includes('#') || !location.hash.startsWith('#merchant=') ? path : path + location.hash;

/**
 * Goes to a path of the console; loads the page's data again if it is there. With `replaces`, it replaces the
 * current entry of the browser's history. The new entry has a state of its own, by which `LiveList` knows it.
 */
export function go(path: string, { replaces = false } = {}): void {
  const address = addressOf(path);
  if (address === location.pathname + location.search + location.hash) {
    changes.dispatchEvent(new Event('change'));
    return;
  }
  history[replaces ? 'replaceState' : 'pushState'](Math.random(), '', address);
  // The browser reports only its own moves.
  dispatchEvent(new Event('popstate'));
}

/** Gives this page another fragment, but not in place of a link's code, which loads it anew. */
export function setFragment(fragment: string): void {
  if (location.hash === fragment || location.hash.startsWith('#cl_')) return;
  history.replaceState(history.state, '', fragment);
  dispatchEvent(new Event('popstate'));
}

export function useLocation(): URL {
  const [href, setHref] = useState(location.href);
  useEffect(() => {
    const update = () => setHref(location.href);
    addEventListener('popstate', update);
    return () => removeEventListener('popstate', update);
  }, []);
  return new URL(href);
}

/** A path with these parameters; empty ones are left out. */
export function pathOf(path: string, parameters: Readonly<Record<string, string>> = {}): string {
  const given = Object.entries(parameters).filter(([, value]) => value !== '');
  return given.length === 0 ? path : `${path}?${new URLSearchParams(given)}`;
}

/** The number of a word of the address, which may have anything, such as `constructor`; 0 if it is no word. */
export const numberIn = <T extends number>(words: Readonly<Record<string, T>>, word: string): T | 0 =>
  (Object.hasOwn(words, word) && words[word]) || 0;

interface LinkProps {
  /** If false, only the text is shown. */
  to: string | false;
  /** It leads to the current section. */
  isCurrent?: boolean;
  /** It looks like a button. */
  isButton?: boolean;
  children: ComponentChildren;
}

export function Link({ to, isCurrent = false, isButton = false, children }: LinkProps) {
  if (to === false) return <>{children}</>;
  const onClick = (event: MouseEvent) => {
    const isPlain =
      event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (!isPlain) return;
    event.preventDefault();
    go(to);
  };
  return (
    <a
      href={addressOf(to)}
      onClick={onClick}
      class={isButton ? 'button' : undefined}
      aria-current={isCurrent ? 'page' : undefined}
    >
      {children}
    </a>
  );
}
