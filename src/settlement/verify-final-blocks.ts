// Verifies final blocks with the confirming node: records transfers that were missed, and reverts transfers
// that no node has. Blocks that this node may have read itself are read from the reader, too.

import type { Hash } from 'viem';
import { mapInSlices } from '../scheduling/slices.ts';
import { traceChainWork } from '../telemetry/spans.ts';
import { headersOf, readTransfers, receiptsOf, transfersToMerchants } from './block-reader.ts';
import type { WatchContext } from './chain-state.ts';
import type { RecordedTransfer } from './ledger/confirming.ts';
import type { Progress, Tip } from './ledger/cursor.ts';
import { idsOf } from './ledger/values.ts';
import { type Header, NodeError, type TransferLog } from './node-answers.ts';
import { type BlockTransfers, readBetween } from './read-chain.ts';
import { goneOf } from './verify-payments.ts';

/** The most doubtful blocks, denied blocks and reverted transfers that one pass checks. */
const maxDoubtful = 64;

/** True if a node does not have or does not serve what it was asked for. Another node may. */
export function isUnable(reason: unknown): reason is NodeError {
  return reason instanceof NodeError && (reason.fault === 'no_answer' || reason.fault === 'refused');
}

/** Verifies the blocks of a chain that have become final. */
export class Verification {
  readonly #context: WatchContext;
  /** Since when transfers have been denied, by `placeOf`. */
  readonly #deniedSince = new Map<string, number>();
  /** When to ask for doubtful blocks again, by hash. */
  #doubts: ReadonlyMap<Hash, { atMs: number; waitMs: number }> = new Map();
  #lookedForAtMs = Number.NEGATIVE_INFINITY;
  /** Since when the reader has not served what `#addFromReader` asks for. */
  #refusedSinceMs: number | undefined;

  constructor(context: WatchContext) {
    this.#context = context;
  }

  /** Forgets earlier denials, after another watcher may have had the lease. */
  forgetDenials(): void {
    this.#deniedSince.clear();
  }

  /** Verifies the next range of final blocks. Resolves with true if there are more. */
  async verify(): Promise<boolean> {
    const { identity, ledger, observer, state } = this.#context;
    if (state.lease === undefined || state.finalized === undefined) return false;
    const lease = state.lease;
    const progress = await ledger.progress();
    if (progress === undefined) return false;
    // Also while the second node does not answer: the metric then shows that verification has stalled.
    observer.verified?.(progress.verifiedNumber);
    for (const each of new Set([state.confirmer, state.node])) await identity.assertChain(each);
    let unable: NodeError | undefined;
    // One old block must not hold up the others.
    const unlessUnable = (reason: unknown) => {
      if (!isUnable(reason)) throw reason;
      unable = reason;
    };
    for (const block of await this.#doubtful()) await this.#readDoubtful(lease, block).catch(unlessUnable);
    // Transfers that verification itself recorded and that cannot be confirmed are verified again.
    const deniedAgain = [...state.deniedIn].filter((number) => number <= progress.verifiedNumber);
    const reverted = await this.#revertedIn(lease, progress.verifiedNumber);
    for (const number of [...deniedAgain.slice(0, maxDoubtful), ...reverted]) {
      await this.#verifyBlock(lease, number).catch(unlessUnable);
    }
    const hasMore = await this.#verifyNext(lease, progress, state.finalized.number);
    if (unable !== undefined) throw unable;
    return hasMore;
  }

  async #verifyNext(lease: bigint, progress: Progress, finalized: number): Promise<boolean> {
    const { ledger, state } = this.#context;
    const final = Math.min(finalized, progress.cursor.number);
    const from = progress.verifiedNumber + 1;
    if (from > final) return false;
    // Ends at a block that the confirming node has: the local chain removes old empty blocks.
    const found = await state.confirmer.range.reading(final - from + 1, async (count) => {
      const last = (await state.confirmer.header(from + count - 1)) ?? (await state.confirmer.header(final));
      if (last === undefined) return undefined;
      const blocks = await readBetween(this.#context, lease, state.confirmer, from, last.number);
      return { to: last.number, blocks };
    });
    if (found === undefined) return false;
    const { to, blocks } = found;
    // After a revert the range is verified again: a transfer returns if the node has it after all.
    if ((await this.#verifyBlocks(lease, from, to, blocks)) > 0) return true;
    if (from <= state.readBefore && state.node !== state.confirmer)
      await this.#addFromReader(lease, from, to);
    return (await ledger.noteVerified(lease, to, progress.cursor)) && to < final;
  }

  /** Records what the reader has in these blocks. Leaves out what it does not serve for a while. */
  async #addFromReader(lease: bigint, from: number, to: number): Promise<void> {
    const { logger, observer, state, deniedAgainMs } = this.#context;
    const { node } = state;
    try {
      let missed = 0;
      for (let next = from; next <= to; ) {
        const { last, blocks } = await node.range.reading(to - next + 1, async (count) => {
          const last = next + count - 1;
          return { last, blocks: await readBetween(this.#context, lease, node, next, last) };
        });
        missed += await this.#record(lease, blocks);
        next = last + 1;
      }
      this.#refusedSinceMs = undefined;
      reportDifference(this.#context, { from, to, missed, invented: 0 });
    } catch (reason) {
      if (!isUnable(reason) && !(reason instanceof NodeError && reason.fault === 'too_large')) throw reason;
      this.#refusedSinceMs ??= performance.now();
      if (performance.now() - this.#refusedSinceMs < deniedAgainMs) throw reason;
      observer.nodeFault?.(reason);
      logger.warn(
        { err: reason, from, to },
        'the reader does not serve these blocks: they are verified without it',
      );
    }
  }

  /** The blocks whose empty answer contradicted their bloom filter, if it is time to ask for them again. */
  async #doubtful() {
    const { ledger, deniedAgainMs } = this.#context;
    const now = performance.now();
    const blocks = await ledger.doubtful(maxDoubtful);
    // Strangers can make many blocks doubtful for good: each is asked for ever more rarely.
    const first = { atMs: now, waitMs: deniedAgainMs };
    const turns = new Map(blocks.map(({ hash }) => [hash, this.#doubts.get(hash) ?? first]));
    const due = blocks.filter(({ hash }) => (turns.get(hash) ?? first).atMs <= now);
    for (const { hash } of due) {
      const { waitMs } = turns.get(hash) ?? first;
      turns.set(hash, { atMs: now + waitMs, waitMs: 2 * waitMs });
    }
    this.#doubts = turns;
    return due;
  }

  /** Reads a block again whose empty answer contradicted its bloom filter. */
  async #readDoubtful(lease: bigint, { number, hash }: { number: number; hash: Hash }): Promise<void> {
    const { settings, ledger, state } = this.#context;
    await ledger.renew(lease);
    const header = await state.confirmer.headerByHash(hash);
    if (header === undefined) return;
    const logs = await state.confirmer.transfersBetween(number, number);
    if (logs.length === 0 || logs.some(({ blockHash }) => blockHash !== hash)) return;
    const relevant = await transfersToMerchants(logs, ledger);
    const renew = () => ledger.renew(lease);
    const found = await readTransfers(state.confirmer, settings, header, relevant, renew);
    await assertCommon(this.#context, lease, [header]);
    const missed = await this.#record(lease, [{ header, found }]);
    await ledger.trust(lease, number);
    reportDifference(this.#context, { from: number, to: number, missed, invented: 0 });
  }

  /**
   * Returns the final blocks that have a reverted transfer, to be verified again. The node may have denied it
   * for longer than the waiting time, or reported it in another block.
   */
  async #revertedIn(lease: bigint, verifiedNumber: number): Promise<number[]> {
    const { ledger, state, deniedAgainMs } = this.#context;
    if (performance.now() - this.#lookedForAtMs < deniedAgainMs) return [];
    this.#lookedForAtMs = performance.now();
    const hashes = await ledger.reverted(maxDoubtful);
    const receipts = await receiptsOf(state.confirmer, hashes, () => ledger.renew(lease), new Set());
    const numbers = new Set([...receipts.values()].map(({ blockNumber }) => blockNumber));
    return [...numbers].filter((number) => number <= verifiedNumber);
  }

  async #verifyBlock(lease: bigint, number: number): Promise<number> {
    const { confirmer } = this.#context.state;
    const blocks = await readBetween(this.#context, lease, confirmer, number, number);
    return this.#verifyBlocks(lease, number, number, blocks);
  }

  /**
   * Compares final blocks with the confirming node's answer. Records missed transfers and reverts those that
   * no node has. Returns the number of reverted transfers.
   */
  async #verifyBlocks(
    lease: bigint,
    from: number,
    to: number,
    blocks: readonly BlockTransfers[],
  ): Promise<number> {
    const { settings, ledger, state } = this.#context;
    await assertCommon(
      this.#context,
      lease,
      blocks.map(({ header }) => header),
    );
    const read = blocks.flatMap(({ found }) => found);
    const known = await ledger.transfersIn(from, to);
    const keys = new Set(await mapInSlices(read, ({ log }) => keyOf(log)));
    const unread = (await mapInSlices(known, (each) => (keys.has(keyOf(each.log)) ? [] : each))).flat();
    const invented = await goneOf(this.#context, lease)(unread);
    const old = this.#oldOf(known, invented);
    const young = invented.length - old.length;
    const expectHeld = () => {
      if (young === 0) return;
      throw new NodeError(
        'contradiction',
        `${state.confirmer.name} does not have ${young} recorded transfers; asked again`,
      );
    };
    // A single node that contradicts itself is not believed. With two, what the reader hid is still recorded.
    if (state.confirmer === state.node) expectHeld();
    if (old.length > 0) {
      // What is in another of these blocks is reverted by the transaction that records it there.
      const blockOf = new Map(read.map(({ log }) => [log.transactionHash, log.blockHash]));
      const lost = old.filter(
        ({ log }) => (blockOf.get(log.transactionHash) ?? log.blockHash) === log.blockHash,
      );
      await ledger.revertTransfers(lease, idsOf(lost));
      for (const each of old) this.#deniedSince.delete(placeOf(each));
    }
    const { chainId } = settings;
    const work = { name: 'second reading', chainId, block: to, transfers: read.length } as const;
    const missed = read.length === 0 ? 0 : await traceChainWork(work, () => this.#record(lease, blocks));
    reportDifference(this.#context, { from, to, missed, invented: old.length });
    expectHeld();
    return old.length;
  }

  /** Records what the blocks have and the ledger does not have. Returns the number of differences. */
  async #record(lease: bigint, blocks: readonly BlockTransfers[]): Promise<number> {
    const { ledger } = this.#context;
    const gone = goneOf(this.#context, lease);
    let missed = 0;
    for (const { header, found } of blocks) {
      const { changes, contradicted } = await ledger.apply(lease, header, found, undefined, gone);
      missed += changes + contradicted;
    }
    return missed;
  }

  /** Those that every pass has denied for long enough: a short failure of a node reverts nothing. */
  #oldOf(
    known: readonly RecordedTransfer[],
    denied: readonly RecordedTransfer[],
  ): readonly RecordedTransfer[] {
    const since = this.#deniedSince;
    const places = new Set(denied.map(placeOf));
    if (since.size > 0) for (const place of known.map(placeOf)) if (!places.has(place)) since.delete(place);
    const now = performance.now();
    return denied.filter((transfer) => {
      const place = placeOf(transfer);
      const sinceMs = since.get(place);
      if (sinceMs === undefined) since.set(place, now);
      return sinceMs !== undefined && now - sinceMs >= this.#context.deniedAgainMs;
    });
  }
}

/** The key of a denial, which ends when the transfer moves to another block. */
const placeOf = ({ id, log }: RecordedTransfer) => `${id} ${log.blockHash}`;

/**
 * Throws unless the reader has these blocks of the confirming node, and the last block read. Otherwise one of
 * the nodes is on a fork, or a reorganisation has to be handled first.
 */
async function assertCommon(
  { ledger, state }: WatchContext,
  lease: bigint,
  headers: readonly Header[],
): Promise<void> {
  if (headers.length === 0) return;
  const last = state.cursor as Tip;
  const common = state.confirmer === state.node ? [last] : [...headers, last];
  const numbers = common.map(({ number }) => number);
  const own = await headersOf(state.node, numbers, () => ledger.renew(lease));
  for (const { number, hash } of common) {
    if (own.get(number)?.hash !== hash) {
      throw new NodeError(
        'contradiction',
        `${state.node.name} has another block ${number} than ${hash === last.hash ? 'the one read before' : state.confirmer.name}`,
      );
    }
  }
}

function reportDifference(
  { settings: { chainId }, observer, logger, state }: WatchContext,
  found: { from: number; to: number; missed: number; invented: number },
): void {
  if (found.missed === 0 && found.invented === 0) return;
  observer.difference?.(found);
  logger.error(
    { chain_id: chainId, ...found, reader: state.node.name, confirmer: state.confirmer.name },
    'verification found different transfers: a node returned wrong data',
  );
}

/** Identifies a transfer by its position and its contents. */
function keyOf(log: TransferLog): string {
  const { blockHash, transactionHash, logIndex, token, from, to, amountUnits } = log;
  return [blockHash, transactionHash, logIndex, token, from, to, amountUnits].join(' ');
}
