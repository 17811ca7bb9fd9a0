import type { EntityManager } from '@mikro-orm/postgresql';
import type { KeyRing } from '../config/key-ring.ts';
import { WebhookEndpointService } from '../contract/gen/payments/v1/webhook_endpoint_service_pb.ts';
import { type ImplementedService, implementService } from '../requests/method.ts';
import type { Identity } from '../requests/request-context.ts';
import type { AddressPolicy } from './address-policy.ts';
import { createWebhookDeliveries } from './deliveries.ts';
import {
  listWebhookDeliveries,
  pingWebhookEndpoint,
  redeliverEvent,
  redeliverWebhookEndpoint,
} from './delivery-methods.ts';
import {
  createWebhookEndpoint,
  deleteWebhookEndpoint,
  getWebhookEndpoint,
  listWebhookEndpoints,
  rotateWebhookSecret,
  updateWebhookEndpoint,
} from './endpoint-methods.ts';
import { createEndpointReader } from './endpoints.ts';

export interface WebhookServiceOptions {
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
  const endpoints = createEndpointReader(em);
  const deliveries = createWebhookDeliveries(em);
  return implementService(WebhookEndpointService, {
    createWebhookEndpoint: createWebhookEndpoint(em, keys, policy),
    getWebhookEndpoint: getWebhookEndpoint(endpoints),
    listWebhookEndpoints: listWebhookEndpoints(endpoints),
    updateWebhookEndpoint: updateWebhookEndpoint(em, policy),
    deleteWebhookEndpoint: deleteWebhookEndpoint(em),
    rotateWebhookSecret: rotateWebhookSecret(em, keys),
    pingWebhookEndpoint: pingWebhookEndpoint(deliveries, onEvent),
    listWebhookDeliveries: listWebhookDeliveries(deliveries),
    redeliverWebhookEndpoint: redeliverWebhookEndpoint(deliveries, onDeliveries),
    redeliverEvent: redeliverEvent(deliveries, onDeliveries),
  });
}
