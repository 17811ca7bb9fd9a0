// Long work in slices, between which the event loop turns: a block of thousands of transfers holds up no request.

import { setImmediate } from 'node:timers/promises';

/** Longest slice in milliseconds, but for the item that is in hand when it has passed. */
const sliceMs = 5;

/** Maps the items in their order, and lets the event loop turn again and again meanwhile. */
export async function mapInSlices<T, R>(items: Iterable<T>, map: (item: T) => R): Promise<R[]> {
  const mapped: R[] = [];
  let beganAtMs = performance.now();
  for (const item of items) {
    mapped.push(map(item));
    if (performance.now() - beganAtMs < sliceMs) continue;
    await setImmediate();
    beganAtMs = performance.now();
  }
  return mapped;
}
