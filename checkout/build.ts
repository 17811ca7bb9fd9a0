// `node checkout/build.ts checkout|console [FOLDER]`: bundles the hosted page and the SDK, or the console's
// pages, into the files that the service serves.

import { copyFile, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { type BuildOptions, build } from 'esbuild';

const [page = '', given] = process.argv.slice(2);
const root = join(import.meta.dirname, '..');
const source = join(root, page, 'page');
const outdir = given ?? join(root, 'src', page, 'gen');

const common: BuildOptions = {
  bundle: true,
  minify: true,
  format: 'esm',
  legalComments: 'none',
  logLevel: 'warning',
  outdir,
  // The checkout supports Chromium 108, Firefox 108 and Safari 16.4: no `light-dark`, no nesting.
  target: page === 'checkout' ? 'es2022' : 'es2023',
};

await mkdir(outdir, { recursive: true });
await build({
  ...common,
  entryPoints: { page: join(source, 'main.tsx'), style: join(source, 'page.css') },
  entryNames: 'page',
  jsx: 'automatic',
  jsxImportSource: 'preact',
});
await copyFile(join(source, 'page.html'), join(outdir, 'page.html'));
await copyFile(join(root, 'checkout/page/icon.svg'), join(outdir, 'icon.svg'));
if (page === 'checkout') {
  // The package payment-intents-checkout, for shops without a build step.
  await build({ ...common, entryPoints: { sdk: join(root, 'checkout/sdk/index.ts') } });
}
