// How the fields of a resource are read, from JSON and from a protobuf message, and written as JSON. One table for all.

import type { ApiResource, JsonObject, JsonValue } from './api-resource.ts';
import { enumValueOf, type Unknown, wordOf } from './enums.ts';

/** How a field of one type is read and written. Those that read throw a {@link FieldFault} for a value of another type. */
export interface Kind<Value, Sent> {
  fromJson(json: unknown, path: string): Value;
  fromMessage(sent: Sent, path: string): Value;
  /** Returns the value as the service's JSON has it; undefined if that leaves the field out. */
  toJson(value: Value): JsonValue | undefined;
}

/** Names a field of an answer that is missing or of another type. */
export class FieldFault extends Error {
  constructor(path: string) {
    // The value itself is not shown: it could be a client secret.
    super(path === '' ? 'it is not an object' : `its ${path} is missing or of another type`);
    this.name = 'FieldFault';
  }
}

/** One row for each field of a resource. */
export type Fields = Readonly<Record<string, Kind<unknown, never>>>;

/** Reads a resource from parsed JSON. Throws a {@link FieldFault}. */
export function readJson<Resource>(fields: Fields, json: unknown, path = ''): Resource {
  if (!isObject(json)) throw new FieldFault(path);
  return mapFields(fields, path, (kind, name, at) => kind.fromJson(json[snakeCase(name)], at));
}

/** Reads a resource from a message. Throws a {@link FieldFault} for a field that is never empty, and is. */
export function readMessage<Resource>(fields: Fields, message: object, path = ''): Resource {
  const sent = message as Readonly<Record<string, unknown>>;
  return mapFields(fields, path, (kind, name, at) => kind.fromMessage(sent[name] as never, at));
}

function mapFields<Resource>(
  fields: Fields,
  path: string,
  read: (kind: Kind<unknown, never>, name: string, path: string) => unknown,
): Resource {
  const prefix = path === '' ? '' : `${path}.`;
  const resource = Object.fromEntries(
    Object.entries(fields).map(([name, kind]) => [name, read(kind, name, prefix + snakeCase(name))]),
  );
  const toJSON: ApiResource['toJSON'] = () => writeJson(fields, resource);
  // Not enumerable: whoever goes through the fields of a resource finds its fields.
  return Object.defineProperty(resource, 'toJSON', {
    value: toJSON,
    configurable: true,
    writable: true,
  }) as Resource;
}

function writeJson(fields: Fields, resource: Readonly<Record<string, unknown>>): JsonObject {
  const json: JsonObject = {};
  for (const [name, kind] of Object.entries(fields)) {
    const value = kind.toJson(resource[name]);
    if (value !== undefined) json[snakeCase(name)] = value;
  }
  return json;
}

/** Returns a field's name in the JSON: `amountUnits` is `amount_units`. */
export function snakeCase(name: string): string {
  return name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isText = (value: unknown): value is string => typeof value === 'string';
const isInteger = (value: unknown): value is number => Number.isSafeInteger(value);
const isBoolean = (value: unknown): value is boolean => typeof value === 'boolean';

function checked<Value>(isValid: (value: unknown) => value is Value, value: unknown, path: string): Value {
  if (!isValid(value)) throw new FieldFault(path);
  return value;
}

const unchanged = <Value extends JsonValue | undefined>(value: Value) => value;

/** A value that is the same over both protocols. */
function plain<Value extends JsonValue>(isValid: (value: unknown) => value is Value): Kind<Value, Value> {
  return {
    fromJson: (json, path) => checked(isValid, json, path),
    fromMessage: unchanged,
    toJson: unchanged,
  };
}

export const text = plain(isText);
export const flag = plain(isBoolean);
export const integer = plain(isInteger);

/** Text that is never empty, such as an identifier or a secret. */
export const filledText: Kind<string, string> = {
  fromJson: (json, path) => filled(checked(isText, json, path), path),
  fromMessage: filled,
  toJson: unchanged,
};

function filled(value: string, path: string): string {
  if (value === '') throw new FieldFault(path);
  return value;
}

/** Text that JSON leaves out if it is empty. */
export const textOrNone: Kind<string | undefined, string> = {
  ...optional(text),
  fromMessage: (sent) => (sent === '' ? undefined : sent),
};

/** An int64 that is small, such as the number of a block. */
export const smallInteger: Kind<number, bigint> = { ...integer, fromMessage: Number };

/** An amount of money. */
export const units: Kind<bigint, bigint> = {
  fromJson: (json, path) => BigInt(checked(isInteger, json, path)),
  fromMessage: (sent) => sent,
  // The service's JSON has no greater ones. A number would be another amount.
  toJson: (value) => (isInteger(Number(value)) ? Number(value) : String(value)),
};

/** The part of a `google.protobuf.Timestamp` that is read; protobuf's own functions are not for the edge. */
interface Timestamp {
  seconds: bigint;
  nanos: number;
}

export const moment: Kind<Date, Timestamp> = {
  fromJson(json, path) {
    const date = new Date(checked(isText, json, path));
    if (Number.isNaN(date.getTime())) throw new FieldFault(path);
    return date;
  },
  fromMessage: (sent) => new Date(Number(sent.seconds) * 1_000 + Math.floor(sent.nanos / 1_000_000)),
  toJson: (value) => value.toISOString(),
};

export const metadata: Kind<JsonObject, JsonObject | undefined> = {
  fromJson: (json, path) => checked(isObject, json, path) as JsonObject,
  fromMessage: (sent) => sent ?? {},
  toJson: unchanged,
};

/** A value of an enum: a word over JSON, a number over gRPC. */
export function word<Word extends string>(
  words: Readonly<Record<Word, number>>,
): Kind<Word | Unknown, number> {
  return {
    fromJson: (json, path) => enumValueOf(words, checked(isText, json, path)),
    fromMessage: (sent) => enumValueOf(words, sent),
    toJson: wordOf,
  };
}

/** A field that may be absent. */
export function optional<Value, Sent>(kind: Kind<Value, Sent>): Kind<Value | undefined, Sent | undefined> {
  return {
    fromJson: (json, path) => (json == null ? undefined : kind.fromJson(json, path)),
    fromMessage: (sent, path) => (sent === undefined ? undefined : kind.fromMessage(sent, path)),
    toJson: (value) => (value === undefined ? undefined : kind.toJson(value)),
  };
}

/** A field that could be absent from the message and never is. */
export function present<Value, Sent>(kind: Kind<Value, Sent>): Kind<Value, Sent | undefined> {
  return {
    ...kind,
    fromMessage(sent, path) {
      if (sent === undefined) throw new FieldFault(path);
      return kind.fromMessage(sent, path);
    },
  };
}

/** A list, which JSON leaves out if it is empty. */
export function list<Value, Sent>(kind: Kind<Value, Sent>): Kind<Value[], Sent[]> {
  return {
    fromJson(json, path) {
      if (json == null) return [];
      if (!Array.isArray(json)) throw new FieldFault(path);
      return json.map((item, i) => kind.fromJson(item, `${path}[${i}]`));
    },
    fromMessage: (sent, path) => sent.map((item, i) => kind.fromMessage(item, `${path}[${i}]`)),
    toJson: (value) => (value.length === 0 ? undefined : value.map((item) => kind.toJson(item) as JsonValue)),
  };
}

/** A message within the message. */
export function resource(fields: Fields): Kind<Readonly<Record<string, unknown>>, object> {
  return {
    fromJson: (json, path) => readJson(fields, json, path),
    fromMessage: (sent, path) => readMessage(fields, sent, path),
    toJson: (value) => writeJson(fields, value),
  };
}
