// Confirms transfers that are deep enough in the chain, if both nodes have them in the receipts of their transactions.

import { blocksIn } from '../contract/chains.ts';
import { traceChainWork } from '../telemetry/spans.ts';
import type { WatchContext } from './chain-state.ts';
import { maxDue, type RecordedTransfer } from './ledger/confirming.ts';
import type { Tip } from './ledger/cursor.ts';
import { idsOf, inGroups } from './ledger/values.ts';
import type { Node } from './node.ts';
import { type Header, NodeError, type NodeFault } from './node-answers.ts';
import { heldByAll } from './verify-payments.ts';

/** After this time, reading blocks takes precedence. */
const maxConfirmingMs = 5_000;
/** Transfers verified and committed together. This takes a fraction of the lease. */
const maxConfirmedAtOnce = 100;

/** Faults that would meet every other block too. */
const wholeNodeFaults: ReadonlySet<NodeFault> = new Set(['unreachable', 'rate_limited', 'another_chain']);

/** Confirms transfers that are deep enough below the tip. Resolves with true if more are due. */
export async function confirmDue(context: WatchContext, lease: bigint, tip: Tip): Promise<boolean> {
  const { settings, identity, ledger, observer, state } = context;
  const deepEnough = tip.number - settings.confirmations + 1;
  // Blocks that were denied, or could not be asked for, come last, so that they do not delay the others.
  let due = await ledger.due(deepEnough, [...new Set([...state.deniedIn, ...state.unanswered.keys()])]);
  const [oldest] = due.map(({ blockTime }) => blockTime).sort((a, b) => a.getTime() - b.getTime());
  observer.unconfirmed?.(oldest);
  if (due.length < maxDue) {
    const numbers = new Set(due.map(({ log }) => log.blockNumber));
    for (const gone of [state.deniedIn, state.unanswered]) {
      for (const number of gone.keys()) if (!numbers.has(number)) gone.delete(number);
    }
  }
  due = due.filter(({ blockTime: time, log }) => isOld(context, { number: log.blockNumber, time }, tip));
  if (settings.needsFinality && due.length > 0) {
    const isFinal = (number: number) => (each: RecordedTransfer) => each.log.blockNumber <= number;
    due = due.filter(isFinal(await identity.finalizedNumber()));
    // The second node is asked for its finality only if something is final for the reader.
    if (due.length > 0) due = due.filter(isFinal(await identity.commonFinal()));
  }
  if (due.length === 0) return false;
  const work = {
    name: 'confirmation',
    chainId: settings.chainId,
    block: deepEnough,
    transfers: due.length,
  } as const;
  return traceChainWork(work, () => confirmSome(context, lease, due));
}

/** True if a block is old enough to be final below the newest one, or has so many blocks above it where its time is wrong. */
function isOld({ settings, state }: WatchContext, block: Omit<Tip, 'hash'>, newest: Tip): boolean {
  const isDeep = newest.number - block.number >= blocksIn(settings, state.minDepthMs);
  return isDeep || newest.time.getTime() - block.time.getTime() >= state.minDepthMs;
}

async function confirmSome(
  context: WatchContext,
  lease: bigint,
  due: readonly RecordedTransfer[],
): Promise<boolean> {
  const { settings, identity, ledger, observer, logger, state, deniedAgainMs } = context;
  let [denied, confirmedCount] = [0, 0];
  const denying = new Set<Node>();
  const startedAtMs = performance.now();
  let hasMore = false;
  let lowestTooNew = Number.POSITIVE_INFINITY;
  let head: Header | undefined;
  for (const [number, own] of Map.groupBy(due, ({ log }) => log.blockNumber)) {
    hasMore = performance.now() - startedAtMs > maxConfirmingMs;
    if (hasMore) break;
    if (number >= lowestTooNew || (state.unanswered.get(number) ?? 0) > performance.now()) continue;
    await identity.assertChain(state.confirmer);
    head ??= await state.confirmer.header('latest');
    if (head === undefined || head.number - number + 1 < settings.confirmations) {
      lowestTooNew = number;
      continue;
    }
    // What is denied again comes behind the others that were.
    state.deniedIn.delete(number);
    let left = own.length;
    try {
      const header = await state.confirmer.header(number);
      if (header !== undefined && !isOld(context, header, head)) {
        lowestTooNew = number;
        continue;
      }
      const onChain = own.filter(({ log }) => log.blockHash === header?.hash);
      if (onChain.length < own.length) denying.add(state.confirmer);
      // Committed in parts: confirmations survive a later failure of the node, and the lease is renewed in between.
      // A transaction's receipt is fetched once.
      for (const some of inGroups(onChain, ({ log }) => log.transactionHash, maxConfirmedAtOnce)) {
        // Transfers found by verification alone were never read from the reader, so both nodes are asked.
        const both = new Set([state.confirmer, state.node]);
        const compared = await heldByAll(context, lease, both, some);
        const confirmed = compared.held;
        for (const each of compared.denying) denying.add(each);
        await ledger.confirmAll(lease, idsOf(confirmed));
        left -= confirmed.length;
        confirmedCount += confirmed.length;
      }
      state.unanswered.delete(number);
    } catch (reason) {
      // The node may no longer have an old block, or cannot serve this receipt. Other blocks go on.
      if (!(reason instanceof NodeError) || wholeNodeFaults.has(reason.fault)) throw reason;
      // The first time it may be chance.
      const isAgain = state.unanswered.delete(number);
      state.unanswered.set(number, isAgain ? performance.now() + deniedAgainMs : 0);
      observer.nodeFault?.(reason);
      logger.warn({ err: reason, block: number }, 'transfers of a block are not confirmed yet; asked again');
      continue;
    }
    denied += left;
    if (left > 0) state.deniedIn.add(number);
  }
  if (denied > 0) {
    logger.warn(
      { chain_id: settings.chainId, transfers: denied, nodes: [...denying].map(({ name }) => name) },
      'transfers are due for confirmation, but a node does not have them or cannot serve their receipts; they stay pending and are retried',
    );
  }
  return hasMore && confirmedCount > 0;
}
