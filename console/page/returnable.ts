import type { PaymentIntent } from '../../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { PaymentIntentStatus } from '../../src/contract/gen/payments/v1/payment_intent_pb.ts';
import { PaymentStatus } from '../../src/contract/gen/payments/v1/payment_pb.ts';
import { type Refund, RefundStatus } from '../../src/contract/gen/payments/v1/refund_pb.ts';

/** The confirmed money of a payment's token that has not gone back. */
function returnableOf({ payments, tokenAddress, amountRefundedUnits: refunded = 0n }: PaymentIntent): bigint {
  const confirmed = payments.filter(
    (each) => each.status === PaymentStatus.CONFIRMED && each.tokenAddress === tokenAddress,
  );
  return confirmed.reduce((all, { amountUnits }) => all + amountUnits, -refunded);
}

/** What of it is more than was asked for: all of it, if the payment ended unpaid. */
export function surplusOf(intent: PaymentIntent): bigint {
  const isPaid = intent.status === PaymentIntentStatus.SUCCEEDED;
  const surplus = returnableOf(intent) - (isPaid ? intent.amountUnits : 0n);
  return surplus > 0n ? surplus : 0n;
}

const open: readonly RefundStatus[] = [RefundStatus.REQUIRES_TRANSFER, RefundStatus.PROCESSING];

/** What of it no open refund takes. */
export function freeOf(intent: PaymentIntent, refunds: readonly Refund[]): bigint {
  const taken = refunds.filter(({ status }) => open.includes(status));
  return taken.reduce((rest, { amountUnits }) => rest - amountUnits, returnableOf(intent));
}
