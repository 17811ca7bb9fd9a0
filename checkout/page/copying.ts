import { useEffect, useState } from 'preact/hooks';

/** How long a button says that it has copied. */
const copiedMs = 2_000;

/** Copies a text. `outcome` says for a while that it was, and longer that it was not: it has to be copied by hand then. */
export function useCopying(text: string) {
  const [outcome, setOutcome] = useState<{ isDone: boolean }>();
  useEffect(() => {
    if (!outcome?.isDone) return;
    const timer = setTimeout(() => setOutcome(undefined), copiedMs);
    return () => clearTimeout(timer);
  }, [outcome]);
  const copy = () => {
    // Pages without TLS have no clipboard.
    const writing = navigator.clipboard?.writeText(text) ?? Promise.reject();
    const end = (isDone: boolean) => () => setOutcome({ isDone });
    writing.then(end(true), end(false));
  };
  return { outcome, copy };
}
