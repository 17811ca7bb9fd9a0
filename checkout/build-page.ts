// Bundles a page, the checkout's or the console's, into the files that a door serves.

import { copyFile, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { type BuildOptions, build } from 'esbuild';

const icon = join(import.meta.dirname, 'page/icon.svg');

/** What every bundle has in common. */
export const bundled = {
  bundle: true,
  minify: true,
  format: 'esm',
  legalComments: 'none',
  logLevel: 'warning',
} as const satisfies BuildOptions;

/** Writes the page whose parts are in the folder `page` of `source`, and the icon. */
export async function buildPage(source: string, folder: string, target: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  await build({
    ...bundled,
    entryPoints: { page: join(source, 'page/main.tsx'), style: join(source, 'page/page.css') },
    outdir: folder,
    entryNames: 'page',
    target,
    jsx: 'automatic',
    jsxImportSource: 'preact',
  });
  await copyFile(join(source, 'page/page.html'), join(folder, 'page.html'));
  await copyFile(icon, join(folder, 'icon.svg'));
}
