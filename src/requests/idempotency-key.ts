import { ServiceError } from './errors.ts';

const visibleAscii = /^[\x21-\x7e]{1,255}$/;
const quotedString = /^"(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*"$/;

/** True for a key as it is stored, without the quotes that its header may have. */
export function isIdempotencyKey(text: string): boolean {
  return visibleAscii.test(text);
}

/**
 * Parses an `Idempotency-Key`, bare or as a quoted string (RFC 9651, section 3.3.3): `"a"` and `a` are the
 * same key. Undefined if there is none.
 *
 * Throws `idempotency_key_invalid` if it is empty, over 255 characters, or not visible ASCII. Two headers
 * arrive here joined by a comma and a space, and are refused because of the space.
 */
export function parseIdempotencyKey(header: string | null | undefined): string | undefined {
  if (header === null || header === undefined) return undefined;
  let key = header;
  if (key.startsWith('"')) {
    if (!quotedString.test(key)) throw new ServiceError('idempotency_key_invalid');
    key = key.slice(1, -1).replace(/\\(["\\])/g, '$1');
  }
  if (!visibleAscii.test(key)) throw new ServiceError('idempotency_key_invalid');
  return key;
}
