// The services of the contract that take an API key.

import type { EntityManager } from '@mikro-orm/postgresql';
import type { KeyRing } from '../config/key-ring.ts';
import { EventService } from '../contract/gen/payments/v1/event_service_pb.ts';
import { PaymentIntentService } from '../contract/gen/payments/v1/payment_intent_service_pb.ts';
import { RefundService } from '../contract/gen/payments/v1/refund_service_pb.ts';
import { TransferService } from '../contract/gen/payments/v1/transfer_service_pb.ts';
import { WebhookEndpointService } from '../contract/gen/payments/v1/webhook_endpoint_service_pb.ts';
import { createEventCursors } from '../events/event-cursor.ts';
import type { EventFeed } from '../events/event-feed.ts';
import { getEvent, listEvents } from '../events/list-events.ts';
import { createEventReader } from '../events/read-events.ts';
import { watchEvents } from '../events/watch-events.ts';
import { cancelPaymentIntent } from '../payment-intents/cancel-payment-intent.ts';
import { createPaymentIntent } from '../payment-intents/create-payment-intent.ts';
import { createPaymentIntentReader, getPaymentIntent } from '../payment-intents/get-payment-intent.ts';
import type { PaymentIntentStore } from '../payment-intents/insert-or-replay.ts';
import { listPaymentIntents } from '../payment-intents/list-payment-intents.ts';
import type { WatchedChains } from '../payment-intents/watched-chains.ts';
import { createRefund } from '../refunds/create-refund.ts';
import { cancelRefund, confirmRefund, getRefund, listRefunds } from '../refunds/refund-methods.ts';
import { type ImplementedService, implementService } from '../requests/method.ts';
import type { Identity } from '../requests/request-context.ts';
import { attributeTransfer, detachTransfer } from '../settlement/change-transfer.ts';
import { getTransfer, listTransfers } from '../settlement/read-transfers.ts';
import type { AddressPolicy } from '../webhooks/address-policy.ts';
import { createDeliveryMethods, createRedeliveryMethods } from '../webhooks/deliveries.ts';
import { createEndpointMethods } from '../webhooks/endpoint-methods.ts';

interface ServicesOptions {
  store: PaymentIntentStore;
  clientSecretKeys: KeyRing;
  watchedChains: WatchedChains;
  feed: EventFeed;
  /** Its keys are `WEBHOOK_SECRET_KEYS`. */
  webhooks: { keys: KeyRing; policy: AddressPolicy };
  /** Called when a method has recorded an event. */
  onEvent: () => void;
  /** Called when a method has made deliveries. */
  onDeliveries: () => void;
}

export function createServices(
  em: EntityManager,
  { store, clientSecretKeys, watchedChains, feed, webhooks, onEvent, onDeliveries }: ServicesOptions,
): ImplementedService<Identity>[] {
  const intents = createPaymentIntentReader(em);
  const events = createEventReader(em);
  const cursors = createEventCursors(em);
  return [
    implementService(PaymentIntentService, {
      createPaymentIntent: createPaymentIntent(store, clientSecretKeys, watchedChains),
      getPaymentIntent: getPaymentIntent(intents, clientSecretKeys),
      listPaymentIntents: listPaymentIntents(em),
      cancelPaymentIntent: cancelPaymentIntent(em, intents, clientSecretKeys, onEvent),
    }),
    implementService(EventService, {
      getEvent: getEvent(events),
      listEvents: listEvents(events, cursors),
      watchEvents: watchEvents(events, cursors, feed),
    }),
    implementService(WebhookEndpointService, {
      ...createEndpointMethods(em, webhooks.keys, webhooks.policy),
      ...createDeliveryMethods(em, onEvent),
      ...createRedeliveryMethods(em, onDeliveries),
    }),
    implementService(TransferService, {
      getTransfer: getTransfer(em),
      listTransfers: listTransfers(em),
      attributeTransfer: attributeTransfer(em, onEvent),
      detachTransfer: detachTransfer(em, onEvent),
    }),
    implementService(RefundService, {
      createRefund: createRefund(em, watchedChains),
      getRefund: getRefund(em),
      listRefunds: listRefunds(em),
      cancelRefund: cancelRefund(em, onEvent),
      confirmRefund: confirmRefund(em, onEvent),
    }),
  ];
}
