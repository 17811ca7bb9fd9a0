// The way back to the shop: messages to the window that has opened this one, and a link. Both go only to origins that the
// merchant has registered; the one message that is sent before is to the very origin that says it has opened us.

import { parseHttpUrl } from '../sdk/arguments.ts';
import type { Checkout } from './checkout.ts';
import { isSecret, type Opening } from './secret.ts';

const from = 'payment-intents-checkout';

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
      if (event.data.type === 'failed') resolve(undefined);
      if (event.data.type === 'secret' && isSecret(event.data.clientSecret)) resolve(event.data.clientSecret);
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
