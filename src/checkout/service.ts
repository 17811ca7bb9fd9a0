import { CheckoutService } from '../contract/gen/payments/v1/checkout_service_pb.ts';
import { type ImplementedService, implementService } from '../requests/method.ts';
import type { OpenedIntent } from '../requests/request-context.ts';
import { getCheckout, type ReadCheckout } from './get-checkout.ts';

/** `payments.v1.CheckoutService`. */
export function createCheckoutService(read: ReadCheckout): ImplementedService<OpenedIntent> {
  return implementService<typeof CheckoutService, OpenedIntent>(CheckoutService, {
    getCheckout: getCheckout(read),
  });
}
