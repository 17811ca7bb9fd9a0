// Reads `GET /metrics` of a service.

import { setTimeout as sleep } from 'node:timers/promises';

interface Measured {
  operationsUrl: string;
}

export const scrape = async ({ operationsUrl }: Measured): Promise<string> =>
  (await fetch(`${operationsUrl}/metrics`)).text();

/** Returns the value of a series such as `up{job="x"}`, or undefined if there is none. */
export async function metric(service: Measured, series: string): Promise<number | undefined> {
  const line = (await scrape(service)).split('\n').find((each) => each.startsWith(`${series} `));
  return line === undefined ? undefined : Number(line.slice(series.length + 1));
}

/** Returns the number of key lookups so far, whatever their result. */
export async function keyLookups(service: Measured): Promise<number> {
  const counts = (await scrape(service)).matchAll(/^payment_intents_key_lookups_total\{.*\} (\d+)$/gm);
  return [...counts].reduce((sum, [, count]) => sum + Number(count), 0);
}

/** Scrapes until the condition holds, with pauses, because a scrape costs the service work. */
export async function untilMetric(
  service: Measured,
  series: string,
  holds: (value: number) => boolean,
): Promise<void> {
  for (;;) {
    const value = await metric(service, series);
    if (value !== undefined && holds(value)) return;
    await sleep(20);
  }
}
