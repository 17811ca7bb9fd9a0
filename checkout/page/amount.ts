import { formatUnits } from 'viem/utils';

const withCents = new Intl.NumberFormat('en-US', { minimumFractionDigits: 2, maximumFractionDigits: 6 });

/** An amount to read, exact: at least two decimal places, and thousands apart. */
export function shownAmount(units: number | bigint, decimals: number): string {
  // As text: a number would round.
  return withCents.format(plainAmount(units, decimals) as `${number}`);
}

/** An amount to copy into a wallet: digits and a point, without zeros that say nothing. */
export function plainAmount(units: number | bigint, decimals: number): string {
  return formatUnits(BigInt(units), decimals);
}
