import type { KeyRing } from '../config/key-ring.ts';

/**
 * The secret that opens an intent's checkout: `<id>_secret_<base64url of HMAC-SHA256(key, id)>`. Derived each
 * time and stored nowhere, so a stolen database opens no checkout and a retried creation answers the same.
 */
export function clientSecret(keys: KeyRing, version: number, id: string): string {
  return `${id}_secret_${keys.hmac(version, id, 'base64url')}`;
}
