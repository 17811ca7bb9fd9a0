// Timestamps in requests, as bounds of a range.

import { type Timestamp, timestampMs } from '@bufbuild/protobuf/wkt';
import type { FieldViolation } from '../contract/error-catalogue.ts';

const minSeconds = BigInt(Date.parse('0001-01-01T00:00:00Z')) / 1000n;
const maxSeconds = BigInt(Date.parse('9999-12-31T23:59:59Z')) / 1000n;

/** Returns the violations of timestamps, by field name. A binary message may contain any value. */
export function momentViolations(moments: Readonly<Record<string, Timestamp | undefined>>): FieldViolation[] {
  return Object.entries(moments).flatMap(([field, moment]) =>
    moment === undefined || isMoment(moment)
      ? []
      : [{ field, message: 'must be a date and time of the years 1 to 9999, such as 2026-11-21T12:00:00Z' }],
  );
}

/** True for a valid `google.protobuf.Timestamp`. */
function isMoment({ seconds, nanos }: Timestamp): boolean {
  return seconds >= minSeconds && seconds <= maxSeconds && nanos >= 0 && nanos < 1_000_000_000;
}

/** Milliseconds since 1970, rounded up: creation times are whole milliseconds, so bounds stay correct. */
export function wholeMs(moment: Timestamp | undefined): number | undefined {
  if (moment === undefined) return undefined;
  return timestampMs(moment) + (moment.nanos % 1_000_000 > 0 ? 1 : 0);
}

const lastMs = Date.parse('9999-12-31T23:59:59.999Z');

/** Milliseconds since 1970 as a parameter of type `timestamptz`. */
export function isoOf(ms: number | undefined): string | undefined {
  return ms === undefined ? undefined : new Date(Math.min(ms, lastMs)).toISOString();
}
