// Reads the fields of a resource from JSON or a protobuf message, and writes them as JSON, all by one table.

import type { ApiResource, JsonObject, JsonValue, Unknown } from './values.ts';

/** A row of a generated table: how a field of a resource, or of a request, is sent and read. */
export interface Field {
  /**
   * Filled text is never empty, such as an identifier or a secret. Units are an amount of money. A word is a
   * value of an enum: its word over JSON, its number over gRPC.
   */
  type: 'text' | 'filledText' | 'flag' | 'integer' | 'units' | 'moment' | 'metadata' | 'word' | 'resource';
  /** For a word. */
  words?: Readonly<Record<string, number>>;
  /** For a resource. */
  fields?: Fields;
  /** For an integer in a request: its minimum. Without one, the server clamps the integer. */
  min?: number;
  /**
   * `optional`: may be absent. `omitted`: the same for a text, which is then empty in a message. `required`:
   * its absence is a fault, even if a message could lack it. `list`: JSON leaves out an empty one. `keptList`:
   * JSON has an empty one, too. Default: always present in an answer, optional in a request.
   */
  presence?: 'optional' | 'required' | 'omitted' | 'list' | 'keptList';
}

/** One row for each field of a resource or a request. */
export type Fields = Readonly<Record<string, Field>>;

/** Names a field of an answer that is missing or has the wrong type. */
export class FieldFault extends Error {
  constructor(path: string) {
    // The value itself is not shown: it could be a client secret.
    super(path === '' ? 'it is not an object' : `its ${path} is missing or has the wrong type`);
    this.name = 'FieldFault';
  }
}

/** Reads a resource from parsed JSON. Throws a {@link FieldFault}. */
export function readJson<Resource>(fields: Fields, json: unknown, path = ''): Resource {
  if (!isObject(json)) throw new FieldFault(path);
  return readFields(fields, path, (name) => json[snakeCase(name)], fromJson);
}

/** Reads a resource from a message. Throws a {@link FieldFault} if a required field is missing or empty. */
export function readMessage<Resource>(fields: Fields, message: object, path = ''): Resource {
  const sent = message as Readonly<Record<string, unknown>>;
  return readFields(fields, path, (name) => sent[name], fromMessage);
}

/** Reads one value. Throws a {@link FieldFault} for a value of another type. */
type ReadValue = (field: Field, sent: unknown, path: string) => unknown;

function readFields<Resource>(
  fields: Fields,
  path: string,
  sentAs: (name: string) => unknown,
  readValue: ReadValue,
): Resource {
  const resource = Object.fromEntries(
    Object.entries(fields).map(([name, field]) => {
      const at = path === '' ? snakeCase(name) : `${path}.${snakeCase(name)}`;
      return [name, readField(field, sentAs(name), at, readValue)];
    }),
  );
  const toJSON: ApiResource['toJSON'] = () => writeJson(fields, resource);
  // Not enumerable, so that iterating over a resource yields only its fields.
  const property = { value: toJSON, configurable: true, writable: true };
  return Object.defineProperty(resource, 'toJSON', property) as Resource;
}

function readField(field: Field, sent: unknown, path: string, readValue: ReadValue): unknown {
  const { presence } = field;
  const isAbsent = sent === undefined || sent === null || (sent === '' && presence === 'omitted');
  if (presence === 'list' || presence === 'keptList') {
    if (isAbsent && presence === 'list') return [];
    if (!Array.isArray(sent)) throw new FieldFault(path);
    return sent.map((item, i) => readValue(field, item, `${path}[${i}]`));
  }
  if (!isAbsent || presence === undefined) return readValue(field, sent, path);
  if (presence === 'required') throw new FieldFault(path);
  return undefined;
}

function writeJson(fields: Fields, resource: Readonly<Record<string, unknown>>): JsonObject {
  const json: JsonObject = {};
  for (const [name, field] of Object.entries(fields)) {
    const value = resource[name];
    const isEmpty = Array.isArray(value) && value.length === 0 && field.presence !== 'keptList';
    if (value === undefined || isEmpty) continue;
    json[snakeCase(name)] = Array.isArray(value)
      ? value.map((item) => toJson(field, item))
      : toJson(field, value);
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

function filled(value: string, path: string): string {
  if (value === '') throw new FieldFault(path);
  return value;
}

function fromJson({ type, words = {}, fields = {} }: Field, json: unknown, path: string): unknown {
  switch (type) {
    case 'text':
      return checked(isText, json, path);
    case 'filledText':
      return filled(checked(isText, json, path), path);
    case 'flag':
      return checked(isBoolean, json, path);
    case 'integer':
      return checked(isInteger, json, path);
    case 'units':
      return BigInt(checked(isInteger, json, path));
    case 'moment': {
      const date = new Date(checked(isText, json, path));
      if (Number.isNaN(date.getTime())) throw new FieldFault(path);
      return date;
    }
    case 'metadata':
      return checked(isObject, json, path);
    case 'word':
      return wordOf(words, checked(isText, json, path));
    case 'resource':
      return readJson(fields, json, path);
  }
}

function fromMessage({ type, words = {}, fields = {} }: Field, sent: unknown, path: string): unknown {
  switch (type) {
    case 'filledText':
      return filled(sent as string, path);
    case 'integer':
      // An int64 is a bigint in a message.
      return Number(sent);
    case 'moment': {
      // A `google.protobuf.Timestamp`. The edge client does not load protobuf's own functions.
      const { seconds, nanos } = sent as { seconds: bigint; nanos: number };
      return new Date(Number(seconds) * 1_000 + Math.floor(nanos / 1_000_000));
    }
    case 'metadata':
      return sent ?? {};
    case 'word':
      return wordOf(words, sent as number);
    case 'resource':
      return readMessage(fields, sent as object, path);
    default:
      return sent;
  }
}

/** Returns the value for what the server sent: a name over JSON, a number over gRPC. */
function wordOf(words: Readonly<Record<string, number>>, sent: string | number): string {
  const known = Object.keys(words).find((word) => word === sent || words[word] === sent);
  return known ?? (`unknown:${sent}` satisfies Unknown);
}

/** Returns a value in the form of the service's JSON. */
export function toJson({ type, fields = {} }: Field, value: unknown): JsonValue {
  switch (type) {
    case 'units':
      // The service sends none beyond the safe integers. Such an amount stays text: a number would round it.
      return isInteger(Number(value)) ? Number(value) : String(value);
    case 'moment':
      return (value as Date).toISOString();
    case 'word':
      // A number that came over gRPC has no word, and keeps its prefix.
      return (value as string).replace(/^unknown:(?!\d+$)/, '');
    case 'resource':
      return writeJson(fields, value as Readonly<Record<string, unknown>>);
    default:
      return value as JsonValue;
  }
}
