// Reads the transfers to wallets of merchants in a range of blocks.

import { readTransfers, transfersToMerchants } from './block-reader.ts';
import type { WatchContext } from './chain-state.ts';
import type { FoundTransfer } from './ledger/known-transfers.ts';
import type { Node } from './node.ts';
import { type Header, NodeError } from './node-answers.ts';

/** With more recipients, some nodes refuse the filter, so all transfers are read. */
const maxRecipients = 1_000;

export interface BlockTransfers {
  header: Header;
  found: FoundTransfer[];
}

/** Returns the blocks of an inclusive range that have such transfers. The headers are those of the asked node. */
export type ReadBetween = (lease: bigint, asked: Node, from: number, to: number) => Promise<BlockTransfers[]>;

export function createReadBetween({ settings, ledger }: WatchContext): ReadBetween {
  return async (lease, asked, from, to) => {
    const wallets = await ledger.wallets(maxRecipients + 1);
    const recipients = wallets.length > maxRecipients ? undefined : wallets;
    const logs = wallets.length === 0 ? [] : await asked.transfersBetween(from, to, recipients);
    const relevant = await transfersToMerchants(logs, ledger);
    const byBlock = Map.groupBy(relevant, ({ blockNumber }) => blockNumber);
    const blocks: BlockTransfers[] = [];
    for (const [number, own] of [...byBlock].sort(([a], [b]) => a - b)) {
      await ledger.renew(lease);
      const header = await asked.header(number);
      if (header === undefined || own.some(({ blockHash }) => blockHash !== header.hash)) {
        throw new NodeError('another_block', `${asked.name} has transfers of a block that it does not have`);
      }
      const found = await readTransfers(asked, settings, header, own, () => ledger.renew(lease));
      blocks.push({ header, found });
    }
    return blocks;
  };
}
