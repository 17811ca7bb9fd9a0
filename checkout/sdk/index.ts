// The package `payment-intents-checkout`: what a shop's page needs to let a payer pay an intent.

export type {
  Checkout,
  CheckoutChain,
  CheckoutLane,
  CheckoutMode,
  CheckoutPayment,
  CheckoutPaymentStatus,
  CheckoutStatus,
  OrNewer,
} from './gen/checkout.ts';
export {
  type CheckoutEnd,
  type CheckoutUpdate,
  type OpenCheckoutOptions,
  openCheckout,
  type RedirectToCheckoutOptions,
  redirectToCheckout,
} from './open-checkout.ts';
export { CheckoutError, type RetrieveCheckoutOptions, retrieveCheckout } from './retrieve-checkout.ts';
