import type { KeyRing } from '../config/key-ring.ts';

/**
 * Returns the secret that opens an intent's checkout: `<id>_secret_<base64url of HMAC-SHA256(key, id)>`. It is derived
 * each time and never stored. A stolen database therefore opens no checkout, and a retried creation returns the same
 * secret.
 */
export function clientSecret(keys: KeyRing, version: number, id: string): string {
  return `${id}_secret_${keys.hmac(version, id, 'base64url')}`;
}
