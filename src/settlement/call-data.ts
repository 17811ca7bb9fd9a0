// Reads arguments of calldata in place, in hexadecimal digits without `0x`; offsets are in bytes. ABI libraries copy
// every argument, and a stranger can point a thousand operations at the same megabyte.
//
// Source: https://docs.soliditylang.org/en/latest/abi-spec.html

const wordDigits = 64;
/** Larger offsets are past the end of any calldata. */
const pointerDigits = 12;

/** Returns the word at this offset, or undefined past the end. */
export function wordAt(data: string, at: number): string | undefined {
  const word = data.slice(2 * at, 2 * at + wordDigits);
  return word.length === wordDigits ? word : undefined;
}

/** Returns the word at this offset as an offset, a length or a count. */
export function pointerAt(data: string, at: number): number | undefined {
  const word = wordAt(data, at);
  const isSmall = word?.startsWith('0'.repeat(wordDigits - pointerDigits));
  return isSmall ? Number.parseInt(word?.slice(-pointerDigits) ?? '', 16) : undefined;
}

/** Returns the bytes that the pointer at this offset refers to, relative to `base`, and where they begin. */
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
