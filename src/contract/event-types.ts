/**
 * The types of events. Creation is answered to its caller and has no event. Append only: a type stays in stored events
 * and in the settings of webhook endpoints.
 */
export const eventTypes = [
  'payment_intent.partially_paid',
  'payment_intent.processing',
  'payment_intent.succeeded',
  'payment_intent.overpaid',
  'payment_intent.expired',
  'payment_intent.canceled',
  'payment_intent.late_payment',
  'payment_intent.wrong_token',
  'payment_intent.reorged',
  'webhook_endpoint.ping',
] as const;

export type EventType = (typeof eventTypes)[number];
