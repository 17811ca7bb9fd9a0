// Filters of lists. Each returns the violations by field name; a filter that is not set has none.

import type { FieldViolation } from '../contract/error-catalogue.ts';
import { mustBe, nameOf } from '../contract/words.ts';

type Words = Readonly<Record<string, number>>;
type Texts = Readonly<Record<string, string>>;

/** Filters by the numbers of enums, which stand for words. */
export function wordViolations(
  filters: Readonly<Record<string, readonly [number, Words]>>,
): FieldViolation[] {
  return Object.entries(filters).flatMap(([field, [number, words]]) =>
    number === 0 || nameOf(words, number) !== undefined ? [] : [{ field, message: mustBe(words) }],
  );
}

/** Filters by bytes in hexadecimal digits. */
function hexViolations(filters: Texts, digits: number, what: string): FieldViolation[] {
  const form = new RegExp(`^0x[0-9a-fA-F]{${digits}}$`);
  return Object.entries(filters).flatMap(([field, text]) =>
    text === '' || form.test(text)
      ? []
      : [{ field, message: `must be ${what}: 0x followed by ${digits} hexadecimal digits` }],
  );
}

/** Filters by wallet, in any letter case: bytes are compared. */
export const addressViolations = (filters: Texts) => hexViolations(filters, 40, 'an address');

export const hashViolations = (filters: Texts) => hexViolations(filters, 64, 'the hash of a transaction');

/** An address or a hash as a parameter of type `bytea`; undefined for a filter that is not set. */
export const byteaOf = (text: string) => (text === '' ? undefined : `\\x${text.slice(2)}`);
