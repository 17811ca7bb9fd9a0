// Days where the browser is.

import { type Timestamp, timestampFromDate } from '@bufbuild/protobuf/wkt';

/** The day of a moment, such as `2026-11-24`. */
export function dayOf(ms: number, timeZone?: string): string {
  // Swedish dates are those of ISO 8601.
  return new Intl.DateTimeFormat('sv-SE', { dateStyle: 'short', ...(timeZone && { timeZone }) }).format(ms);
}

/** From the midnight that begins a day to the one that ends another; undefined if one is no day. */
export function spanOf(first: string, last = first): { from: Timestamp; before: Timestamp } | undefined {
  // Without a zone, a date with a time is of the browser's.
  const [from, end] = [new Date(`${first}T00:00`), new Date(`${last}T00:00`)];
  if (Number.isNaN(from.getTime()) || Number.isNaN(end.getTime())) return undefined;
  end.setDate(end.getDate() + 1);
  return { from: timestampFromDate(from), before: timestampFromDate(end) };
}
