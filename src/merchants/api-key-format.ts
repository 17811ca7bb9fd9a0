import { randomInt, timingSafeEqual } from 'node:crypto';
import { crc32 } from 'node:zlib';
import type { KeyRing } from '../config/key-ring.ts';
import type { ModeName } from '../contract/words.ts';
import type { ApiKeyFormat } from '../database/entities/api-key.ts';

const base62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
/** 62^43 is the first power of 62 beyond 2^256. */
const secretLength = 43;
const checkLength = 6;
const checkValues = 62 ** checkLength;
const shape = /^(?:sk_testnet|sk_mainnet|cl|cs|ct)_[0-9A-Za-z]{43}[0-9A-Za-z]{6}$/;

/** The beginning of a secret: of an API key, or of a code, a token or a ticket of the console. */
type SecretPrefix = `sk_${ModeName}_` | 'cl_' | 'cs_' | 'ct_';

/**
 * Returns a new secret: its prefix, 43 random base62 characters (256 bits), and 6 base62 check characters: a truncated
 * HMAC-SHA256 of all that, under the newest pepper. One that was mistyped or made up is refused without asking the
 * database.
 */
export function generateSecret(prefix: SecretPrefix, peppers: KeyRing): string {
  const body =
    prefix + Array.from({ length: secretLength }, () => base62.charAt(randomInt(base62.length))).join('');
  return body + inBase62(keyedCheck(body, peppers, peppers.newestVersion));
}

/**
 * Returns the format of a secret whose check characters are right, or undefined if the text is none. It need not exist. Compares with the check under every pepper in the ring, in constant time.
 */
export function apiKeyFormatOf(text: string, peppers: KeyRing): ApiKeyFormat | undefined {
  if (!shape.test(text)) return undefined;
  const body = text.slice(0, -checkLength);
  const check = Buffer.from(text.slice(-checkLength));
  const isCheck = (value: number) => timingSafeEqual(check, Buffer.from(inBase62(value)));
  const matching = peppers.versions.filter((version) => isCheck(keyedCheck(body, peppers, version)));
  if (matching.length > 0) return 'keyed';
  return isCheck(crc32(body)) ? 'crc32' : undefined;
}

/** True if only the service can have made this secret of the console. It need not exist. */
export const mayBeIssued = (prefix: SecretPrefix, text: string, peppers: KeyRing): boolean =>
  text.startsWith(prefix) && apiKeyFormatOf(text, peppers) === 'keyed';

/** Returns the part of a key that may be shown: its prefix and its last four characters. */
export function apiKeyHint(apiKey: string): string {
  return `${apiKey.slice(0, 'sk_testnet_'.length)}…${apiKey.slice(-4)}`;
}

/** An integer below 62^6. */
function keyedCheck(body: string, peppers: KeyRing, version: number): number {
  // 48 bits are exact in a double and well beyond the 36 of six characters.
  const first48Bits = Number.parseInt(peppers.hmac(version, `api-key-check:${body}`, 'hex').slice(0, 12), 16);
  return first48Bits % checkValues;
}

/** Six base62 digits of an integer below 62^6. */
function inBase62(value: number): string {
  let rest = value;
  let digits = '';
  for (let i = 0; i < checkLength; i++) {
    digits = base62.charAt(rest % 62) + digits;
    rest = Math.floor(rest / 62);
  }
  return digits;
}
