import type { EntityManager } from '@mikro-orm/postgresql';
import type { KeyRing } from '../config/key-ring.ts';
import { PaymentIntentService } from '../contract/gen/payments/v1/payment_intent_service_pb.ts';
import { type ImplementedService, implementService } from '../requests/method.ts';
import type { Identity } from '../requests/request-context.ts';
import { cancelPaymentIntent } from './cancel-payment-intent.ts';
import { createPaymentIntent } from './create-payment-intent.ts';
import { createPaymentIntentReader, getPaymentIntent } from './get-payment-intent.ts';
import type { PaymentIntentStore } from './insert-or-replay.ts';
import { listPaymentIntents } from './list-payment-intents.ts';
import type { WatchedChains } from './watched-chains.ts';

/** `payments.v1.PaymentIntentService`. `onEvent` is called when a method has recorded an event. */
export function createPaymentIntentService(
  em: EntityManager,
  store: PaymentIntentStore,
  clientSecretKeys: KeyRing,
  watchedChains: WatchedChains,
  onEvent: () => void,
): ImplementedService<Identity> {
  const reader = createPaymentIntentReader(em);
  return implementService(PaymentIntentService, {
    createPaymentIntent: createPaymentIntent(store, clientSecretKeys, watchedChains),
    getPaymentIntent: getPaymentIntent(reader, clientSecretKeys),
    listPaymentIntents: listPaymentIntents(em),
    cancelPaymentIntent: cancelPaymentIntent(em, reader, clientSecretKeys, onEvent),
  });
}
