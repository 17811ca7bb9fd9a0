import type { EntityManager } from '@mikro-orm/postgresql';
import { CheckoutService } from '../contract/gen/payments/v1/checkout_service_pb.ts';
import { implementService, type ServedService } from '../requests/method.ts';
import { getCheckout } from './get-checkout.ts';

/** `payments.v1.CheckoutService`. */
export function createCheckoutService(em: EntityManager): ServedService {
  return implementService(CheckoutService, { getCheckout: getCheckout(em) });
}
