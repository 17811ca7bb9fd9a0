/**
 * The types of events and what they say. Creation is answered to its caller and has no event. Append only: a type stays
 * in stored events and in the settings of webhook endpoints.
 */
export const eventDescriptions = {
  'payment_intent.partially_paid': 'A payment has come that does not reach the amount yet.',
  'payment_intent.processing': 'The payments reach the amount, and are not final on the chain yet.',
  'payment_intent.succeeded': 'The intent is paid: fulfil the order.',
  'payment_intent.overpaid': 'A payment that counts has come after success: more was paid than asked for.',
  'payment_intent.expired': 'The intent was not paid in full in time.',
  'payment_intent.canceled': 'The intent was canceled.',
  'payment_intent.late_payment':
    'Money has come after expiry or cancellation, or in time but was found only then (label `found_late`). The status stays: return the money, or fulfil the order.',
  'payment_intent.wrong_token': 'A token that is not USDC has come. It does not count.',
  'payment_intent.reorged': 'A payment is no longer on the chain, which has reorganised.',
  'transfer.unattributed':
    "A transfer to your wallet has come that cannot be told to be one intent's payment. Attribute it when you know.",
  'webhook_endpoint.ping': 'You have sent a ping to this endpoint.',
} as const;

export type EventType = keyof typeof eventDescriptions;

export const eventTypes = Object.keys(eventDescriptions) as readonly EventType[];
