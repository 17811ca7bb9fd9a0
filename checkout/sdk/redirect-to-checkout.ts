import { readBaseUrl, readClientSecret, readReturnUrl } from './arguments.ts';

export interface RedirectToCheckoutOptions {
  /** The `client_secret` of the intent, from your backend. */
  clientSecret: string;
  /** The address of the payment service, such as `https://pay.example`. */
  baseUrl: string;
  /** Where the checkout's link back leads. Default: the current page, without its fragment. */
  returnUrl?: string | undefined;
}

/**
 * Leaves the current page for the checkout.
 *
 * The checkout shows a link back to `returnUrl` if its origin is one of the merchant's origins (`merchant set-origins`),
 * and adds `payment_intent=<id>` to its query. The way back says nothing about the payment: ask your backend.
 *
 * Throws a TypeError for a wrong argument, and stays on the page then.
 */
export function redirectToCheckout({ clientSecret, baseUrl, returnUrl }: RedirectToCheckoutOptions): void {
  leaveForCheckout(readBaseUrl(baseUrl), readClientSecret(clientSecret), readReturnUrl(returnUrl));
}

/** Leaves the current page. The secret is in the fragment, which browsers send to no server. */
export function leaveForCheckout(baseUrl: string, clientSecret: string, returnUrl: string): void {
  location.assign(`${baseUrl}/checkout#${clientSecret}&return_url=${encodeURIComponent(returnUrl)}`);
}
