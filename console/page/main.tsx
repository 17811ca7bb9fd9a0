// The console: who is signed in, which merchant is shown, and the view of the path with its surroundings.

import '../../checkout/page/translatable.ts';
import { type FunctionComponent, render } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { Merchant } from '../../src/contract/gen/console/v1/console_service_pb.ts';
import type { Mode } from '../../src/contract/gen/words.ts';
import { Advice, api, callAs, ScopeContext, useScope } from './api.ts';
import { dayOf, ownZone, spanOf, zoneWords } from './days.ts';
import { ActionButton, Button, Choice, Field, useAction } from './forms.tsx';
import { Home } from './home.tsx';
import { rarelyMs, Shown, useLoaded } from './loading.tsx';
import { Chains, Merchants } from './operator.tsx';
import { Payment } from './payment.tsx';
import { Payments } from './payments.tsx';
import { Refunds } from './refunds.tsx';
import { go, Link, pathOf, setFragment, useLocation } from './routing.tsx';
import { Search } from './search.tsx';
import { chosenMerchant, forgetSession, openSession, type Session, takeFromOtherTab } from './session.ts';
import { UnattributedTransfer, UnattributedTransfers } from './unattributed.tsx';
import { Endpoint, Endpoints } from './webhooks.tsx';

interface Views {
  All: FunctionComponent<{ parameters: URLSearchParams }>;
  /** The view of the path followed by an id. */
  One?: FunctionComponent<{ id: string; parameters: URLSearchParams }>;
  isOfOperators?: boolean;
}

type Section = readonly [path: string, label: string, views: Views];

const home: Section = ['', 'Home', { All: Home }];
const sections: readonly Section[] = [
  home,
  ['payments', 'Payments', { All: Payments, One: Payment }],
  ['unattributed', 'Unattributed', { All: UnattributedTransfers, One: UnattributedTransfer }],
  ['refunds', 'Refunds', { All: Refunds }],
  ['webhooks', 'Webhooks', { All: Endpoints, One: Endpoint }],
  ['export', 'Export', { All: Export }],
  ['chains', 'Chains', { All: Chains, isOfOperators: true }],
  ['merchants', 'Merchants and keys', { All: Merchants, isOfOperators: true }],
];
const searching: Section = ['search', 'Search', { All: Search }];

interface SignedInProps {
  session: Session;
  onEnd: (reason: string, isWanted?: boolean) => void;
}

function SignedIn({ session, onEnd }: SignedInProps) {
  const { token, read_only: isReadOnly, is_operator: isOperator } = session;
  callAs({ token, onEnd });
  const loaded = useLoaded('merchants', async () => (await api.listMerchants({})).merchants, rarelyMs);
  const { hash } = useLocation();
  const looked = lookedAt(loaded.value ?? [], isOperator ? chosenIn(hash) : '');
  const fragment = isOperator && loaded.value && looked && fragmentOf(looked);
  useLayoutEffect(() => {
    if (!fragment) return;
    // The choice stays, whichever merchant is the newest later.
    chosenMerchant.set(chosenIn(fragment));
    setFragment(fragment);
  }, [fragment, hash]);
  return (
    <Shown of={loaded}>
      {(merchants) => {
        if (looked === undefined) return <p class="state">There is no merchant yet.</p>;
        callAs({ token, onEnd, ...(isOperator && { merchant: looked }) });
        const merchant = { ...looked, mode: session.mode ?? looked.mode };
        return (
          <ScopeContext.Provider value={{ isReadOnly, isOperator, merchants, merchant }}>
            <Shell session={session} onEnd={onEnd} />
          </ScopeContext.Provider>
        );
      }}
    </Shown>
  );
}

const fragmentOf = ({ id, mode }: { id: string; mode: string }): string => `#merchant=${id}&mode=${mode}`;

/** The merchant and the mode that the address names, or that were looked at before. */
function chosenIn(hash: string): string {
  const [, id, mode] = /^#merchant=(mer_\w+)&mode=((?:test|main)net)$/.exec(hash) ?? [];
  return id === undefined ? chosenMerchant.get() : `${id} ${mode}`;
}

/** The chosen merchant, or the newest. A chosen one that is not in the list is shown by its id. */
function lookedAt(merchants: readonly Merchant[], chosen: string) {
  const [chosenId, chosenMode] = chosen.split(' ');
  const unlisted = chosenId ? { id: chosenId, name: chosenId } : undefined;
  const found = merchants.find(({ id }) => id === chosenId) ?? unlisted ?? merchants[0];
  const mode: Mode = chosenMode === 'mainnet' ? 'mainnet' : 'testnet';
  return found && { id: found.id, name: found.name, mode };
}

/** With the end of the id, if others have the same name. */
function namesOf(merchants: readonly Merchant[]): (merchant: Merchant) => string {
  const known = Map.groupBy(merchants, ({ name }) => name);
  return ({ id, name }) => ((known.get(name)?.length ?? 0) > 1 ? `${name} (…${id.slice(-6)})` : name);
}

const modes = Object.entries({ testnet: 'Test', mainnet: 'Live' } satisfies Record<Mode, string>);

/** What is around every view: the way to the others, the search, and who is signed in. */
function Shell({ session, onEnd }: SignedInProps) {
  const { isReadOnly, isOperator, merchants, merchant } = useScope();
  const { id, name, mode } = merchant;
  const nameOf = namesOf(merchants);
  const url = useLocation();
  const [, section = '', one = ''] = url.pathname.split('/');
  const [, title, { All, One }] = [...sections, searching].find(([path]) => path === section) ?? home;
  /** A key for each place, so that no state of a view carries over to another. */
  const place = `${id} ${mode} ${url.pathname}`;
  // In a list that is closed, each arrow key chooses another.
  const choose = (other: { id: string; mode: string }) =>
    go(url.pathname + url.search + fragmentOf(other), { replaces: true });
  const signOut = async () => {
    // Ends it in every tab.
    await api.endSession({});
    onEnd('You have signed out. A new link opens the console again.', true);
  };
  const content = useRef<HTMLElement>(null);
  const isFirst = useRef(true);
  useEffect(() => {
    if (isFirst.current) isFirst.current = false;
    else content.current?.focus();
    // On a narrow screen the current link may be out of view.
    document.querySelector('nav [aria-current]')?.scrollIntoView({ inline: 'center', block: 'nearest' });
  }, [url.pathname]);
  useEffect(() => keepFocus(content.current as HTMLElement), []);
  useEffect(() => {
    document.title = `${title} · ${name}`;
  }, [title, name, place]);
  return (
    <>
      <a class="skip" href="#content">
        Skip to the content
      </a>
      <header>
        {isOperator ? (
          <div class="whose">
            <Choice
              isBare
              label="Merchant"
              value={id}
              options={[
                ...(merchants.some((each) => each.id === id) ? [] : [[id, name] as const]),
                ...merchants.map((each) => [each.id, nameOf(each)] as const),
              ]}
              onChoose={(to) => choose({ id: to, mode })}
            />
            <Choice
              isBare
              label="Mode"
              value={mode}
              options={modes}
              onChoose={(to) => choose({ id, mode: to })}
            />
          </div>
        ) : (
          <p class="whose">
            <strong>{name}</strong> <span class="mode">{mode === 'testnet' ? 'Test' : 'Live'}</span>
          </p>
        )}
        <SearchBox text={section === 'search' ? (url.searchParams.get('q') ?? '') : ''} />
        <div class="who">
          {session.name}
          {isReadOnly && <span class="soft"> (reading only)</span>}
          <ActionButton label="Sign out" isSmall onDo={signOut} />
        </div>
      </header>
      <nav aria-label="Console">
        {sections.map(
          ([path, label, { isOfOperators = false }]) =>
            (!isOfOperators || (isOperator && !isReadOnly)) && (
              <Link key={path} to={`/${path}`} isCurrent={path === section}>
                {label}
              </Link>
            ),
        )}
      </nav>
      <p id="said" class="hidden" role="status" />
      <main id="content" ref={content} tabIndex={-1}>
        {one === '' || One === undefined ? (
          <All key={place} parameters={url.searchParams} />
        ) : (
          <One key={place} id={one} parameters={url.searchParams} />
        )}
      </main>
    </>
  );
}

/** When a pressed control is removed, its focus moves to the content, where the keyboard goes on. */
function keepFocus(content: HTMLElement): () => void {
  let focused: Element | null = null;
  content.addEventListener('focusin', () => {
    focused = document.activeElement;
  });
  const observer = new MutationObserver(() => {
    if (focused?.isConnected === false && document.activeElement === document.body)
      content.focus({ preventScroll: true });
  });
  observer.observe(content, { childList: true, subtree: true });
  return () => observer.disconnect();
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
  const search = (event: Event) => {
    event.preventDefault();
    if (typed.trim() !== '') go(pathOf('/search', { q: typed.trim() }));
  };
  return (
    <search>
      <form onSubmit={search}>
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

/** The service's own limit. */
const maxDays = 400;

/** What came in and what went back, as a file for bookkeeping. */
function Export() {
  const [now] = useState(new Date());
  const [from, setFrom] = useState(dayOf(new Date(now.getFullYear(), now.getMonth() - 1, 1).getTime()));
  const [to, setTo] = useState(dayOf(new Date(now.getFullYear(), now.getMonth(), 0).getTime()));
  const action = useAction();
  const begin = (event: Event) => {
    event.preventDefault();
    if (action.isBusy) return;
    action.run(async () => {
      const { from: fromTime, before: beforeTime } = spanOf(from, to);
      if (fromTime === undefined || beforeTime === undefined) throw new Advice('Choose two days.');
      if (Date.parse(to) - Date.parse(from) >= maxDays * 86_400_000) {
        throw new Advice(`At most ${maxDays} days fit in a file.`);
      }
      if (to < from) throw new Advice('The last day is before the first.');
      const { ticket } = await api.createExport({ fromTime, beforeTime });
      // With `download`, the page stays even if the service refuses.
      const link = Object.assign(document.createElement('a'), { download: `payments-${from}-${to}.csv` });
      link.href = `/console/export?ticket=${ticket}`;
      link.click();
    });
  };
  return (
    <>
      <h1>Export</h1>
      <p class="lead">
        A line for each transfer, by the time of its block: payments, refunds, and money that names no
        payment. For any spreadsheet. The days are those of {zoneWords(ownZone())}; times in the file are UTC.
      </p>
      <form class="confirm" aria-label="Export" onSubmit={begin}>
        <p class="filters">
          <Field type="date" label="First day" value={from} onInput={setFrom} />
          <Field type="date" label="Last day" value={to} onInput={setTo} />
        </p>
        {action.failure !== undefined && <p role="alert">{action.failure}</p>}
        <p class="actions">
          <Button label="Download the CSV file" isMain isSubmit isBusy={action.isBusy} />
        </p>
      </form>
    </>
  );
}

function focusEnd(heading: HTMLElement | null): void {
  document.title = 'Not signed in';
  heading?.focus();
}

function App({ opened }: { opened: Session | string }) {
  const [session, setSession] = useState(opened);
  useEffect(() => {
    // A link opened in a tab of the console changes the address, and does not load the page.
    const onHash = () => location.hash.startsWith('#cl_') && location.reload();
    addEventListener('hashchange', onHash);
    return () => removeEventListener('hashchange', onHash);
  }, []);
  if (typeof session === 'string') {
    return (
      <main class="alone">
        <h1 ref={focusEnd} tabIndex={-1}>
          Not signed in
        </h1>
        <p>{session}</p>
        <p class="soft">
          An operator prints one with <code>npm run -s admin -- console link --for "Your name"</code>.
        </p>
      </main>
    );
  }
  const onEnd = async (reason: string, isWanted = false) => {
    if (!forgetSession(session)) return;
    // A new link may have been opened in another tab since.
    setSession((isWanted ? undefined : await takeFromOtherTab(session)) ?? reason);
  };
  return <SignedIn key={session.token} session={session} onEnd={onEnd} />;
}

const page = document.getElementById('page') as HTMLElement;
openSession().then((opened) => {
  page.replaceChildren();
  render(<App opened={opened} />, page);
});
