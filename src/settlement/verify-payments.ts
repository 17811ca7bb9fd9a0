// The one comparison of recorded transfers with what nodes say: a node has a transfer if it is in the receipt of its
// transaction, in its block. It is made when a payment is deep enough to be confirmed, which every node has to have, and
// again when its block is final: what no node has then is reverted.

import { type Hash, zeroAddress } from 'viem';
import { isRightToken } from '../contract/chains.ts';
import { receiptHasTransfer, receiptsOf } from './block-reader.ts';
import type { WatchContext } from './chain-state.ts';
import type { RecordedTransfer } from './ledger/confirming.ts';
import type { Node } from './node.ts';
import { NodeError } from './node-answers.ts';

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
    // What is too large to be seen is not held, and stays pending.
    held = await heldBy(context, lease, asked, held, new Set());
    if (held.length < before) denying.push(asked);
  }
  return { held, denying };
}

/**
 * Returns those that no node has any more: one alone may have lost data, or lie. Throws if one is too far behind to deny, or
 * if the reader or the node that confirms no longer has the receipts.
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
  // Minted tokens that never count as payment. Polygon mints bridged USDC in state-sync transactions, whose receipts
  // not every node has.
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
