// `npm ci` installs and runs only what package.json lists, and not more than a checkout needs every day.

import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';

interface Manifest {
  dependencies?: Record<string, string>;
  devDependencies: Record<string, string>;
  allowScripts: Record<string, boolean>;
}

const read = async <T>(file: string): Promise<T> => JSON.parse(await readFile(file, 'utf8'));
const versionsOf = ({ dependencies, devDependencies }: Manifest) => ({ ...devDependencies, ...dependencies });

describe.each(['.', 'test/interop'])('%s', async (folder) => {
  const manifest = await read<Manifest>(`${folder}/package.json`);
  const lock = await read<{ packages: Record<string, { hasInstallScript?: boolean }> }>(
    `${folder}/package-lock.json`,
  );

  test('every package with an install script is listed as allowed or not', () => {
    const withScript = Object.entries(lock.packages)
      .filter(([path, { hasInstallScript }]) => path !== '' && hasInstallScript)
      .map(([path]) => path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length));
    expect(Object.keys(manifest.allowScripts)).toEqual(expect.arrayContaining(withScript));
    expect(withScript.length).toBeGreaterThan(0);
  });

  test('every version is exact', () => {
    for (const [name, version] of Object.entries(versionsOf(manifest))) {
      expect([name, version]).toEqual([
        name,
        expect.stringMatching(/^(?:npm:@?[\w/-]+@)?\d+\.\d+\.\d+(?:-[\w.-]+)?$/),
      ]);
    }
  });
});

test('the client uses the same versions as the service', async () => {
  const installed: Record<string, string> = versionsOf(await read<Manifest>('package.json'));
  const client = await read<Required<Manifest>>('client/package.json');
  for (const [name, version] of Object.entries(client.dependencies)) {
    expect([name, version]).toEqual([name, installed[name]]);
  }
});

test('node_modules takes at most 800 MB', async () => {
  const caches = ['--exclude=.cache', '--exclude=.vitest-cache'];
  const { stdout } = await promisify(execFile)('du', ['-sm', ...caches, 'node_modules']);
  expect(Number.parseInt(stdout, 10)).toBeLessThanOrEqual(800);
});
