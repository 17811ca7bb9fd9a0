import type { JsonObject, JsonValue } from './values.ts';

/** The contract's own limit. It also keeps a deep object from overflowing the stack. */
const maxLevels = 15;

/** Reports a faulty field. Returns undefined as its value. */
export type Violate = (field: string, message: string) => undefined;

/**
 * Copies metadata as JSON values, identically for both protocols. Retries do not see later changes to the
 * caller's object. Members that are undefined are left out, and -0 becomes 0. Anything else that JSON cannot
 * represent is reported with its path, such as `metadata.items[2].at`.
 */
export function copyMetadata(metadata: unknown, violate: Violate): JsonObject | undefined {
  if (typeof metadata !== 'object' || metadata === null || Array.isArray(metadata)) {
    return violate('metadata', `must be an object, not ${describe(metadata)}`);
  }
  return copyValue(metadata, 'metadata', [], violate) as JsonObject | undefined;
}

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

/** API keys, client secrets and webhook secrets, whole or truncated. */
export const secrets = /(?<![a-z])sk_\w+|_secret_[\w-]+|whsec_[\w+/=]+/g;

/** Describes a value for a message: `undefined`, `"base"`, `a function`, `an instance of Date`. */
export function describe(value: unknown): string {
  switch (typeof value) {
    case 'string':
      return JSON.stringify(
        (value.length > 64 ? `${value.slice(0, 64)}…` : value).replaceAll(secrets, '[secret]'),
      );
    case 'number':
    case 'boolean':
    case 'undefined':
      return String(value);
    case 'bigint':
      return `the bigint ${value}n`;
    case 'object': {
      if (value === null) return 'null';
      if (Array.isArray(value)) return 'an array';
      const name: unknown = value.constructor?.name;
      return typeof name === 'string' && name !== '' && name !== 'Object'
        ? `an instance of ${name}`
        : 'an object';
    }
    default:
      return `a ${typeof value}`;
  }
}
