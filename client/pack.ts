// `npm run pack:client [-- FOLDER]`: compiles the package in a temporary folder, once as ES modules and once as
// CommonJS, and packs it. Prints the tarball's path.

import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative, resolve } from 'node:path';

const source = import.meta.dirname;
const destination = resolve(process.argv[2] ?? join(source, 'dist'));
const folder = mkdtempSync(join(tmpdir(), 'payment-intents-client-'));
try {
  const tsc = join(source, '../node_modules/typescript/bin/tsc');
  for (const [project, format] of [
    ['tsconfig.json', 'esm'],
    ['tsconfig.cjs.json', 'cjs'],
  ] as const) {
    const outDir = join(folder, 'dist', format);
    execFileSync(process.execPath, [tsc, '--project', join(source, project), '--outDir', outDir], {
      stdio: 'inherit',
    });
  }
  // Overrides the package's own, which declares ES modules.
  writeFileSync(join(folder, 'dist/cjs/package.json'), '{ "type": "commonjs" }\n');
  for (const name of ['package.json', 'README.md']) copyFileSync(join(source, name), join(folder, name));
  mkdirSync(destination, { recursive: true });
  const packed = execFileSync('npm', ['pack', '--silent', '--pack-destination', destination], {
    cwd: folder,
    encoding: 'utf8',
  });
  const path = join(destination, packed.trim());
  const fromHere = relative(process.cwd(), path);
  console.log(fromHere.startsWith('..') ? path : fromHere);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
