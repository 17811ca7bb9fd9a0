// Missing secrets are added to an existing `.data` folder; existing ones stay.

import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { secretNames } from '../src/config/config.ts';
import { loadSecrets } from '../src/embedded/secrets.ts';
import { useFolder } from './support/folder.ts';

let folder: string;

beforeEach(async () => {
  folder = await useFolder(onTestFinished);
});

/** Makes the secrets as a release without the last of them did. */
async function makeFirstSecrets(): Promise<void> {
  await loadSecrets(folder, true);
  const file = join(folder, 'secrets.json');
  const { WEBHOOK_SECRET_KEYS: _, ...first } = JSON.parse(await readFile(file, 'utf8'));
  await writeFile(file, JSON.stringify(first));
}

/** A fingerprint of each key. */
const print = (
  secrets: Partial<Record<string, { hmac(version: number, text: string, encoding: 'hex'): string }>>,
) => Object.fromEntries(Object.entries(secrets).map(([name, ring]) => [name, ring?.hmac(1, 'text', 'hex')]));

test('a secret of a later version is added; existing ones stay', async () => {
  await makeFirstSecrets();
  const file = await readFile(join(folder, 'secrets.json'), 'utf8');
  const before = print(await loadSecrets(folder, false));
  expect(Object.keys(before)).toEqual(['CLIENT_SECRET_KEYS', 'API_KEY_PEPPERS']);
  const after = print(await loadSecrets(folder, true));
  expect(after).toMatchObject(before);
  expect(Object.keys(after)).toEqual([...secretNames]);
  expect(await readFile(join(folder, 'secrets.json'), 'utf8')).toBe(file);
  expect(print(await loadSecrets(folder, true))).toEqual(after);
  expect((await stat(join(folder, 'secrets.WEBHOOK_SECRET_KEYS.json'))).mode & 0o777).toBe(0o600);
});

test('processes that start at once agree', async () => {
  await makeFirstSecrets();
  const all = await Promise.all(Array.from({ length: 8 }, () => loadSecrets(folder, true)));
  expect(new Set(all.map((secrets) => JSON.stringify(print(secrets)))).size).toBe(1);
  expect((await readdir(folder)).sort()).toEqual(['secrets.WEBHOOK_SECRET_KEYS.json', 'secrets.json']);
});

test('a new folder has all secrets in one file', async () => {
  await loadSecrets(folder, true);
  expect(await readdir(folder)).toEqual(['secrets.json']);
});

test('reading the secrets adds none, and finds those that were added', async () => {
  await expect(loadSecrets(folder, false)).rejects.toThrow(/secrets\.json cannot be used \(there is none\)/);
  expect(await readdir(folder)).toEqual([]);
  const made = print(await loadSecrets(folder, true));
  expect(print(await loadSecrets(folder, false))).toEqual(made);
});

test.each(['{}', `{"CLIENT_SECRET_KEYS":"1:${Buffer.alloc(32).toString('base64')}"}`])(
  'a file that has lost a secret of the first release is refused: %s',
  async (text) => {
    await writeFile(join(folder, 'secrets.json'), text);
    await expect(loadSecrets(folder, true)).rejects.toThrow(/API_KEY_PEPPERS missing/);
    await expect(loadSecrets(folder, false)).rejects.toThrow(/API_KEY_PEPPERS missing/);
    expect(await readdir(folder)).toEqual(['secrets.json']);
  },
);

test('a damaged secret is not replaced', async () => {
  await writeFile(
    join(folder, 'secrets.json'),
    '{"CLIENT_SECRET_KEYS":"1:short","API_KEY_PEPPERS":"1:short"}',
  );
  await expect(loadSecrets(folder, true)).rejects.toThrow(
    /secrets\.json cannot be used \(entry 1 is shorter/,
  );
});
