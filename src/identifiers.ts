import { fromString, fromUUIDBytes, getType, toUUID } from 'typeid-js';
import { parse as uuidToBytes, v7 as uuidv7 } from 'uuid';

/** What an identifier's prefix says it names. */
export type IdentifierPrefix = 'pi' | 'mer' | 'key';

/** A new UUIDv7 that carries `createdAtMs` (milliseconds since 1970) as its time. */
export function newUuid(createdAtMs: number = Date.now()): string {
  return uuidv7({ msecs: createdAtMs });
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
