// Long work in slices, between which the event loop turns: a block of thousands of transfers holds up no request.

/** Longest slice in milliseconds, but for the item that is in hand when it has passed. */
const sliceMs = 2;

/** All long work of this process shares one slice for each turn: pieces of several blocks are not added up. */
let turnedAtMs = 0;
const waiting: (() => void)[] = [];

/** Await it between the items of long work: lets the event loop turn once the slice is over, and others go on first. */
export function turn(): Promise<void> | undefined {
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

/** Maps the items in their order, and lets the event loop turn again and again meanwhile. */
export async function mapInSlices<T, R>(items: Iterable<T>, map: (item: T) => R): Promise<Awaited<R>[]> {
  const mapped: Awaited<R>[] = [];
  for (const item of items) {
    await turn();
    mapped.push(await map(item));
  }
  return mapped;
}
