// The public port's documentation: the OpenAPI document, and the reference page that `npm run generate` makes from it.

import type { Site } from './public-door.ts';
import { loadStaticSite } from './static-site.ts';

export interface DocumentationOptions {
  /** Whether the reference page has forms that send requests to this port. */
  allowsTryIt: boolean;
}

/** Scripts, styles and images from this port only; no form submission, no framing. */
const headers: Readonly<Record<string, string>> = {
  'Content-Security-Policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'Cross-Origin-Opener-Policy': 'same-origin',
};

interface Source {
  path: string;
  file: string;
  contentType: string;
  isForTryIt?: boolean;
}

const sources: readonly Source[] = [
  { path: '/docs', file: 'reference/page.html', contentType: 'text/html; charset=utf-8' },
  { path: '/docs/page.css', file: 'reference/page.css', contentType: 'text/css; charset=utf-8' },
  { path: '/docs/page.js', file: 'reference/page.js', contentType: 'text/javascript; charset=utf-8' },
  {
    path: '/docs/try-it.js',
    file: 'reference/try-it.js',
    contentType: 'text/javascript; charset=utf-8',
    isForTryIt: true,
  },
  { path: '/docs/search.js', file: 'reference/search.js', contentType: 'text/javascript; charset=utf-8' },
  { path: '/docs/search.json', file: 'reference/search.json', contentType: 'application/json' },
  { path: '/docs/icon.svg', file: 'reference/icon.svg', contentType: 'image/svg+xml' },
  { path: '/openapi.json', file: 'openapi.json', contentType: 'application/json' },
];

const folder = new URL('../../contract/gen/', import.meta.url);

/** The parts of the page that send requests, with their markers. Removed unless the page may send requests. */
const tryItParts = /<!--try-it-->.*?<!--\/try-it-->/gs;

/** Loads the documentation. Throws StartupError if a file cannot be read. */
export function loadDocumentation({ allowsTryIt }: DocumentationOptions): Promise<Site> {
  const used = sources.filter(({ isForTryIt }) => allowsTryIt || isForTryIt !== true);
  return loadStaticSite({
    name: 'documentation',
    title: 'the documentation',
    headers,
    files: used.map(({ path, file, contentType }) => {
      const isPage = contentType.startsWith('text/html');
      return {
        path,
        location: new URL(file, folder),
        contentType,
        edit: isPage && !allowsTryIt ? (text: string) => text.replace(tryItParts, '') : undefined,
      };
    }),
  });
}
