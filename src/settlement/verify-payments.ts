// Compares recorded transfers with what nodes say: a node has a transfer if its transaction's receipt, in its
// block, contains it. A payment that is deep enough is confirmed if both nodes have it. Transfers in final
// blocks are compared again, and those that no node has are reverted.

import type { Hash } from 'viem';
import { isRightToken } from '../contract/chains.ts';
import { receiptHasTransfer, receiptsOf } from './block-reader.ts';
import type { WatchContext } from './chain-state.ts';
import type { RecordedTransfer } from './ledger/confirming.ts';
import type { Node } from './node.ts';
import { NodeError, zeroAddress } from './node-answers.ts';

type Compared = Pick<WatchContext, 'settings' | 'ledger'>;

/** Returns the transfers that each of these nodes has, and the nodes that deny any. */
export async function heldByAll(
  context: Compared,
  lease: bigint,
  nodes: Iterable<Node>,
  transfers: readonly RecordedTransfer[],
): Promise<{ held: readonly RecordedTransfer[]; denying: Node[] }> {
  let held = transfers;
  const denying: Node[] = [];
  for (const asked of nodes) {
    const before = held.length;
    // A transfer whose receipt is too large to be served is not held, and stays pending.
    held = await heldBy(context, lease, asked, held, new Set());
    if (held.length < before) denying.push(asked);
  }
  return { held, denying };
}

/**
 * Returns the transfers that no node has any more: a single node may have lost data, or lie. Throws if a node
 * is too far behind to deny them, or if the reader or the confirming node no longer has the receipts.
 */
export const goneOf =
  (context: WatchContext, lease: bigint) =>
  async (transfers: readonly RecordedTransfer[]): Promise<readonly RecordedTransfer[]> => {
    let denied = transfers;
    for (const asked of new Set([context.state.confirmer, ...context.nodes])) {
      const highest = denied.reduce((number, { log }) => Math.max(number, log.blockNumber), 0);
      if (denied.length > 0 && (await asked.header(highest)) === undefined) {
        throw new NodeError('no_answer', `${asked.name} does not have block ${highest}`);
      }
      const held = new Set(await heldBy(context, lease, asked, denied));
      denied = denied.filter((transfer) => !held.has(transfer));
      const mustKnow = asked === context.state.confirmer || asked === context.state.node;
      if (denied.length === 0 || !mustKnow) continue;
      const lowest = denied.reduce((number, { log }) => Math.min(number, log.blockNumber), highest);
      await context.ledger.renew(lease);
      await asked.assertReceipts(lowest, lowest);
    }
    return denied;
  };

/** Returns the transfers that the node has in a receipt, and those that need none. */
async function heldBy(
  { settings, ledger }: Compared,
  lease: bigint,
  asked: Node,
  transfers: readonly RecordedTransfer[],
  tooLarge?: Set<Hash>,
): Promise<RecordedTransfer[]> {
  // Minted bridged tokens need none: they never count as payment, and Polygon mints them in state-sync
  // transactions, whose receipts not every node has.
  const needsReceipt = ({ log: { from, token } }: RecordedTransfer) =>
    from !== zeroAddress || settings.networks.some((network) => isRightToken(network, token));
  const receipts = await receiptsOf(
    asked,
    transfers.filter(needsReceipt).map(({ log }) => log.transactionHash),
    () => ledger.renew(lease),
    tooLarge,
  );
  return transfers.filter((transfer) => {
    const receipt = receipts.get(transfer.log.transactionHash);
    return receipt === undefined ? !needsReceipt(transfer) : receiptHasTransfer(receipt, transfer.log);
  });
}
