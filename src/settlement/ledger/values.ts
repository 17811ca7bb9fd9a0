import type { Hash } from 'viem';

/** Most transfers in one statement or transaction: what a stranger puts into one block is recorded bit by bit. */
export const maxAtOnce = 500;

/** For a parameter of type `bytea`. */
export const bytes = (hash: string) => `\\x${hash.slice(2)}`;

export const hashOf = (value: Buffer): Hash => `0x${value.toString('hex')}`;

/** The items in their order, some at a time. */
export function* inChunks<T>(items: readonly T[], size: number = maxAtOnce): Generator<readonly T[]> {
  for (let begin = 0; begin < items.length; begin += size) yield items.slice(begin, begin + size);
}
