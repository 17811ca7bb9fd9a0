// Reads the arguments of a call where they stand, in hexadecimal digits without `0x`; places are in bytes. Libraries copy every
// argument out at once, and a stranger can point a thousand operations at one megabyte.
// Source: https://docs.soliditylang.org/en/latest/abi-spec.html

const wordDigits = 64;
/** Larger numbers point behind any data. */
const pointerDigits = 12;

/** Returns the word at this place, or undefined behind the end. */
export function wordAt(data: string, at: number): string | undefined {
  const word = data.slice(2 * at, 2 * at + wordDigits);
  return word.length === wordDigits ? word : undefined;
}

/** Returns the word at this place as an offset, a length or a count. */
export function pointerAt(data: string, at: number): number | undefined {
  const word = wordAt(data, at);
  const isSmall = word?.startsWith('0'.repeat(wordDigits - pointerDigits));
  return isSmall ? Number.parseInt(word?.slice(-pointerDigits) ?? '', 16) : undefined;
}

/** Returns where the bytes begin to which this place points, counted from `base`, and what they are. */
export function bytesAt(
  data: string,
  at: number,
  base: number,
): { begin: number; digits: string } | undefined {
  const offset = pointerAt(data, at);
  if (offset === undefined) return undefined;
  const begin = base + offset + wordDigits / 2;
  const length = pointerAt(data, base + offset);
  if (length === undefined) return undefined;
  const digits = data.slice(2 * begin, 2 * (begin + length));
  return digits.length === 2 * length ? { begin, digits } : undefined;
}
