// The client secret: it comes in the URL's fragment or from the shop that has opened this window, leaves the address bar at
// once, and is kept in this tab's sessionStorage only.

const key = 'payment-intents-checkout';
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
    sessionStorage.setItem(key, JSON.stringify(opening));
  } catch {
    // The page works until it is reloaded.
  }
}

function rememberedOpening(): Opening {
  try {
    const { secret, returnUrl, opener } = JSON.parse(sessionStorage.getItem(key) ?? '{}');
    return { secret, returnUrl, opener };
  } catch {
    return {};
  }
}

/** True for a text in the form of a client secret. */
export function isSecret(text: unknown): text is string {
  return typeof text === 'string' && secretForm.test(text);
}
