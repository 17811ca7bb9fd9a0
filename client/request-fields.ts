// Reads the fields of a request from the caller's object, and converts them for either protocol.

import { notAName } from '../src/contract/nearest-name.ts';
import { unitsHint } from '../src/contract/units.ts';
import { describe } from './describe.ts';
import { PaymentIntentsError } from './error.ts';
import { type Field, type Fields, snakeCase, toJson } from './resource-fields.ts';
import type { JsonValue } from './values.ts';

/** A request, read once so that every try sends the same. The server checks the values. */
export interface CheckedRequest {
  json: Readonly<Record<string, unknown>>;
  message: Readonly<Record<string, unknown>>;
}

const maxFaults = 20;
/** The contract's own limit for metadata. It also keeps a deep object from overflowing the stack. */
const maxLevels = 15;

/** Reports a faulty field. Returns undefined as its value. */
type Violate = (field: string, message: string) => undefined;

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
      if (typeof given === 'object' && given !== null && !Array.isArray(given)) {
        return copyValue(given, path, [], violate);
      }
      return violate(path, `must be an object, not ${describe(given)}`);
    case 'word': {
      const known = Object.keys(words).map((word) => `"${word}"`);
      return unchanged(known.join(' or '), typeof given === 'string' && Object.hasOwn(words, given));
    }
    default:
      throw new Error(`a request has no ${type}`);
  }
}

/**
 * Copies metadata as JSON values, identically for both protocols. Retries do not see later changes to the
 * caller's object. Members that are undefined are left out, and -0 becomes 0. Anything else that JSON cannot
 * represent is reported with its path, such as `metadata.items[2].at`.
 */
function copyValue(
  value: unknown,
  path: string,
  ancestors: readonly object[],
  violate: Violate,
): JsonValue | undefined {
  switch (typeof value) {
    case 'boolean':
      return value;
    case 'string':
      if (!value.isWellFormed()) violate(path, 'must not contain a lone surrogate, which is not text');
      return value;
    case 'number':
      if (!Number.isFinite(value)) violate(path, `must be a number that JSON can write, not ${value}`);
      return value === 0 ? 0 : value;
    case 'object':
      return value === null ? null : copyObject(value, path, ancestors, violate);
    default:
      return violate(path, `must be a JSON value, not ${describe(value)}${hintFor(value)}`);
  }
}

function copyObject(
  object: object,
  path: string,
  ancestors: readonly object[],
  violate: Violate,
): JsonValue | undefined {
  const isArray = Array.isArray(object);
  if (!isArray && !isPlain(object)) {
    return violate(path, `must be a JSON value, not ${describe(object)}${hintFor(object)}`);
  }
  if (ancestors.includes(object)) return violate(path, 'must not contain itself');
  if (ancestors.length === maxLevels) {
    return violate(path, `must not be nested deeper than ${maxLevels} levels`);
  }
  const inside = [...ancestors, object];
  if (isArray) {
    // Not map(): it skips the gaps of a sparse array.
    return Array.from(object, (item, i) => copyValue(item, `${path}[${i}]`, inside, violate) ?? null);
  }
  const copies: [string, JsonValue][] = [];
  for (const [name, member] of Object.entries(object)) {
    if (member === undefined) continue;
    const memberPath = /^[\w$]+$/.test(name) ? `${path}.${name}` : `${path}[${JSON.stringify(name)}]`;
    if (!name.isWellFormed()) violate(memberPath, 'must not have a lone surrogate in its name');
    copies.push([name, copyValue(member, memberPath, inside, violate) ?? null]);
  }
  // Unlike an assignment, this keeps a member named __proto__.
  return Object.fromEntries(copies);
}

/** True for an object literal of any realm, and for an object without a prototype. */
function isPlain(object: object): boolean {
  const prototype: object | null = Object.getPrototypeOf(object);
  if (prototype === null) return true;
  return Object.getPrototypeOf(prototype) === null && Object.hasOwn(prototype, 'isPrototypeOf');
}

function hintFor(value: unknown): string {
  if (value instanceof Date) return '; send its toISOString()';
  if (typeof value === 'bigint') return '; send it as a string';
  if (typeof value === 'object') return '; send a plain object';
  return '';
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
