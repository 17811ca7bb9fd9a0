// Values that may be newer than this client: JSON sends their names, gRPC their numbers.

import type { EventType as KnownEventType } from '../src/contract/event-types.ts';

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
