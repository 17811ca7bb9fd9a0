import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { type SecretName, secretNames } from '../config/config.ts';
import { type KeyRing, minKeyBytes, parseKeyRing } from '../config/key-ring.ts';
import { StartupError } from '../config/startup-error.ts';
import { readIfThere, writeOnce } from './write-once.ts';

type Secrets = Partial<Record<SecretName, KeyRing>>;

/** In every `secrets.json` since the first release. A file without them is damaged and is left as it is. */
const firstNames: readonly SecretName[] = ['CLIENT_SECRET_KEYS', 'API_KEY_PEPPERS'];

/**
 * Returns the secrets of an embedded database, which are kept beside it in `secrets.json` (0600). They belong
 * to the data: without them its API keys are refused and its client secrets change. Makes missing ones if
 * `mayMake`; otherwise throws StartupError if there are none at all.
 *
 * A secret that a later version needs is added in its own file, `secrets.<name>.json`. If several processes
 * start at once, the first one makes it and the others read it, as with `secrets.json`.
 */
export async function loadSecrets(dataDir: string, mayMake: boolean): Promise<Secrets> {
  const file = join(dataDir, 'secrets.json');
  const secrets = await readSecrets(file, secretNames, mayMake);
  const missing = firstNames.filter((name) => secrets[name] === undefined);
  if (missing.length > 0) {
    throw new StartupError(
      `the secrets in ${file} cannot be used (${missing.join(' and ')} missing): restore the file, or set DATA_DIR to another folder`,
    );
  }
  for (const name of secretNames) {
    if (secrets[name] !== undefined) continue;
    Object.assign(secrets, await readSecrets(join(dataDir, `secrets.${name}.json`), [name], mayMake));
  }
  return secrets;
}

async function readSecrets(file: string, names: readonly SecretName[], mayMake: boolean): Promise<Secrets> {
  try {
    let text = await readIfThere(file);
    if (text === undefined && mayMake) text = await writeOnce(file, freshSecrets(names));
    if (text === undefined && names === secretNames) throw new Error('there is none');
    const stored = JSON.parse(text ?? '{}');
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
  const keyRing = () => `1:${randomBytes(minKeyBytes).toString('base64')}`;
  const secrets = Object.fromEntries(names.map((name) => [name, keyRing()]));
  return `${JSON.stringify(secrets, null, 2)}\n`;
}
