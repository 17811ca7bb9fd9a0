// How this tab was opened, and the way back to the shop. The client secret comes in the URL's fragment or
// from the window that opened this one. It leaves the address bar at once, and is kept only in this tab's
// sessionStorage; in the address bar if there is none. The status, and the link back, go only to origins that
// the merchant has registered. Two messages go to any origin that says it opened this window: that this page
// is ready, and that the secret opens nothing.

import { parseHttpUrl } from '../sdk/arguments.ts';
import type { Checkout } from './checkout.ts';

/** The key in the storage, and `from` in every message. */
const from = 'payment-intents-checkout';
const secretForm = /^pi_[0-7][0-9a-hjkmnp-tv-z]{25}_secret_[\w-]+$/;

/** What this tab was opened with. */
export interface Opening {
  secret?: string;
  /** Where the shop wants the payer to return. Checked against the merchant's origins before it is used. */
  returnUrl?: string;
  /** The origin of the page that opened this window, as that page states it. */
  opener?: string;
}

/** Reads the fragment, removes it from the address bar, and remembers it for a reload. */
export function takeOpening(): Opening {
  const fragment = location.hash.slice(1);
  if (fragment === '') return rememberedOpening();
  const parameters = new URLSearchParams(fragment.replace(/^[^&=]*(?=&|$)/, (secret) => `secret=${secret}`));
  const secret = parameters.get('secret');
  const returnUrl = parameters.get('return_url');
  const opener = parameters.get('opener');
  const opening = {
    ...(secret && secretForm.test(secret) && { secret }),
    ...(returnUrl && { returnUrl }),
    ...(opener && { opener }),
  };
  // A tab's history may have several checkouts. Going back leads to each one's own.
  history.replaceState({ opening: Math.random() }, '', location.pathname);
  // Without a storage, only the address bar survives a reload.
  if (!rememberOpening(opening)) history.replaceState(null, '', `#${fragment}`);
  return opening;
}

const nameOfPage = () => `${from}:${history.state?.opening}`;

/** Stores it for a reload of this tab. Returns false if this browser stores nothing. */
export function rememberOpening(opening: Opening): boolean {
  try {
    for (const name of [from, nameOfPage()]) sessionStorage.setItem(name, JSON.stringify(opening));
    return true;
  } catch {
    return false;
  }
}

function rememberedOpening(): Opening {
  try {
    const found = sessionStorage.getItem(nameOfPage()) ?? sessionStorage.getItem(from);
    const { secret, returnUrl, opener } = JSON.parse(found ?? '{}');
    return { secret, returnUrl, opener };
  } catch {
    return {};
  }
}

/** The window that opened this one may have gone elsewhere, and then never answers. */
const shopTimeoutMs = 60_000;

/**
 * Asks the window that opened this one for the secret. Calls `onLate` if the shop takes long. Resolves with
 * undefined if the shop reports that it has no secret.
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

/**
 * Reports the intent's status to the window that opened this one. Without a checkout, the secret opens nothing:
 * the next click in the shop opens another window.
 */
export function tellShop({ opener }: Opening, checkout?: Checkout): void {
  if (opener === undefined) return;
  if (checkout === undefined) send(opener, { type: 'failed' });
  else if (checkout.allowed_origins.includes(opener))
    send(opener, { type: 'status', paymentIntent: checkout.id, status: checkout.status });
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
