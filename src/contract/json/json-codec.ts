// The public JSON of a protobuf message: snake_case names, numbers for integers, lower-case words for enums.
// protobuf-es has only the standard mapping (camelCase, strings for 64-bit integers, CHAIN_BASE), and reads it
// less strictly: "0x10", 30 February, numbers that a double rounds, and faults without the field's name.

import type { DescEnum, DescField, DescMessage, JsonObject, Message, MessageShape } from '@bufbuild/protobuf';
import { create, ScalarType } from '@bufbuild/protobuf';
import type { Timestamp } from '@bufbuild/protobuf/wkt';
import { type FieldViolation, maxViolations } from '../error-catalogue.ts';
import { nearestName } from '../nearest-name.ts';
import { unitsHint } from '../units.ts';
import type { IntegerRange } from './field-rules.ts';
import { enumWords, integerRangeOf, mayBeAbsent, refusesEmptyList, schemaOf } from './field-rules.ts';
import { type IJsonValue, InexactNumber } from './i-json.ts';

/** Texts of messages that are encoded as they were stored. */
const storedTexts = new WeakMap<object, string>();

/**
 * Makes every codec encode the message as this JSON text, and returns the message. For an answer that was
 * stored as text and must be returned unchanged, even if an older release wrote it differently.
 */
export function encodedAs<Shape extends Message>(message: Shape, text: string): Shape {
  storedTexts.set(message, text);
  return message;
}

/**
 * Creates the codec of a message from its descriptor. Throws at once if a field's type has no form in the
 * public JSON (maps, oneofs, bytes, floating point), so that the service does not start. Fields in `without`
 * are not part of the JSON: they come from elsewhere, such as the path of a request.
 */
export function createJsonCodec<Desc extends DescMessage>(
  desc: Desc,
  { without = [] }: { without?: readonly DescField[] } = {},
) {
  const codec = compileMessage(desc, { without });
  return {
    decode: decoderOf<Desc>(codec),
    /**
     * Encodes a message as JSON text. Leaves out unset optional and message fields, empty optional texts,
     * empty lists without the mark `keep_empty`, and empty fields with the mark `omit_empty` or `secret`.
     * Writes everything else.
     */
    encode: (message: MessageShape<Desc>): string => codec.encode(message),
  };
}

/** Returns the decoder of the message's standard JSON, as strict as that of the public one. */
export function createStandardJsonDecoder<Desc extends DescMessage>(desc: Desc) {
  return decoderOf<Desc>(compileMessage(desc, { isStandard: true }));
}

/**
 * Decodes a message from JSON; undefined if it is not an object. Collects every fault of shape, including
 * unknown names, instead of stopping at the first, and leaves faulty fields unset. `null` means absent.
 * An integer too wide for its field becomes the nearest one that fits: JSON's integers have no width, and
 * the field's own rule refuses or clamps a value out of range.
 */
function decoderOf<Desc extends DescMessage>(codec: ValueCodec) {
  return (json: IJsonValue) => {
    const violations: FieldViolation[] = [];
    return { message: codec.decode(json, '', violations) as MessageShape<Desc> | undefined, violations };
  };
}

/**
 * Reads and writes one value. `decode` returns undefined if it has added a violation to the list. `encode`
 * returns JSON text. Building an object for JSON.stringify would take twice as long.
 */
interface ValueCodec {
  decode(json: IJsonValue, path: string, violations: FieldViolation[]): unknown;
  encode(value: unknown): string;
}

const isUnset = (value: unknown) => value === undefined;
const isEmpty = (value: unknown) => value === undefined || value === '';
const isEmptyList = (value: unknown) => (value as readonly unknown[] | undefined)?.length === 0;

/** Codecs of whole messages, which may contain themselves. Reading their options takes long, so they are shared. */
const compiled = { public: new Map<DescMessage, ValueCodec>(), standard: new Map<DescMessage, ValueCodec>() };

interface CodecOptions {
  without?: readonly DescField[];
  /** It decodes the standard JSON. */
  isStandard?: boolean;
}

interface FieldCodec {
  name: string;
  localName: string;
  /** The text before its value: `"status":`. */
  prefix: string;
  codec: ValueCodec;
  /** True for a value that an answer leaves out. */
  isOmitted(value: unknown): boolean;
}

function compileMessage(desc: DescMessage, { without = [], isStandard = false }: CodecOptions): ValueCodec {
  if (desc.typeName === 'google.protobuf.Struct') return structCodec;
  if (desc.typeName === 'google.protobuf.Timestamp') return timestampCodec;
  const shared = isStandard ? compiled.standard : compiled.public;
  const known = shared.get(desc);
  if (known !== undefined && without.length === 0) return known;
  const fields: FieldCodec[] = [];
  const fieldsByName = new Map<string, FieldCodec>();
  const descFields = desc.fields.filter((field) => !without.includes(field));
  const names = descFields.map((field) => field.name);
  const codec: ValueCodec = {
    decode(json, path, violations) {
      if (!isObject(json)) return violate(violations, path, 'must be an object');
      const message = create(desc) as Message & Record<string, unknown>;
      for (const [name, value] of Object.entries(json)) {
        const field = fieldsByName.get(name);
        if (field === undefined) {
          violations.push(notAField(path, name, names, violations.length));
          continue;
        }
        if (name !== field.name && Object.hasOwn(json, field.name))
          violate(violations, join(path, field.name), 'is given twice, under both of its names');
        if (value === null) continue;
        const decoded = field.codec.decode(value, join(path, field.name), violations);
        if (decoded !== undefined) message[field.localName] = decoded;
      }
      return message;
    },
    encode(value) {
      const message = value as Record<string, unknown>;
      const stored = storedTexts.get(message);
      if (stored !== undefined) return stored;
      let text = '';
      for (const { prefix, localName, codec, isOmitted } of fields) {
        const fieldValue = message[localName];
        if (isOmitted(fieldValue)) continue;
        text += (text === '' ? '{' : ',') + prefix + codec.encode(fieldValue);
      }
      return text === '' ? '{}' : `${text}}`;
    },
  };
  if (without.length === 0) shared.set(desc, codec);
  for (const field of descFields) {
    const { name, localName } = field;
    const prefix = `${JSON.stringify(name)}:`;
    const isOmitted = mayBeAbsent(field) ? (field.fieldKind === 'list' ? isEmptyList : isEmpty) : isUnset;
    const compiledField = { name, localName, prefix, codec: compileField(field, isStandard), isOmitted };
    fields.push(compiledField);
    fieldsByName.set(name, compiledField);
    if (isStandard) fieldsByName.set(field.jsonName, compiledField);
  }
  return codec;
}

function compileField(field: DescField, isStandard: boolean): ValueCodec {
  if (field.oneof !== undefined) throw unsupported(field, 'a oneof');
  if (field.fieldKind === 'map') throw unsupported(field, 'a map');
  const value = compileValue(field, isStandard);
  return field.fieldKind === 'list' ? listOf(field, value) : value;
}

/** The codec of the field's value, or of each in its list. */
function compileValue(field: DescField, isStandard: boolean): ValueCodec {
  if (field.message !== undefined) return compileMessage(field.message, { isStandard });
  if (field.enum === undefined) return compileScalar(field, field.scalar, isStandard);
  const { enum: taken } = schemaOf(field);
  const words = enumWords(field.enum).filter(({ word }) => !Array.isArray(taken) || taken.includes(word));
  const codec = compileEnum(field.enum, words);
  return isStandard ? standardEnum(field.enum, words, codec) : codec;
}

function compileScalar(field: DescField, scalar: ScalarType, isStandard: boolean): ValueCodec {
  if (scalar === ScalarType.STRING) return stringCodec;
  if (scalar === ScalarType.BOOL) return boolCodec;
  const range = integerRangeOf(scalar);
  if (range === undefined) throw unsupported(field, ScalarType[scalar].toLowerCase());
  const codec = integerCodec(field, range, scalar === ScalarType.INT64 ? BigInt : Number);
  return isStandard ? standardInteger(field, codec) : codec;
}

const stringCodec: ValueCodec = {
  decode(json, path, violations) {
    if (typeof json !== 'string') return violate(violations, path, 'must be a string');
    if (!json.isWellFormed()) return violate(violations, path, 'must not contain a lone surrogate');
    return json;
  },
  encode: (value) => JSON.stringify(value),
};

const boolCodec: ValueCodec = {
  decode: (json, path, violations) =>
    typeof json === 'boolean' ? json : violate(violations, path, 'must be true or false'),
  encode: (value) => JSON.stringify(value),
};

/** True for an amount of money in the token's smallest unit. */
const isAmount = ({ name }: DescField) => name.endsWith('_units');

/** The fault of a value that is not an integer. For an amount, explains how to write it in units. */
function notAnInteger(field: DescField, json: IJsonValue): string {
  if (!isAmount(field)) return 'must be an integer';
  return `must be an integer, ${unitsHint(json instanceof InexactNumber ? json.text : json)}`;
}

function integerCodec(
  field: DescField,
  { min, max }: IntegerRange,
  toLocal: (value: bigint | number) => bigint | number,
): ValueCodec {
  const lowest = toLocal(min);
  const highest = toLocal(max);
  return {
    decode(json, path, violations) {
      if (typeof json === 'number' && Number.isInteger(json)) {
        return json < min ? lowest : json > max ? highest : toLocal(json);
      }
      if (json instanceof InexactNumber && json.isInteger) return toLocal(json.toBigInt(min, max));
      const quoted = isAmount(field) ? /^\s*[+-]?\d+\s*$/ : /^\s*[+-]?\d+(?:\.0*)?\s*$/;
      if (typeof json === 'string' && quoted.test(json)) {
        return violate(violations, path, 'must be a JSON number, without quotes');
      }
      return violate(violations, path, notAnInteger(field, json));
    },
    encode(value) {
      const number = Number(value);
      // A JSON client would read a different number. An error is better than a wrong amount.
      if (!Number.isSafeInteger(number)) throw new RangeError(`${value} does not fit a JSON number`);
      return String(number);
    },
  };
}

/** Integers are text, too, which is exact and written in one way. */
function standardInteger(field: DescField, codec: ValueCodec): ValueCodec {
  return {
    ...codec,
    decode(json, path, violations) {
      if (typeof json !== 'string') return codec.decode(json, path, violations);
      if (!/^(?:0|-?[1-9][0-9]*)$/.test(json)) return violate(violations, path, notAnInteger(field, json));
      return codec.decode(new InexactNumber(json), path, violations);
    },
  };
}

type EnumWords = ReturnType<typeof enumWords>;

/** `read`: the words that are decoded. */
function compileEnum(desc: DescEnum, read: EnumWords): ValueCodec {
  const numberByWord = new Map(read.map(({ word, value }) => [word, value.number]));
  const textByNumber = new Map(
    enumWords(desc).map(({ word, value }) => [value.number, JSON.stringify(word)]),
  );
  const words = [...numberByWord.keys()].map((word) => JSON.stringify(word)).join(' or ');
  return {
    decode(json, path, violations) {
      const number = typeof json === 'string' ? numberByWord.get(json) : undefined;
      return number ?? violate(violations, path, `must be ${words}`);
    },
    encode(value) {
      const text = textByNumber.get(value as number);
      if (text !== undefined) return text;
      // Unset is null. A number without a word is a bug here and must not be encoded as another value.
      if (value === 0) return 'null';
      throw new RangeError(`${desc.typeName} has no word for ${value}`);
    },
  };
}

/** An enum is its value's name in the contract or any number: the field's rule refuses one that it lacks. */
function standardEnum(desc: DescEnum, read: EnumWords, codec: ValueCodec): ValueCodec {
  const numberByName = new Map(read.map(({ value }) => [value.name, value.number]));
  const names = [...numberByName.keys()].map((name) => JSON.stringify(name)).join(' or ');
  for (const { name, number } of desc.values) if (number === 0) numberByName.set(name, number);
  return {
    ...codec,
    decode(json, path, violations) {
      if (Number.isInteger(json) && Math.abs(json as number) < 2 ** 31) return json;
      return numberByName.get(json as string) ?? violate(violations, path, `must be ${names}`);
    },
  };
}

function listOf(field: DescField, item: ValueCodec): ValueCodec {
  const refusesEmpty = refusesEmptyList(field);
  const [example] = schemaOf(field).examples ?? [];
  const notAList = `must be an array${example === undefined ? '' : `, such as ${JSON.stringify(example)}`}`;
  return {
    decode(json, path, violations) {
      if (!Array.isArray(json)) return violate(violations, path, notAList);
      if (json.length === 0 && refusesEmpty) {
        return violate(violations, path, 'must not be empty: leave it out instead');
      }
      const items = json.map((value, index) =>
        value === null
          ? violate(violations, `${path}[${index}]`, 'must not be null')
          : item.decode(value, `${path}[${index}]`, violations),
      );
      return items.includes(undefined) ? undefined : items;
    },
    encode: (value) => `[${(value as unknown[]).map((entry) => item.encode(entry)).join(',')}]`,
  };
}

/** `google.protobuf.Struct`: any JSON object. protobuf-es represents it as a plain object. */
const structCodec: ValueCodec = {
  decode(json, path, violations) {
    if (!isObject(json)) return violate(violations, path, 'must be an object');
    const inexact = findInexactNumber(json);
    if (inexact !== undefined) return violate(violations, path, unsafeNumber(inexact));
    return json as JsonObject;
  },
  encode: (value) => JSON.stringify(value),
};

/** `google.protobuf.Timestamp`: RFC 3339. Decodes any time zone and 9 decimals; encodes UTC with ms. */
const timestampCodec: ValueCodec = {
  decode(json, path, violations) {
    const [, date = '', time, fraction = '', zone] = (typeof json === 'string' && rfc3339.exec(json)) || [];
    const ms = isDate(date) ? Date.parse(`${date}T${time}${zone?.toUpperCase()}`) : Number.NaN;
    if (Number.isNaN(ms)) return violate(violations, path, notAMoment);
    return {
      $typeName: 'google.protobuf.Timestamp',
      seconds: BigInt(ms / 1000),
      nanos: Number(fraction.padEnd(9, '0')),
    } satisfies Timestamp;
  },
  encode(value) {
    const { seconds, nanos } = value as Timestamp;
    return `"${new Date(Number(seconds) * 1000 + Math.floor(nanos / 1_000_000)).toISOString()}"`;
  },
};

const notAMoment = 'must be a date and time as in RFC 3339, such as 2026-11-21T12:00:00Z';
const rfc3339 =
  /^(\d{4}-\d{2}-\d{2})[Tt]((?:[01]\d|2[0-3]):\d{2}:\d{2})(?:\.(\d{1,9}))?([Zz]|[+-]\d{2}:\d{2})$/;

/** True for a day of the calendar. `Date.parse` takes 30 February for 2 March. */
function isDate(date: string): boolean {
  const ms = Date.parse(date);
  return !Number.isNaN(ms) && new Date(ms).toISOString().startsWith(date);
}

/** The first number in the value that a double would round. */
function findInexactNumber(json: IJsonValue): InexactNumber | undefined {
  if (json instanceof InexactNumber) return json;
  if (json === null || typeof json !== 'object') return undefined;
  for (const value of Array.isArray(json) ? json : Object.values(json)) {
    const found = findInexactNumber(value);
    if (found !== undefined) return found;
  }
  return undefined;
}

export function isObject(json: IJsonValue): json is { [name: string]: IJsonValue } {
  return (
    json !== null && typeof json === 'object' && !Array.isArray(json) && !(json instanceof InexactNumber)
  );
}

function violate(violations: FieldViolation[], path: string, message: string): undefined {
  violations.push({ field: path === '' ? 'body' : path, message });
  return undefined;
}

function join(path: string, name: string): string {
  return path === '' ? name : `${path}.${name}`;
}

/** The violation for an unknown name. Suggests the name meant unless the list is full before it. */
export function notAField(path: string, name: string, names: readonly string[], violationsBefore: number) {
  const field = join(path, printable(name));
  if (violationsBefore >= maxViolations) return { field, message: 'is not a field here' };
  const nearest = nearestName(name, names);
  const hint = nearest === undefined ? '' : ` (did you mean ${nearest}?)`;
  const known = names.length === 0 ? 'there are none' : `the fields are ${names.join(', ')}`;
  return { field, message: `is not a field here${hint}; ${known}` };
}

/** The fault of a number that a double rounds. */
function unsafeNumber({ text }: InexactNumber): string {
  return `contains the number ${text.slice(0, 40)}, which would lose precision; send it as a string`;
}

/** A name from a client, short and well-formed enough to be sent back. */
function printable(name: string): string {
  if (name === '') return '""';
  const short = name.length > 64 ? `${name.slice(0, 64)}…` : name;
  return short.toWellFormed();
}

function unsupported(field: DescField, what: string): Error {
  return new Error(
    `${field.parent.typeName}.${field.name} is ${what}, which the public JSON has no form for yet: ` +
      'teach src/contract/json/json-codec.ts before the contract uses it',
  );
}
