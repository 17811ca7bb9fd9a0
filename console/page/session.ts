// Who is signed in. The link's code leaves the address bar at once and is exchanged for a token, which this
// tab keeps until it is closed; a new tab gets it from one that is open.

import type { Mode } from '../../src/contract/gen/words.ts';
import { lastTouchedMs } from './api.ts';

/** As the service describes it, with its token. */
export interface Session {
  token: string;
  name: string;
  is_operator: boolean;
  /** The merchant's id. Only for a merchant's session, like its mode. */
  merchant?: string;
  mode?: Mode;
  read_only: boolean;
  /** ISO 8601. */
  expires_at: string;
}

const storedAs = 'console-session';
const chosenAs = 'console-merchant';
/** Survives a reload, if the browser lets pages store something. */
const stored = {
  get(name: string): string {
    try {
      return sessionStorage.getItem(name) ?? '';
    } catch {
      return '';
    }
  },
  set(name: string, text: string): void {
    try {
      if (text === '') sessionStorage.removeItem(name);
      else sessionStorage.setItem(name, text);
    } catch {
      // The tab has it in memory until it is closed.
    }
  },
};
/** How long an open tab has to answer, and the others after the first of them. */
const answerMs = 300;
const othersMs = 50;

/** Returns the session of the link in the address bar, of this tab or of another; or why there is none. */
export async function openSession(): Promise<Session | string> {
  const code = location.hash.slice(1);
  const isLink = code.startsWith('cl_');
  if (isLink) history.replaceState(null, '', location.pathname + location.search);
  const own = read(stored.get(storedAs)) ?? (await takeFromOtherTab());
  if (isLink) {
    // Somebody may have sent the link, so that the user acts in their name.
    const isWanted = own === undefined || confirm(`You are signed in as ${own.name}. Use this link instead?`);
    if (isWanted) return exchange(code);
  }
  if (own !== undefined) return keep(own);
  channel?.addEventListener('message', ({ data }) => {
    // A busy tab answers late.
    if (data !== 'who' && current === undefined) {
      take(data);
      location.reload();
    }
  });
  return 'Open the link that “admin console link” prints. Each link opens the console once.';
}

/** The tokens of sessions that this tab has seen end. */
const ended = new Set<string>();

/** Forgets a session that has ended. Returns false if that is done: several calls may fail at once. */
export function forgetSession({ token }: Session): boolean {
  if (ended.has(token)) return false;
  ended.add(token);
  stored.set(storedAs, '');
  current = undefined;
  return true;
}

let chosen = stored.get(chosenAs);
/** What an operator looked at last in this tab, or in the one that this tab's session came from. */
export const chosenMerchant = {
  get: (): string => chosen,
  set(now: string): void {
    chosen = now;
    stored.set(chosenAs, now);
  },
};

let current: Session | undefined;

async function exchange(code: string): Promise<Session | string> {
  try {
    const answer = await fetch('/console/session', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ code }),
    });
    const { token, session, error } = await answer.json();
    return answer.ok ? keep({ token, ...session }) : error.message;
  } catch {
    return 'The service does not answer. Ask for a new link when it does: this one may be used up.';
  }
}

function keep(session: Session): Session {
  stored.set(storedAs, JSON.stringify(session));
  current = session;
  return session;
}

function read(text: string): Session | undefined {
  try {
    const session: Session = JSON.parse(text);
    return Date.parse(session.expires_at) > Date.now() ? session : undefined;
  } catch {
    return undefined;
  }
}

/** Firefox has none for a page that may store nothing: a tab then has only its own session. */
const channel = openChannel();
channel?.addEventListener('message', ({ data }) => {
  if (data === 'who' && current !== undefined) {
    channel?.postMessage({ session: current, chosen: chosenMerchant.get(), touchedMs: lastTouchedMs() });
  }
});

/** Remembers what another tab has answered. */
function take({ session, chosen }: { session: Session; chosen: string }): Session {
  // A tab keeps what it looks at.
  if (chosenMerchant.get() === '') chosenMerchant.set(chosen);
  return keep(session);
}

/** True if both show the same: nobody should go on in another mode, or with other rights, without a word. */
const isLike = (one: Session, other: Session): boolean =>
  (['name', 'merchant', 'mode', 'is_operator', 'read_only'] as const).every((of) => one[of] === other[of]);

/** Takes the session of another tab, if one has any. `own`: only one that shows the same as this. */
export function takeFromOtherTab(own?: Session): Promise<Session | undefined> {
  return new Promise((resolve) => {
    let best: { session: Session; chosen: string; touchedMs: number } | undefined;
    const end = () => {
      channel?.removeEventListener('message', onAnswer);
      resolve(best && take(best));
    };
    const onAnswer = ({ data }: MessageEvent) => {
      // A tab that was hidden for hours has a session that has ended.
      if (data === 'who' || ended.has(data.session.token)) return;
      if (own !== undefined && !isLike(own, data.session)) return;
      if (best === undefined) {
        clearTimeout(timer);
        timer = setTimeout(end, othersMs);
      }
      // Tabs may look at other merchants, or have other sessions: a link is opened from the one used last.
      if (best === undefined || data.touchedMs > best.touchedMs) best = data;
    };
    let timer = setTimeout(end, answerMs);
    channel?.addEventListener('message', onAnswer);
    channel?.postMessage('who');
  });
}

function openChannel(): BroadcastChannel | undefined {
  try {
    return new BroadcastChannel('console');
  } catch {
    return undefined;
  }
}
