// Reads blocks of a chain, and records their transfers.

import type { Hash } from 'viem';
import { traceChainWork } from '../telemetry/spans.ts';
import { readTransfers, transfersToMerchants } from './block-reader.ts';
import type { WatchContext } from './chain-state.ts';
import type { Tip } from './ledger/cursor.ts';
import type { FoundTransfer } from './ledger/known-transfers.ts';
import type { Node } from './node.ts';
import { type Header, NodeError } from './node-answers.ts';
import { goneOf } from './verify-payments.ts';

/** With more recipients, some nodes refuse the filter, so all transfers are read. */
const maxRecipients = 1_000;
/** A node may have pruned the receipts of blocks this far below the head. */
const prunedDepth = 2_000;

export interface BlockTransfers {
  header: Header;
  found: FoundTransfer[];
}

/** Returns the blocks of a range, inclusive, with transfers to wallets of merchants. The headers are the asked node's. */
export async function readBetween(
  { settings, ledger, state }: WatchContext,
  lease: bigint,
  asked: Node,
  from: number,
  to: number,
): Promise<BlockTransfers[]> {
  const recipients = await ledger.wallets(maxRecipients);
  // Nobody can be paid.
  if (recipients?.length === 0) return [];
  const logs = await asked.transfersBetween(from, to, recipients);
  if (from < (state.headNumber ?? Number.POSITIVE_INFINITY) - prunedDepth) {
    await ledger.renew(lease);
    await asked.assertReceipts(from, to);
  }
  const relevant = await transfersToMerchants(logs, ledger);
  const byBlock = Map.groupBy(relevant, ({ blockNumber }) => blockNumber);
  const blocks: BlockTransfers[] = [];
  for (const [number, own] of [...byBlock].sort(([a], [b]) => a - b)) {
    await ledger.renew(lease);
    const header = await asked.header(number);
    if (header === undefined || own.some(({ blockHash }) => blockHash !== header.hash)) {
      throw new NodeError('another_block', `${asked.name} has transfers of a block that it does not have`);
    }
    const found = await readTransfers(asked, settings, header, own, () => ledger.renew(lease));
    blocks.push({ header, found });
  }
  return blocks;
}

async function record(
  context: WatchContext,
  lease: bigint,
  header: Header & { isDoubtful?: boolean },
  found: readonly FoundTransfer[],
  after: Hash | undefined,
): Promise<void> {
  const { ledger, observer } = context;
  const { dust } = await ledger.apply(lease, header, found, after, goneOf(context, lease));
  observer.dust?.(dust);
}

/** Reads one block, first seen at `seenAtMs`, which follows `after`. */
export async function readBlock(
  context: WatchContext,
  lease: bigint,
  header: Header,
  after: Tip,
  seenAtMs: number,
): Promise<void> {
  const { settings, ledger, observer, state } = context;
  const { logs, isDoubtful } = await state.node.transfersOf(header);
  const relevant = await transfersToMerchants(logs, ledger);
  const apply = async () => {
    const found = await readTransfers(state.node, settings, header, relevant, () => ledger.renew(lease));
    await record(context, lease, { ...header, isDoubtful }, found, after.hash);
  };
  const transfers = relevant.length;
  const work = { name: 'block', chainId: settings.chainId, block: header.number, transfers } as const;
  // Blocks without transfers to merchants have no trace.
  await (transfers === 0 ? apply() : traceChainWork({ ...work, sinceMs: seenAtMs }, apply));
  observer.block?.({ transfers, lagMs: performance.now() - seenAtMs });
}

/** Reads final blocks behind `after`, as many as the node serves at once, and returns the last. */
export async function readRange(context: WatchContext, lease: bigint, after: Tip, to: number): Promise<Tip> {
  const { identity, state } = context;
  const { last, blocks } = await state.node.range.reading(to - after.number, async (count) => {
    // The local chain removes old empty blocks.
    const end = (await state.node.header(after.number + count)) ?? (await identity.headerAt(to));
    return { last: end, blocks: await readBetween(context, lease, state.node, after.number + 1, end.number) };
  });
  for (const { header, found } of blocks) {
    if (header.number < last.number) await record(context, lease, header, found, undefined);
  }
  const atEnd = blocks.find(({ header }) => header.number === last.number);
  await record(context, lease, last, atEnd?.found ?? [], after.hash);
  return last;
}
