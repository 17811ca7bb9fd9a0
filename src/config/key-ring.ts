import { createHmac, createSecretKey, type KeyObject } from 'node:crypto';

/** Secret keys by version, newest first. The newest signs and all verify, so that keys can be rotated. */
export interface KeyRing {
  newestVersion: number;
  versions: readonly number[];
  /** HMAC-SHA256 of the text under the key of that version. Throws if the ring has no such version. */
  hmac(version: number, text: string, encoding: HmacEncoding): string;
}

/** Minimum length of a key: that of HMAC-SHA256's output, as RFC 2104 recommends. */
export const minKeyBytes = 32;

/** Parses `version:base64` entries, newest first, with versions 1 to 32767. Errors never show a key. */
export function parseKeyRing(text: string): KeyRing {
  const keys = new Map<number, KeyObject>();
  for (const [index, entry] of text.split(',').entries()) {
    const place = `entry ${index + 1}`;
    const match = /^\s*(\d{1,5}):([A-Za-z0-9+/]+={0,2})\s*$/.exec(entry);
    if (!match?.[1] || !match[2]) throw new Error(`${place} is not version:base64`);
    const version = Number(match[1]);
    if (version < 1 || version > 32767) throw new Error(`${place} has a version outside 1 to 32767`);
    if (keys.has(version)) throw new Error(`version ${version} is listed twice`);
    const key = Buffer.from(match[2], 'base64');
    if (key.length < minKeyBytes) throw new Error(`${place} is shorter than ${minKeyBytes} bytes`);
    // Node.js would silently drop its last character.
    if (match[2].replace(/=+$/, '').length % 4 === 1) {
      throw new Error(`${place} is not base64: a character is missing, or one too many`);
    }
    keys.set(version, createSecretKey(key));
  }
  const versions = [...keys.keys()];
  const newestVersion = versions[0];
  if (newestVersion === undefined) throw new Error('there is no key');
  return {
    newestVersion,
    versions,
    hmac(version, text, encoding) {
      const key = keys.get(version);
      if (key === undefined) throw new Error(`the key ring has no version ${version}`);
      return createHmac('sha256', key).update(text).digest(encoding);
    },
  };
}

type HmacEncoding = 'hex' | 'base64' | 'base64url';
