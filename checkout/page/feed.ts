// Polls the checkout every few seconds. The answer is 304 while nothing has changed.

import type { Checkout } from './checkout.ts';

/** Less than three seconds, with the round trip. */
const pollMs = 2_500;
/** While a transfer is on its way. */
const pollAwaitedMs = 1_000;
/** In a hidden tab, and once it has ended: then only late money can arrive. */
const pollSeldomMs = 15_000;
const timeoutMs = 10_000;
const maxWaitMs = 30_000;

type Answer =
  | { kind: 'checkout'; checkout: Checkout; etag: string }
  | { kind: 'unchanged' }
  /** The service has no such checkout. */
  | { kind: 'invalid' }
  | { kind: 'no-answer'; retryAfterMs: number };

interface FeedObserver {
  onCheckout(checkout: Checkout): void;
  onInvalid(): void;
  onConnection(connection: 'ok' | 'offline' | 'unreachable'): void;
  /** True while a transfer is on its way. */
  isAwaiting(): boolean;
}

/** Follows the checkout of a secret until it turns out to be invalid. */
export function followCheckout(secret: string, observer: FeedObserver) {
  let etag: string | undefined;
  let isEnded = false;
  let isInvalid = false;
  let offsetMs = 0;
  let failures = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let asking: Promise<void> | undefined;

  const ask = async (): Promise<void> => {
    clearTimeout(timer);
    // Not when the answer is read: a page that stood still reads it late, and would show time that is over.
    const askedAtMs = Date.now();
    const answer = await requestCheckout(secret, etag, (serverMs) => (offsetMs = serverMs - askedAtMs));
    if (answer.kind === 'invalid') {
      isInvalid = true;
      return observer.onInvalid();
    }
    failures = answer.kind === 'no-answer' ? failures + 1 : 0;
    try {
      report(answer);
    } catch (reason) {
      // Reported on the browser's console. The page keeps polling, even if it cannot show an answer.
      setTimeout(() => {
        throw reason;
      });
    }
    // After the end, a hidden tab stops polling until it is visible again.
    if (!isEnded || !document.hidden) timer = setTimeout(refresh, waitMsAfter(answer));
  };
  const report = (answer: Answer): void => {
    if (answer.kind === 'checkout') {
      isEnded = !['requires_payment', 'processing'].includes(answer.checkout.status);
      observer.onCheckout(answer.checkout);
      etag = answer.etag;
    }
    observer.onConnection(answer.kind !== 'no-answer' ? 'ok' : navigator.onLine ? 'unreachable' : 'offline');
  };
  const waitMsAfter = (answer: Answer): number => {
    if (answer.kind === 'no-answer') {
      return Math.min(maxWaitMs, Math.max(answer.retryAfterMs, pollMs * failures));
    }
    if (document.hidden || isEnded) return pollSeldomMs;
    return observer.isAwaiting() ? pollAwaitedMs : pollMs;
  };
  let next: Promise<void> | undefined;
  const start = (): Promise<void> => {
    next = undefined;
    asking = ask().finally(() => (asking = undefined));
    return asking;
  };
  /** Asks again after the request in progress, whose answer may be outdated. Resolves when answered. */
  const refresh = (): Promise<void> => {
    if (asking === undefined) return start();
    next ??= asking.then(start);
    return next;
  };
  const wake = () => void (document.hidden || isInvalid || refresh());
  document.addEventListener('visibilitychange', wake);
  // The page is back from the browser's history, or the machine is back on its network.
  addEventListener('pageshow', ({ persisted }) => persisted && wake());
  addEventListener('online', wake);
  addEventListener('offline', () => observer.onConnection('offline'));
  void refresh();
  return {
    refresh,
    /** The server's time in milliseconds since 1970, according to its last answer. */
    serverNowMs: () => Date.now() + offsetMs,
  };
}

async function requestCheckout(
  secret: string,
  etag: string | undefined,
  onServerTime: (serverMs: number) => void,
): Promise<Answer> {
  try {
    const response = await fetch('/v1/checkout', {
      headers: { Authorization: `Bearer ${secret}`, ...(etag && { 'If-None-Match': etag }) },
      cache: 'no-store',
      credentials: 'omit',
      signal: AbortSignal.timeout(timeoutMs),
    });
    const serverMs = Date.parse(response.headers.get('Date') ?? '');
    // The header has whole seconds, so on average it is half a second early.
    if (!Number.isNaN(serverMs)) onServerTime(serverMs + 500);
    if (response.status === 304) return { kind: 'unchanged' };
    if (response.status === 401) return { kind: 'invalid' };
    if (!response.ok) {
      // A proxy may send a date instead, which is not a number.
      return { kind: 'no-answer', retryAfterMs: Number(response.headers.get('Retry-After')) * 1000 || 0 };
    }
    return { kind: 'checkout', checkout: await response.json(), etag: response.headers.get('ETag') ?? '' };
  } catch {
    return { kind: 'no-answer', retryAfterMs: 0 };
  }
}
