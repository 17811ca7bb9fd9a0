import { randomBytes } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { SecretName } from './config.ts';
import { type KeyRing, minKeyBytes, parseKeyRing } from './key-ring.ts';
import { StartupError } from './startup-error.ts';

/**
 * The secrets of an embedded database, kept beside it in `secrets.json` (0600) and generated on first use. They
 * belong to the data: without them its API keys are refused and its client secrets change.
 */
export async function loadOrGenerateSecrets(dataDir: string): Promise<Record<SecretName, KeyRing>> {
  const file = join(dataDir, 'secrets.json');
  try {
    await mkdir(dataDir, { recursive: true });
    const fresh = { CLIENT_SECRET_KEYS: generateKeyRing(), API_KEY_PEPPERS: generateKeyRing() };
    // wx: only the first of two processes that start together writes; both read what it wrote.
    await writeFile(file, `${JSON.stringify(fresh, null, 2)}\n`, { flag: 'wx', mode: 0o600 }).catch(
      (error) => {
        if (error.code !== 'EEXIST') throw error;
      },
    );
    const stored = JSON.parse(await readFile(file, 'utf8'));
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

function generateKeyRing(): string {
  return `1:${randomBytes(minKeyBytes).toString('base64')}`;
}
