// How this tab was opened, and the way back to the shop. The client secret comes in the URL's fragment or from the shop that
// has opened this window, leaves the address bar at once, and is kept in this tab's sessionStorage only. Messages to that
// window, and the link back, go only to origins that the merchant has registered; the one message that is sent before is to
// the very origin that says it has opened us.

import { parseHttpUrl } from '../sdk/arguments.ts';
import type { Checkout } from './checkout.ts';

/** Names what is stored, and comes in every message. */
const from = 'payment-intents-checkout';
const secretForm = /^pi_[0-7][0-9a-hjkmnp-tv-z]{25}_secret_[\w-]+$/;

/** What this tab was opened with. */
export interface Opening {
  secret?: string;
  /** Where the shop wants the payer back. Checked against the merchant's origins before it is used. */
  returnUrl?: string;
  /** The origin of the page that has opened this window, as it says. */
  opener?: string;
}

/** Reads the fragment, removes it from the address bar, and remembers it for a reload. */
export function takeOpening(): Opening {
  const fragment = location.hash.slice(1);
  if (fragment === '') return rememberedOpening();
  history.replaceState(null, '', location.pathname);
  const parameters = new URLSearchParams(fragment.replace(/^[^&=]*(?=&|$)/, (secret) => `secret=${secret}`));
  const secret = parameters.get('secret');
  const returnUrl = parameters.get('return_url');
  const opener = parameters.get('opener');
  const opening = {
    ...(secret && secretForm.test(secret) && { secret }),
    ...(returnUrl && { returnUrl }),
    ...(opener && { opener }),
  };
  rememberOpening(opening);
  return opening;
}

/** Remembers it for a reload of this tab. A browser that stores nothing works without. */
export function rememberOpening(opening: Opening): void {
  try {
    sessionStorage.setItem(from, JSON.stringify(opening));
  } catch {
    // The page works until it is reloaded.
  }
}

function rememberedOpening(): Opening {
  try {
    const { secret, returnUrl, opener } = JSON.parse(sessionStorage.getItem(from) ?? '{}');
    return { secret, returnUrl, opener };
  } catch {
    return {};
  }
}

/** The window that has opened this one may have gone elsewhere, and answers nothing then. */
const shopTimeoutMs = 60_000;

/**
 * Asks the window that has opened this one for the secret, and calls back if the shop takes long. Resolves with undefined if
 * the shop says that it has made none.
 */
export function secretFromShop(opener: string, onLate: () => unknown): Promise<string | undefined> {
  return new Promise((resolve) => {
    addEventListener('message', (event) => {
      if (event.source !== window.opener || event.origin !== opener || event.data?.from !== from) return;
      const { type, clientSecret } = event.data;
      if (type === 'failed') resolve(undefined);
      if (type === 'secret' && typeof clientSecret === 'string' && secretForm.test(clientSecret))
        resolve(clientSecret);
    });
    send(opener, { type: 'ready' });
    setTimeout(onLate, shopTimeoutMs);
  });
}

/** Tells the window that has opened this one how the intent stands. */
export function tellShop({ opener }: Opening, { id, status, allowed_origins }: Checkout): void {
  if (opener !== undefined && allowed_origins.includes(opener)) {
    send(opener, { type: 'status', paymentIntent: id, status });
  }
}

function send(origin: string, message: { type: string; [field: string]: string }): void {
  try {
    window.opener?.postMessage({ from, ...message }, origin);
  } catch {
    // Not an origin at all.
  }
}

/** The URL of the shop's page, with the intent's id, if the merchant has registered its origin. */
export function returnUrlOf({ returnUrl }: Opening, { id, allowed_origins }: Checkout): string | undefined {
  const url = returnUrl === undefined ? undefined : parseHttpUrl(returnUrl);
  if (url === undefined || !allowed_origins.includes(url.origin)) return undefined;
  url.searchParams.set('payment_intent', id);
  return url.href;
}
