import type { CopyName, PageProps } from './parts.tsx';

/** How long a button says that it has copied. */
const copiedMs = 2_000;

/** Copies texts, and says which was copied last. Calls back when that changes. */
export function createCopying(onChange: () => void) {
  let copied: PageProps['copied'];
  return {
    copied: () => copied,
    copy(what: CopyName, text: string): void {
      const say = (isDone: boolean) => {
        const said = { what, isDone };
        copied = said;
        onChange();
        // A payer who has to copy it by hand needs longer.
        if (!isDone) return;
        setTimeout(() => {
          if (copied !== said) return;
          copied = undefined;
          onChange();
        }, copiedMs);
      };
      // Pages without TLS have no clipboard.
      const writing = navigator.clipboard?.writeText(text) ?? Promise.reject();
      writing.then(
        () => say(true),
        () => say(false),
      );
    },
  };
}
