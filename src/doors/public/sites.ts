// The files that the ports serve, as built by `npm run generate`: the documentation, the checkout and the
// console. They are read before a port opens, so answers do not depend on the disk, and compressed on the
// first request. Each exported function throws StartupError if a file cannot be read.

import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { ServerResponse } from 'node:http';
import { extname } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import { StartupError } from '../../config/startup-error.ts';
import type { ChainName } from '../../contract/words.ts';
import { ServiceError } from '../../requests/errors.ts';
import { isNamedIn } from '../node-headers.ts';
import { isLastAnswer } from './json-body.ts';
import type { Site } from './public-door.ts';

/** A site that any port can serve. */
type Files = Site & {
  serve(exchange: Parameters<Site['serve']>[0], port: { isDraining: () => boolean }): Promise<void>;
};

/** The parts of the reference page that send requests, with their markers. */
const tryItParts = /<!--try-it-->.*?<!--\/try-it-->/gs;
const withoutTryIt = (page: string) => page.replace(tryItParts, '');

/** What the document's samples call. The page replaces it by its own address. */
const sampleUrl = 'http://127.0.0.1:8080';

/**
 * The OpenAPI document, which names the public address if that is configured, and the reference page, with or
 * without forms that send requests to this port.
 */
export function loadDocumentation(allowsTryIt: boolean, publicUrl: string | undefined): Promise<Site> {
  // Tools that have read the document do not know from where.
  const address = publicUrl && JSON.stringify(publicUrl).slice(1, -1);
  const withAddress = (text: string) =>
    address === undefined
      ? text
      : text.replace('"url": "/"', () => `"url": "${address}"`).replaceAll(sampleUrl, () => address);
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
      { path: '/openapi.json', name: 'openapi.json', edit: withAddress },
    ],
  });
}

/** Clipboard access stays allowed, for the copy buttons. */
const permissions = 'camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()';

/** Replaced by the chains on which the test wallet pays. */
const testWalletMark = '<meta name="test-wallet" content="">';

/**
 * The hosted checkout page, with the test wallet for intents of the given chains, and the script that a shop
 * opens it with. The page reads the client secret from the fragment of its URL, which browsers do not send.
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
/** The paths of the console's views. Some continue with an id. */
const consoleViews =
  /^\/(?:(?:payments|unattributed|webhooks)(?:\/\w{1,64})?|refunds|export|chains|merchants|search)?$/;

/** All views are one document. Its script shows the view of the path. */
export async function loadConsolePages(): Promise<Files> {
  const site = await loadStaticSite({
    name: 'console_page',
    title: 'the console',
    folder: new URL('../../console/gen/', import.meta.url),
    headers: {
      // Nothing from elsewhere, no framing, and no scripts made from text.
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
    serve: (exchange, port) => site.serve({ ...exchange, path: fileOf(exchange.path) }, port),
  };
}

interface SiteFile {
  path: string;
  /** Its name in the site's folder. The extension sets the content type. */
  name: string;
  /** Returns the text to serve instead of the file's. */
  edit?: ((text: string) => string) | undefined;
  /** Headers of this file only. */
  headers?: Readonly<Record<string, string>>;
}

interface StaticSiteOptions {
  /** The name of its requests in the log and the metrics. */
  name: string;
  /** Its name in error messages, such as `the documentation`. */
  title: string;
  folder: URL;
  files: readonly SiteFile[];
  /** Headers of every file of this site. */
  headers: Readonly<Record<string, string>>;
}

const commonHeaders: Readonly<Record<string, string>> = {
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  // Browsers revalidate each time; the file is sent again only if it has changed.
  'Cache-Control': 'no-cache',
};

const contentTypes: Readonly<Record<string, string>> = {
  '.css': 'text/css; charset=utf-8',
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.json': 'application/json',
  '.svg': 'image/svg+xml',
};

/**
 * Reads the files, and answers GET and HEAD requests for them without authentication. Throws StartupError if
 * a file cannot be read: it would be missing for as long as the service runs.
 */
async function loadStaticSite(options: StaticSiteOptions): Promise<Files> {
  const { name, files } = options;
  const entryOf = async (file: SiteFile) => [file.path, await load(file, options)] as const;
  const fileOf = new Map(await Promise.all(files.map(entryOf)));
  return {
    name,
    has: (path) => fileOf.has(path),
    async serve({ path, request, response, context }, { isDraining }) {
      const file = fileOf.get(path);
      if (file === undefined) throw new ServiceError('not_found');
      const { method } = request;
      if (method !== 'GET' && method !== 'HEAD') {
        throw new ServiceError('method_not_allowed', { httpHeaders: { Allow: 'GET, HEAD' } });
      }
      const accepted = String(request.headers['accept-encoding'] ?? '');
      const coding = codings.find((each) => each.accepted.test(accepted));
      if (coding !== undefined) file.compressed[coding.name] ??= coding.compress(file.body);
      const content = (coding && file.compressed[coding.name]) ?? file.body;
      const isUnchanged = isNamedIn(request.headers['if-none-match'], file.etag);
      (response as ServerResponse).writeHead(isUnchanged ? 304 : 200, {
        ...file.headers,
        ...(coding === undefined ? {} : { 'Content-Encoding': coding.name }),
        ...(isUnchanged ? {} : { 'Content-Length': content.length }),
        Vary: 'Accept-Encoding',
        // Weak, because it is the same for every coding.
        ETag: `W/${file.etag}`,
        'X-Request-Id': context.requestId,
        ...(isLastAnswer(request, isDraining) && { Connection: 'close' }),
      });
      if (isUnchanged || method === 'HEAD') response.end();
      else response.end(content);
    },
  };
}

async function load({ name, edit, headers }: SiteFile, site: StaticSiteOptions) {
  const read = await readFile(new URL(name, site.folder)).catch((cause) => {
    throw new StartupError(
      `${site.title} cannot be read (${cause.message}): install the service again, or make the file readable`,
      { cause },
    );
  });
  const body = edit === undefined ? read : Buffer.from(edit(read.toString()));
  return {
    body,
    /** The same body in the codings requested so far. */
    compressed: {} as Record<string, Buffer>,
    etag: `"${createHash('sha256').update(body).digest('base64url').slice(0, 22)}"`,
    headers: { ...commonHeaders, ...site.headers, ...headers, 'Content-Type': contentTypes[extname(name)] },
  };
}

/**
 * This quality takes some 10 ms; the best takes half a second and saves only a tenth more. A window no larger
 * than the file uses less memory than the default. The thread pool would be slower.
 */
const brotli = (body: Buffer) =>
  brotliCompressSync(body, {
    params: {
      [constants.BROTLI_PARAM_QUALITY]: 6,
      [constants.BROTLI_PARAM_LGWIN]: 18,
      [constants.BROTLI_PARAM_SIZE_HINT]: body.length,
    },
  });

/** Smallest first. `accepted` matches an Accept-Encoding that lists the coding without `q=0`. */
const codings = [
  { name: 'br', accepted: /(?:^|,)\s*br\s*(?:,|$|;\s*q=(?!0(?:\.0*)?\s*(?:,|$)))/i, compress: brotli },
  { name: 'gzip', accepted: /(?:^|,)\s*gzip\s*(?:,|$|;\s*q=(?!0(?:\.0*)?\s*(?:,|$)))/i, compress: gzipSync },
];
