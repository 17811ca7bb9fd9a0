import type { KeyRing } from '../config/key-ring.ts';
import { PaymentIntentService } from '../contract/gen/payments/v1/payment_intent_service_pb.ts';
import { implementService, type ServedService } from '../requests/method.ts';
import { createPaymentIntent } from './create-payment-intent.ts';
import type { PaymentIntentStore } from './store.ts';

/** `payments.v1.PaymentIntentService`, with one file per method. */
export function createPaymentIntentService(
  store: PaymentIntentStore,
  clientSecretKeys: KeyRing,
): ServedService {
  return implementService(PaymentIntentService, {
    createPaymentIntent: createPaymentIntent(store, clientSecretKeys),
  });
}
