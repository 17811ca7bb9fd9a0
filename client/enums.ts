// The values of the contract's enums: JSON sends their names, gRPC their numbers.

import type { EventType as KnownEventType } from '../src/contract/event-types.ts';

/**
 * A value that is newer than this version of the client: `unknown:` and what the server sent, which is a name over JSON
 * (`unknown:refunded`) and a number over gRPC (`unknown:9`). Give a `switch` a `default`, and store the value as it is.
 */
export type Unknown = `unknown:${string}`;

export type Chain = 'base' | 'polygon';
export type Lane = 'sdk' | 'manual';
export type Mode = 'testnet' | 'mainnet';
export type PaymentIntentStatus = 'requires_payment' | 'processing' | 'succeeded' | 'expired' | 'canceled';
export type PaymentStatus = 'pending' | 'confirmed' | 'reorged';
export type Token = 'USDC';
export type TransferStatus = 'unattributed' | 'attributed';
export type WebhookDeliveryStatus = 'pending' | 'delivered' | 'failed';

/** The type of an event, as the service sent it. It may be newer than this client: give a `switch` a `default`. */
export type EventType = KnownEventType | (string & {});

/** A fact about an intent or a payment, as the service sent it. It may be newer than this client. */
export type Label =
  | 'underpaid'
  | 'overpaid'
  | 'late'
  | 'after_cancel'
  | 'found_late'
  | 'wrong_token'
  | 'reorged'
  | (string & {});

export const chains = { base: 1, polygon: 2 } as const satisfies Record<Chain, number>;
export const deliveryStatuses = {
  pending: 1,
  delivered: 2,
  failed: 3,
} as const satisfies Record<WebhookDeliveryStatus, number>;
export const lanes = { sdk: 1, manual: 2 } as const satisfies Record<Lane, number>;
export const modes = { testnet: 1, mainnet: 2 } as const satisfies Record<Mode, number>;
export const paymentStatuses = {
  pending: 1,
  confirmed: 2,
  reorged: 3,
} as const satisfies Record<PaymentStatus, number>;
export const statuses = {
  requires_payment: 1,
  processing: 2,
  succeeded: 3,
  expired: 4,
  canceled: 5,
} as const satisfies Record<PaymentIntentStatus, number>;
export const tokens = { USDC: 1 } as const satisfies Record<Token, number>;
export const transferStatuses = {
  unattributed: 1,
  attributed: 2,
} as const satisfies Record<TransferStatus, number>;

/** Returns the word of a value in the service's JSON. A number that came over gRPC has none, and stays as it is. */
export function wordOf(value: string): string {
  return value.replace(/^unknown:(?!\d+$)/, '');
}

/** Returns the value for what the server sent: a name over JSON, a number over gRPC. */
export function enumValueOf<Word extends string>(
  words: Readonly<Record<Word, number>>,
  sent: string | number,
): Word | Unknown {
  const known = (Object.keys(words) as Word[]).find((word) => word === sent || words[word] === sent);
  return known ?? `unknown:${sent}`;
}
