// Plain functions without imports: the client package compiles them too.

/** Decimals of USDC: a unit is a millionth. */
const decimals = 6;

/**
 * Returns what a unit is, and the given fraction in units, for those who send `12.50` but mean 12500000. For
 * any other value it returns an example.
 */
export function unitsHint(given: unknown): string {
  const text = typeof given === 'string' || typeof given === 'number' ? String(given).trim() : '';
  const [, whole = '12', fraction = '50'] = /^(\d{1,9})\.(\d{1,6})$/.exec(text) ?? [];
  const units = BigInt(whole + fraction.padEnd(decimals, '0'));
  return `in units of 0.000001 USDC: ${whole}.${fraction} USDC is ${units}`;
}
