// What is pressed and filled in.

import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { wordsOf } from './api.ts';

interface ButtonProps {
  label: string;
  onClick?: () => void;
  /** Filled, for the one thing to do. */
  isMain?: boolean;
  /** One of many. */
  isSmall?: boolean;
  isBusy?: boolean;
  /** Sends the form that it stands in, as Enter does. */
  isSubmit?: boolean;
}

export function Button({ label, onClick, isMain, isSmall, isBusy = false, isSubmit }: ButtonProps) {
  return (
    <button
      type={isSubmit ? 'submit' : 'button'}
      class={isMain ? 'main' : isSmall ? 'small' : ''}
      aria-disabled={isBusy}
      onClick={isBusy ? undefined : onClick}
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
        // Preact's types have each type of input apart.
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
  /** Its place says what it is. */
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

/** An action of a person: pressed once, with what came of it. */
export function useAction() {
  const [state, setState] = useState<{ isBusy: boolean; failure?: string }>({ isBusy: false });
  const run = (work: () => Promise<unknown>) => {
    setState({ isBusy: true });
    work().then(
      () => setState({ isBusy: false }),
      (reason) => setState({ isBusy: false, failure: wordsOf(reason) }),
    );
  };
  /** Forgets the failure: what is given has changed since. */
  const forget = () => setState(({ isBusy }) => ({ isBusy }));
  return { isBusy: state.isBusy, failure: state.failure, run, forget };
}

interface ActionButtonProps extends Omit<ButtonProps, 'onClick' | 'isBusy'> {
  onDo: () => Promise<unknown>;
}

/** A button that does something at once. What fails is said beside it. */
export function ActionButton({ onDo, ...button }: ActionButtonProps) {
  const { isBusy, failure, run } = useAction();
  return (
    <>
      <Button {...button} isBusy={isBusy} onClick={() => run(onDo)} />
      {failure !== undefined && <span role="alert"> {failure}</span>}
    </>
  );
}

interface OpenerProps {
  /** What opens it. */
  label: string;
  isSmall?: boolean;
  /** What its fields begin with. */
  onOpen?: () => void;
  /** What does it. */
  doLabel: string;
  /** What fails is said beside it. */
  onDo: () => Promise<unknown>;
  children: ComponentChildren;
}

/** An action that says what it will do, and does it when it is pressed a second time. The focus goes with it. */
export function Opener({ label, isSmall = false, onOpen, doLabel, onDo, children }: OpenerProps) {
  const [isOpen, setIsOpen] = useState(false);
  const { isBusy, failure, run, forget } = useAction();
  const place = useRef<HTMLDivElement>(null);
  const wasOpen = useRef(isOpen);
  // At once: a key that is pressed next belongs to it.
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
    });
  };
  return (
    <div ref={place} class="opener">
      {isOpen ? (
        <form class="confirm" aria-label={label} tabIndex={-1} onInput={forget} onSubmit={submit}>
          {children}
          {failure !== undefined && <p role="alert">{failure}</p>}
          <p class="actions">
            <Button label={doLabel} isMain isSubmit isBusy={isBusy} />
            <Button label="Leave it" onClick={() => setIsOpen(false)} />
          </p>
        </form>
      ) : (
        <Button label={label} isSmall={isSmall} onClick={open} />
      )}
    </div>
  );
}
