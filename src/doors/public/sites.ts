// The files that the ports serve, as built by `npm run generate`: the documentation, the checkout and the console. Each
// function throws StartupError if a file cannot be read.

import type { ChainName } from '../../contract/words.ts';
import type { Site } from './public-door.ts';
import { loadStaticSite } from './static-site.ts';

/** The parts of the reference page that send requests, with their markers. */
const tryItParts = /<!--try-it-->.*?<!--\/try-it-->/gs;
const withoutTryIt = (page: string) => page.replace(tryItParts, '');

/** The OpenAPI document and the reference page, with or without forms that send requests to this port. */
export function loadDocumentation(allowsTryIt: boolean): Promise<Site> {
  return loadStaticSite({
    name: 'documentation',
    title: 'the documentation',
    folder: new URL('../../contract/gen/', import.meta.url),
    headers: {
      // Scripts, styles and images from this port only; no form submission, no framing.
      'Content-Security-Policy':
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      'Cross-Origin-Opener-Policy': 'same-origin',
    },
    files: [
      { path: '/docs', name: 'reference/page.html', edit: allowsTryIt ? undefined : withoutTryIt },
      { path: '/docs/page.css', name: 'reference/page.css' },
      { path: '/docs/page.js', name: 'reference/page.js' },
      ...(allowsTryIt ? [{ path: '/docs/try-it.js', name: 'reference/try-it.js' }] : []),
      { path: '/docs/search.js', name: 'reference/search.js' },
      { path: '/docs/search.json', name: 'reference/search.json' },
      { path: '/docs/icon.svg', name: 'reference/icon.svg' },
      { path: '/openapi.json', name: 'openapi.json' },
    ],
  });
}

/** Clipboard access stays allowed, for the copy buttons. */
const permissions = 'camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()';

/** Replaced by the chains on which the test wallet pays. */
const testWalletMark = '<meta name="test-wallet" content="">';

/**
 * The hosted checkout page, with the test wallet for intents of the given chains, and the script with which a shop opens it.
 * The page reads the client secret from the fragment of its URL, which browsers do not send.
 */
export function loadCheckoutPage(testWalletChains: readonly ChainName[]): Promise<Site> {
  const offerTestWallet = (page: string) =>
    page.replace(testWalletMark, testWalletMark.replace('""', `"${testWalletChains.join(' ')}"`));
  // Lets a page of any origin import the script.
  const shopHeaders = { 'Access-Control-Allow-Origin': '*', 'Cross-Origin-Resource-Policy': 'cross-origin' };
  return loadStaticSite({
    name: 'checkout_page',
    title: 'the checkout page',
    folder: new URL('../../checkout/gen/', import.meta.url),
    headers: {
      // Nothing from other origins, except images within the page; no form submission, no framing.
      'Content-Security-Policy':
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
      // The page and the shop that opened it as a popup exchange messages.
      'Cross-Origin-Opener-Policy': 'unsafe-none',
      'Permissions-Policy': permissions,
    },
    files: [
      { path: '/checkout', name: 'page.html', edit: offerTestWallet },
      { path: '/checkout/page.js', name: 'page.js' },
      { path: '/checkout/page.css', name: 'page.css' },
      { path: '/checkout/icon.svg', name: 'icon.svg' },
      { path: '/checkout/sdk.js', name: 'sdk.js', headers: shopHeaders },
    ],
  });
}

const consolePage = '/';
/** The paths of the console's views; behind some of them comes an id. */
const consoleViews =
  /^\/(?:(?:payments|unattributed|webhooks)(?:\/\w{1,64})?|refunds|export|chains|merchants|search)?$/;

/** One document, whose script shows the view of its path. */
export async function loadConsolePages(): Promise<Site> {
  const site = await loadStaticSite({
    name: 'console_page',
    title: 'the console',
    folder: new URL('../../console/gen/', import.meta.url),
    headers: {
      // Nothing from elsewhere, no framing, and no text that becomes a script.
      'Content-Security-Policy':
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
      'Permissions-Policy': permissions,
    },
    files: [
      { path: consolePage, name: 'page.html' },
      { path: '/console/page.js', name: 'page.js' },
      { path: '/console/page.css', name: 'page.css' },
      { path: '/console/icon.svg', name: 'icon.svg' },
    ],
  });
  const fileOf = (path: string) => (consoleViews.test(path) ? consolePage : path);
  return {
    ...site,
    has: (path) => site.has(fileOf(path)),
    serve: (exchange) => site.serve({ ...exchange, path: fileOf(exchange.path) }),
  };
}
