import { timingSafeEqual } from 'node:crypto';
import type { KeyRing } from '../config/key-ring.ts';
import { parseIdentifier } from '../database/identifiers.ts';
import type { OpenedIntent } from '../requests/request-context.ts';

/**
 * Returns the secret that opens an intent's checkout: `<id>_secret_<base64url of HMAC-SHA256(key, id)>`. It is derived
 * each time and never stored, so a stolen database opens no checkout, and a retried creation returns the same secret.
 * `version` is the key that the intent was created with; if the ring no longer has it, the newest one is used.
 */
export function clientSecret(keys: KeyRing, version: number, id: string): string {
  const key = keys.versions.includes(version) ? version : keys.newestVersion;
  return `${id}_secret_${keys.hmac(key, id, 'base64url')}`;
}

/** An id, and the base64url of 32 bytes. */
const form = /^(pi_[0-7][0-9a-hjkmnp-tv-z]{25})_secret_([A-Za-z0-9_-]{43})$/;

/**
 * Returns the intent that a client secret opens, or undefined if it matches no key of the ring. Compares in constant
 * time and makes no query: a guess costs less than its refusal.
 */
export function intentOpenedBy(keys: KeyRing, secret: string): OpenedIntent | undefined {
  const [, id, mac] = form.exec(secret) ?? [];
  if (id === undefined || mac === undefined) return undefined;
  const given = Buffer.from(mac);
  // Compares with every version, to take constant time.
  const matches = keys.versions.filter((version) =>
    timingSafeEqual(given, Buffer.from(keys.hmac(version, id, 'base64url'))),
  );
  const uuid = parseIdentifier('pi', id);
  return matches.length === 0 || uuid === undefined ? undefined : { id: uuid, typeId: id };
}
