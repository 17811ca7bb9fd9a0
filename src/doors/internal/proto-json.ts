// Reads protobuf's own JSON mapping, as Connect and gRPC with JSON send it, as strictly as the public JSON.
// protobuf-es accepts "0x10" and "\n5\t" for integers, invalid UTF-8, a byte order mark, duplicate names, and
// numbers that a double rounds. It has no strict mode, so the input is checked and normalised here first.

import type { DescField, DescMessage } from '@bufbuild/protobuf';
import type { FieldViolation } from '../../contract/error-catalogue.ts';
import { type IntegerRange, integerRangeOf, refusesEmptyList } from '../../contract/json/field-rules.ts';
import { type IJsonValue, InexactNumber } from '../../contract/json/i-json.ts';
import {
  emptyList,
  findInexactNumber,
  isObject,
  notAField,
  notAnInteger,
  unsafeNumber,
} from '../../contract/json/json-codec.ts';
import { refuseInvalid } from '../../requests/errors.ts';
import { parseJsonBody } from '../public/json-body.ts';

/**
 * Creates the decoder of a message's JSON, for use by Connect's serialization as a TextDecoder. It returns
 * JSON text that protobuf-es reads without rounding, or throws a refusal that lists every violation of shape.
 */
export function createProtoJsonDecoder(desc: DescMessage) {
  return {
    decode(bytes: Uint8Array = new Uint8Array()): string {
      const normalizer = new Normalizer();
      const normalized = normalizer.message(desc, parseJsonBody(bytes), '');
      refuseInvalid(normalizer.violations);
      return JSON.stringify(normalized);
    },
  };
}

class Normalizer {
  readonly violations: FieldViolation[] = [];

  message(desc: DescMessage, json: IJsonValue, path: string): unknown {
    // These accept any JSON, or strings that protobuf-es itself reads strictly.
    if (desc.typeName.startsWith('google.protobuf.')) return this.exact(json, path);
    if (!isObject(json)) {
      this.violations.push({ field: path || 'body', message: 'must be an object' });
      return undefined;
    }
    const names = desc.fields.map(({ name }) => name);
    const seen = new Set<DescField>();
    const entries = Object.entries(json).flatMap(([name, value]) => {
      const field = desc.fields.find((candidate) => candidate.jsonName === name || candidate.name === name);
      if (field === undefined) {
        this.violations.push(notAField(path, name, names, this.violations.length));
        return [];
      }
      const place = path === '' ? field.name : `${path}.${field.name}`;
      if (seen.has(field))
        this.violations.push({ field: place, message: 'is given twice, under both of its names' });
      seen.add(field);
      return [[field.jsonName, this.field(field, value, place)]];
    });
    return Object.fromEntries(entries);
  }

  field(field: DescField, json: IJsonValue, path: string): unknown {
    if (json === null) return null;
    if (field.fieldKind === 'list') {
      if (!Array.isArray(json)) return this.exact(json, path);
      if (json.length === 0 && refusesEmptyList(field))
        this.violations.push({ field: path, message: emptyList });
      return json.map((item, i) => this.value(field, item, `${path}[${i}]`));
    }
    return this.value(field, json, path);
  }

  /** One value of the field: its own or a list item. */
  value(field: DescField, json: IJsonValue, path: string): unknown {
    if (field.message !== undefined) return this.message(field.message, json, path);
    const range = field.scalar === undefined ? undefined : integerRangeOf(field.scalar);
    return range === undefined ? this.exact(json, path) : this.integer(field, range, json, path);
  }

  /** Returns the integer, clamped to its range, as decimal text, which protobuf-es accepts for any width. */
  integer(field: DescField, { min, max }: IntegerRange, json: IJsonValue, path: string): unknown {
    let value: bigint | undefined;
    if (typeof json === 'number' && Number.isInteger(json)) value = BigInt(json);
    else if (json instanceof InexactNumber && json.isInteger) value = json.toBigInt(min, max);
    else if (typeof json === 'string' && /^(?:0|-?[1-9][0-9]*)$/.test(json)) {
      value = new InexactNumber(json).toBigInt(min, max);
    }
    if (value === undefined) {
      this.violations.push({ field: path, message: notAnInteger(field, json) });
      return undefined;
    }
    return String(value < min ? min : value > max ? max : value);
  }

  /** Returns the value unchanged if none of its numbers would be rounded. */
  exact(json: IJsonValue, path: string): unknown {
    const inexact = findInexactNumber(json);
    if (inexact === undefined) return json;
    this.violations.push({ field: path || 'body', message: unsafeNumber(inexact) });
    return undefined;
  }
}
