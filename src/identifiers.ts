import { randomFillSync } from 'node:crypto';
import { fromString, fromUUIDBytes, getType, toUUID } from 'typeid-js';
import { parse as uuidToBytes, v7 as uuidv7 } from 'uuid';

/** What an identifier's prefix says it names. */
export type IdentifierPrefix = 'pi' | 'mer' | 'key';

/** A new UUIDv7 that carries `createdAtMs` (milliseconds since 1970) as its time. */
export function newUuid(createdAtMs: number = Date.now()): string {
  return uuidv7({ msecs: createdAtMs, random: random16() });
}

/** Random bytes are drawn for many UUIDs at a time: by itself each draw takes longer than all else about a UUID. */
const randomPool = new Uint8Array(4096);
let usedRandomBytes = randomPool.length;

function random16(): Uint8Array {
  if (usedRandomBytes === randomPool.length) {
    randomFillSync(randomPool);
    usedRandomBytes = 0;
  }
  const start = usedRandomBytes;
  usedRandomBytes += 16;
  return randomPool.subarray(start, usedRandomBytes);
}

/** The public form of a UUID: prefix, underscore, 26 characters of Crockford base32 (TypeID). */
export function formatIdentifier(prefix: IdentifierPrefix, uuid: string): string {
  return fromUUIDBytes(prefix, uuidToBytes(uuid));
}

/** The UUID behind a public identifier, or undefined where the text is not one with that prefix. */
export function parseIdentifier(prefix: IdentifierPrefix, text: string): string | undefined {
  try {
    const id = fromString(text, prefix);
    return getType(id) === prefix ? toUUID(id) : undefined;
  } catch {
    return undefined;
  }
}
