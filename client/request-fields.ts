// How the fields of a request are read from the caller's object, and sent over either protocol.

import { notAName } from '../src/contract/nearest-name.ts';
import { unitsHint } from '../src/contract/units.ts';
import type { JsonObject } from './api-resource.ts';
import { PaymentIntentsError } from './error.ts';
import { copyMetadata, describe, type Violate } from './metadata.ts';
import { snakeCase } from './resource-fields.ts';

/** How a field of one type is read and sent. */
export interface Input<Checked, Sent> {
  /** Returns the value, or reports why neither protocol could send it. */
  read(value: unknown, field: string, violate: Violate): Checked | undefined;
  /** Default: the value itself. */
  toJson?(value: Checked): unknown;
  toMessage?(value: Checked): Sent;
  isRequired?: boolean;
}

/** One row for each field that the caller gives. */
// biome-ignore lint/suspicious/noExplicitAny: what a row reads is passed to that row alone.
export type RequestFields = Readonly<Record<string, Input<any, unknown>>>;

/** A request that was read once, so that every try sends the same. The server checks the values. */
export interface CheckedRequest {
  json: Readonly<Record<string, unknown>>;
  message: Readonly<Record<string, unknown>>;
}

const maxFaults = 20;

/**
 * Reads the caller's object. Throws `invalid_body` with every fault: unknown fields, and values that one of the
 * protocols would drop, change or fail to send.
 */
export function readRequest(fields: RequestFields, request: unknown): CheckedRequest {
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
  for (const [name, input] of Object.entries(fields)) {
    if (given[name] == null && input.isRequired !== true) continue;
    const value = input.read(given[name], snakeCase(name), violate);
    if (value === undefined) continue;
    json[snakeCase(name)] = input.toJson ? input.toJson(value) : value;
    message[name] = input.toMessage ? input.toMessage(value) : value;
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

/** A value that both protocols send as it is. */
function unchanged<Value>(what: string, isValid: (given: unknown) => given is Value): Input<Value, Value> {
  return {
    read: (given, field, violate) =>
      isValid(given) ? given : violate(field, `must be ${what}, not ${describe(given)}`),
  };
}

/** An exact amount. It is never rounded. */
export const amount: Input<bigint, bigint> = {
  read(given, field, violate) {
    if (typeof given === 'bigint' && BigInt.asIntN(54, given) === given) return given;
    if (typeof given === 'number' && Number.isSafeInteger(given)) return BigInt(given);
    return violate(
      field,
      `must be an integer from 1 to ${Number.MAX_SAFE_INTEGER}, as a number or bigint, not ${describe(given)}, ${unitsHint(given)}`,
    );
  },
  toJson: Number,
};

const isInteger = (given: unknown): given is number => Number.isSafeInteger(given);

/** An integer that the server clamps. gRPC sends the nearest that the field can hold. */
export const clampedInteger: Input<number, number> = {
  ...unchanged('an integer, as a number', isInteger),
  toMessage: (value) => Math.min(Math.max(value, minInt32), maxInt32),
};

/** An integer within the limits that the field has over both protocols. */
export function integerFrom(min: number): Input<number, number> {
  return unchanged(
    `an integer from ${min} on, as a number`,
    (given): given is number => isInteger(given) && given >= min && given <= maxInt32,
  );
}

export const text = unchanged(
  'text',
  (given): given is string => typeof given === 'string' && given.isWellFormed(),
);

/** Text that selects something. Empty, it would select everything over gRPC. */
export const filledText: Input<string, string> = {
  read: (given, field, violate) =>
    given === ''
      ? violate(field, 'must not be empty; leave it out instead')
      : text.read(given, field, violate),
};

/** A field without which the request means nothing. */
export function required<Checked, Sent>(input: Input<Checked, Sent>): Input<Checked, Sent> {
  return {
    ...input,
    read: (given, field, violate) =>
      given === '' ? violate(field, 'must not be empty') : input.read(given, field, violate),
    isRequired: true,
  };
}

/** Texts. No texts at all would mean the default over gRPC. */
export const filledTexts: Input<string[], string[]> = {
  read(given, field, violate) {
    if (!Array.isArray(given)) return violate(field, `must be an array, not ${describe(given)}`);
    if (given.length === 0) return violate(field, 'must not be empty; leave it out instead');
    return given.map((item, i) => text.read(item, `${field}[${i}]`, violate) ?? '');
  },
};

export const flag = unchanged('true or false', (given): given is boolean => typeof given === 'boolean');

export const moment: Input<Date, object> = {
  read(given, field, violate) {
    if (given instanceof Date && !Number.isNaN(given.getTime())) return new Date(given);
    const what = given instanceof Date ? 'an invalid Date' : describe(given);
    return violate(field, `must be a Date, not ${what}`);
  },
  toJson: (value) => value.toISOString(),
  toMessage(value) {
    const seconds = Math.floor(value.getTime() / 1_000);
    return { seconds: BigInt(seconds), nanos: (value.getTime() - seconds * 1_000) * 1_000_000 };
  },
};

export const metadata: Input<JsonObject, JsonObject> = {
  read: (given, _, violate) => copyMetadata(given, violate),
};

/** A value of an enum: its word over JSON, its number over gRPC. */
export function word<Word extends string>(words: Readonly<Record<Word, number>>): Input<Word, number> {
  const known = Object.keys(words).map((name) => `"${name}"`);
  const isWord = (given: unknown): given is Word => typeof given === 'string' && Object.hasOwn(words, given);
  return { ...unchanged(known.join(' or '), isWord), toMessage: (value) => words[value] };
}

function invalidBody(details: readonly { field: string; message: string }[]): PaymentIntentsError {
  const [first, ...others] = details;
  const more = others.length > 0 ? `; and ${others.length} more` : '';
  return new PaymentIntentsError('invalid_body', `${first?.field} ${first?.message}${more}`, {
    details: details.slice(0, maxFaults),
  });
}
