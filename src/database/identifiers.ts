import { randomUUID } from 'node:crypto';
import { fromString, fromUUIDBytes, getType, toUUID } from 'typeid-js';
import { parse as uuidToBytes, v7 as uuidv7 } from 'uuid';
import type { FieldViolation } from '../contract/error-catalogue.ts';

/** The prefix of an identifier, which tells its kind. */
export type IdentifierPrefix = 'pi' | 'mer' | 'key' | 'evt' | 'we' | 'del' | 'tr' | 'rf' | 'cs';

/**
 * Returns a new UUIDv7 with `createdAtMs` (milliseconds since 1970) as its time. Those of one millisecond are in
 * the order of `place`, up to 4,095, or else in none.
 */
export function newUuid(createdAtMs: number = Date.now(), place?: number): string {
  const time = createdAtMs.toString(16).padStart(12, '0');
  const random = randomUUID();
  const counter =
    place === undefined ? random.slice(15, 18) : Math.min(place, 4_095).toString(16).padStart(3, '0');
  return `${time.slice(0, 8)}-${time.slice(8)}-7${counter}${random.slice(18)}`;
}

/** The most milliseconds that a UUIDv7 can hold: the year 10889. */
const maxUuidMs = 2 ** 48 - 1;

/** Returns the lowest UUIDv7 of a time (ms since 1970), for ranges of ids; the nearest if none holds it. */
export function lowestUuid(ms: number): string {
  const msecs = Math.min(Math.max(0, ms), maxUuidMs);
  return uuidv7({ msecs, seq: 0, random: new Uint8Array(16) });
}

/** SQL: a bound below the UUIDv7s of `age` ms before this machine's `now` or the database's, the earlier one. */
export const lowestUuidOfAge = (age: string, now: string): string =>
  `(lpad(to_hex(greatest(0, least((extract(epoch from now()) * 1000)::bigint, ${now}::bigint) - ${age}::bigint)), 12, '0') || repeat('0', 20))::uuid`;

/** Returns the time of a UUIDv7, in milliseconds since 1970. */
export function timeOfUuid(uuid: string): number {
  return Number.parseInt(uuid.slice(0, 8) + uuid.slice(9, 13), 16);
}

/** Returns the public form of a UUID: prefix, underscore, 26 characters of Crockford base32 (TypeID). */
export function formatIdentifier(prefix: IdentifierPrefix, uuid: string): string {
  return fromUUIDBytes(prefix, uuidToBytes(uuid));
}

/** Returns the UUID of a public identifier, or undefined if the text is not one with that prefix. */
export function parseIdentifier(prefix: IdentifierPrefix, text: string): string | undefined {
  try {
    const id = fromString(text, prefix);
    return getType(id) === prefix ? toUUID(id) : undefined;
  } catch {
    return undefined;
  }
}

/** Why `parseIdentifier` refuses a text, as the end of a sentence. Never repeats it: it may be a secret. */
export function identifierProblem(prefix: IdentifierPrefix, text: string): string {
  const suffixLength = 26;
  const suffix = text.slice(prefix.length + 1);
  if (!text.startsWith(`${prefix}_`)) return `does not begin with ${prefix}_`;
  if (suffix.length !== suffixLength) {
    return `needs ${suffixLength} characters after ${prefix}_, not ${suffix.length}`;
  }
  if (/[A-Z]/.test(suffix)) return 'has capital letters, and an id has none';
  const foreign = /[^0-9a-hjkmnp-tv-z]/u.exec(suffix)?.[0];
  if (foreign !== undefined) return `has a "${foreign}", which no id has`;
  return `has a "${suffix.charAt(0)}" after ${prefix}_, where an id has 0 to 7`;
}

const kinds = { pi: 'a payment intent', rf: 'a refund', evt: 'an event' };

/** The violations of id filters, by field name. A filter that is not set has none. */
export function idViolations(
  filters: Readonly<Record<string, readonly [id: string, prefix: keyof typeof kinds]>>,
): FieldViolation[] {
  return Object.entries(filters).flatMap(([field, [id, prefix]]) =>
    id === '' || parseIdentifier(prefix, id) !== undefined
      ? []
      : [{ field, message: `must be the id of ${kinds[prefix]}` }],
  );
}
