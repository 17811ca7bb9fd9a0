import type { Hash } from 'viem';

/** Most transfers in one statement or transaction: a stranger decides how many are in a block. */
export const maxAtOnce = 500;

/** Formats a hash or an address as a parameter of type `bytea`. */
export const bytes = (hash: string) => `\\x${hash.slice(2)}`;

export const hashOf = (value: Buffer): Hash => `0x${value.toString('hex')}`;

export function* inChunks<T>(items: readonly T[], size: number = maxAtOnce): Generator<readonly T[]> {
  for (let begin = 0; begin < items.length; begin += size) yield items.slice(begin, begin + size);
}
