import type { EventType } from '../../contract/event-types.ts';
import type { IntentChange } from '../../payment-intents/apply-steps.ts';

/** A durable change of an intent, or unattributed transfers. */
export type Change =
  | (IntentChange & { transfer?: undefined })
  | {
      merchantId: string;
      event: EventType;
      paymentIntent?: undefined;
      /** The largest of the unattributed transfers, and their number. */
      transfer: { id: string; transactionHash: string; amountUnits: bigint; count: number };
    };
