// The public port's documentation: the OpenAPI document, and the reference page that `npm run generate` makes from it.
// Everything is read and compressed before the port opens, so that no answer depends on a file.

import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { ServerResponse } from 'node:http';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import { StartupError } from '../../config/startup-error.ts';
import { ServiceError } from '../../requests/errors.ts';
import type { NodeRequest } from '../node-headers.ts';
import type { Site } from './public-door.ts';

interface Document {
  contentType: string;
  body: Buffer;
  /** The same body, compressed, the smallest first. */
  compressed: readonly { coding: 'br' | 'gzip'; content: Buffer }[];
  etag: string;
}

export interface DocumentationOptions {
  /** Whether the reference page has forms that send requests to this port. */
  allowsTryIt: boolean;
  /** Where the generated files are. */
  folder?: URL;
}

/** Scripts, styles and images from this port only; no form submission, no framing. */
const commonHeaders: Readonly<Record<string, string>> = {
  'Content-Security-Policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Opener-Policy': 'same-origin',
  // The browser revalidates each time; the document is sent again only if it has changed.
  'Cache-Control': 'no-cache',
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
  { path: '/docs/icon.svg', file: 'reference/icon.svg', contentType: 'image/svg+xml' },
  { path: '/openapi.json', file: 'openapi.json', contentType: 'application/json' },
];

/**
 * Reads and compresses the documentation. Throws StartupError if a file cannot be read: it would otherwise be missing
 * for as long as the service runs.
 */
export async function loadDocumentation({
  allowsTryIt,
  folder = new URL('../../contract/gen/', import.meta.url),
}: DocumentationOptions): Promise<Site> {
  const used = sources.filter(({ isForTryIt }) => allowsTryIt || isForTryIt !== true);
  const loaded = used.map(async (source) => [source.path, await load(source, folder, allowsTryIt)] as const);
  const documents = new Map(await Promise.all(loaded));
  return {
    name: 'documentation',
    has: (path) => documents.has(path),
    // Answers GET and HEAD for every client, browsers included.
    async serve(path, request, response, requestId) {
      const document = documents.get(path);
      if (document === undefined) throw new ServiceError('not_found');
      if (request.method !== 'GET' && request.method !== 'HEAD') {
        throw new ServiceError('method_not_allowed', { httpHeaders: { Allow: 'GET, HEAD' } });
      }
      answer(document, request, response, requestId);
    },
  };
}

/** The parts of the page that send requests. They and their marks are removed from a page that must not send any. */
const tryItParts = /<!--try-it-->.*?<!--\/try-it-->/gs;

async function load({ file, contentType }: Source, folder: URL, allowsTryIt: boolean): Promise<Document> {
  const location = new URL(file, folder);
  const read = await readFile(location).catch((cause) => {
    throw new StartupError(
      `the documentation cannot be read (${cause.message}): install the service again, or make the file readable`,
      { cause },
    );
  });
  const isPage = contentType.startsWith('text/html');
  const body = isPage && !allowsTryIt ? Buffer.from(read.toString().replace(tryItParts, '')) : read;
  return {
    contentType,
    body,
    compressed: [
      { coding: 'br', content: brotliCompressSync(body, { params: brotliParams(body.length) }) },
      { coding: 'gzip', content: gzipSync(body) },
    ],
    etag: createHash('sha256').update(body).digest('base64url').slice(0, 22),
  };
}

/** Match an Accept-Encoding that lists the coding without `q=0`, which refuses it. */
const accepts = {
  br: /(?:^|,)\s*br\s*(?:,|$|;\s*q=(?!0(?:\.0*)?\s*(?:,|$)))/i,
  gzip: /(?:^|,)\s*gzip\s*(?:,|$|;\s*q=(?!0(?:\.0*)?\s*(?:,|$)))/i,
};

/**
 * The start waits for this. This quality takes milliseconds; the best takes half a second and saves only a tenth more.
 * A window no larger than the documents uses less memory than the default. The thread pool would be slower.
 */
function brotliParams(bytes: number): Record<number, number> {
  return {
    [constants.BROTLI_PARAM_QUALITY]: 6,
    [constants.BROTLI_PARAM_LGWIN]: 18,
    [constants.BROTLI_PARAM_SIZE_HINT]: bytes,
  };
}

function answer(
  { contentType, body, compressed, etag }: Document,
  request: NodeRequest,
  response: ServerResponse,
  requestId: string,
): void {
  const accepted = String(request.headers['accept-encoding'] ?? '');
  const choice = compressed.find(({ coding }) => accepts[coding].test(accepted));
  const content = choice?.content ?? body;
  // Weak, because it stands for the same document in every coding.
  const known = String(request.headers['if-none-match'] ?? '').split(',');
  const isKnown = known.some((tag) => tag.trim().replace(/^W\//, '') === `"${etag}"`);
  response.writeHead(isKnown ? 304 : 200, {
    ...commonHeaders,
    'Content-Type': contentType,
    ...(choice === undefined ? {} : { 'Content-Encoding': choice.coding }),
    ...(isKnown ? {} : { 'Content-Length': content.length }),
    Vary: 'Accept-Encoding',
    ETag: `W/"${etag}"`,
    'X-Request-Id': requestId,
  });
  if (isKnown || request.method === 'HEAD') response.end();
  else response.end(content);
}
