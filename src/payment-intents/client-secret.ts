import type { KeyRing } from '../config/key-ring.ts';

/**
 * Returns the secret that opens an intent's checkout: `<id>_secret_<base64url of HMAC-SHA256(key, id)>`. It is derived
 * each time and never stored. A stolen database therefore opens no checkout, and a retried creation returns the same
 * secret. `version` is the key that the intent was created with; if it has left the ring, the newest one takes its place.
 */
export function clientSecret(keys: KeyRing, version: number, id: string): string {
  const key = keys.versions.includes(version) ? version : keys.newestVersion;
  return `${id}_secret_${keys.hmac(key, id, 'base64url')}`;
}
