// The checkout's package as shops use it: packed, installed, compiled and bundled.

import { execFile } from 'node:child_process';
import { readdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { build } from 'esbuild';
import { describe, expect, test } from 'vitest';
import { useFolder } from '../support/folder.ts';

const run = promisify(execFile);

/** A folder with only the package installed. */
const folder = await useFolder();
const packed = await run(process.execPath, ['pack.ts', 'checkout/sdk', folder]);
const tarball = resolve(packed.stdout.trim());
await writeFile(join(folder, 'package.json'), '{"name":"empty","private":true,"type":"module"}');
await run('npm', ['install', '--no-audit', '--no-fund', '--offline', tarball], { cwd: folder });
const installed = join(folder, 'node_modules/payment-intents-checkout');

/** Returns the compiler's output for files of the folder; empty if there is none. */
async function complaintsAbout(files: string[], moduleResolution: string): Promise<string> {
  const options = ['--noEmit', '--strict', '--exactOptionalPropertyTypes', '--skipLibCheck', 'false'];
  const module = moduleResolution === 'nodenext' ? 'nodenext' : 'esnext';
  const target = ['--target', 'es2022', '--lib', 'es2022,dom', '--types', '', '--moduleDetection', 'force'];
  const args = [...options, ...target, '--module', module, '--moduleResolution', moduleResolution];
  const tsc = resolve('node_modules/typescript/bin/tsc');
  return run(process.execPath, [tsc, ...args, '--jsx', 'react-jsx', '--ignoreConfig', ...files], {
    cwd: folder,
  }).then(
    () => '',
    ({ stdout }) => String(stdout),
  );
}

test('packing prints where the tarball is and leaves nothing to commit', { timeout: 60_000 }, async () => {
  const status = async () => (await run('git', ['status', '--porcelain'])).stdout;
  const before = await status();
  const { stdout } = await run('npm', ['run', '-s', 'pack:checkout']);
  expect(stdout).toMatch(/^checkout\/sdk\/dist\/payment-intents-checkout-\d+\.\d+\.\d+\.tgz\n$/);
  expect(await status()).toBe(before);
});

test('contains its own modules, their types and the README, and depends on nothing', async () => {
  expect((await readdir(installed)).sort()).toEqual(['README.md', 'dist', 'package.json']);
  const sources = (await readdir('checkout/sdk')).filter((name) => name.endsWith('.ts'));
  const built = sources.flatMap((name) => [name.replace(/\.ts$/, '.js'), name.replace(/\.ts$/, '.d.ts')]);
  expect((await readdir(join(installed, 'dist'))).sort()).toEqual([...built, 'gen'].sort());
  const manifest = JSON.parse(await readFile(join(installed, 'package.json'), 'utf8'));
  expect(Object.keys(manifest).filter((key) => /dependencies/i.test(key))).toEqual([]);
});

test('passes Are The Types Wrong, as ES modules only', { timeout: 60_000 }, async () => {
  const { stdout } = await run('test/interop/node_modules/.bin/attw', [
    ...['--format', 'json', '--profile', 'esm-only', tarball],
  ]);
  const { analysis, problems } = JSON.parse(stdout);
  expect(Object.keys(analysis.entrypoints).sort()).toEqual(['.', './package.json']);
  expect(Object.keys(problems ?? {}).filter((kind) => kind !== 'CJSResolvesToESM')).toEqual([]);
});

test('is at most 3 KB compressed, and an unused import costs nothing', async () => {
  const bundle = async (contents: string) => {
    const { outputFiles } = await build({
      ...{
        stdin: { contents, resolveDir: folder },
        bundle: true,
        minify: true,
        format: 'esm',
        write: false,
        logLevel: 'error',
      },
    });
    return outputFiles[0]?.contents as Uint8Array;
  };
  const all = await bundle(`export * from 'payment-intents-checkout';`);
  expect(all.length).toBeGreaterThan(1_000);
  expect(gzipSync(all, { level: 9 }).length).toBeLessThanOrEqual(3_072);
  expect(brotliCompressSync(all).length).toBeLessThanOrEqual(3_072);
  expect((await bundle(`import 'payment-intents-checkout';`)).length).toBe(0);
});

test('can be imported without a window, as in server-side rendering', async () => {
  const code = `import { retrieveCheckout } from 'payment-intents-checkout';
    await retrieveCheckout({ clientSecret: 'sk_testnet_x', baseUrl: 'http://x' }).catch((e) => console.log(e.name));`;
  const { stdout } = await run(process.execPath, ['--input-type=module', '-e', code], { cwd: folder });
  expect(stdout).toBe('TypeError\n');
});

describe('the README', () => {
  test('has samples that compile', async () => {
    const readme = await readFile(join(installed, 'README.md'), 'utf8');
    const blocks = [...readme.matchAll(/^```(tsx?)\n([\s\S]*?)^```$/gm)];
    expect(blocks.map(([, language]) => language)).toEqual(['ts', 'tsx', 'ts', 'ts']);
    await symlink(resolve('node_modules/@types'), join(folder, 'node_modules/@types'));
    const files = blocks.map(([, language], number) => `shop${number}.${language}`);
    for (const [number, file] of files.entries())
      await writeFile(join(folder, file), blocks[number]?.[2] ?? '');
    for (const resolution of ['bundler', 'nodenext']) {
      expect(await complaintsAbout(files, resolution)).toBe('');
    }
  });

  test('says what a success callback proves, and what the headers of the shop have to allow', async () => {
    const readme = await readFile(join(installed, 'README.md'), 'utf8');
    expect(readme).toMatch(/may come twice/);
    expect(readme).toMatch(/Ship goods when your backend has received the webhook/);
    expect(readme).toMatch(/same-origin-allow-popups/);
    expect(readme).toMatch(/`script-src`/);
  });
});
