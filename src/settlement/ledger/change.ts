import type { EventType } from '../../contract/event-types.ts';
import type { IntentChange } from '../../payment-intents/apply-steps.ts';
import type { RefundChange } from '../../refunds/apply-refunds.ts';

/** A durable change of an intent or of a refund, or unattributed transfers: one of the three is set. */
export interface Change {
  merchantId: string;
  event: EventType;
  paymentIntent?: IntentChange['paymentIntent'];
  refund?: RefundChange['refund'];
  /** The largest of the unattributed transfers, and their number. */
  transfer?: { id: string; transactionHash: string; amountUnits: bigint; count: number };
}
