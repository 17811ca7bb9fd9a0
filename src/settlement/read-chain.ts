// Reads the steps of a chain that have blocks, and records their transfers.

import type { Hash } from 'viem';
import { readTransfers, transfersToMerchants } from './block-reader.ts';
import type { ChainIdentity } from './chain-identity.ts';
import type { WatchContext } from './chain-state.ts';
import type { Tip } from './ledger/cursor.ts';
import type { FoundTransfer } from './ledger/known-transfers.ts';
import type { Node } from './node.ts';
import type { Header } from './node-answers.ts';
import type { RangeSize } from './range-size.ts';
import type { ReadBetween } from './read-between.ts';

export interface ReadChain {
  /** Reads one block, first seen at `seenAtMs`, which follows `after`. */
  block(lease: bigint, header: Header, after: Tip, seenAtMs: number): Promise<void>;
  /** Reads final blocks behind `after`, as many as the node serves at once, and returns the last. */
  range(lease: bigint, after: Tip, to: number): Promise<Tip>;
}

export function createReadChain(
  { settings, ledger, observer, trace, state }: WatchContext,
  identity: ChainIdentity,
  readBetween: ReadBetween,
  rangeOf: (asked: Node) => RangeSize,
): ReadChain {
  const record = async (
    lease: bigint,
    header: Header & { isDoubtful?: boolean },
    found: readonly FoundTransfer[],
    after: Hash | undefined,
  ) => {
    const { dust } = await ledger.apply(lease, header, found, after);
    observer.dust?.(dust);
  };
  return {
    async block(lease, header, after, seenAtMs) {
      const { logs, isDoubtful } = await state.node.transfersOf(header);
      const relevant = await transfersToMerchants(logs, ledger);
      const apply = async () => {
        const found = await readTransfers(state.node, settings, header, relevant, () => ledger.renew(lease));
        await record(lease, { ...header, isDoubtful }, found, after.hash);
      };
      const transfers = relevant.length;
      const work = { name: 'block', chainId: settings.chainId, block: header.number, transfers } as const;
      await (transfers === 0 ? apply() : trace({ ...work, sinceMs: seenAtMs }, apply));
      observer.block?.({ transfers, lagMs: performance.now() - seenAtMs });
    },
    async range(lease, after, to) {
      const { last, blocks } = await rangeOf(state.node).reading(to - after.number, async (count) => {
        // The local chain removes old empty blocks.
        const end = (await state.node.header(after.number + count)) ?? (await identity.headerAt(to));
        return { last: end, blocks: await readBetween(lease, state.node, after.number + 1, end.number) };
      });
      for (const { header, found } of blocks) {
        if (header.number < last.number) await record(lease, header, found, undefined);
      }
      const atEnd = blocks.find(({ header }) => header.number === last.number);
      await record(lease, last, atEnd?.found ?? [], after.hash);
      return last;
    },
  };
}
