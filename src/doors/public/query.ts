import { type DescField, ScalarType } from '@bufbuild/protobuf';
import type { FieldViolation } from '../../contract/error-catalogue.ts';
import { schemaOf } from '../../contract/json/field-rules.ts';
import type { IJsonValue } from '../../contract/json/i-json.ts';
import { notAField } from '../../contract/json/json-codec.ts';

/**
 * Parses a query as the JSON object of its fields in a body. A field that is unknown, empty, repeated or not
 * percent-encoded UTF-8 is a violation under its name. A `+` is a plus sign; integers match `[1-9][0-9]*`.
 */
export function parseQuery(query: string, fields: readonly DescField[], violations: FieldViolation[]) {
  const byName = new Map(fields.map((field) => [field.name, field]));
  const names = [...byName.keys()];
  const json: { [name: string]: IJsonValue } = {};
  const seen = new Set<string>();
  for (const parameter of query === '' ? [] : query.split('&')) {
    const equals = parameter.indexOf('=');
    const name = percentDecoded(equals === -1 ? parameter : parameter.slice(0, equals));
    const value = percentDecoded(equals === -1 ? '' : parameter.slice(equals + 1));
    const field = name === undefined ? undefined : byName.get(name);
    if (field === undefined) {
      violations.push(notAField('', name ?? parameter, names, violations.length));
      continue;
    }
    const problem = seen.has(field.name)
      ? 'must be given once'
      : value === ''
        ? 'must not be empty: leave it out instead'
        : value === undefined
          ? 'must be percent-encoded UTF-8'
          : undefined;
    seen.add(field.name);
    if (problem !== undefined) {
      violations.push({ field: field.name, message: problem });
      continue;
    }
    const read = jsonOf(field, value as string);
    if (typeof read === 'object') violations.push({ field: field.name, message: read.problem });
    else json[field.name] = read;
  }
  return json;
}

function jsonOf(field: DescField, text: string): string | number | boolean | { problem: string } {
  if (field.fieldKind !== 'scalar' || field.scalar === ScalarType.STRING) return text;
  if (field.scalar === ScalarType.BOOL) {
    return text === 'true' ? true : text === 'false' ? false : { problem: 'must be true or false' };
  }
  const isSafe = /^[1-9][0-9]{0,15}$/.test(text) && Number.isSafeInteger(Number(text));
  if (isSafe) return Number(text);
  const { maximum } = schemaOf(field);
  const range = maximum === undefined ? 'of at least 1, in digits' : `from 1 to ${maximum}`;
  return { problem: `must be an integer ${range}` };
}

/** Decodes a part of a URL, or returns undefined if it is not percent-encoded UTF-8. */
export function percentDecoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
