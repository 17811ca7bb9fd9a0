// `node checkout/build.ts [FOLDER]`: bundles the hosted page and the SDK into the files that the public door serves.

import { copyFile, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { build } from 'esbuild';

const source = import.meta.dirname;
const folder = process.argv[2] ?? join(source, '../src/checkout/gen');

await mkdir(folder, { recursive: true });
await build({
  entryPoints: { page: join(source, 'page/main.tsx'), style: join(source, 'page/page.css') },
  outdir: folder,
  entryNames: 'page',
  bundle: true,
  minify: true,
  format: 'esm',
  // Chromium 108, Firefox 108, Safari 16.4: `light-dark` and nesting are not used.
  target: ['es2022'],
  jsx: 'automatic',
  jsxImportSource: 'preact',
  legalComments: 'none',
  logLevel: 'warning',
});
// The package payment-intents-checkout, for shops without a build.
await build({
  entryPoints: { sdk: join(source, 'sdk/index.ts') },
  outdir: folder,
  bundle: true,
  minify: true,
  format: 'esm',
  target: ['es2022'],
  legalComments: 'none',
  logLevel: 'warning',
});
for (const file of ['page.html', 'icon.svg']) await copyFile(join(source, 'page', file), join(folder, file));
