import type { EntityManager } from '@mikro-orm/postgresql';
import type { KeyRing } from '../config/key-ring.ts';
import { WebhookEndpointService } from '../contract/gen/payments/v1/webhook_endpoint_service_pb.ts';
import { type ImplementedService, implementService } from '../requests/method.ts';
import type { Identity } from '../requests/request-context.ts';
import type { AddressPolicy } from './address-policy.ts';
import { createDeliveryMethods, createRedeliveryMethods } from './deliveries.ts';
import { createEndpointMethods } from './endpoint-methods.ts';

interface WebhookServiceOptions {
  /** `WEBHOOK_SECRET_KEYS`. */
  keys: KeyRing;
  policy: AddressPolicy;
  /** Called when a method has recorded an event. */
  onEvent: () => void;
  /** Called when a method has made deliveries. */
  onDeliveries: () => void;
}

/** `payments.v1.WebhookEndpointService`. */
export function createWebhookService(
  em: EntityManager,
  { keys, policy, onEvent, onDeliveries }: WebhookServiceOptions,
): ImplementedService<Identity> {
  return implementService(WebhookEndpointService, {
    ...createEndpointMethods(em, keys, policy),
    ...createDeliveryMethods(em, onEvent),
    ...createRedeliveryMethods(em, onDeliveries),
  });
}
