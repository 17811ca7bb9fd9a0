// Times and durations in words. Times are in the payer's time zone, and name it.

/** The time of day, `13:30 CET`. With the date if that is not the day of `nowMs`: `22 Nov, 13:30 CET`. */
export function shownTime(ms: number, nowMs: number): string {
  const isToday = new Date(ms).toDateString() === new Date(nowMs).toDateString();
  const options = isToday ? {} : ({ day: 'numeric', month: 'short' } as const);
  return shown(ms, { ...options, hour: '2-digit', minute: '2-digit' });
}

/** A date with its time: `21 Nov 2026, 13:02 CET`. */
export function shownDate(ms: number): string {
  return shown(ms, { dateStyle: 'medium', timeStyle: 'short' });
}

function shown(ms: number, options: Intl.DateTimeFormatOptions): string {
  // A time and its zone stay on one line.
  return `${new Date(ms).toLocaleString('en-GB', options)}\u00a0${shortZoneAt(ms)}`;
}

/** The time zone as it is written: `CET`, `EST`, or `GMT+5:30` if English has no abbreviation. */
function shortZoneAt(ms: number): string {
  // British English abbreviates the zones of Europe, American English those of America.
  const [british = '', american = ''] = ['en-GB', 'en-US'].map((locale) => zoneAt(ms, locale, 'short'));
  return /^GMT[+-]/.test(british) ? american : british;
}

/** The time zone as it is spoken: `Central European Standard Time`. */
export function spokenZoneAt(ms: number): string {
  return zoneAt(ms, 'en-GB', 'long');
}

function zoneAt(ms: number, locale: string, timeZoneName: 'short' | 'long'): string {
  const parts = new Intl.DateTimeFormat(locale, { timeZoneName }).formatToParts(ms);
  return parts.find(({ type }) => type === 'timeZoneName')?.value ?? '';
}

/** A duration in its largest sensible unit: `27 min`. */
export function shownDuration(ms: number): string {
  const seconds = Math.ceil(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h` : `${Math.floor(hours / 24)} days`;
}
