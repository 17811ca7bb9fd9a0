// Days where the browser is.

import { type Timestamp, timestampFromDate } from '@bufbuild/protobuf/wkt';

/** The day of a moment, such as `2026-11-24`. */
export function dayOf(ms: number, timeZone?: string): string {
  // Swedish dates are those of ISO 8601.
  return new Intl.DateTimeFormat('sv-SE', { dateStyle: 'short', ...(timeZone && { timeZone }) }).format(ms);
}

const dayMs = 86_400_000;

/**
 * From the midnight that begins a day to the one that ends another; undefined if one is no day. In the browser's zone, or
 * in UTC: figures are by UTC's days where the browser's do not begin with an hour of UTC.
 */
export function spanOf(
  first: string,
  last = first,
  zone?: string,
): { from: Timestamp; before: Timestamp } | undefined {
  if (Number.isNaN(Date.parse(first)) || Number.isNaN(Date.parse(last))) return undefined;
  // Without a zone, a date with a time is of the browser's.
  const midnight = (day: string) => timestampFromDate(new Date(`${day}T00:00${zone === 'UTC' ? 'Z' : ''}`));
  return { from: midnight(first), before: midnight(dayOf(Date.parse(last) + dayMs, 'UTC')) };
}
