import type { ApiResource } from './api-resource.ts';
import type { EventType, Mode, Unknown } from './enums.ts';
import type { PaymentIntentState } from './payment-intent.ts';
import type { Transfer } from './transfer.ts';
import type { WebhookEndpoint } from './webhook-endpoint.ts';

/** Something that has happened to one of your resources. An event never changes. */
export interface Event extends ApiResource {
  /** Identifier of the event, such as `evt_01m7z1n4qpf2k8c3v7w5x9y0za`. Remember those that you have handled. */
  id: string;
  /** What has happened, such as `payment_intent.succeeded`. Types will be added: ignore those you do not know. */
  type: EventType;
  /** The moment of the change. */
  createdAt: Date;
  /** Test money or real money. A value newer than this client is an {@link Unknown}. */
  mode: Mode | Unknown;
  /** Place of the event among those of its intent: 1, 2, 3, without a gap. Undefined if it has no intent. */
  sequence: number | undefined;
  /** The resource as it was right after the change. */
  data: EventData;
}

/** The resource that an event is about: one of the fields. All are undefined for a kind newer than this client. */
export interface EventData extends ApiResource {
  /** The intent, without its client secret. */
  paymentIntent: PaymentIntentState | undefined;
  /** The transfer. Of several that are unattributed in one block, the largest. */
  transfer: Transfer | undefined;
  /** How many new transfers of that block are unattributed. Undefined unless the event is `transfer.unattributed`. */
  transfersCount: number | undefined;
  /** The webhook endpoint, without its secret. */
  webhookEndpoint: WebhookEndpoint | undefined;
}

/** Which events to list. Without a filter: all that are kept. */
export interface ListEvents {
  /** Only events after this one: the id of the last event that you have handled. */
  after?: string | undefined;
  /** Only events of this type. */
  type?: EventType | undefined;
  /** Only events of the intent with this id. */
  paymentIntent?: string | undefined;
  /** Events in one answer, 1 to 100. Default: 20. */
  pageSize?: number | undefined;
}
