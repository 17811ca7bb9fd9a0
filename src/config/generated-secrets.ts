import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import type { SecretName } from './config.ts';
import { type KeyRing, minKeyBytes, parseKeyRing } from './key-ring.ts';
import { StartupError } from './startup-error.ts';
import { readIfThere, writeOnce } from './write-once.ts';

/**
 * The secrets of an embedded database, kept beside it in `secrets.json` (0600) and generated on first use. They
 * belong to the data: without them its API keys are refused and its client secrets change.
 */
export function loadOrGenerateSecrets(dataDir: string): Promise<Record<SecretName, KeyRing>> {
  return loadSecrets(dataDir, (file) => writeOnce(file, freshSecrets()));
}

/** The same secrets, or a StartupError if there are none yet. */
export async function loadSecrets(
  dataDir: string,
  makeIfMissing = (_file: string): Promise<string> => Promise.reject(new Error('there is none')),
): Promise<Record<SecretName, KeyRing>> {
  const file = join(dataDir, 'secrets.json');
  try {
    const stored = JSON.parse((await readIfThere(file)) ?? (await makeIfMissing(file)));
    return {
      CLIENT_SECRET_KEYS: parseKeyRing(String(stored.CLIENT_SECRET_KEYS)),
      API_KEY_PEPPERS: parseKeyRing(String(stored.API_KEY_PEPPERS)),
    };
  } catch (cause) {
    throw new StartupError(
      `the secrets in ${file} cannot be used (${cause instanceof Error ? cause.message : cause}): make the file readable, or set DATA_DIR to another folder`,
      { cause },
    );
  }
}

function freshSecrets(): string {
  const secrets = { CLIENT_SECRET_KEYS: freshKeyRing(), API_KEY_PEPPERS: freshKeyRing() };
  return `${JSON.stringify(secrets, null, 2)}\n`;
}

function freshKeyRing(): string {
  return `1:${randomBytes(minKeyBytes).toString('base64')}`;
}
