// Confirms transfers that are deep enough in the chain, if both nodes have them in their receipts.

import { blocksIn } from '../contract/chains.ts';
import { traceChainWork } from '../telemetry/spans.ts';
import { headersOf } from './block-reader.ts';
import type { WatchContext } from './chain-state.ts';
import { maxDue, type RecordedTransfer } from './ledger/confirming.ts';
import type { Tip } from './ledger/cursor.ts';
import { idsOf, inGroups } from './ledger/values.ts';
import type { Node } from './node.ts';
import { type Header, NodeError, type NodeFault } from './node-answers.ts';
import { heldByAll } from './verify-payments.ts';

/** After this time, reading blocks takes precedence. */
const maxConfirmingMs = 5_000;

/** Stored instead of a time: the block has only failed together with others. */
const failedTogether = -1;

/** Faults that would affect every other block too. */
const wholeNodeFaults: ReadonlySet<NodeFault> = new Set(['unreachable', 'rate_limited', 'another_chain']);

/** Confirms transfers that are deep enough below the tip. Resolves with true if more are due. */
export async function confirmDue(context: WatchContext, lease: bigint, tip: Tip): Promise<boolean> {
  const { settings, identity, ledger, observer, state } = context;
  const deepEnough = tip.number - settings.confirmations + 1;
  // Blocks that were denied, or got no answer, come last, so that they do not delay the others.
  const failed = [...state.unanswered].flatMap(([number, untilMs]) => (untilMs < 0 ? [] : number));
  let due = await ledger.due(deepEnough, [...new Set([...state.deniedIn, ...failed])]);
  if (due.length < maxDue) {
    const numbers = new Set(due.map(({ log }) => log.blockNumber));
    for (const gone of [state.deniedIn, state.unanswered]) {
      for (const number of gone.keys()) if (!numbers.has(number)) gone.delete(number);
    }
  }
  due = due.filter(({ blockTime: time, log }) => isOld(context, { number: log.blockNumber, time }, tip));
  // Strangers can send transfers that no node can prove. Those that are nobody's payments are not urgent.
  const times = due.flatMap(({ isPayment, blockTime }) => (isPayment ? blockTime : []));
  const [oldest] = times.sort((a, b) => a.getTime() - b.getTime());
  observer.unconfirmed?.(oldest);
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

/** True if a block is `minDepthMs` older than the newest, or that deep in blocks: its time may be wrong. */
function isOld({ settings, state }: WatchContext, block: Omit<Tip, 'hash'>, newest: Tip): boolean {
  const isDeep = newest.number - block.number >= blocksIn(settings, state.minDepthMs);
  return isDeep || newest.time.getTime() - block.time.getTime() >= state.minDepthMs;
}

const blockOf = ({ log }: RecordedTransfer): number => log.blockNumber;

async function confirmSome(
  context: WatchContext,
  lease: bigint,
  due: readonly RecordedTransfer[],
): Promise<boolean> {
  const { settings, identity, ledger, observer, logger, state, deniedAgainMs } = context;
  const { confirmer, deniedIn, unanswered } = state;
  const asked = due.filter((each) => (unanswered.get(blockOf(each)) ?? 0) <= performance.now());
  if (asked.length === 0) return false;
  await identity.assertChain(confirmer);
  const head = await confirmer.header('latest');
  if (head === undefined) return false;
  // Strangers decide how large the receipts are, and the node how many it serves in a second.
  const atOnce = Math.min(confirmer.burst, state.node.burst);
  const confirmed = new Set<string>();
  const denying = new Set<Node>();
  let denied = 0;

  const isDeep = (block: Omit<Tip, 'hash'>) =>
    head.number - block.number + 1 >= settings.confirmations && isOld(context, block, head);
  const confirm = async (some: readonly RecordedTransfer[]) => {
    const deep = some.filter((each) => isDeep({ number: blockOf(each), time: each.blockTime }));
    const renew = () => ledger.renew(lease);
    const headers = await headersOf(confirmer, deep.map(blockOf), renew);
    const isTooNew = (header: Header | undefined) => header !== undefined && !isDeep(header);
    const old = deep.filter((each) => !isTooNew(headers.get(blockOf(each))));
    const onChain = old.filter((each) => headers.get(blockOf(each))?.hash === each.log.blockHash);
    if (onChain.length < old.length) denying.add(confirmer);
    // A transaction's receipt is fetched once.
    for (const same of inGroups(onChain, ({ log }) => log.transactionHash, atOnce)) {
      // Transfers found by verification alone were never read from the reader, so both nodes are asked.
      const compared = await heldByAll(context, lease, new Set([confirmer, state.node]), same);
      for (const each of compared.denying) denying.add(each);
      // Committed by block: events are in chain order, and confirmations survive a later node failure.
      for (const own of Map.groupBy(compared.held, blockOf).values()) {
        const [{ log }] = own as [RecordedTransfer];
        await ledger.confirmAll(lease, log.blockHash, idsOf(own));
        for (const { id } of own) confirmed.add(id);
      }
    }
    for (const [number, own] of Map.groupBy(old, blockOf)) {
      const left = own.filter(({ id }) => !confirmed.has(id)).length;
      denied += left;
      // A block that is denied again moves behind the other denied ones.
      for (const gone of [deniedIn, unanswered]) gone.delete(number);
      if (left > 0) deniedIn.add(number);
    }
  };

  const startedAtMs = performance.now();
  let hasMore = false;
  // A block that failed before is asked for alone: at the end, or first if it failed together with others.
  const isTogether = (each: RecordedTransfer) => unanswered.get(blockOf(each)) === failedTogether;
  const isFresh = (each: RecordedTransfer) => !unanswered.has(blockOf(each)) && !deniedIn.has(blockOf(each));
  const isKnown = (each: RecordedTransfer) => !isTogether(each) && !isFresh(each);
  const byBlock = (some: readonly RecordedTransfer[]) => Map.groupBy(some, blockOf).values();
  const turns = [
    ...byBlock(asked.filter(isTogether)),
    ...inGroups(asked.filter(isFresh), blockOf, atOnce),
    ...byBlock(asked.filter(isKnown)),
  ];
  for (const some of turns) {
    hasMore = performance.now() - startedAtMs > maxConfirmingMs;
    if (hasMore) break;
    await confirm(some).catch((reason) => {
      // The node may no longer have an old block, or cannot serve a receipt. Other blocks continue.
      if (!(reason instanceof NodeError) || wholeNodeFaults.has(reason.fault)) throw reason;
      const left = Map.groupBy(
        some.filter(({ id }) => !confirmed.has(id)),
        blockOf,
      );
      for (const number of left.keys()) {
        // Another block may be at fault, or none if this is the first time.
        const isAgain = (unanswered.get(number) ?? failedTogether) > failedTogether;
        unanswered.delete(number);
        const alone = isAgain ? performance.now() + deniedAgainMs : 0;
        unanswered.set(number, left.size > 1 ? failedTogether : alone);
      }
      if (left.size > 1) turns.push(...left.values());
      observer.nodeFault?.(reason);
      logger.warn(
        { err: reason, blocks: [...left.keys()] },
        'transfers of these blocks are not confirmed yet; asked again',
      );
    });
  }
  if (denied > 0) {
    logger.warn(
      { chain_id: settings.chainId, transfers: denied, nodes: [...denying].map(({ name }) => name) },
      'transfers are due for confirmation, but a node does not have them or cannot serve their receipts; they stay pending and are retried',
    );
  }
  return hasMore && confirmed.size > 0;
}
