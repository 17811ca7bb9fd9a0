// What can go back of a payment, as the service reckons it (src/refunds/returned-money.ts).

import type { PaymentIntent } from '../../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { PaymentIntentStatus } from '../../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { PaymentStatus } from '../../src/contract/gen/payments/v1/payment_pb.ts';
import { type Refund, RefundStatus } from '../../src/contract/gen/payments/v1/refund_pb.ts';

export const sumOf = (some: readonly { amountUnits: bigint }[]) =>
  some.reduce((all, each) => all + each.amountUnits, 0n);

/** What was confirmed in the intent's token. */
const confirmedOf = ({ payments, tokenAddress }: PaymentIntent) =>
  payments.filter((each) => each.status === PaymentStatus.CONFIRMED && each.tokenAddress === tokenAddress);

/** The part of it that has not gone back. */
const returnableOf = (intent: PaymentIntent): bigint =>
  sumOf(confirmedOf(intent)) - (intent.amountRefundedUnits ?? 0n);

/** True if the service has more payments than it sent, so that their sum is not known here. */
export const isCut = ({ payments, paymentsCount = 0 }: PaymentIntent) => paymentsCount > payments.length;

/** The payers' addresses, which are the usual destinations, and what came from each, most first. */
export function payersOf(intent: PaymentIntent): [address: string, units: bigint][] {
  const byPayer = Map.groupBy(confirmedOf(intent), ({ fromAddress }) => fromAddress);
  const sums = [...byPayer].map(([payer, paid]): [string, bigint] => [payer, sumOf(paid)]);
  return sums.sort(([, a], [, b]) => Number(b - a));
}

export const isOpen = ({ status }: Refund) =>
  status === RefundStatus.REQUIRES_TRANSFER || status === RefundStatus.PROCESSING;
const isPending = ({ status }: { status: PaymentStatus }) => status === PaymentStatus.PENDING;

/** What refunds take besides what has gone back: transfers on their way, whatever the refund, and those to come. */
function takenBy(refunds: readonly Refund[]): bigint {
  const coming = refunds.flatMap(({ transfers }) => transfers.filter(isPending));
  const toSign = refunds.filter(({ status }) => status === RefundStatus.REQUIRES_TRANSFER);
  return sumOf([...coming, ...toSign]);
}

/** The part of it that no refund takes. */
export function refundableUnits(intent: PaymentIntent, refunds: readonly Refund[]): bigint | undefined {
  return isCut(intent) ? undefined : returnableOf(intent) - takenBy(refunds);
}

/** The part of that above the amount asked for; all of it, if the payment ended unpaid. */
export function surplusOf(intent: PaymentIntent, refunds: readonly Refund[]): bigint {
  const isPaid = intent.status === PaymentIntentStatus.SUCCEEDED;
  const { amountReceivedUnits: received = 0n, amountRefundedUnits: refunded = 0n } = intent;
  // Of payments that were not sent, only the sum of those that count is known. The newest may be unconfirmed.
  const pending = sumOf(intent.payments.filter(isPending));
  const known = isPaid ? received - pending - refunded - takenBy(refunds) : 0n;
  const surplus = (refundableUnits(intent, refunds) ?? known) - (isPaid ? intent.amountUnits : 0n);
  return surplus > 0n ? surplus : 0n;
}
