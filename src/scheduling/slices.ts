// Splits long work into slices, so that the event loop stays responsive: a block of thousands of transfers
// delays no request.

/** Longest slice in milliseconds. The current item is always finished. */
const sliceMs = 2;

/** Shared by all long work of this process, so that slices of several tasks do not add up. */
let turnedAtMs = 0;
const waiting: (() => void)[] = [];

/** Await this between the items of long work. Lets the event loop run once the slice is over. */
export function nextSlice(): Promise<void> | undefined {
  if (waiting.length === 0 && performance.now() - turnedAtMs < sliceMs) return undefined;
  return new Promise((resolve) => {
    if (waiting.push(resolve) === 1) setImmediate(resumeNext);
  });
}

function resumeNext(): void {
  turnedAtMs = performance.now();
  waiting.shift()?.();
  if (waiting.length > 0) setImmediate(resumeNext);
}

/** Maps the items in order, in slices. */
export async function mapInSlices<T, R>(items: Iterable<T>, map: (item: T) => R): Promise<Awaited<R>[]> {
  const mapped: Awaited<R>[] = [];
  for (const item of items) {
    await nextSlice();
    mapped.push(await map(item));
  }
  return mapped;
}

/** Small work is not sliced: it would wait behind the slices of others. */
const weightAtOnce = 100;

/** Maps items in order; in slices if they weigh over 100. An item weighs what it contains, at least 1. */
export async function mapLargeInSlices<T, R>(
  items: Iterable<T>,
  weightOf: (item: T) => number,
  map: (item: T) => R,
): Promise<R[]> {
  const mapped: R[] = [];
  let weight = 0;
  for (const item of items) {
    weight += weightOf(item);
    if (weight > weightAtOnce && mapped.length > 0) {
      await nextSlice();
      weight = weightOf(item);
    }
    mapped.push(map(item));
  }
  return mapped;
}
