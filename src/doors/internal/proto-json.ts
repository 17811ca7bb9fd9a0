// Protobuf's own JSON mapping, as Connect and gRPC with JSON send it, read as strictly as the public JSON. protobuf-es
// takes more: "0x10" and "\n5\t" for integers, invalid UTF-8, a byte order mark, a name that stands twice, and numbers
// that a double rounds. It has no option against that, so its input is checked and normalised here first.

import type { DescField, DescMessage } from '@bufbuild/protobuf';
import type { FieldViolation } from '../../contract/error-catalogue.ts';
import { type IJsonValue, InexactNumber } from '../../contract/json/i-json.ts';
import {
  findInexactNumber,
  integerRangeOf,
  isObject,
  notAField,
  unsafeNumber,
} from '../../contract/json/json-codec.ts';
import { invalidBody, toConnectError, toServiceError } from '../../requests/errors.ts';
import { parseJsonBody } from '../public/json-body.ts';

/** What Connect's serialization takes in place of a TextDecoder. */
export interface JsonDecoder {
  decode(bytes?: Uint8Array): string;
}

/**
 * Makes the decoder of a message's JSON. It returns JSON text that protobuf-es reads without rounding anything, and
 * throws the refusal as a ConnectError, which passes through Connect, with every fault of shape in it.
 */
export function createProtoJsonDecoder(desc: DescMessage): JsonDecoder {
  return {
    decode(bytes = new Uint8Array()) {
      try {
        const violations: FieldViolation[] = [];
        const normalized = normalizeMessage(desc, parseJsonBody(bytes), '', violations);
        if (violations.length > 0) throw invalidBody(violations);
        return JSON.stringify(normalized);
      } catch (reason) {
        // The request's own id is filled in where the refusal is answered.
        throw toConnectError(toServiceError(reason), '');
      }
    },
  };
}

function normalizeMessage(
  desc: DescMessage,
  json: IJsonValue,
  path: string,
  violations: FieldViolation[],
): unknown {
  // Any JSON, or texts, which protobuf-es reads strictly by itself.
  if (desc.typeName.startsWith('google.protobuf.')) return exact(json, path, violations);
  if (!isObject(json)) {
    violations.push({ field: path || 'body', message: 'must be an object' });
    return undefined;
  }
  const names = desc.fields.map(({ name }) => name);
  const seen = new Set<DescField>();
  const entries = Object.entries(json).flatMap(([name, value]) => {
    const field = desc.fields.find((candidate) => candidate.jsonName === name || candidate.name === name);
    if (field === undefined) {
      violations.push(notAField(path, name, names));
      return [];
    }
    const place = path === '' ? field.name : `${path}.${field.name}`;
    if (seen.has(field))
      violations.push({ field: place, message: 'is given twice, under both of its names' });
    seen.add(field);
    return [[field.jsonName, normalizeField(field, value, place, violations)]];
  });
  return Object.fromEntries(entries);
}

function normalizeField(
  field: DescField,
  json: IJsonValue,
  path: string,
  violations: FieldViolation[],
): unknown {
  if (json === null) return null;
  if (field.fieldKind === 'list') {
    if (!Array.isArray(json)) return exact(json, path, violations);
    return json.map((item, i) => normalizeValue(field, item, `${path}[${i}]`, violations));
  }
  if (field.fieldKind === 'map') {
    if (!isObject(json)) return exact(json, path, violations);
    return Object.fromEntries(
      Object.entries(json).map(([key, value]) => [
        key,
        normalizeValue(field, value, `${path}.${key}`, violations),
      ]),
    );
  }
  return normalizeValue(field, json, path, violations);
}

/** One value of the field: its own, an item of its list or a value of its map. */
function normalizeValue(
  field: DescField,
  json: IJsonValue,
  path: string,
  violations: FieldViolation[],
): unknown {
  if (field.message !== undefined) return normalizeMessage(field.message, json, path, violations);
  const range = field.scalar === undefined ? undefined : integerRangeOf(field.scalar);
  return range === undefined
    ? exact(json, path, violations)
    : normalizeInteger(range, json, path, violations);
}

/** A decimal text, which protobuf-es takes for an integer of any width, or the nearest one in the field's range. */
function normalizeInteger(
  { min, max }: { min: bigint; max: bigint },
  json: IJsonValue,
  path: string,
  violations: FieldViolation[],
): unknown {
  let value: bigint | undefined;
  if (typeof json === 'number' && Number.isInteger(json)) value = BigInt(json);
  else if (json instanceof InexactNumber && json.isInteger) value = json.toBigInt(min, max);
  else if (typeof json === 'string' && /^(?:0|-?[1-9][0-9]*)$/.test(json)) {
    value = new InexactNumber(json).toBigInt(min, max);
  }
  if (value === undefined) {
    violations.push({ field: path, message: 'must be an integer' });
    return undefined;
  }
  return String(value < min ? min : value > max ? max : value);
}

/** A value that is passed on as it is, if none of its numbers would be rounded. */
function exact(json: IJsonValue, path: string, violations: FieldViolation[]): unknown {
  const inexact = findInexactNumber(json);
  if (inexact === undefined) return json;
  violations.push({ field: path || 'body', message: unsafeNumber(inexact) });
  return undefined;
}
