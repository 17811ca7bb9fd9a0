// The hosted checkout page and the script with which a shop opens it, as built by `npm run generate`. The page reads
// the client secret from the fragment of its URL, which browsers do not send, so it never reaches the server.

import type { ChainName } from '../../contract/words.ts';
import type { Site } from './public-door.ts';
import { loadStaticSite } from './static-site.ts';

/** Allows nothing from other origins, except images within the page; no form submission, no framing. */
const headers: Readonly<Record<string, string>> = {
  'Content-Security-Policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
  // The page and the shop that opened it as a popup exchange messages.
  'Cross-Origin-Opener-Policy': 'unsafe-none',
  // Clipboard access stays allowed, for the copy buttons.
  'Permissions-Policy': 'camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()',
};

/** Lets a page of any origin import the script. */
const shopHeaders: Readonly<Record<string, string>> = {
  'Access-Control-Allow-Origin': '*',
  'Cross-Origin-Resource-Policy': 'cross-origin',
};

/** Replaced by the chains on which the test wallet pays. */
const testWalletMark = '<meta name="test-wallet" content="">';

/** Loads the page, with the test wallet for intents of the given chains. Throws StartupError if a file cannot be read. */
export function loadCheckoutPage(testWalletChains: readonly ChainName[]): Promise<Site> {
  const offerTestWallet = (page: string) =>
    page.replace(testWalletMark, testWalletMark.replace('""', `"${testWalletChains.join(' ')}"`));
  return loadStaticSite({
    name: 'checkout_page',
    title: 'the checkout page',
    folder: new URL('../../checkout/gen/', import.meta.url),
    headers,
    files: [
      { path: '/checkout', name: 'page.html', edit: offerTestWallet },
      { path: '/checkout/page.js', name: 'page.js' },
      { path: '/checkout/page.css', name: 'page.css' },
      { path: '/checkout/icon.svg', name: 'icon.svg' },
      { path: '/checkout/sdk.js', name: 'sdk.js', headers: shopHeaders },
    ],
  });
}
