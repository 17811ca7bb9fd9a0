// Buttons and form fields.

import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { wordsOf } from './api.ts';

interface ButtonProps {
  label: string;
  onClick?: () => void;
  /** Filled, for the main action. */
  isMain?: boolean;
  /** One of many. */
  isSmall?: boolean;
  isBusy?: boolean;
  /** Submits its form, as Enter does. */
  isSubmit?: boolean;
}

export function Button({ label, onClick, isMain, isSmall, isBusy = false, isSubmit }: ButtonProps) {
  return (
    <button
      type={isSubmit ? 'submit' : 'button'}
      class={isMain ? 'main' : isSmall ? 'small' : ''}
      aria-disabled={isBusy}
      // A double click is one press: the first may have been answered before the second.
      onClick={(event) => {
        if (event.detail > 1) event.preventDefault();
        else if (!isBusy) onClick?.();
      }}
    >
      {label}
    </button>
  );
}

interface FieldProps {
  label: string;
  value: string;
  onInput: (value: string) => void;
  type?: 'date' | 'text';
  inputMode?: 'decimal' | 'text';
}

const maxFieldLength = 500;

export function Field({ label, value, onInput, type = 'text', inputMode = 'text' }: FieldProps) {
  return (
    <label>
      {label}
      <input
        // Preact has a separate type for each type of input.
        type={type as 'text'}
        autocomplete="off"
        spellcheck={false}
        inputMode={inputMode}
        maxLength={maxFieldLength}
        value={value}
        onInput={({ currentTarget }) => onInput(currentTarget.value)}
      />
    </label>
  );
}

interface ChoiceProps {
  label: string;
  value: string | number;
  options: readonly (readonly [string | number, string])[];
  onChoose: (value: string) => void;
  /** Without a visible label, because its place makes it clear. */
  isBare?: boolean;
}

export function Choice({ label, value, options, onChoose, isBare = false }: ChoiceProps) {
  return (
    <label>
      {!isBare && label}
      <select
        value={value}
        aria-label={label}
        onChange={({ currentTarget }) => onChoose(currentTarget.value)}
      >
        {options.map(([each, words]) => (
          <option key={each} value={each}>
            {words}
          </option>
        ))}
      </select>
    </label>
  );
}

/** Says something to those who do not see the page. */
export function say(text: string): void {
  const place = document.getElementById('said');
  if (place === null) return;
  place.textContent = '';
  // Emptied first, so that the same words are said again.
  setTimeout(() => (place.textContent = text), 100);
}

/** An action of a user: whether it runs, and why it failed. */
export function useAction() {
  const [state, setState] = useState<{ isBusy: boolean; failure?: string }>({ isBusy: false });
  const run = (work: () => Promise<unknown>, label?: string) => {
    setState({ isBusy: true });
    work().then(
      () => {
        setState({ isBusy: false });
        if (label !== undefined) say(`${label}: done`);
      },
      (reason) => setState({ isBusy: false, failure: wordsOf(reason) }),
    );
  };
  /** Forgets the failure, because the input has changed since. */
  const forget = () => setState(({ isBusy }) => ({ isBusy }));
  return { isBusy: state.isBusy, failure: state.failure, run, forget };
}

interface ActionButtonProps extends Omit<ButtonProps, 'onClick' | 'isBusy'> {
  onDo: () => Promise<unknown>;
}

/** A button that acts at once. A failure is shown beside it. */
export function ActionButton({ onDo, ...button }: ActionButtonProps) {
  const { isBusy, failure, run } = useAction();
  return (
    <>
      <Button {...button} isBusy={isBusy} onClick={() => run(onDo, button.label)} />
      {failure !== undefined && <span role="alert"> {failure}</span>}
    </>
  );
}

interface OpenerProps {
  /** The label of the button that opens it. */
  label: string;
  isSmall?: boolean;
  /** Sets what its fields begin with. */
  onOpen?: () => void;
  /** The label of the button that does it. */
  doLabel: string;
  /** A failure is shown beside that button. */
  onDo: () => Promise<unknown>;
  children: ComponentChildren;
}

/** An action to confirm: it says what it will do, and a second press does it. The focus moves along. */
export function Opener({ label, isSmall = false, onOpen, doLabel, onDo, children }: OpenerProps) {
  const [isOpen, setIsOpen] = useState(false);
  const { isBusy, failure, run, forget } = useAction();
  const place = useRef<HTMLDivElement>(null);
  const wasOpen = useRef(isOpen);
  // A layout effect: the key that is pressed next must reach the new focus.
  useLayoutEffect(() => {
    if (wasOpen.current === isOpen) return;
    wasOpen.current = isOpen;
    forget();
    const within = (what: string) => place.current?.querySelector<HTMLElement>(what);
    (isOpen ? (within('input') ?? within('form')) : within('button'))?.focus();
    place.current?.querySelector('input')?.select();
  }, [isOpen]);
  const open = () => {
    onOpen?.();
    setIsOpen(true);
  };
  const submit = (event: Event) => {
    event.preventDefault();
    if (isBusy) return;
    run(async () => {
      await onDo();
      setIsOpen(false);
    }, doLabel);
  };
  return (
    <div ref={place} class="opener">
      {isOpen ? (
        <form class="confirm" aria-label={label} tabIndex={-1} onInput={forget} onSubmit={submit}>
          {children}
          {failure !== undefined && <p role="alert">{failure}</p>}
          <p class="actions">
            <Button label={doLabel} isMain isSubmit isBusy={isBusy} />
            <Button label="Close" onClick={() => setIsOpen(false)} />
          </p>
        </form>
      ) : (
        <Button label={label} isSmall={isSmall} onClick={open} />
      )}
    </div>
  );
}
