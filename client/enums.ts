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
