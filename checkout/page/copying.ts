import { useEffect, useState } from 'preact/hooks';

/** How long a button says that it has copied. */
const copiedMs = 2_000;

/** Copies a text. `outcome` shows success for a while. A failure stays: the text has to be copied by hand. */
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
