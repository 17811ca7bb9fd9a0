// The types of the values in requests and resources. Some may be newer than this client: JSON sends their names, gRPC their
// numbers.

import type { EventType as KnownEventType } from '../src/contract/event-types.ts';

export type JsonValue = string | number | boolean | null | JsonObject | JsonValue[];

/** An object of JSON. */
export interface JsonObject {
  [name: string]: JsonValue;
}

/**
 * The part of a type that JSON can hold: not a Date, a bigint, or anything else with methods. The text is what a
 * compiler says of a Date.
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
   * Returns the resource as the service's JSON has it: `amount_units` a number, moments as texts, what is undefined left
   * out. `JSON.stringify` calls it. It is not enumerable, so a copy made with `{ ...resource }` lacks it.
   */
  toJSON(): JsonObject;
}

/**
 * A value that is newer than this version of the client: `unknown:` and what the server sent, which is a name over JSON
 * (`unknown:refunded`) and a number over gRPC (`unknown:9`). Give a `switch` a `default`, and store the value as it is.
 */
export type Unknown = `unknown:${string}`;

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
