// Reads the fields of a request from the caller's object, and converts them for either protocol.

import { notAName } from '../src/contract/nearest-name.ts';
import { unitsHint } from '../src/contract/units.ts';
import { PaymentIntentsError } from './error.ts';
import { copyMetadata, describe, type Violate } from './metadata.ts';
import { type Field, type Fields, snakeCase, toJson } from './resource-fields.ts';

/** A request, read once so that every try sends the same. The server checks the values. */
export interface CheckedRequest {
  json: Readonly<Record<string, unknown>>;
  message: Readonly<Record<string, unknown>>;
}

const maxFaults = 20;

/**
 * Reads the caller's object. Throws `invalid_body` with up to 20 faults: unknown fields, and values that one
 * of the protocols would drop, change or fail to send.
 */
export function readRequest(fields: Fields, request: unknown): CheckedRequest {
  const details: { field: string; message: string }[] = [];
  const violate: Violate = (field, message) => void details.push({ field, message });
  if (typeof request !== 'object' || request === null) {
    throw invalidBody([{ field: 'body', message: `must be an object, not ${describe(request)}` }]);
  }
  const names = Object.keys(fields);
  for (const name of Object.keys(request)) {
    if (!names.includes(name)) violate(name, notAName('a field', name, names));
  }
  const given = request as Readonly<Record<string, unknown>>;
  const json: Record<string, unknown> = {};
  const message: Record<string, unknown> = {};
  for (const [name, field] of Object.entries(fields)) {
    if (given[name] == null && field.presence !== 'required') continue;
    const value = read(field, given[name], snakeCase(name), violate);
    if (value === undefined) continue;
    json[snakeCase(name)] = toJson(field, value);
    message[name] = toMessage(field, value);
  }
  if (details.length > 0) throw invalidBody(details);
  return { json, message };
}

/** Returns the id. Throws `invalid_body` for anything that would change the path of the request. */
export function readId(id: unknown): string {
  if (typeof id === 'string' && /^[a-z]+_[0-9a-z]+$/.test(id)) return id;
  // The client secret begins with the intent's id, and must not be shown.
  const given = typeof id === 'string' && id.includes('_secret_') ? 'a client secret' : describe(id);
  throw invalidBody([{ field: 'id', message: `must be an id that the service returned, not ${given}` }]);
}

const [minInt32, maxInt32] = [-(2 ** 31), 2 ** 31 - 1];
const isInteger = (given: unknown): given is number => Number.isSafeInteger(given);

/** Returns the value, or reports why it cannot be sent. */
function read(field: Field, given: unknown, path: string, violate: Violate): unknown {
  const { type, words = {}, min, presence } = field;
  const unchanged = (what: string, isValid: boolean) =>
    isValid ? given : violate(path, `must be ${what}, not ${describe(given)}`);
  if (presence === 'list') {
    if (!Array.isArray(given)) return violate(path, `must be an array, not ${describe(given)}`);
    // Over gRPC, an empty list would mean the default.
    if (given.length === 0) return violate(path, 'must not be empty; leave it out instead');
    return given.map((item, i) => read({ type }, item, `${path}[${i}]`, violate) ?? '');
  }
  if (given === '' && presence === 'required') return violate(path, 'must not be empty');
  switch (type) {
    case 'text':
    case 'filledText':
      // Over gRPC, an empty text would select everything.
      if (given === '' && type === 'filledText') {
        return violate(path, 'must not be empty; leave it out instead');
      }
      return unchanged('text', typeof given === 'string' && given.isWellFormed());
    case 'flag':
      return unchanged('true or false', typeof given === 'boolean');
    case 'integer':
      if (min === undefined) return unchanged('an integer, as a number', isInteger(given));
      return unchanged(
        `an integer from ${min} on, as a number`,
        isInteger(given) && given >= min && given <= maxInt32,
      );
    case 'units':
      // Never rounded.
      if (typeof given === 'bigint' && BigInt.asIntN(54, given) === given) return given;
      if (isInteger(given)) return BigInt(given);
      return violate(
        path,
        `must be an integer from 1 to ${Number.MAX_SAFE_INTEGER}, as a number or bigint, not ${describe(given)}, ${unitsHint(given)}`,
      );
    case 'moment': {
      if (given instanceof Date && !Number.isNaN(given.getTime())) return new Date(given);
      const what = given instanceof Date ? 'an invalid Date' : describe(given);
      return violate(path, `must be a Date, not ${what}`);
    }
    case 'metadata':
      return copyMetadata(given, violate);
    case 'word': {
      const known = Object.keys(words).map((word) => `"${word}"`);
      return unchanged(known.join(' or '), typeof given === 'string' && Object.hasOwn(words, given));
    }
    default:
      throw new Error(`a request has no ${type}`);
  }
}

function toMessage({ type, words = {} }: Field, value: unknown): unknown {
  switch (type) {
    case 'integer':
      // The server clamps it. gRPC sends the nearest value that the field can hold.
      return Math.min(Math.max(value as number, minInt32), maxInt32);
    case 'moment': {
      const ms = (value as Date).getTime();
      const seconds = Math.floor(ms / 1_000);
      return { seconds: BigInt(seconds), nanos: (ms - seconds * 1_000) * 1_000_000 };
    }
    case 'word':
      return words[value as string];
    default:
      return value;
  }
}

function invalidBody(details: readonly { field: string; message: string }[]): PaymentIntentsError {
  const [first, ...others] = details;
  const more = others.length > 0 ? `; and ${others.length} more` : '';
  return new PaymentIntentsError('invalid_body', `${first?.field} ${first?.message}${more}`, {
    details: details.slice(0, maxFaults),
  });
}
