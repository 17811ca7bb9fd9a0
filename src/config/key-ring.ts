import { createHmac, createSecretKey, type Hmac, type KeyObject } from 'node:crypto';

/** Secret keys by version, newest first: the newest signs, all of them verify, so that keys can be rotated. */
export interface KeyRing {
  newestVersion: number;
  /** Newest first. */
  versions: readonly number[];
  /**
   * HMAC-SHA256 of the text under the key of that version, for the caller to digest as it needs it. Throws where the
   * ring has no such version.
   */
  hmac(version: number, text: string): Hmac;
}

/** Fewest bytes of a key: the length of HMAC-SHA256's output, as RFC 2104 recommends. */
export const minKeyBytes = 32;

/**
 * Reads `version:base64`, comma-separated, newest first. Versions are integers from 1 to 32767.
 * Throws an Error that says what is wrong and never shows a key.
 */
export function parseKeyRing(text: string): KeyRing {
  // A key object is prepared once; from a buffer, each HMAC takes several times as long.
  const keys = new Map<number, KeyObject>();
  for (const [index, entry] of text.split(',').entries()) {
    const place = `entry ${index + 1}`;
    const match = /^\s*(\d{1,5}):([A-Za-z0-9+/]+={0,2})\s*$/.exec(entry);
    if (!match?.[1] || !match[2]) throw new Error(`${place} is not version:base64`);
    const version = Number(match[1]);
    if (version < 1 || version > 32767) throw new Error(`${place} has a version outside 1 to 32767`);
    if (keys.has(version)) throw new Error(`version ${version} stands there twice`);
    const key = Buffer.from(match[2], 'base64');
    if (key.length < minKeyBytes) throw new Error(`${place} is shorter than ${minKeyBytes} bytes`);
    keys.set(version, createSecretKey(key));
  }
  const versions = [...keys.keys()];
  const newestVersion = versions[0];
  if (newestVersion === undefined) throw new Error('it holds no key');
  return {
    newestVersion,
    versions,
    hmac(version, value) {
      const key = keys.get(version);
      if (key === undefined) throw new Error(`the key ring has no version ${version}`);
      return createHmac('sha256', key).update(value);
    },
  };
}
