// The files of the public port: in memory before it opens, compressed, and not sent again to clients that have them.

import { cp, rename, symlink } from 'node:fs/promises';
import http from 'node:http';
import { join } from 'node:path';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { useFolder } from './support/folder.ts';
import { startProgram } from './support/program.ts';
import { createTestDatabase } from './support/service.ts';
import { anyPorts, bareEnvironment, databaseUrl, newSecrets } from './support/test-environment.ts';

const paths = [
  ...['/docs', '/docs/page.css', '/docs/page.js', '/docs/icon.svg', '/openapi.json'],
  ...['/docs/search.js', '/docs/search.json'],
  ...['/checkout', '/checkout/page.js', '/checkout/page.css', '/checkout/icon.svg', '/checkout/sdk.js'],
];

/** A copy of the service's source, so that its files can be removed. */
const copy = await useFolder();
await cp('src', join(copy, 'src'), { recursive: true });
await cp('package.json', join(copy, 'package.json'));
await symlink(join(process.cwd(), 'node_modules'), join(copy, 'node_modules'));
const database = await createTestDatabase();

afterAll(() => database.drop());

const secrets = newSecrets();

const startCopy = () =>
  startProgram([process.execPath, 'src/main.ts'], {
    cwd: copy,
    env: {
      ...bareEnvironment(),
      ...anyPorts,
      ...secrets,
      DATABASE_URL: databaseUrl(database),
    },
  });

describe('a service whose files were removed after the start', () => {
  let service: ReturnType<typeof startCopy>;
  let url: string;
  const get = (path: string, headers: Record<string, string> = {}) => fetch(`${url}${path}`, { headers });

  beforeAll(async () => {
    service = startCopy();
    const [, port] = await service.until(/"http":(\d+).*"ready"/);
    url = `http://127.0.0.1:${port}`;
    await rename(join(copy, 'src'), join(copy, 'gone'));
    await rename(join(copy, 'node_modules'), join(copy, 'gone-too'));
  });

  afterAll(async () => {
    await service.end();
    await rename(join(copy, 'gone'), join(copy, 'src'));
    await rename(join(copy, 'gone-too'), join(copy, 'node_modules'));
  });

  test.each(paths)('still answers GET %s', async (path) => {
    const answer = await get(path);
    expect(answer.status).toBe(200);
    expect((await answer.text()).length).toBeGreaterThan(100);
  });

  test.each(['/docs', '/openapi.json'])(
    '%s is compressed in an encoding that the client accepts',
    async (path) => {
      const plain = await rawBody(`${url}${path}`, '');
      expect(plain.coding).toBeUndefined();
      const codings: [string, string | undefined][] = [
        ['gzip, deflate, br, zstd', 'br'],
        ['br', 'br'],
        ['gzip', 'gzip'],
        ['GZIP;q=0.5', 'gzip'],
        ['br;q=0, gzip', 'gzip'],
        ['br;q=0.0,gzip;q=0', undefined],
        ['brotli', undefined],
        ['deflate', undefined],
      ];
      for (const [accepted, expected] of codings) {
        const { coding, body, vary } = await rawBody(`${url}${path}`, accepted);
        expect([accepted, coding, vary]).toEqual([accepted, expected, 'Accept-Encoding']);
        const decoded =
          coding === 'br' ? brotliDecompressSync(body) : coding === 'gzip' ? gunzipSync(body) : body;
        expect(decoded.equals(plain.body)).toBe(true);
        if (coding !== undefined) expect(body.length).toBeLessThan(plain.body.length / 4);
      }
    },
  );

  test.each(paths)('%s is not sent again to a client that has it', async (path) => {
    const etag = (await get(path)).headers.get('etag') ?? '';
    for (const known of [etag, etag.replace('W/', ''), `"other", ${etag}`]) {
      const answer = await get(path, { 'if-none-match': known });
      expect([known, answer.status, await answer.text()]).toEqual([known, 304, '']);
    }
    expect((await get(path, { 'if-none-match': '"other"' })).status).toBe(200);
  });
});

test.each([
  ['contract/gen/openapi.json', 'the documentation'],
  ['checkout/gen/page.html', 'the checkout page'],
])('does not start without %s, and prints the reason in one line', async (file, title) => {
  const path = join(copy, 'src', file);
  await rename(path, `${path}.gone`);
  const { printed, ended } = startCopy();
  const [code] = await ended;
  await rename(`${path}.gone`, path);
  expect([code, printed.errors]).toEqual([
    1,
    expect.stringMatching(
      new RegExp(
        `^payment-intent-service: ${title} cannot be read \\(ENOENT[^\\n]*install the service again[^\\n]*\\n$`,
      ),
    ),
  ]);
});

function rawBody(url: string, acceptEncoding: string) {
  return new Promise<{ coding: string | undefined; vary: string | undefined; body: Buffer }>(
    (resolve, reject) => {
      http
        .get(url, { headers: { 'Accept-Encoding': acceptEncoding } }, (response) => {
          const chunks: Buffer[] = [];
          response.on('data', (chunk) => chunks.push(chunk));
          response.on('end', () => {
            const { 'content-encoding': coding, vary } = response.headers;
            resolve({ coding, vary, body: Buffer.concat(chunks) });
          });
        })
        .on('error', reject);
    },
  );
}
