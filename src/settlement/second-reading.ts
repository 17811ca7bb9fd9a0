// Reads again what has become final, from the node that confirms: records what the first reading has missed, and reverts what
// no node has.

import { mapInSlices } from '../scheduling/slices.ts';
import { readPurposes, receiptsOf, transfersThatMatter } from './block-reader.ts';
import type { ChainIdentity } from './chain-identity.ts';
import type { WatchContext } from './chain-state.ts';
import { heldBy, logOf } from './confirm-payments.ts';
import type { DueTransfer } from './ledger/confirming.ts';
import type { Tip } from './ledger/cursor.ts';
import type { Node } from './node.ts';
import { type Header, NodeError, type TransferLog } from './node-answers.ts';
import type { RangeSize } from './range-size.ts';
import type { BlockTransfers, ReadBetween } from './read-between.ts';

/** Blocks that are doubted, and transfers that were reverted, that are asked for once more at a time. */
const maxDoubtful = 64;

export interface SecondReading {
  /** Resolves with true if there is more at once. */
  readAgain(): Promise<boolean>;
  /** Forgets who has denied what: another watcher may have had the lease. */
  forgetDenials(): void;
}

export function createSecondReading(
  context: WatchContext,
  identity: ChainIdentity,
  readBetween: ReadBetween,
  rangeOf: (asked: Node) => RangeSize,
  deniedAgainMs: number,
): SecondReading {
  const { settings, nodes, ledger, logger, observer, trace, state } = context;
  const { chainId } = settings;
  /** When the second reading began to deny a transfer in its block. */
  const deniedSince = new Map<string, number>();
  /** When what was reverted was looked for. */
  let lookedForAtMs = Number.NEGATIVE_INFINITY;

  /** Asks once more for blocks that the node said were empty, against their bloom filter. */
  const readDoubtful = async (held: bigint): Promise<void> => {
    for (const { number, hash } of await ledger.doubtful(maxDoubtful)) {
      await ledger.renew(held);
      const header = await state.confirmer.headerByHash(hash);
      if (header === undefined) continue;
      const logs = await state.confirmer.transfersBetween(number, number);
      if (logs.length === 0) continue;
      if (logs.some(({ blockHash }) => blockHash !== hash)) continue;
      const matter = await transfersThatMatter(logs, ledger.ownersOf);
      const found = await readPurposes(state.confirmer, settings, header, matter, () => ledger.renew(held));
      await assertCommon(held, [header]);
      const { changes } = await ledger.apply(held, header, found, undefined);
      await ledger.trust(held, number);
      reportDifference({ from: number, to: number, missed: changes.length, invented: 0 });
    }
  };

  const readAgain = async (): Promise<boolean> => {
    if (state.lease === undefined || state.finalized === undefined) return false;
    for (const each of new Set([state.confirmer, state.node])) await identity.assertChain(each);
    const held = state.lease;
    const progress = await ledger.progress();
    if (progress === undefined) return false;
    await readDoubtful(held);
    // What the second reading itself was told, and nobody confirms, has to be reverted by a third one.
    const deniedAgain = state.deniedIn.filter((number) => number <= progress.secondNumber);
    for (const number of deniedAgain.slice(0, maxDoubtful)) await compareBlock(held, number);
    await lookForReverted(held, progress.secondNumber);
    const final = Math.min(state.finalized.number, progress.cursor.number);
    const from = progress.secondNumber + 1;
    if (from > final) return false;
    // Only what this node, too, has; the chain of this machine does not keep empty blocks for ever.
    const found = await rangeOf(state.confirmer).reading(final - from + 1, async (count) => {
      const last = (await state.confirmer.header(from + count - 1)) ?? (await state.confirmer.header(final));
      return last && { to: last.number, blocks: await readBetween(held, state.confirmer, from, last.number) };
    });
    if (found === undefined) return false;
    const { to, blocks } = found;
    // What was reverted is looked for once more, and returns if the node has it after all.
    if ((await compare(held, from, to, blocks)) > 0) return true;
    return (await ledger.noteSecondReading(held, to, progress.cursor)) && to < final;
  };

  /**
   * Reads once more the final blocks that have what was reverted: a node may have denied it for longer than a bad moment,
   * or said that it had moved.
   */
  const lookForReverted = async (held: bigint, secondNumber: number): Promise<void> => {
    if (performance.now() - lookedForAtMs < deniedAgainMs) return;
    lookedForAtMs = performance.now();
    const hashes = await ledger.reverted(maxDoubtful);
    const receipts = await receiptsOf(state.confirmer, hashes, () => ledger.renew(held));
    const numbers = new Set([...receipts.values()].map(({ blockNumber }) => blockNumber));
    for (const number of numbers) if (number <= secondNumber) await compareBlock(held, number);
  };

  /** Reads one final block again. */
  const compareBlock = async (held: bigint, number: number): Promise<number> =>
    compare(held, number, number, await readBetween(held, state.confirmer, number, number));

  /**
   * Compares final blocks with what the confirming node has said of them: records what was missed, and reverts what no
   * node has. Returns how much it has reverted.
   */
  const compare = async (
    held: bigint,
    from: number,
    to: number,
    blocks: readonly BlockTransfers[],
  ): Promise<number> => {
    await assertCommon(
      held,
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
    // A node may have lost what it had: what any of them has is on the chain.
    for (const asked of new Set([state.confirmer, ...nodes])) {
      await assertReached(asked, invented);
      const real = new Set((await heldBy(context, held, asked, invented)).map(({ id }) => id));
      invented = invented.filter(({ id }) => !real.has(id));
    }
    assertDeniedBefore(known, invented);
    if (invented.length > 0) {
      await ledger.revertTransfers(
        held,
        invented.map(({ id }) => id),
      );
    }
    let missed = 0;
    const apply = async () => {
      for (const { header, found } of blocks) {
        missed += (await ledger.apply(held, header, found, undefined)).changes.length;
      }
    };
    const work = { name: 'second reading', chainId, block: to, transfers: read.size } as const;
    await (read.size === 0 ? undefined : trace(work, apply));
    reportDifference({ from, to, missed, invented: invented.length });
    return invented.length;
  };

  /** Throws unless each was denied before, long enough ago, and at every reading since: one bad moment reverts nothing. */
  const assertDeniedBefore = (known: readonly DueTransfer[], denied: readonly DueTransfer[]): void => {
    // A transfer that has moved to another block was not denied there.
    const placeOf = ({ id, blockHash }: DueTransfer) => `${id} ${blockHash}`;
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
        `${state.confirmer.name} denies ${denied.length} transfers that were read before; asked again`,
      );
    }
    for (const place of places) deniedSince.delete(place);
  };

  /** Throws if the node is so far behind that it has nothing to say about these transfers. */
  const assertReached = async (asked: Node, transfers: readonly DueTransfer[]): Promise<void> => {
    const highest = transfers.reduce((number, { blockNumber }) => Math.max(number, blockNumber), 0);
    if (transfers.length > 0 && (await asked.header(highest)) === undefined)
      throw new NodeError('no_answer', `${asked.name} does not have block ${highest}`);
  };

  /**
   * Throws unless the first node has these blocks of the confirming one, and the block that was read last: one of the two
   * is on another fork, or the chain has reorganised, and its new blocks are to be read once before they are read again.
   */
  const assertCommon = async (held: bigint, headers: readonly Header[]): Promise<void> => {
    if (headers.length === 0) return;
    const last = state.cursor as Tip;
    for (const { number, hash } of state.confirmer === state.node ? [last] : [...headers, last]) {
      await ledger.renew(held);
      const own = await state.node.header(number);
      if (own?.hash !== hash) {
        throw new NodeError(
          'contradiction',
          `${state.node.name} has another block ${number} than ${hash === last.hash ? 'was read' : state.confirmer.name}`,
        );
      }
    }
  };

  const reportDifference = (found: { from: number; to: number; missed: number; invented: number }): void => {
    if (found.missed === 0 && found.invented === 0) return;
    observer.onSecondReading?.(found);
    logger.error(
      { chain_id: chainId, ...found },
      'the second reading found different transfers: one node gave wrong data',
    );
  };

  return { readAgain, forgetDenials: () => deniedSince.clear() };
}

/** The place of a transfer and what it says: one of the two is not enough to be the same. */
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
