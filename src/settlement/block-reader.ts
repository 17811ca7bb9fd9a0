// Reads from a node what matters to anybody in a block: transfers to wallets of merchants, with the intents that they
// name.

import { type Address, type Hash, numberToHex } from 'viem';
import { type ChainSettings, isRightToken } from '../contract/chains.ts';
import { mapInSlices } from '../scheduling/slices.ts';
import { needsReceipt, readNamedIntents } from './attribution.ts';
import type { FoundTransfer } from './ledger/known-transfers.ts';
import type { WalletOwner } from './ledger/owners.ts';
import type { Node } from './node.ts';
import { type Header, NodeError, type Receipt, type TransferLog } from './node-answers.ts';

/** Receipts that are asked for at once. */
const maxReceiptsAtOnce = 16;

/** Finds out to whom transfers to these wallets matter. */
export type OwnersOf = (wallets: readonly Address[]) => Promise<Map<Address, WalletOwner[]>>;

/** Keeps the transfers that matter to somebody. The owners are read now, after the block was there. */
export async function transfersThatMatter(
  logs: readonly TransferLog[],
  ownersOf: OwnersOf,
): Promise<(TransferLog & { owners: WalletOwner[] })[]> {
  const owners = await ownersOf([...new Set(logs.map(({ to }) => to))]);
  return logs.flatMap((log) => {
    const own = owners.get(log.to);
    return own === undefined ? [] : [{ ...log, owners: own }];
  });
}

/**
 * Reads what the transfers of one block are for. Throws NodeError if the node contradicts itself. `onProgress` is awaited
 * again and again meanwhile.
 */
export async function readPurposes(
  node: Node,
  settings: ChainSettings,
  header: Header,
  logs: readonly (TransferLog & { owners: WalletOwner[] })[],
  onProgress: () => Promise<void>,
): Promise<FoundTransfer[]> {
  if (logs.length === 0) return [];
  const hashes = [...new Set(logs.map(({ transactionHash }) => transactionHash))];
  const transactions = await node.transactionsOf(header, hashes);
  // Polygon's own messages appear as logs of transactions that nobody sent. They never move USDC, but what is taken for it.
  const isSent = ({ token }: TransferLog) =>
    settings.networks.some((network) => isRightToken(network, token));
  if (logs.some((log) => isSent(log) && !transactions.has(log.transactionHash))) {
    throw new NodeError('no_answer', `${node.name} does not have a transaction of a block that it has`);
  }
  const receipts = await receiptsOf(
    node,
    (
      await mapInSlices(logs, (log) => {
        const transaction = transactions.get(log.transactionHash);
        return transaction !== undefined && needsReceipt(log, transaction) ? [log.transactionHash] : [];
      })
    ).flat(),
    onProgress,
  );
  const readers = new Map(
    [...transactions].map(([hash, transaction]) => [
      hash,
      readNamedIntents(transaction, receipts.get(hash)?.logs ?? []),
    ]),
  );
  const namedBy = (log: TransferLog): Promise<string | undefined> | undefined => {
    const transaction = transactions.get(log.transactionHash);
    if (transaction === undefined) return undefined;
    const receipt = receipts.get(log.transactionHash);
    if (needsReceipt(log, transaction) && (receipt === undefined || !holds(receipt, log, header.hash))) {
      throw new NodeError(
        'contradiction',
        'the node has a transfer that the receipt of its transaction has not',
      );
    }
    return readers.get(log.transactionHash)?.(log);
  };
  const inOrder = [...logs].sort((a, b) => a.logIndex - b.logIndex);
  return mapInSlices(inOrder, async ({ owners, ...log }) => ({
    log,
    blockTime: header.time,
    named: await namedBy(log),
    owners,
  }));
}

/** True if the transaction made this transfer in this block, as its receipt has it. */
export function holds(
  { blockHash, logAt }: Receipt,
  {
    logIndex,
    token,
    from,
    to,
    amountUnits,
  }: Omit<TransferLog, 'transactionHash' | 'blockNumber' | 'blockHash'>,
  inBlock: Hash,
): boolean {
  const log = logAt.get(logIndex);
  const [, sender, recipient] = log?.topics ?? [];
  return (
    blockHash === inBlock &&
    log?.address === token &&
    sender?.slice(26) === from.slice(2) &&
    recipient?.slice(26) === to.slice(2) &&
    log.data === numberToHex(amountUnits, { size: 32 })
  );
}

/** The receipts of these transactions, but for those that are in no block. `onProgress` is awaited between some of them. */
export async function receiptsOf(
  node: Node,
  hashes: readonly Hash[],
  onProgress: () => Promise<void>,
): Promise<Map<Hash, Receipt>> {
  const wanted = [...new Set(hashes)];
  const receipts = new Map<Hash, Receipt>();
  for (let begin = 0; begin < wanted.length; begin += maxReceiptsAtOnce) {
    await onProgress();
    const some = await Promise.all(
      wanted.slice(begin, begin + maxReceiptsAtOnce).map((hash) => node.receiptOf(hash)),
    );
    for (const receipt of some) if (receipt !== undefined) receipts.set(receipt.transactionHash, receipt);
  }
  return receipts;
}
