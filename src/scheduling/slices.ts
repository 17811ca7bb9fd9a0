// Long work in slices, between which the event loop turns: a block of thousands of transfers holds up no request.

import { setImmediate } from 'node:timers/promises';

/** Longest slice in milliseconds, but for the item that is in hand when it has passed. */
const sliceMs = 5;

/** When the event loop turned last for somebody here. All share it: short pieces of work in a row are one slice. */
let turnedAtMs = 0;

/** Await it after each item of long work: lets the event loop turn once the slice is over. */
export function turn(): Promise<void> | undefined {
  return performance.now() - turnedAtMs < sliceMs ? undefined : turnNow();
}

async function turnNow(): Promise<void> {
  await setImmediate();
  turnedAtMs = performance.now();
}

/** Maps the items in their order, and lets the event loop turn again and again meanwhile. */
export async function mapInSlices<T, R>(items: Iterable<T>, map: (item: T) => R): Promise<Awaited<R>[]> {
  const mapped: Awaited<R>[] = [];
  for (const item of items) {
    mapped.push(await map(item));
    await turn();
  }
  return mapped;
}
