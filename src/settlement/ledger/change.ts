import type { EventType } from '../../contract/event-types.ts';
import type { RefundStatusName } from '../../contract/words.ts';
import type { IntentChange } from '../../payment-intents/apply-steps.ts';

/** A durable change of an intent or of a refund, or unattributed transfers: one of the three is set. */
export interface Change {
  merchantId: string;
  event: EventType;
  paymentIntent?: IntentChange['paymentIntent'];
  refund?: { id: string; status: RefundStatusName; labels: readonly string[] };
  /** The largest of the unattributed transfers, and their number. */
  transfer?: { id: string; transactionHash: string; amountUnits: bigint; count: number };
}
