// Reads a range of blocks at once: only the transfers that matter to somebody.

import { readPurposes, transfersThatMatter } from './block-reader.ts';
import type { WatchContext } from './chain-state.ts';
import type { FoundTransfer } from './ledger/known-transfers.ts';
import type { Node } from './node.ts';
import { type Header, NodeError } from './node-answers.ts';

/** More recipients are no longer a filter that every node takes. */
const maxRecipients = 1_000;

/** A block, and its transfers that matter to somebody. */
export interface BlockTransfers {
  header: Header;
  found: FoundTransfer[];
}

/** The blocks between two that have such transfers, both included. The headers are of the node that is asked. */
export type ReadBetween = (held: bigint, asked: Node, from: number, to: number) => Promise<BlockTransfers[]>;

export function createReadBetween({ settings, ledger }: WatchContext): ReadBetween {
  return async (held, asked, from, to) => {
    const wallets = await ledger.wallets(maxRecipients + 1);
    const recipients = wallets.length > maxRecipients ? undefined : wallets;
    const logs = wallets.length === 0 ? [] : await asked.transfersBetween(from, to, recipients);
    const matter = await transfersThatMatter(logs, ledger.ownersOf);
    const byBlock = Map.groupBy(matter, ({ blockNumber }) => blockNumber);
    const blocks: BlockTransfers[] = [];
    for (const [number, own] of [...byBlock].sort(([a], [b]) => a - b)) {
      await ledger.renew(held);
      const header = await asked.header(number);
      if (header === undefined || own.some(({ blockHash }) => blockHash !== header.hash)) {
        throw new NodeError('another_block', `${asked.name} has transfers of a block that it has not`);
      }
      const found = await readPurposes(asked, settings, header, own, () => ledger.renew(held));
      blocks.push({ header, found });
    }
    return blocks;
  };
}
