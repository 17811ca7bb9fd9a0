import { readBaseUrl, readClientSecret, readReturnUrl } from './arguments.ts';
import type { CheckoutStatus } from './gen/checkout.ts';

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
 * It shows a link back to `returnUrl` if that has one of the merchant's origins (`merchant set-origins`), and
 * adds `payment_intent=<id>` to its query. The return says nothing about the payment: ask your backend.
 *
 * Throws a TypeError for a wrong argument, and an Error in a frame, and then stays on the page.
 */
export function redirectToCheckout({ clientSecret, baseUrl, returnUrl }: RedirectToCheckoutOptions): void {
  const address = [readBaseUrl(baseUrl), readClientSecret(clientSecret), readReturnUrl(returnUrl)] as const;
  assertMayLeave();
  leaveForCheckout(...address);
}

/** Throws in a frame: the checkout refuses to be shown there, and the payer would see the browser's error. */
function assertMayLeave(): void {
  if (window.top === window.self) return;
  throw new Error(
    'The checkout cannot be shown in a frame, as this page is: open the page on its own, or let the frame open popups (sandbox="allow-popups …") for openCheckout',
  );
}

/** Leaves the current page. The secret is in the fragment, which browsers send to no server. */
function leaveForCheckout(baseUrl: string, clientSecret: string, returnUrl: string): void {
  location.assign(`${baseUrl}/checkout#${clientSecret}&return_url=${encodeURIComponent(returnUrl)}`);
}

export interface OpenCheckoutOptions {
  /**
   * The `client_secret` of the intent, from your backend; or a function that asks your backend for it. The
   * function is called once, after the popup has opened, so the intent can be created on the click. If it
   * rejects, the popup says that the payment could not be started.
   */
  clientSecret: string | (() => string | Promise<string>);
  /** The address of the payment service, such as `https://pay.example`. */
  baseUrl: string;
  /**
   * The intent is paid in full, but not final yet. May be called more than once, and a reorganisation of the
   * chain may follow. A signal for the user interface only.
   */
  onProcessing?: ((update: CheckoutUpdate) => void) | undefined;
  /**
   * The checkout reports that the intent is paid. The report may come twice (the payer reloads the popup), be
   * forged (by anyone who controls the browser) or never come (the payer closes the popup). A signal for the
   * user interface only: ship goods when your backend has received the webhook.
   */
  onSuccess?: ((update: CheckoutUpdate) => void) | undefined;
  /**
   * The popup was closed. Called exactly once for each popup, after all other callbacks, with the last status
   * that the checkout reported. The payment may go on: the payer may have paid before closing.
   */
  onEnd?: ((end: CheckoutEnd) => void) | undefined;
  /**
   * Where the checkout's link back leads if the popup is blocked. Default: the current page, without its
   * fragment.
   */
  returnUrl?: string | undefined;
  /** Closes the popup, for example when the payer goes to another order. The payer may have paid in it. */
  signal?: AbortSignal | undefined;
}

/** What the checkout has reported. */
export interface CheckoutUpdate {
  /** Identifier of the intent. */
  paymentIntent: string;
  /** The status of the payment. */
  status: CheckoutStatus;
}

/** What was known when the popup was closed. */
export interface CheckoutEnd {
  /** Identifier of the intent; undefined if the popup was closed before your function returned a secret. */
  paymentIntent: string | undefined;
  /** The last status that the checkout reported; undefined if it reported none. */
  status: CheckoutStatus | undefined;
}

interface Popup {
  window: Window;
  /** Where it was opened. */
  url: string;
  outcome: Promise<'popup'>;
  /** Nothing more can be done in it: the payment could not be started, or its status is final. */
  isDone: boolean;
  /** The checkout in it has answered. Until then it may show the browser's error page. */
  isLoaded: boolean;
  /** Calls onEnd, once. */
  end(): void;
}

/** Identifies every message, in both directions. */
const from = 'payment-intents-checkout';
const closedPollMs = 500;
/** The one popup of this page. */
let current: Popup | undefined;

/**
 * Opens the checkout in a popup. Call it in a click handler, before any `await`: browsers block later popups.
 * If the popup is blocked, in a wallet app or on a cross-origin isolated page, this page goes there instead.
 *
 * The popup reports to this page only if the page's origin is one of the merchant's origins (`merchant
 * set-origins`). While a popup is open, another call brings it to the front and ignores its own options. A
 * popup in which nothing more can be done is replaced.
 *
 * Resolves with the way that was taken, once the payer has been sent to the checkout with a secret. Rejects
 * with your function's error, the reason of `signal` if that was aborted when your function returned, a
 * TypeError for a wrong argument, or an Error on a page in a frame that may not open popups.
 */
export async function openCheckout(options: OpenCheckoutOptions): Promise<'popup' | 'redirect'> {
  const baseUrl = readBaseUrl(options.baseUrl);
  const returnUrl = readReturnUrl(options.returnUrl);
  const { clientSecret, signal } = options;
  signal?.throwIfAborted();
  if (typeof clientSecret !== 'function') readClientSecret(clientSecret);

  if (current && !current.window.closed) {
    if (!current.isDone) {
      // With the same URL, an error page of that address would not be left.
      if (!current.isLoaded) current.window.location.replace(current.url.replace('#', `?${Date.now()}#`));
      current.window.focus();
      return current.outcome;
    }
    current.window.close();
  }
  current?.end();

  // The popup's address never has the secret, not even a known one: the browser's history would keep it.
  const url = `${baseUrl}/checkout#opener=${encodeURIComponent(location.origin)}`;
  // A cross-origin isolated page cannot talk to a popup of another origin. A wallet app's browser has only
  // one window: a popup would replace this page, which holds the secret.
  const isWalletApp = 'ethereum' in window && matchMedia('(pointer: coarse)').matches;
  const popup = window.crossOriginIsolated || isWalletApp ? null : open(url, '_blank', popupFeatures());
  const isBlocked = popup === null || popup.closed;
  if (isBlocked) assertMayLeave();
  // An error that the shop's function throws becomes a rejection.
  const secret = Promise.resolve()
    .then(typeof clientSecret === 'function' ? clientSecret : () => clientSecret)
    .then((given) => {
      signal?.throwIfAborted();
      return readClientSecret(given);
    });
  if (!isBlocked) {
    current = follow(popup, url, secret, options);
    return current.outcome;
  }
  leaveForCheckout(baseUrl, await secret, returnUrl);
  return 'redirect';
}

/** Sends the secret when the popup asks for it, and calls the callbacks until the popup is closed. */
function follow(
  popup: Window,
  url: string,
  secret: Promise<string>,
  { onProcessing, onSuccess, onEnd, signal }: OpenCheckoutOptions,
): Popup {
  const { origin } = new URL(url);
  const last: CheckoutEnd = { paymentIntent: undefined, status: undefined };
  const followed: Popup = {
    window: popup,
    url,
    isDone: false,
    isLoaded: false,
    outcome: secret.then(
      (text) => {
        last.paymentIntent ??= text.split('_secret_', 1)[0];
        return 'popup';
      },
      (reason) => {
        followed.isDone = true;
        throw reason;
      },
    ),
    end() {
      clearInterval(poll);
      removeEventListener('message', receive);
      signal?.removeEventListener('abort', close);
      if (current === followed) current = undefined;
      // An error of the shop's function must not stop the click that replaces this popup.
      try {
        onEnd?.({ ...last });
      } catch (error) {
        reportError(error);
      }
    },
  };

  function receive({ source, origin: sender, data }: MessageEvent): void {
    if (source !== popup || sender !== origin || data?.from !== from) return;
    followed.isLoaded = true;
    // The popup asks again if it was reloaded before the secret came.
    if (data.type === 'ready') {
      const send = (message: object) => popup.postMessage({ from, ...message }, origin);
      const fail = () => send({ type: 'failed' });
      secret.then((clientSecret) => send({ type: 'secret', clientSecret }), fail);
    }
    // The secret opens nothing: the next click replaces this popup.
    if (data.type === 'failed') followed.isDone = true;
    if (data.type === 'status') {
      const update: CheckoutUpdate = { paymentIntent: data.paymentIntent, status: data.status };
      Object.assign(last, update);
      followed.isDone = /^(succeeded|expired|canceled)$/.test(update.status);
      if (update.status === 'processing') onProcessing?.(update);
      if (update.status === 'succeeded') onSuccess?.(update);
    }
  }
  const close = () => {
    popup.close();
    followed.end();
  };
  addEventListener('message', receive);
  signal?.addEventListener('abort', close);
  // No event reports that a window of another origin was closed.
  const poll = setInterval(() => {
    if (popup.closed) followed.end();
  }, closedPollMs);
  return followed;
}

/** A window the size of a phone, in the middle of this one. Phones open a tab. */
function popupFeatures(): string {
  const [width, height] = [460, 760];
  const left = Math.round(screenX + (outerWidth - width) / 2);
  const top = Math.round(screenY + Math.max(0, outerHeight - height) / 2);
  return `popup,width=${width},height=${height},left=${left},top=${top}`;
}
