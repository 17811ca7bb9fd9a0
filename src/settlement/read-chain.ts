// Reads blocks of a chain, and records their transfers.

import type { Hash } from 'viem';
import { traceChainWork } from '../telemetry/spans.ts';
import { headersOf, type RelevantLog, readTransfers, transfersToMerchants } from './block-reader.ts';
import type { WatchContext } from './chain-state.ts';
import type { Tip } from './ledger/cursor.ts';
import type { FoundTransfer } from './ledger/known-transfers.ts';
import type { Block } from './ledger/recording.ts';
import { inChunks } from './ledger/values.ts';
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

/** Returns the blocks of a range, inclusive, with transfers that concern merchants, as `asked` has them. */
export async function readBetween(
  { settings, ledger, state }: WatchContext,
  lease: bigint,
  asked: Node,
  from: number,
  to: number,
): Promise<BlockTransfers[]> {
  const recipients = await ledger.wallets(maxRecipients);
  // No transfer can concern a merchant.
  if (recipients?.length === 0) return [];
  const logs = await asked.transfersBetween(from, to, recipients);
  if (from < (state.headNumber ?? Number.POSITIVE_INFINITY) - prunedDepth) {
    await ledger.renew(lease);
    await asked.assertReceipts(from, to);
  }
  const relevant = await transfersToMerchants(logs, ledger);
  const byBlock = Map.groupBy(relevant, ({ blockNumber }) => blockNumber);
  const blocks: BlockTransfers[] = [];
  const renew = () => ledger.renew(lease);
  const headers = await headersOf(asked, byBlock.keys(), renew);
  for (const [number, own] of [...byBlock].sort(([a], [b]) => a - b)) {
    await renew();
    const header = headers.get(number);
    if (header === undefined || own.some(({ blockHash }) => blockHash !== header.hash)) {
      throw new NodeError('another_block', `${asked.name} has transfers of a block that it does not have`);
    }
    const found = await readTransfers(asked, settings, header, own, renew);
    blocks.push({ header, found });
  }
  return blocks;
}

async function record(
  context: WatchContext,
  lease: bigint,
  block: Block,
  found: readonly FoundTransfer[],
  after: Hash | undefined,
): Promise<void> {
  const { ledger, observer } = context;
  const { dust } = await ledger.apply(lease, block, found, after, goneOf(context, lease));
  observer.dust?.(dust);
}

/** Reads the block that follows `after`, first seen at `seenAtMs`, and returns it. */
export async function readBlock(
  context: WatchContext,
  lease: bigint,
  after: Tip,
  header: Header,
  seenAtMs: number,
): Promise<Tip> {
  const { ledger, observer, state } = context;
  const { logs, isDoubtful } = await state.node.transfersOf(header);
  const relevant = await transfersToMerchants(logs, ledger);
  await recordNext(context, lease, { ...header, isDoubtful }, relevant, after, seenAtMs);
  observer.block?.({ transfers: relevant.length, lagMs: performance.now() - seenAtMs });
  return header;
}

/** Records a block with its transfers. `after`: its parent, or an earlier one if those between have none. */
async function recordNext(
  context: WatchContext,
  lease: bigint,
  header: Header & { isDoubtful: boolean; between?: readonly Tip[] },
  relevant: readonly RelevantLog[],
  after: Tip,
  seenAtMs: number,
): Promise<void> {
  const { settings, ledger, state } = context;
  const apply = async () => {
    const found = await readTransfers(state.node, settings, header, relevant, () => ledger.renew(lease));
    await record(context, lease, header, found, after.hash);
  };
  const transfers = relevant.length;
  const work = { name: 'block', chainId: settings.chainId, block: header.number, transfers } as const;
  // Blocks without transfers to merchants have no trace.
  await (transfers === 0 ? apply() : traceChainWork({ ...work, sinceMs: seenAtMs }, apply));
}

/**
 * Reads the blocks after `after` up to `newest` together, or as many as the node serves at once. Returns the
 * last, or undefined if they do not follow `after`. For most blocks only the transfers are read. Headers are
 * read for blocks without transfers, whose bloom filter must agree, for blocks with transfers to merchants,
 * and for the last block with transfers, whose hash proves that the answer is of this chain.
 */
export async function readNewest(
  context: WatchContext,
  lease: bigint,
  after: Tip,
  newest: Header,
  seenAtMs: number,
): Promise<Tip | undefined> {
  const { identity, settings, ledger, observer, state } = context;
  const { node } = state;
  const { last, logs } = await node.newest.reading(newest.number - after.number, async (count) => {
    const number = after.number + count;
    const last = number === newest.number ? newest : await identity.headerAt(number);
    return { last, logs: await node.transfersBetween(after.number + 1, number) };
  });
  const headers = new Map([[last.number, last]]);
  const readHeaders = async (numbers: Iterable<number>) => {
    const unread = [...numbers].filter((number) => !headers.has(number));
    const found = await headersOf(node, unread, () => ledger.renew(lease));
    for (const number of unread) headers.set(number, found.get(number) ?? (await identity.headerAt(number)));
  };
  const filled = new Set(logs.map(({ blockNumber }) => blockNumber));
  const empty = Array.from({ length: last.number - after.number }, (_, i) => after.number + 1 + i).filter(
    (number) => !filled.has(number),
  );
  await readHeaders([...empty, ...(filled.size > 0 ? [Math.max(...filled)] : [])]);
  // The first block must follow `after`, and the newest with all confirmations is the chain's clock.
  await readHeaders([after.number + 1, Math.max(after.number, last.number - settings.confirmations) + 1]);
  const doubtful = new Set<number>();
  const doubted = empty.filter((number) => node.mayHaveTransfers(headers.get(number) as Header));
  for (const some of inChunks(doubted, node.burst)) {
    await ledger.renew(lease);
    const again = await Promise.all(some.map((number) => node.transfersOf(headers.get(number) as Header)));
    for (const [i, found] of again.entries()) {
      for (const log of found.logs) logs.push(log);
      if (found.isDoubtful) doubtful.add(some[i] as number);
    }
  }
  const relevant = await transfersToMerchants(logs, ledger);
  const byBlock = Map.groupBy(relevant, ({ blockNumber }) => blockNumber);
  await readHeaders(byBlock.keys());
  if (
    logs.some(({ blockNumber, blockHash }) => (headers.get(blockNumber)?.hash ?? blockHash) !== blockHash)
  ) {
    throw new NodeError('another_block', `${node.name} has transfers of a block that it does not have`);
  }
  const hashOf = (number: number) => (number === after.number ? after.hash : headers.get(number)?.hash);
  const isLinked = ({ number, parentHash }: Header) => (hashOf(number - 1) ?? parentHash) === parentHash;
  const above = [...headers.values()].sort((a, b) => a.number - b.number);
  if ((await identity.headerAt(last.number)).hash !== last.hash || !above.every(isLinked)) return undefined;
  const recorded = new Set([...byBlock.keys(), ...doubtful, last.number]);
  let between: Header[] = [];
  let previous = after;
  for (const header of above) {
    const { number } = header;
    if (recorded.has(number)) {
      const next = { ...header, isDoubtful: doubtful.has(number), between };
      await recordNext(context, lease, next, byBlock.get(number) ?? [], previous, seenAtMs);
      previous = header;
      state.cursor = header;
      between = [];
    } else between.push(header);
  }
  for (let number = after.number + 1; number <= last.number; number++) {
    observer.block?.({ transfers: byBlock.get(number)?.length ?? 0, lagMs: performance.now() - seenAtMs });
  }
  return last;
}

/** Reads the final blocks after `after`, as many as the node serves at once, and returns the last. */
export async function readRange(context: WatchContext, lease: bigint, after: Tip, to: number): Promise<Tip> {
  const { identity, state } = context;
  const { last, blocks } = await state.node.range.reading(to - after.number, async (count) => {
    // The local chain removes old empty blocks.
    const end = (await state.node.header(after.number + count)) ?? (await identity.headerAt(to));
    return { last: end, blocks: await readBetween(context, lease, state.node, after.number + 1, end.number) };
  });
  for (const { header, found } of blocks) {
    if (header.number < last.number)
      await record(context, lease, { ...header, isAhead: true }, found, undefined);
  }
  const atEnd = blocks.find(({ header }) => header.number === last.number);
  const recorded = blocks.map(({ header }) => header.hash);
  await record(context, lease, { ...last, recorded }, atEnd?.found ?? [], after.hash);
  return last;
}
