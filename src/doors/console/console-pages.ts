// The console's pages, as built by `npm run generate`: one document, whose script shows the view of its path.

import type { Site } from '../public/public-door.ts';
import { loadStaticSite } from '../public/static-site.ts';

/** Allows nothing from elsewhere, no framing, and no text that becomes a script. */
const headers: Readonly<Record<string, string>> = {
  'Content-Security-Policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
  // Clipboard access stays allowed, for the copy buttons.
  'Permissions-Policy': 'camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()',
};

const document = '/';
/** The paths of views; behind some of them comes an id. */
const views =
  /^\/(?:(?:payments|unattributed|webhooks)(?:\/\w{1,64})?|refunds|export|chains|merchants|search)?$/;

/** Throws StartupError if a file cannot be read. */
export async function loadConsolePages(): Promise<Site> {
  const site = await loadStaticSite({
    name: 'console_page',
    title: 'the console',
    folder: new URL('../../console/gen/', import.meta.url),
    headers,
    files: [
      { path: document, name: 'page.html' },
      { path: '/console/page.js', name: 'page.js' },
      { path: '/console/page.css', name: 'page.css' },
      { path: '/console/icon.svg', name: 'icon.svg' },
    ],
  });
  const fileOf = (path: string) => (views.test(path) ? document : path);
  return {
    ...site,
    has: (path) => site.has(fileOf(path)),
    serve: (exchange) => site.serve({ ...exchange, path: fileOf(exchange.path) }),
  };
}
