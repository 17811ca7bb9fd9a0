// `node console/build.ts [FOLDER]`: bundles the console's pages into the files that its door serves.

import { copyFile, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { build } from 'esbuild';

const source = import.meta.dirname;
const folder = process.argv[2] ?? join(source, '../src/console/gen');

await mkdir(folder, { recursive: true });
await build({
  entryPoints: { page: join(source, 'page/main.tsx'), style: join(source, 'page/page.css') },
  outdir: folder,
  entryNames: 'page',
  bundle: true,
  minify: true,
  format: 'esm',
  target: ['es2023'],
  jsx: 'automatic',
  jsxImportSource: 'preact',
  legalComments: 'none',
  logLevel: 'warning',
});
await copyFile(join(source, 'page/page.html'), join(folder, 'page.html'));
await copyFile(join(source, '../checkout/page/icon.svg'), join(folder, 'icon.svg'));
