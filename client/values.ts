// The types of values in requests and resources. A value may be newer than this client: JSON then sends its
// name, gRPC its number.

import type { EventType as KnownEventType } from '../src/contract/event-types.ts';

export type {
  Chain,
  Lane,
  Mode,
  PaymentIntentStatus,
  PaymentStatus,
  RefundStatus,
  Token,
  TransferStatus,
  WebhookDeliveryStatus,
} from '../src/contract/gen/words.ts';

export type JsonValue = string | number | boolean | null | JsonObject | JsonValue[];

/** A JSON object. */
export interface JsonObject {
  [name: string]: JsonValue;
}

/**
 * The part of a type that JSON can represent: no Date, no bigint, nothing else with methods. The text appears
 * in the compiler's error for a Date.
 */
export type JsonCompatible<T> = unknown extends T
  ? T
  : T extends JsonValue | undefined
    ? T
    : T extends Date
      ? 'not JSON: send the toISOString() of a Date'
      : T extends bigint | symbol | ((...values: never) => unknown)
        ? never
        : { [Name in keyof T]: JsonCompatible<T[Name]> };

/** What every resource has besides its fields. */
export interface ApiResource {
  /**
   * Returns the resource in the service's JSON form: `amount_units` a number, times as text, undefined fields
   * left out. `JSON.stringify` calls it. It is not enumerable: a copy made with `{ ...resource }` lacks it.
   */
  toJSON(): JsonObject;
}

/**
 * A value newer than this version of the client: `unknown:` and what the server sent, a name over JSON
 * (`unknown:refunded`) or a number over gRPC (`unknown:9`). Give a `switch` a `default`, and store it as is.
 */
export type Unknown = `unknown:${string}`;

/** An event's type, as the service sent it. It may be newer than this client: give a `switch` a `default`. */
export type EventType = KnownEventType | (string & {});
/** The types that this version knows. `switch (event.type as KnownEventType)` refuses a misspelt `case`. */
export type { KnownEventType };

/** A fact about an intent, a payment or a refund, as the service sent it. It may be newer than this client. */
export type Label =
  | 'underpaid'
  | 'overpaid'
  | 'late'
  | 'after_cancel'
  | 'found_late'
  | 'wrong_token'
  | 'reorged'
  | 'other_amount'
  | 'other_destination'
  | 'twice'
  | 'payment_reorged'
  | (string & {});
