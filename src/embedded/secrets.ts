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
export async function loadOrGenerateSecrets(dataDir: string): Promise<Record<SecretName, KeyRing>> {
  const secrets = await loadAll(dataDir, (file, names) => writeOnce(file, freshSecrets(names)));
  return secrets as Record<SecretName, KeyRing>;
}

/** Returns the secrets that are there, and makes none. Throws StartupError if there are none at all. */
export function loadSecrets(dataDir: string): Promise<Secrets> {
  return loadAll(dataDir, async (_, names) => {
    if (names === secretNames) throw new Error('there is none');
    return '{}';
  });
}

type Secrets = Partial<Record<SecretName, KeyRing>>;
/** Makes a file with these secrets, and returns its text. */
type MakeFile = (file: string, names: readonly SecretName[]) => Promise<string>;

/** What every `secrets.json` has had since the first release: a file without them is damaged, and not to be added to. */
const firstNames: readonly SecretName[] = ['CLIENT_SECRET_KEYS', 'API_KEY_PEPPERS'];

async function loadAll(dataDir: string, makeIfMissing: MakeFile): Promise<Secrets> {
  const file = join(dataDir, 'secrets.json');
  const secrets = await readSecrets(file, secretNames, makeIfMissing);
  const missing = firstNames.filter((name) => secrets[name] === undefined);
  if (missing.length > 0) {
    throw new StartupError(
      `the secrets in ${file} cannot be used (${missing.join(' and ')} missing): restore the file, or set DATA_DIR to another folder`,
    );
  }
  for (const name of secretNames) {
    if (secrets[name] !== undefined) continue;
    Object.assign(secrets, await readSecrets(join(dataDir, `secrets.${name}.json`), [name], makeIfMissing));
  }
  return secrets;
}

async function readSecrets(
  file: string,
  names: readonly SecretName[],
  makeIfMissing: MakeFile,
): Promise<Secrets> {
  try {
    const stored = JSON.parse((await readIfThere(file)) ?? (await makeIfMissing(file, names)));
    const given = names.filter((name) => stored[name] !== undefined);
    return Object.fromEntries(given.map((name) => [name, parseKeyRing(String(stored[name]))]));
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
