// The public port's documentation: the OpenAPI document, and a page that shows it. All of it comes from our own files
// and the swagger-ui-dist package; nothing is fetched from anywhere else.

import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { ServerResponse } from 'node:http';
import { createRequire } from 'node:module';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { ServiceError } from '../errors.ts';
import type { NodeRequest } from './node-headers.ts';

interface Document {
  contentType: string;
  body: Buffer;
  /** The same, compressed. */
  gzipped: Buffer;
  etag: string;
}

export interface Documentation {
  /** True for a path of the documentation. */
  has(path: string): boolean;
  /**
   * Answers a GET or HEAD of such a path, to everybody, browsers too. Throws `method_not_allowed` for anything else. A
   * document is read once, when it is first asked for.
   */
  serve(path: string, request: NodeRequest, response: ServerResponse, requestId: string): Promise<void>;
}

/** Scripts, styles and pictures from this port and nowhere else; no form, no frame around it. */
const commonHeaders: Readonly<Record<string, string>> = {
  'Content-Security-Policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Opener-Policy': 'same-origin',
  // Asked for again each time, and sent again only where it has changed.
  'Cache-Control': 'no-cache',
};

const page = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <meta name="color-scheme" content="light dark">
    <title>Payment intents: API reference</title>
    <link rel="icon" type="image/png" href="/docs/favicon-32x32.png">
    <link rel="stylesheet" href="/docs/swagger-ui.css">
    <link rel="stylesheet" href="/docs/page.css">
    <script src="/docs/swagger-ui-bundle.js" defer></script>
    <script src="/docs/page.js" defer></script>
  </head>
  <body>
    <noscript><p>This page needs JavaScript. The same is in <a href="/openapi.json">openapi.json</a>.</p></noscript>
    <div id="reference"></div>
  </body>
</html>
`;

/** Follows the reader's light or dark, and opens everything there is: it is one method. */
const script = `const dark = matchMedia('(prefers-color-scheme: dark)');
const follow = () => document.documentElement.classList.toggle('dark-mode', dark.matches);
dark.addEventListener('change', follow);
follow();
SwaggerUIBundle({
  url: '/openapi.json',
  dom_id: '#reference',
  docExpansion: 'full',
  defaultModelsExpandDepth: 2,
  defaultModelExpandDepth: 5,
  // The fields with their descriptions stand below, under Schemas.
  defaultModelRendering: 'example',
  // Keys belong on servers: nothing can be sent from this page.
  supportedSubmitMethods: [],
  validatorUrl: null,
});
`;

const style = `body { margin: 0 }
html.dark-mode body { background: #1c2022 }
/* No place to type an API key into: it does not belong in a browser. */
.swagger-ui .scheme-container, .swagger-ui .authorization__btn { display: none }
.swagger-ui .parameters input { display: none }
/* A phone: tables stand one cell below the other instead of running out of the page. */
@media (max-width: 640px) {
  .swagger-ui .wrapper { padding: 0 10px }
  .swagger-ui .opblock .opblock-summary-description { display: none }
  .swagger-ui .opblock-tag { display: block }
  .swagger-ui .opblock-tag small { display: block; padding: 8px 0 }
  .swagger-ui table.parameters thead, .swagger-ui table.responses-table thead { display: none }
  .swagger-ui .opblock-body pre.microlight, .swagger-ui .model-box { overflow-x: auto }
  .swagger-ui table.headers, .swagger-ui table.parameters, .swagger-ui table.responses-table,
  .swagger-ui table.model { table-layout: fixed; width: 100% }
  .swagger-ui table.parameters tr, .swagger-ui table.responses-table tr { display: block }
  .swagger-ui table.parameters td, .swagger-ui table.responses-table td,
  .swagger-ui .response-col_description { display: block; width: auto; min-width: 0; padding: 6px 0 }
  .swagger-ui * { overflow-wrap: anywhere }
}
`;

type Source = { contentType: string; content: () => Promise<Buffer> };

export function createDocumentation(): Documentation {
  const require = createRequire(import.meta.url);
  const fromPackage = (file: string) => () => readFile(require.resolve(`swagger-ui-dist/${file}`));
  const text = (content: string) => async () => Buffer.from(content);
  const sources = new Map<string, Source>([
    ['/docs', { contentType: 'text/html; charset=utf-8', content: text(page) }],
    ['/docs/page.js', { contentType: 'text/javascript; charset=utf-8', content: text(script) }],
    ['/docs/page.css', { contentType: 'text/css; charset=utf-8', content: text(style) }],
    [
      '/docs/swagger-ui.css',
      { contentType: 'text/css; charset=utf-8', content: fromPackage('swagger-ui.css') },
    ],
    [
      '/docs/swagger-ui-bundle.js',
      { contentType: 'text/javascript; charset=utf-8', content: fromPackage('swagger-ui-bundle.js') },
    ],
    ['/docs/favicon-32x32.png', { contentType: 'image/png', content: fromPackage('favicon-32x32.png') }],
    [
      '/openapi.json',
      {
        contentType: 'application/json',
        content: () => readFile(new URL('../gen/openapi.json', import.meta.url)),
      },
    ],
  ]);
  const documents = new Map<string, Promise<Document>>();
  const read = (path: string, source: Source): Promise<Document> => {
    const known = documents.get(path);
    if (known !== undefined) return known;
    const document = load(source);
    documents.set(path, document);
    return document;
  };
  return {
    has: (path) => sources.has(path),
    async serve(path, request, response, requestId) {
      const source = sources.get(path);
      if (source === undefined) throw new ServiceError('not_found');
      if (request.method !== 'GET' && request.method !== 'HEAD') {
        throw new ServiceError('method_not_allowed', { httpHeaders: { Allow: 'GET, HEAD' } });
      }
      const { contentType, body, gzipped, etag } = await read(path, source);
      const takesGzip = /\bgzip\b/.test(String(request.headers['accept-encoding'] ?? ''));
      const isKnown = request.headers['if-none-match'] === etag;
      const content = takesGzip ? gzipped : body;
      response.writeHead(isKnown ? 304 : 200, {
        ...commonHeaders,
        'Content-Type': contentType,
        ...(takesGzip ? { 'Content-Encoding': 'gzip' } : {}),
        ...(isKnown ? {} : { 'Content-Length': content.length }),
        Vary: 'Accept-Encoding',
        ETag: etag,
        'X-Request-Id': requestId,
      });
      if (isKnown || request.method === 'HEAD') response.end();
      else response.end(content);
    },
  };
}

async function load({ contentType, content }: Source): Promise<Document> {
  const body = await content();
  const etag = `"${createHash('sha256').update(body).digest('base64url').slice(0, 22)}"`;
  return { contentType, body, gzipped: await promisify(gzip)(body), etag };
}
