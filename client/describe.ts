// Describes values for messages, without secrets.

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
