// The hosted checkout page as the public door serves it. What is in its files is tested elsewhere.

import http from 'node:http';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { scrape } from './support/metrics.ts';
import { httpRequest } from './support/service.ts';
import { useService } from './support/use-service.ts';

const files = [
  ['/checkout', 'text/html; charset=utf-8'],
  ['/checkout/', 'text/html; charset=utf-8'],
  ['/checkout/page.js', 'text/javascript; charset=utf-8'],
  ['/checkout/page.css', 'text/css; charset=utf-8'],
  ['/checkout/icon.svg', 'image/svg+xml'],
  ['/checkout/sdk.js', 'text/javascript; charset=utf-8'],
] as const;
const paths = files.map(([path]) => path);

const service = await useService();

const get = (path: string, headers: Record<string, string> = {}) =>
  fetch(`${service.publicUrl}${path}`, { headers });

/** The answer as it was sent: `fetch` would decompress it. */
function sent(path: string, acceptEncoding: string): Promise<{ coding: string | undefined; body: Buffer }> {
  const headers = acceptEncoding === '' ? {} : { 'Accept-Encoding': acceptEncoding };
  return new Promise((resolve, reject) => {
    http
      .get(`${service.publicUrl}${path}`, { headers }, async (response) => {
        const chunks = await response.toArray();
        resolve({ coding: response.headers['content-encoding'], body: Buffer.concat(chunks) });
      })
      .on('error', reject);
  });
}

test.each(files)('%s is %s, with the headers of the page', async (path, contentType) => {
  const answer = await get(path);
  expect(answer.status).toBe(200);
  expect(Object.fromEntries(answer.headers)).toMatchObject({
    'content-type': contentType,
    'content-security-policy':
      "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    'referrer-policy': 'no-referrer',
    'x-content-type-options': 'nosniff',
    'cross-origin-opener-policy': 'unsafe-none',
    'cache-control': 'no-cache',
    'x-request-id': expect.stringMatching(/^req_/),
  });
  expect(answer.headers.get('permissions-policy')).toMatch(/\bcamera=\(\)/);
  expect(answer.headers.get('permissions-policy')).not.toContain('clipboard-write');
  expect(answer.headers.has('set-cookie')).toBe(false);
});

test('both addresses serve the same page', async () => {
  expect(await (await get('/checkout/')).text()).toBe(await (await get('/checkout')).text());
});

test.each(paths)('%s is sent in a coding that the client accepts', async (path) => {
  const plain = await sent(path, '');
  expect(plain.coding).toBeUndefined();
  const [brotli, gzip] = [await sent(path, 'gzip, br'), await sent(path, 'gzip')];
  expect([brotli.coding, gzip.coding]).toEqual(['br', 'gzip']);
  expect(brotliDecompressSync(brotli.body).equals(plain.body)).toBe(true);
  expect(gunzipSync(gzip.body).equals(plain.body)).toBe(true);
});

test.each(['br', 'gzip'])('the page is at most 40 KB in all, in %s', async (coding) => {
  const parts = ['/checkout', '/checkout/page.js', '/checkout/page.css', '/checkout/icon.svg'];
  const bodies = await Promise.all(parts.map(async (path) => (await sent(path, coding)).body.length));
  expect(bodies.reduce((sum, length) => sum + length, 0)).toBeLessThanOrEqual(40_000);
});

test.each(paths)('%s is not sent again to a client that has it', async (path) => {
  const first = await get(path);
  const known = await get(path, { 'if-none-match': first.headers.get('etag') ?? '' });
  expect([known.status, await known.text()]).toEqual([304, '']);
  expect(known.headers.get('content-security-policy')).toBe(first.headers.get('content-security-policy'));
  expect((await get(path, { 'if-none-match': '"other"' })).status).toBe(200);
});

test.each(paths)('HEAD of %s has the headers of GET and no body', async (path) => {
  const [head, found] = await Promise.all(
    ['HEAD', 'GET'].map((method) => httpRequest(`${service.publicUrl}${path}`, { method })),
  );
  expect([head?.status, head?.body]).toEqual([200, '']);
  expect(head?.headers['content-length']).toBe(String(Buffer.byteLength(found?.body ?? '')));
  expect(head?.headers.etag).toBe(found?.headers.etag);
});

test.each(['POST', 'PUT', 'DELETE', 'OPTIONS'])('%s is refused', async (method) => {
  for (const path of paths) {
    const { status, headers, body } = await httpRequest(`${service.publicUrl}${path}`, { method });
    expect([path, status, headers.allow]).toEqual([path, 405, 'GET, HEAD']);
    expect(JSON.parse(body).error.code).toBe('method_not_allowed');
  }
});

describe('a page of another origin', () => {
  const origin = 'https://shop.example';

  test('may import the SDK', async () => {
    const { headers } = await get('/checkout/sdk.js', { origin });
    expect(headers.get('access-control-allow-origin')).toBe('*');
    expect(headers.get('cross-origin-resource-policy')).toBe('cross-origin');
    const { etag = '' } = Object.fromEntries(headers);
    const known = await get('/checkout/sdk.js', { origin, 'if-none-match': etag });
    expect([known.status, known.headers.get('access-control-allow-origin')]).toEqual([304, '*']);
  });

  test.each(paths.filter((path) => path !== '/checkout/sdk.js'))('may not read %s', async (path) => {
    const { headers } = await get(path, { origin });
    expect([...headers.keys()].filter((name) => name.startsWith('access-control-'))).toEqual([]);
    expect(headers.has('cross-origin-resource-policy')).toBe(false);
  });
});

test('a query changes nothing', async () => {
  const answer = await get('/checkout?utm_source=mail&x=%00');
  expect([answer.status, await answer.text()]).toEqual([200, await (await get('/checkout')).text()]);
});

test.each([
  '/checkout/page.html',
  '/checkout/nothing',
  '/checkout//page.js',
  '/Checkout',
  '/checkout/..%2fpage.js',
])('there is nothing at %s', async (path) => {
  const { status, body } = await httpRequest(`${service.publicUrl}${path}`, { method: 'GET' });
  expect([status, JSON.parse(body).error.code]).toEqual([404, 'not_found']);
});

test('a request is logged by the name of the page, without its query', async () => {
  const { headers } = await get('/checkout?pi_00000000000000000000000000_secret_mark-of-the-query');
  const line = await service.loggedLine(({ request_id }) => request_id === headers.get('x-request-id'));
  expect(line).toMatchObject({ rpc: 'checkout_page', code: 'ok', door: 'public' });
  expect(JSON.stringify(service.log)).not.toContain('mark-of');
});

test('requests are counted by the name of the page', async () => {
  await get('/checkout');
  expect(await scrape(service)).toMatch(/="checkout_page"/);
});

test('without local chains there is no test wallet, and the page offers none', async () => {
  expect(await (await get('/checkout')).text()).toContain('<meta name="test-wallet" content="">');
  for (const method of ['GET', 'POST', 'OPTIONS']) {
    const { status, body } = await httpRequest(`${service.publicUrl}/checkout/test-wallet`, { method });
    expect([status, JSON.parse(body).error.code]).toEqual([404, 'not_found']);
  }
});
