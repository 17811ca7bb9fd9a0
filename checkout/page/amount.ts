import { formatUnits } from 'viem/utils';

const format = (minimumFractionDigits: number) =>
  new Intl.NumberFormat('en-US', { minimumFractionDigits, maximumFractionDigits: 6 });
const withCents = format(2);
const exact = format(6);

/** The exact amount, with thousands separators. Two or six decimals: three would look like thousands. */
export function shownAmount(units: number | bigint, decimals: number): string {
  const plain = plainAmount(units, decimals);
  // As text: a number would round.
  return (/\.\d{3}/.test(plain) ? exact : withCents).format(plain as `${number}`);
}

/** The amount to copy into a wallet: digits and a point, without trailing zeros. */
export function plainAmount(units: number | bigint, decimals: number): string {
  return formatUnits(BigInt(units), decimals);
}
