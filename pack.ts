// `npm run pack:client [-- FOLDER]` and `npm run pack:checkout [-- FOLDER]`: compiles the package in a temporary folder and
// packs it, into its own `dist` unless told otherwise. Prints the tarball's path.

import { execFileSync } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative, resolve } from 'node:path';

const [packageFolder, given] = process.argv.slice(2);
if (packageFolder === undefined) throw new Error('usage: node pack.ts PACKAGE [FOLDER]');
const source = join(import.meta.dirname, packageFolder);
const destination = resolve(given ?? join(source, 'dist'));
const folder = mkdtempSync(join(tmpdir(), 'payment-intents-pack-'));
try {
  const tsc = join(import.meta.dirname, 'node_modules/typescript/bin/tsc');
  // The second is for CommonJS, which not every package has.
  for (const name of ['tsconfig.json', 'tsconfig.cjs.json']) {
    const project = join(source, name);
    if (!existsSync(project)) continue;
    const { compilerOptions } = JSON.parse(readFileSync(project, 'utf8'));
    const outDir = join(folder, compilerOptions.outDir);
    execFileSync(process.execPath, [tsc, '--project', project, '--outDir', outDir], { stdio: 'inherit' });
    // Overrides the package's own, which declares ES modules.
    if (compilerOptions.module === 'commonjs') {
      writeFileSync(join(outDir, 'package.json'), '{ "type": "commonjs" }\n');
    }
  }
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
