// `npm ci` installs and runs only what package.json lists.

import { readFile } from 'node:fs/promises';
import { expect, test } from 'vitest';

interface Manifest {
  dependencies: Record<string, string>;
  devDependencies: Record<string, string>;
  allowScripts: Record<string, boolean>;
}

const manifest: Manifest = JSON.parse(await readFile('package.json', 'utf8'));
const lock: { packages: Record<string, { hasInstallScript?: boolean }> } = JSON.parse(
  await readFile('package-lock.json', 'utf8'),
);

test('every package with an install script is listed as allowed or not', () => {
  const withScript = Object.entries(lock.packages)
    .filter(([, { hasInstallScript }]) => hasInstallScript)
    .map(([path]) => path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length));
  expect(Object.keys(manifest.allowScripts)).toEqual(expect.arrayContaining(withScript));
  expect(withScript.length).toBeGreaterThan(0);
});

test('the client uses the same versions as the service', async () => {
  const client: Manifest & { version: string } = JSON.parse(await readFile('client/package.json', 'utf8'));
  const installed = { ...manifest.devDependencies, ...manifest.dependencies };
  for (const [name, version] of Object.entries(client.dependencies)) {
    expect([name, version]).toEqual([name, installed[name]]);
  }
});

test('every version is exact', () => {
  for (const [name, version] of Object.entries({ ...manifest.dependencies, ...manifest.devDependencies })) {
    expect([name, version]).toEqual([
      name,
      expect.stringMatching(/^(?:npm:@?[\w/-]+@)?\d+\.\d+\.\d+(?:-[\w.-]+)?$/),
    ]);
  }
});
