// Confirms transfers that are deep enough in the chain, if both nodes have them in the receipts of their transactions.

import { type Address, type Hash, zeroAddress } from 'viem';
import { isRightToken } from '../contract/chains.ts';
import { holds, receiptsOf } from './block-reader.ts';
import type { ChainIdentity } from './chain-identity.ts';
import type { WatchContext } from './chain-state.ts';
import type { DueTransfer } from './ledger/confirming.ts';
import type { Tip } from './ledger/cursor.ts';
import type { Node } from './node.ts';

/** The next blocks have their turn after so long. */
const maxConfirmingMs = 5_000;
/** Transfers whose receipts are read before they are confirmed, which takes a fraction of the lease. */
const maxConfirmedAtOnce = 100;

/** Confirms what is deep enough below the tip. Resolves with true if there is more at once. */
export type ConfirmDue = (held: bigint, tip: Tip) => Promise<boolean>;

export function createConfirmDue(context: WatchContext, identity: ChainIdentity): ConfirmDue {
  const { settings, ledger, logger, observer, trace, state } = context;
  const { chainId } = settings;

  const confirmSome = async (held: bigint, due: readonly DueTransfer[]): Promise<boolean> => {
    let [denied, confirmedCount] = [0, 0];
    const denying = new Set<Node>();
    const startedAtMs = performance.now();
    let hasMore = false;
    // What was denied before comes last, and holds up nothing.
    const before = new Set(state.deniedIn);
    const blocks = [...Map.groupBy(due, ({ blockNumber }) => blockNumber)];
    state.deniedIn = [];
    for (const [number, own] of blocks.sort(([a], [b]) => Number(before.has(a)) - Number(before.has(b)))) {
      // The next blocks have their turn, too.
      hasMore = performance.now() - startedAtMs > maxConfirmingMs;
      if (hasMore) break;
      await identity.assertChain(state.confirmer);
      const head = await state.confirmer.header('latest');
      if (head === undefined || head.number - number + 1 < settings.confirmations) break;
      const header = await state.confirmer.header(number);
      const onChain = own.filter(({ blockHash }) => `0x${blockHash}` === header?.hash);
      if (onChain.length < own.length) denying.add(state.confirmer);
      let left = own.length;
      // Stored bit by bit: what is confirmed stays so if the node fails later, and the lease is kept meanwhile.
      for (const some of inTransactions(onChain, maxConfirmedAtOnce)) {
        let confirmed = some;
        // What only the second reading has found was never asked of the first node.
        for (const each of new Set([state.confirmer, state.node])) {
          const has = await heldBy(context, held, each, confirmed);
          if (has.length < confirmed.length) denying.add(each);
          confirmed = has;
        }
        await ledger.confirmAll(
          held,
          confirmed.map(({ id }) => id),
        );
        left -= confirmed.length;
        confirmedCount += confirmed.length;
      }
      denied += left;
      if (left > 0) state.deniedIn.push(number);
    }
    if (denied > 0) {
      logger.warn(
        { chain_id: chainId, transfers: denied, nodes: [...denying].map(({ name }) => name) },
        'a node denies transfers that are deep enough; they are not confirmed, and asked for again',
      );
    }
    return hasMore && confirmedCount > 0;
  };

  return async (held, tip) => {
    const deepEnough = tip.number - settings.confirmations + 1;
    let due = await ledger.due(deepEnough);
    observer.onUnconfirmed?.(due[0]?.blockTime);
    if (settings.needsFinality && due.length > 0) {
      const final = await identity.finalizedNumber();
      due = due.filter(({ blockNumber }) => blockNumber <= final);
    }
    if (due.length === 0) {
      state.deniedIn = [];
      return false;
    }
    const work = { name: 'confirmation', chainId, block: deepEnough, transfers: due.length } as const;
    return trace(work, () => confirmSome(held, due));
  };
}

/**
 * New money of a token that never counts. The bridged one comes by Polygon's own messages, and not every node has the
 * receipts of those.
 */
function hasNoReceipt({ settings }: WatchContext, { fromAddress, tokenAddress }: DueTransfer): boolean {
  const isCounted = settings.networks.some((network) => isRightToken(network, tokenAddress.toLowerCase()));
  return fromAddress === zeroAddress && !isCounted;
}

/** Those of these transfers that the receipts of their transactions have, or that have none. */
export async function heldBy(
  context: WatchContext,
  held: bigint,
  asked: Node,
  transfers: readonly DueTransfer[],
): Promise<DueTransfer[]> {
  const receipts = await receiptsOf(
    asked,
    transfers.flatMap((transfer): Hash[] =>
      hasNoReceipt(context, transfer) ? [] : [`0x${transfer.transactionHash}`],
    ),
    () => context.ledger.renew(held),
  );
  return transfers.filter((transfer) => {
    const receipt = receipts.get(`0x${transfer.transactionHash}`);
    if (receipt === undefined) return hasNoReceipt(context, transfer);
    return holds(receipt, logOf(transfer), `0x${transfer.blockHash}`);
  });
}

/** Parts of about that many; those of one transaction are together, so that its receipt is asked for once. */
function* inTransactions(transfers: readonly DueTransfer[], size: number): Generator<DueTransfer[]> {
  let part: DueTransfer[] = [];
  for (const own of Map.groupBy(transfers, ({ transactionHash }) => transactionHash).values()) {
    part = part.concat(own);
    if (part.length < size) continue;
    yield part;
    part = [];
  }
  if (part.length > 0) yield part;
}

export function logOf(transfer: DueTransfer) {
  return {
    logIndex: transfer.logIndex,
    token: transfer.tokenAddress.toLowerCase() as Address,
    from: transfer.fromAddress.toLowerCase() as Address,
    to: transfer.toAddress.toLowerCase() as Address,
    amountUnits: transfer.amountUnits,
  };
}
