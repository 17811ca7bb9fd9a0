import { randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';
import type { ModeName } from '../chains.ts';

const base62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
/** 62^43 is the first power of 62 beyond 2^256. */
const secretLength = 43;
/** 62^6 is the first power of 62 beyond 2^32. */
const checksumLength = 6;
const shape = /^sk_(testnet|mainnet)_[0-9A-Za-z]{43}[0-9A-Za-z]{6}$/;

/**
 * A new API key: `sk_testnet_` or `sk_mainnet_`, 43 random base62 characters (256 bits), and the CRC-32 of
 * all that as 6 base62 characters, so that secret scanners know a key and a mistyped one costs no query.
 */
export function generateApiKey(mode: ModeName): string {
  const body = `sk_${mode}_${randomBase62(secretLength)}`;
  return body + checksum(body);
}

/** True where the text has the shape of an API key and its checksum is right. Says nothing of whether it exists. */
export function isWellFormedApiKey(text: string): boolean {
  return shape.test(text) && text.endsWith(checksum(text.slice(0, -checksumLength)));
}

/** What may be shown of a key: its prefix and its last four characters. */
export function apiKeyHint(apiKey: string): string {
  return `${apiKey.slice(0, 'sk_testnet_'.length)}…${apiKey.slice(-4)}`;
}

function checksum(body: string): string {
  let rest = crc32(body);
  let digits = '';
  for (let i = 0; i < checksumLength; i++) {
    digits = base62.charAt(rest % 62) + digits;
    rest = Math.floor(rest / 62);
  }
  return digits;
}

function randomBase62(length: number): string {
  let text = '';
  while (text.length < length) {
    for (const byte of randomBytes(length)) {
      // 248 is 4 * 62: a byte above it would favour the first characters.
      if (byte < 248 && text.length < length) text += base62.charAt(byte % 62);
    }
  }
  return text;
}
