import { PaymentIntentsError } from './error.ts';

/** The amount, exactly. Throws `invalid_body` for a number that is none: rounded, it would be another amount. */
export function exactUnits(units: number | bigint): bigint {
  const isExact =
    typeof units === 'bigint' ? BigInt.asIntN(54, units) === units : Number.isSafeInteger(units);
  if (!isExact) {
    throw invalid('amount_units', `must be an integer from 1 to ${Number.MAX_SAFE_INTEGER}, not ${units}`);
  }
  return BigInt(units);
}

/** The word's number in the contract. Throws `invalid_body` for a word that it has not: unset would mean the default. */
export function numberOf<Word extends string, Value>(
  field: string,
  words: Readonly<Record<Word, Value>>,
  word: Word | undefined,
): Value | undefined {
  if (word === undefined || word === null) return undefined;
  if (Object.hasOwn(words, word)) return words[word];
  throw invalid(
    field,
    `must be ${Object.keys(words)
      .map((known) => `"${known}"`)
      .join(' or ')}`,
  );
}

export function invalid(field: string, message: string, cause?: unknown): PaymentIntentsError {
  return new PaymentIntentsError('invalid_body', `${field} ${message}`, {
    details: [{ field, message }],
    cause,
  });
}
