// The public port's documentation: the OpenAPI document, and the reference page that `npm run generate` makes from it.

import type { Site } from './public-door.ts';
import { loadStaticSite } from './static-site.ts';

/** Scripts, styles and images from this port only; no form submission, no framing. */
const headers: Readonly<Record<string, string>> = {
  'Content-Security-Policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'Cross-Origin-Opener-Policy': 'same-origin',
};

/** The parts of the page that send requests, with their markers. Removed unless the page may send requests. */
const tryItParts = /<!--try-it-->.*?<!--\/try-it-->/gs;
const withoutTryIt = (page: string) => page.replace(tryItParts, '');

/** Loads the documentation, with or without forms that send requests to this port. Throws StartupError if a file cannot be read. */
export function loadDocumentation(allowsTryIt: boolean): Promise<Site> {
  return loadStaticSite({
    name: 'documentation',
    title: 'the documentation',
    folder: new URL('../../contract/gen/', import.meta.url),
    headers,
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
