// Plain functions without imports: the client package compiles them too.

/** Digits of USDC behind the point: a unit is a millionth. */
const decimals = 6;

/**
 * Returns what a unit is, and what an amount with a fraction is in units, for those who send `12.50` where 12500000 is
 * meant. For any other value it returns an example.
 */
export function unitsHint(given: unknown): string {
  const text = typeof given === 'string' || typeof given === 'number' ? String(given).trim() : '';
  const [, whole = '12', fraction = '50'] = /^(\d{1,9})\.(\d{1,6})$/.exec(text) ?? [];
  const units = BigInt(whole + fraction.padEnd(decimals, '0'));
  return `in units of 0.000001 USDC: ${whole}.${fraction} USDC is ${units}`;
}
