// The fields of everything that the service returns. A field that the contract has and a table lacks does not compile.

import type {
  EventData as EventDataMessage,
  Event as EventMessage,
} from '../src/contract/gen/payments/v1/event_pb.ts';
import type { WatchEventsResponse } from '../src/contract/gen/payments/v1/event_service_pb.ts';
import type { PaymentIntent as IntentMessage } from '../src/contract/gen/payments/v1/payment_intent_pb.ts';
import type { Payment as PaymentMessage } from '../src/contract/gen/payments/v1/payment_pb.ts';
import type { Transfer as TransferMessage } from '../src/contract/gen/payments/v1/transfer_pb.ts';
import type {
  WebhookAttempt as AttemptMessage,
  WebhookDelivery as DeliveryMessage,
  WebhookEndpoint as EndpointMessage,
} from '../src/contract/gen/payments/v1/webhook_endpoint_pb.ts';
import {
  chains,
  deliveryStatuses,
  lanes,
  modes,
  paymentStatuses,
  statuses,
  transferStatuses,
} from './enums.ts';
import type { Event, EventData } from './event.ts';
import type { Payment, PaymentIntent, PaymentIntentState, RetrievedPaymentIntent } from './payment-intent.ts';
import {
  filledText,
  flag,
  integer,
  list,
  metadata,
  moment,
  optional,
  present,
  type ResourceFields,
  resource,
  smallInteger,
  text,
  textOrNone,
  units,
  word,
} from './resource-fields.ts';
import type { AnyTransfer, Transfer } from './transfer.ts';
import type { WatchedEvent } from './watch-events.ts';
import type {
  WebhookAttempt,
  WebhookDelivery,
  WebhookEndpoint,
  WebhookEndpointWithSecret,
} from './webhook-endpoint.ts';

/** What payments and transfers have in common. */
const anyTransfer: ResourceFields<AnyTransfer, PaymentMessage, 'status' | 'counts'> = {
  transactionHash: text,
  logIndex: integer,
  blockNumber: smallInteger,
  blockHash: text,
  blockTime: moment,
  fromAddress: text,
  toAddress: text,
  tokenAddress: text,
  amountUnits: units,
  confirmations: integer,
  labels: list(text),
};

const payment: ResourceFields<Payment, PaymentMessage> = {
  ...anyTransfer,
  status: word(paymentStatuses),
  counts: optional(flag),
};

export const transfer: ResourceFields<Transfer, TransferMessage> = {
  ...anyTransfer,
  id: filledText,
  chain: word(chains),
  status: word(transferStatuses),
  paymentIntent: textOrNone,
};

export const retrievedIntent: ResourceFields<RetrievedPaymentIntent, IntentMessage> = {
  id: filledText,
  status: word(statuses),
  clientSecret: filledText,
  mode: word(modes),
  chain: word(chains),
  chainId: smallInteger,
  confirmationsRequired: integer,
  amountUnits: units,
  decimals: integer,
  tokenSymbol: text,
  tokenAddress: text,
  expectedWallet: text,
  expiresAt: moment,
  expiresInMinutes: integer,
  lane: word(lanes),
  metadata,
  createdAt: moment,
  amountReceivedUnits: present(units),
  payments: list(resource<Payment, PaymentMessage>(payment)),
  paymentsCount: present(integer),
  labels: list(text),
  succeededAt: optional(moment),
  canceledAt: optional(moment),
  expiredAt: optional(moment),
};

const { clientSecret, ...stateFields } = retrievedIntent;

/** As lists and events have it. */
export const intentState: ResourceFields<PaymentIntentState, IntentMessage, 'clientSecret'> = stateFields;

const {
  createdAt,
  amountReceivedUnits,
  payments,
  paymentsCount,
  labels,
  succeededAt,
  canceledAt,
  expiredAt,
  ...createdFields
} = retrievedIntent;

/** The sixteen fields that creation returns. */
export const createdIntent: ResourceFields<
  Omit<PaymentIntent, 'replayed'>,
  IntentMessage,
  | 'createdAt'
  | 'amountReceivedUnits'
  | 'payments'
  | 'paymentsCount'
  | 'labels'
  | 'succeededAt'
  | 'canceledAt'
  | 'expiredAt'
> = createdFields;

export const endpointWithSecret: ResourceFields<
  Omit<WebhookEndpointWithSecret, 'replayed'>,
  EndpointMessage
> = {
  id: filledText,
  url: text,
  eventTypes: list(text),
  enabled: flag,
  disabledReason: optional(text),
  description: optional(text),
  mode: word(modes),
  createdAt: moment,
  secret: filledText,
};

const { secret, ...endpointFields } = endpointWithSecret;

export const endpoint: ResourceFields<WebhookEndpoint, EndpointMessage, 'secret'> = endpointFields;

const eventData: ResourceFields<EventData, EventDataMessage> = {
  paymentIntent: optional(resource<PaymentIntentState, IntentMessage>(intentState)),
  transfer: optional(resource<Transfer, TransferMessage>(transfer)),
  webhookEndpoint: optional(resource<WebhookEndpoint, EndpointMessage>(endpoint)),
  transfersCount: optional(integer),
};

export const event: ResourceFields<Event, EventMessage> = {
  id: filledText,
  type: filledText,
  createdAt: moment,
  mode: word(modes),
  sequence: optional(integer),
  data: present(resource<EventData, EventDataMessage>(eventData)),
};

/** A message of a stream. */
export const watched: ResourceFields<WatchedEvent, WatchEventsResponse> = {
  event: optional(resource<Event, EventMessage>(event)),
  position: filledText,
};

const attempt: ResourceFields<WebhookAttempt, AttemptMessage> = {
  at: moment,
  statusCode: optional(integer),
  durationMs: integer,
  error: optional(text),
  response: optional(text),
};

export const delivery: ResourceFields<WebhookDelivery, DeliveryMessage> = {
  id: filledText,
  event: text,
  eventType: text,
  paymentIntent: textOrNone,
  webhookEndpoint: text,
  status: word(deliveryStatuses),
  attempts: list(resource<WebhookAttempt, AttemptMessage>(attempt)),
  nextAttemptAt: optional(moment),
  createdAt: moment,
};
