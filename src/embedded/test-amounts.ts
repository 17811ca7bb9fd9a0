/** The amounts that the test wallet can pay, each from what is missing. */
const testAmounts = {
  exact: (missing: bigint) => missing,
  too_little: (missing: bigint) => atLeastOne(missing / 2n),
  too_much: (missing: bigint) => missing + atLeastOne(missing / 10n),
} as const;

type TestAmount = keyof typeof testAmounts;
/** How the checkout page has an intent paid: by a transfer of an amount, or by a signature. */
export type TestPaymentKind = TestAmount | 'signed';

const testAmountNames = Object.keys(testAmounts) as TestAmount[];
export const testPaymentKinds: readonly TestPaymentKind[] = [...testAmountNames, 'signed'];

export function testAmountUnits(amount: TestAmount, missing: bigint): bigint {
  return testAmounts[amount](missing);
}

function atLeastOne(units: bigint): bigint {
  return units > 0n ? units : 1n;
}
