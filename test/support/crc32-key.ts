// Keys of the first release end in a CRC-32 of the preceding characters, which an attacker can compute too.

import { randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';
import type { ModeName } from '../../src/contract/words.ts';

const base62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

/** Returns the text with its CRC-32 as six base62 digits. */
export function withCrc32(body: string): string {
  let rest = BigInt(crc32(body));
  let digits = '';
  for (let i = 0; i < 6; i++, rest /= 62n) digits = base62.charAt(Number(rest % 62n)) + digits;
  return body + digits;
}

/** Returns a well-formed key of the first release. It is unknown unless the test stores it. */
export function newCrc32Key(mode: ModeName): string {
  return withCrc32(`sk_${mode}_${randomBytes(22).toString('hex').slice(0, 43)}`);
}
