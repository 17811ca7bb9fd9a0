// Verifies final blocks with the confirming node: records transfers that were missed, and reverts transfers that no
// node has.

import { mapInSlices } from '../scheduling/slices.ts';
import { readTransfers, receiptsOf, transfersToMerchants } from './block-reader.ts';
import type { ChainIdentity } from './chain-identity.ts';
import type { WatchContext } from './chain-state.ts';
import { logOf, transfersInReceipts } from './confirm-payments.ts';
import type { RecordedTransfer } from './ledger/confirming.ts';
import type { Tip } from './ledger/cursor.ts';
import type { Node } from './node.ts';
import { type Header, NodeError, type TransferLog } from './node-answers.ts';
import type { RangeSize } from './range-size.ts';
import type { BlockTransfers, ReadBetween } from './read-between.ts';

/** Doubtful blocks, and reverted transfers, checked in one pass. */
const maxDoubtful = 64;

export interface Verification {
  /** Verifies the next range of final blocks. Resolves with true if there are more. */
  verify(): Promise<boolean>;
  /** Forgets earlier denials, after another watcher may have had the lease. */
  forgetDenials(): void;
}

export function createVerification(
  context: WatchContext,
  identity: ChainIdentity,
  readBetween: ReadBetween,
  rangeOf: (asked: Node) => RangeSize,
  deniedAgainMs: number,
): Verification {
  const { settings, nodes, ledger, logger, observer, trace, state } = context;
  const { chainId } = settings;
  /** Since when a transfer has been denied in its block. */
  const deniedSince = new Map<string, number>();
  let lookedForAtMs = Number.NEGATIVE_INFINITY;

  /** Reads blocks again that were empty in contradiction to their bloom filter. */
  const readDoubtful = async (lease: bigint): Promise<void> => {
    for (const { number, hash } of await ledger.doubtful(maxDoubtful)) {
      await ledger.renew(lease);
      const header = await state.confirmer.headerByHash(hash);
      if (header === undefined) continue;
      const logs = await state.confirmer.transfersBetween(number, number);
      if (logs.length === 0) continue;
      if (logs.some(({ blockHash }) => blockHash !== hash)) continue;
      const relevant = await transfersToMerchants(logs, ledger.ownersOf);
      const found = await readTransfers(state.confirmer, settings, header, relevant, () =>
        ledger.renew(lease),
      );
      await assertCommon(lease, [header]);
      const { changes } = await ledger.apply(lease, header, found, undefined);
      await ledger.trust(lease, number);
      reportDifference({ from: number, to: number, missed: changes.length, invented: 0 });
    }
  };

  const verify = async (): Promise<boolean> => {
    if (state.lease === undefined || state.finalized === undefined) return false;
    for (const each of new Set([state.confirmer, state.node])) await identity.assertChain(each);
    const lease = state.lease;
    const progress = await ledger.progress();
    if (progress === undefined) return false;
    await readDoubtful(lease);
    // Transfers that verification itself recorded and that cannot be confirmed are verified again.
    const deniedAgain = state.deniedIn.filter((number) => number <= progress.verifiedNumber);
    for (const number of deniedAgain.slice(0, maxDoubtful)) await verifyBlock(lease, number);
    await verifyReverted(lease, progress.verifiedNumber);
    const final = Math.min(state.finalized.number, progress.cursor.number);
    const from = progress.verifiedNumber + 1;
    if (from > final) return false;
    // Ends at a block that this node has, too. The local chain removes old empty blocks.
    const found = await rangeOf(state.confirmer).reading(final - from + 1, async (count) => {
      const last = (await state.confirmer.header(from + count - 1)) ?? (await state.confirmer.header(final));
      return (
        last && { to: last.number, blocks: await readBetween(lease, state.confirmer, from, last.number) }
      );
    });
    if (found === undefined) return false;
    const { to, blocks } = found;
    // A reverted transfer is looked for once more: it returns if the node has it after all.
    if ((await verifyBlocks(lease, from, to, blocks)) > 0) return true;
    return (await ledger.noteVerified(lease, to, progress.cursor)) && to < final;
  };

  /**
   * Verifies the final blocks again that have a reverted transfer: the node may have denied it for longer than the
   * waiting time, or reported it in another block.
   */
  const verifyReverted = async (lease: bigint, verifiedNumber: number): Promise<void> => {
    if (performance.now() - lookedForAtMs < deniedAgainMs) return;
    lookedForAtMs = performance.now();
    const hashes = await ledger.reverted(maxDoubtful);
    const receipts = await receiptsOf(state.confirmer, hashes, () => ledger.renew(lease));
    const numbers = new Set([...receipts.values()].map(({ blockNumber }) => blockNumber));
    for (const number of numbers) if (number <= verifiedNumber) await verifyBlock(lease, number);
  };

  const verifyBlock = async (lease: bigint, number: number): Promise<number> =>
    verifyBlocks(lease, number, number, await readBetween(lease, state.confirmer, number, number));

  /**
   * Compares final blocks with the confirming node's answer. Records missed transfers and reverts those that no node
   * has. Returns the number of reverted transfers.
   */
  const verifyBlocks = async (
    lease: bigint,
    from: number,
    to: number,
    blocks: readonly BlockTransfers[],
  ): Promise<number> => {
    await assertCommon(
      lease,
      blocks.map(({ header }) => header),
    );
    const known = await ledger.transfersIn(from, to);
    const read = new Set(
      await mapInSlices(
        blocks.flatMap(({ found }) => found),
        ({ log }) => keyOf(log),
      ),
    );
    const isRead = await mapInSlices(known, (transfer) =>
      read.has(keyOf({ ...logOf(transfer), blockHash: `0x${transfer.blockHash}` })),
    );
    let invented = known.filter((_, i) => !isRead[i]);
    // A node may have lost data: a transfer that any node has stays.
    for (const asked of new Set([state.confirmer, ...nodes])) {
      await assertReached(asked, invented);
      const real = new Set((await transfersInReceipts(context, lease, asked, invented)).map(({ id }) => id));
      invented = invented.filter(({ id }) => !real.has(id));
    }
    assertDeniedBefore(known, invented);
    if (invented.length > 0) {
      await ledger.revertTransfers(
        lease,
        invented.map(({ id }) => id),
      );
    }
    let missed = 0;
    const apply = async () => {
      for (const { header, found } of blocks) {
        missed += (await ledger.apply(lease, header, found, undefined)).changes.length;
      }
    };
    const work = { name: 'second reading', chainId, block: to, transfers: read.size } as const;
    await (read.size === 0 ? undefined : trace(work, apply));
    reportDifference({ from, to, missed, invented: invented.length });
    return invented.length;
  };

  /**
   * Throws unless each transfer was denied at every pass since `deniedAgainMs` ago: a short failure must not revert
   * anything.
   */
  const assertDeniedBefore = (
    known: readonly RecordedTransfer[],
    denied: readonly RecordedTransfer[],
  ): void => {
    // A denial is for a transfer in one block. It does not count after the transfer moved to another block.
    const placeOf = ({ id, blockHash }: RecordedTransfer) => `${id} ${blockHash}`;
    const places = new Set(denied.map(placeOf));
    if (deniedSince.size > 0) {
      for (const place of known.map(placeOf)) if (!places.has(place)) deniedSince.delete(place);
    }
    const now = performance.now();
    let isEarly = false;
    for (const place of places) {
      const since = deniedSince.get(place);
      if (since === undefined) deniedSince.set(place, now);
      isEarly ||= since === undefined || now - since < deniedAgainMs;
    }
    if (isEarly) {
      throw new NodeError(
        'contradiction',
        `${state.confirmer.name} does not have ${denied.length} recorded transfers; asked again`,
      );
    }
    for (const place of places) deniedSince.delete(place);
  };

  /** Throws if the node is too far behind to deny these transfers. */
  const assertReached = async (asked: Node, transfers: readonly RecordedTransfer[]): Promise<void> => {
    const highest = transfers.reduce((number, { blockNumber }) => Math.max(number, blockNumber), 0);
    if (transfers.length > 0 && (await asked.header(highest)) === undefined)
      throw new NodeError('no_answer', `${asked.name} does not have block ${highest}`);
  };

  /**
   * Throws unless the reader has these blocks of the confirming node, and the last block read. Otherwise one of them
   * is on a fork, or a reorganisation has to be handled first.
   */
  const assertCommon = async (lease: bigint, headers: readonly Header[]): Promise<void> => {
    if (headers.length === 0) return;
    const last = state.cursor as Tip;
    for (const { number, hash } of state.confirmer === state.node ? [last] : [...headers, last]) {
      await ledger.renew(lease);
      const own = await state.node.header(number);
      if (own?.hash !== hash) {
        throw new NodeError(
          'contradiction',
          `${state.node.name} has another block ${number} than ${hash === last.hash ? 'the one read before' : state.confirmer.name}`,
        );
      }
    }
  };

  const reportDifference = (found: { from: number; to: number; missed: number; invented: number }): void => {
    if (found.missed === 0 && found.invented === 0) return;
    observer.onDifference?.(found);
    logger.error(
      { chain_id: chainId, ...found },
      'verification found different transfers: a node returned wrong data',
    );
  };

  return { verify, forgetDenials: () => deniedSince.clear() };
}

/** Identifies a transfer by its position and its contents. */
function keyOf({
  blockHash,
  logIndex,
  token,
  from,
  to,
  amountUnits,
}: Omit<TransferLog, 'transactionHash' | 'blockNumber'>): string {
  return [blockHash, logIndex, token, from, to, amountUnits].join(' ');
}
