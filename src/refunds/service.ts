import type { EntityManager } from '@mikro-orm/postgresql';
import { RefundService } from '../contract/gen/payments/v1/refund_service_pb.ts';
import type { WatchedChains } from '../payment-intents/watched-chains.ts';
import { type ImplementedService, implementService } from '../requests/method.ts';
import type { Identity } from '../requests/request-context.ts';
import { createRefund } from './create-refund.ts';
import { cancelRefund, confirmRefund, getRefund, listRefunds } from './refund-methods.ts';

/** `payments.v1.RefundService`. `onEvent` is called when a method has recorded an event. */
export function createRefundService(
  em: EntityManager,
  watchedChains: WatchedChains,
  onEvent: () => void,
): ImplementedService<Identity> {
  return implementService(RefundService, {
    createRefund: createRefund(em, watchedChains),
    getRefund: getRefund(em),
    listRefunds: listRefunds(em),
    cancelRefund: cancelRefund(em, onEvent),
    confirmRefund: confirmRefund(em, onEvent),
  });
}
