// What is around every view: the way to the others, the search, and who is signed in.

import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Merchant } from '../../src/contract/gen/console/v1/console_service_pb.ts';
import type { Mode } from '../../src/contract/gen/words.ts';
import { consoleApi } from './api.ts';
import { ActionButton } from './parts.tsx';
import { go, Link, pathOf } from './routing.tsx';
import { useScope } from './scope.ts';
import type { Session } from './session.ts';

const sections = [
  ['/', 'Home'],
  ['/payments', 'Payments'],
  ['/unattributed', 'Unattributed'],
  ['/refunds', 'Refunds'],
  ['/webhooks', 'Webhooks'],
  ['/export', 'Export'],
] as const;
const ofOperators = [
  ['/chains', 'Chains'],
  ['/merchants', 'Merchants and keys'],
] as const;

interface ShellProps {
  url: URL;
  session: Session;
  merchants: readonly Merchant[];
  onChoose: (merchant: { id: string; mode: Mode }) => void;
  onEnd: (reason: string) => void;
  children: ComponentChildren;
}

export function Shell({ url, session, merchants, onChoose, onEnd, children }: ShellProps) {
  const { merchant } = useScope();
  const name = merchants.find(({ id }) => id === merchant.id)?.name ?? merchant.id;
  const section = `/${url.pathname.split('/')[1]}`;
  const content = useRef<HTMLElement>(null);
  const isFirst = useRef(true);
  useEffect(() => {
    if (isFirst.current) isFirst.current = false;
    else content.current?.focus();
    // On a narrow screen it may stand beside what is seen.
    document.querySelector('nav [aria-current]')?.scrollIntoView({ inline: 'center', block: 'nearest' });
  }, [url.pathname]);
  const own = session.isOperator && !session.isReadOnly ? [...sections, ...ofOperators] : sections;
  const title = own.find(([path]) => path === section)?.[1] ?? 'Search';
  useEffect(() => {
    document.title = `${title} · ${name}`;
  }, [title, name]);
  return (
    <>
      <a class="skip" href="#content">
        Skip to the content
      </a>
      <header>
        {session.isOperator ? (
          <div class="whose">
            <select
              aria-label="Merchant"
              value={merchant.id}
              onChange={({ currentTarget }) => onChoose({ ...merchant, id: currentTarget.value })}
            >
              {merchants.map((each) => (
                <option key={each.id} value={each.id}>
                  {each.name}
                </option>
              ))}
            </select>
            <select
              aria-label="Mode"
              value={merchant.mode}
              onChange={({ currentTarget }) => onChoose({ ...merchant, mode: currentTarget.value as Mode })}
            >
              <option value="testnet">Test</option>
              <option value="mainnet">Live</option>
            </select>
          </div>
        ) : (
          <p class="whose">
            <strong>{name}</strong> <span class="mode">{merchant.mode === 'testnet' ? 'Test' : 'Live'}</span>
          </p>
        )}
        <SearchBox text={section === '/search' ? (url.searchParams.get('q') ?? '') : ''} />
        <div class="who">
          {session.name}
          {session.isReadOnly && <span class="soft"> (reading only)</span>}
          <ActionButton
            label="Sign out"
            isSmall
            onDo={async () => {
              // In every tab.
              await consoleApi.endSession({});
              onEnd('You have signed out. A new link opens the console again.');
            }}
          />
        </div>
      </header>
      <nav aria-label="Console">
        {own.map(([path, label]) => (
          <Link key={path} to={path} isCurrent={path === section}>
            {label}
          </Link>
        ))}
      </nav>
      <main id="content" ref={content} tabIndex={-1}>
        {children}
      </main>
    </>
  );
}

function SearchBox({ text }: { text: string }) {
  const input = useRef<HTMLInputElement>(null);
  const [typed, setTyped] = useState(text);
  useEffect(() => setTyped(text), [text]);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const isTyping = (event.target as HTMLElement).matches('input, textarea, select');
      if (event.key !== '/' || isTyping || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      input.current?.focus();
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, []);
  return (
    <search>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (typed.trim() !== '') go(pathOf('/search', { q: typed.trim() }));
        }}
      >
        <input
          ref={input}
          type="search"
          aria-label="Search: an id, a transaction, an address, an order"
          placeholder="Order, transaction, address, id"
          value={typed}
          onInput={({ currentTarget }) => setTyped(currentTarget.value)}
        />
      </form>
    </search>
  );
}
