import { nearestName } from './nearest-name.ts';

/**
 * The types of events and their meanings. Creation has no event: its caller gets the answer. Append only:
 * types stay in stored events and in the settings of webhook endpoints.
 */
export const eventDescriptions = {
  'payment_intent.partially_paid': 'A payment has arrived, but the amount is not reached yet.',
  'payment_intent.processing': 'The payments reach the amount, but are not final on the chain yet.',
  'payment_intent.succeeded': 'The intent is paid: fulfil the order.',
  'payment_intent.overpaid':
    'More was paid than asked for: a payment went beyond the amount, or came after success.',
  'payment_intent.expired': 'The intent was not paid in full in time.',
  'payment_intent.canceled': 'The intent was canceled.',
  'payment_intent.late_payment':
    'Money has arrived after expiry or cancellation, or in time but was found only afterwards (label `found_late`). The status stays: return the money, or fulfil the order.',
  'payment_intent.wrong_token': 'A payment in a wrong token has arrived. It does not count.',
  'payment_intent.reorged':
    'A payment is no longer on the chain, which has reorganised; or, after the intent ended, such a payment is on the chain again. `amount_received_units` has the present sum.',
  'payment_intent.payment_detached': 'A manual attribution of a payment was undone.',
  'transfer.unattributed':
    'A block has transfers to your wallet that cannot be matched to exactly one intent: the largest, and how many. Attribute them once you know whose they are.',
  'refund.processing': "The refund's transfer is on the chain, but not final yet.",
  'refund.succeeded': "The refund's transfer has all its confirmations.",
  'refund.canceled': 'The refund was canceled.',
  'refund.expired': 'The refund was not sent within 30 days.',
  'refund.reorged': 'A transfer of the refund is no longer on the chain, which has reorganised.',
  'refund.unexpected':
    'The refund needs your attention: its labels say why. Each of its confirmed transfers counts as returned.',
  'webhook_endpoint.ping': 'You have sent a ping to this endpoint.',
} as const;

export type EventType = keyof typeof eventDescriptions;

export const eventTypes = Object.keys(eventDescriptions) as readonly EventType[];

/** `succeeded` of `payment_intent.succeeded`. */
const lastParts = eventTypes.map((type) => type.slice(type.indexOf('.') + 1));

/** Returns what a text must be instead, as the end of a sentence; undefined if it is an event type. */
export function wantedEventType(text: string): string | undefined {
  if ((eventTypes as readonly string[]).includes(text)) return undefined;
  const nearest =
    nearestName(text, eventTypes) ?? eventTypes[lastParts.indexOf(nearestName(text, lastParts) ?? '')];
  const hint = nearest === undefined ? '' : ` (did you mean ${nearest}?)`;
  return `a type of event, such as payment_intent.succeeded${hint}`;
}
