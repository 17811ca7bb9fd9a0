// Days, in the browser's time zone or in UTC.

import { type Timestamp, timestampFromMs } from '@bufbuild/protobuf/wkt';

/** The time zone of this browser, such as `Europe/Berlin`. */
export const ownZone = (): string => new Intl.DateTimeFormat().resolvedOptions().timeZone;
export const zoneWords = (timeZone: string) => timeZone.replaceAll('_', ' ');

/** The day of a moment, such as `2026-11-24`. */
export function dayOf(ms: number, timeZone?: string): string {
  // Swedish dates have the format of ISO 8601.
  return new Intl.DateTimeFormat('sv-SE', { dateStyle: 'short', ...(timeZone && { timeZone }) }).format(ms);
}

/**
 * Returns the time from the start of the first day to the end of the last; undefined for what is no day. In
 * the browser's zone, or in UTC: figures use UTC days if the browser's do not begin on a full UTC hour.
 */
export function spanOf(first: string, last: string, zone?: string) {
  const midnight = (day: string, daysLater: number): Timestamp | undefined => {
    const ms = Date.parse(`${day}T00:00Z`) + daysLater * 86_400_000;
    // Without a zone, a date with a time is in the browser's zone.
    const at = Number.isNaN(ms) ? ms : Date.parse(`${dayOf(ms, 'UTC')}T00:00${zone === 'UTC' ? 'Z' : ''}`);
    return Number.isNaN(at) ? undefined : timestampFromMs(at);
  };
  return { from: midnight(first, 0), before: midnight(last, 1) };
}
