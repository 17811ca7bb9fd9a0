// Handles reorganisations: reverts the chain to the newest block that the database and the node share.

import { traceChainWork } from '../telemetry/spans.ts';
import type { WatchContext } from './chain-state.ts';
import type { Tip } from './ledger/cursor.ts';
import { LeaseLost } from './ledger/lease.ts';
import { NodeError } from './node-answers.ts';

/** The maximum number of headers stored, and searched for the common ancestor. */
export const maxHeaders = 50_000;

/** Resolves with the block to continue from. Rejects the first time: one wrong answer must revert nothing. */
export async function revertToAncestor(context: WatchContext, lease: bigint, from: Tip): Promise<Tip> {
  const { settings, identity, ledger, logger, observer, state } = context;
  const { chainId } = settings;
  identity.forget(state.node);
  await identity.assertChain(state.node);
  if (state.cursor !== from) return state.cursor as Tip;
  const report = (to: Tip, lowest: number, transfers = 0) => {
    const depth = from.number - to.number;
    const isFinal = lowest <= state.finalRead;
    observer.reorganisation?.({ depth, transfers, isFinal });
    logger[isFinal ? 'error' : 'warn'](
      { chain_id: chainId, block: to.number, depth, transfers },
      isFinal
        ? 'the chain reverted final blocks: check every payment in them by hand'
        : 'the chain has reorganised',
    );
  };
  const cursor = (await ledger.progress())?.cursor;
  if (cursor === undefined) throw new LeaseLost();
  if (cursor.hash !== from.hash) {
    // An earlier revert was committed, but its answer was lost.
    if (cursor.number < from.number) report(cursor, cursor.number + 1);
    return cursor;
  }
  // Blocks above the node's newest one are not compared: if a lower block differs, they go too.
  const known = await ledger.knownBlocks(Math.min(from.number, state.headNumber ?? from.number), maxHeaders);
  const place = await firstIndexWhere(known.length, async (i) => {
    await ledger.renew(lease);
    const block = known[i] as Tip;
    const found = await state.node.header(block.number);
    if (found === undefined)
      throw new NodeError('no_answer', `${state.node.name} no longer has block ${block.number}`);
    return found.hash === block.hash;
  });
  const ancestor = known[place];
  if (ancestor === undefined) {
    throw new NodeError(
      'another_chain',
      `${state.node.name} has none of the blocks read before: it is on another chain`,
    );
  }
  if (place === 0)
    throw new NodeError('contradiction', `${state.node.name} returned a block with a wrong parent hash`);
  // The same ancestor has to be reported in two passes.
  const reported = `${ancestor.number} ${ancestor.hash}`;
  if (state.suspected !== reported) {
    state.suspected = reported;
    throw new NodeError(
      'contradiction',
      `${state.node.name} reports that the chain has reorganised to block ${ancestor.number}; asked again`,
    );
  }
  await assertNotConfirmed(context, ancestor, known[place - 1] as Tip);
  state.suspected = undefined;
  const work = { name: 'reorganisation', chainId, block: ancestor.number } as const;
  const transfers = await traceChainWork(work, () => ledger.revertTo(lease, ancestor));
  // The lowest known block above the ancestor: blocks that were read together may have no headers.
  report(ancestor, (known[place - 1] as Tip).number, transfers);
  return ancestor;
}

/** Throws if payments above the ancestor are confirmed, unless the second node has replaced `lowest`, too. */
async function assertNotConfirmed(
  { ledger, state: { node, confirmer } }: WatchContext,
  ancestor: Tip,
  lowest: Tip,
): Promise<void> {
  if (node === confirmer || !(await ledger.hasConfirmedAbove(ancestor.number))) return;
  const header = await confirmer.header(lowest.number);
  if (header !== undefined && header.hash !== lowest.hash) return;
  throw new NodeError(
    'contradiction',
    `${node.name} no longer has block ${lowest.number}, below confirmed payments, but ${confirmer.name} has no other`,
  );
}

/**
 * Returns the first index for which `isTrue`, or `count` if there is none. It must be true from that index
 * on. Makes few calls: the distance doubles from the beginning, then a binary search follows.
 */
export async function firstIndexWhere(count: number, isTrue: (place: number) => Promise<boolean>) {
  let [from, to] = [0, count];
  for (let step = 1; from < to; step *= 2) {
    const place = Math.min(from + step, to) - 1;
    if (await isTrue(place)) {
      to = place;
      break;
    }
    from = place + 1;
  }
  while (from < to) {
    const middle = (from + to) >> 1;
    if (await isTrue(middle)) to = middle;
    else from = middle + 1;
  }
  return to;
}
