import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { type SecretName, secretNames } from '../config/config.ts';
import { type KeyRing, minKeyBytes, parseKeyRing } from '../config/key-ring.ts';
import { StartupError } from '../config/startup-error.ts';
import { readIfThere, writeOnce } from '../config/write-once.ts';

/**
 * Returns the secrets of an embedded database, which are kept beside it in `secrets.json` (0600) and generated on first
 * use. They belong to the data: without them its API keys are refused and its client secrets change.
 *
 * A secret that a later version needs is added in a file of its own, `secrets.<name>.json`: of several processes that
 * start at once, the first one makes it and the others read it, as with `secrets.json`.
 */
export async function loadOrGenerateSecrets<Name extends string = SecretName>(
  dataDir: string,
  names: readonly Name[] = secretNames as readonly SecretName[] as readonly Name[],
): Promise<Record<Name, KeyRing>> {
  const secrets = await readSecrets(join(dataDir, 'secrets.json'), names, (file) =>
    writeOnce(file, freshSecrets(names)),
  );
  assertWhole(dataDir, secrets);
  for (const name of names) {
    if (secrets[name] !== undefined) continue;
    const added = await readSecrets(addedFile(dataDir, name), [name], (file) =>
      writeOnce(file, freshSecrets([name])),
    );
    secrets[name] = added[name] as KeyRing;
  }
  return secrets as Record<Name, KeyRing>;
}

/** Returns the secrets that are there, and makes none. Throws StartupError if there are none at all. */
export async function loadSecrets(dataDir: string): Promise<Partial<Record<SecretName, KeyRing>>> {
  const secrets = await readSecrets(join(dataDir, 'secrets.json'), secretNames, () =>
    Promise.reject(new Error('there is none')),
  );
  assertWhole(dataDir, secrets);
  for (const name of secretNames) {
    if (secrets[name] !== undefined) continue;
    const added = await readSecrets(addedFile(dataDir, name), [name], async () => '{}');
    if (added[name] !== undefined) secrets[name] = added[name];
  }
  return secrets;
}

/** What every `secrets.json` has had since the first release: a file without them is damaged, and not to be added to. */
const firstNames: readonly SecretName[] = ['CLIENT_SECRET_KEYS', 'API_KEY_PEPPERS'];

function assertWhole(dataDir: string, secrets: Partial<Record<string, KeyRing>>): void {
  const missing = firstNames.filter((name) => secrets[name] === undefined);
  if (missing.length === 0) return;
  throw new StartupError(
    `the secrets in ${join(dataDir, 'secrets.json')} cannot be used (${missing.join(' and ')} missing): restore the file, or set DATA_DIR to another folder`,
  );
}

function addedFile(dataDir: string, name: string): string {
  return join(dataDir, `secrets.${name}.json`);
}

async function readSecrets<Name extends string>(
  file: string,
  names: readonly Name[],
  makeIfMissing: (file: string) => Promise<string>,
): Promise<Partial<Record<Name, KeyRing>>> {
  try {
    const stored = JSON.parse((await readIfThere(file)) ?? (await makeIfMissing(file)));
    const secrets: Partial<Record<Name, KeyRing>> = {};
    for (const name of names) {
      if (stored[name] !== undefined) secrets[name] = parseKeyRing(String(stored[name]));
    }
    return secrets;
  } catch (cause) {
    throw new StartupError(
      `the secrets in ${file} cannot be used (${cause instanceof Error ? cause.message : cause}): make the file readable, or set DATA_DIR to another folder`,
      { cause },
    );
  }
}

function freshSecrets(names: readonly string[]): string {
  const secrets = Object.fromEntries(names.map((name) => [name, freshKeyRing()]));
  return `${JSON.stringify(secrets, null, 2)}\n`;
}

function freshKeyRing(): string {
  return `1:${randomBytes(minKeyBytes).toString('base64')}`;
}
