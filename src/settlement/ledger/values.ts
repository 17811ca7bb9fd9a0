import type { Hash } from 'viem';

/** Most transfers recorded or confirmed in one transaction: a stranger decides how many are in a block. */
export const maxAtOnce = 500;

/** Formats a hash or an address as a parameter of type `bytea`. */
export const bytes = (hash: string) => `\\x${hash.slice(2)}`;

export const idsOf = (rows: readonly { id: string }[]): string[] => rows.map(({ id }) => id);

export const hashOf = (value: Buffer): Hash => `0x${value.toString('hex')}`;

export function* inChunks<T>(items: readonly T[], size: number = maxAtOnce): Generator<readonly T[]> {
  for (let begin = 0; begin < items.length; begin += size) yield items.slice(begin, begin + size);
}

/** Chunks of at most `size` items. Items with the same key stay together, even if there are more. */
export function* inGroups<T>(
  items: readonly T[],
  keyOf: (item: T) => unknown,
  size: number = maxAtOnce,
): Generator<T[]> {
  let chunk: T[] = [];
  for (const own of Map.groupBy(items, keyOf).values()) {
    if (chunk.length > 0 && chunk.length + own.length > size) {
      yield chunk;
      chunk = [];
    }
    for (const item of own) chunk.push(item);
  }
  if (chunk.length > 0) yield chunk;
}
