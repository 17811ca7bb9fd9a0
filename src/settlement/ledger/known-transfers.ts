import type { TransferRow } from '../../database/entities/settlement.ts';
import { mapInSlices } from '../../scheduling/slices.ts';
import type { Header, TransferLog } from '../node-answers.ts';
import type { WalletOwner } from './owners.ts';

/** A transfer to a wallet that matters to somebody. */
export interface FoundTransfer {
  log: TransferLog;
  blockTime: Date;
  /** The public id of the intent that the owner of the money named. */
  named: string | undefined;
  owners: readonly WalletOwner[];
}

/** A transfer for one of the merchants to whom it matters, and what is known of it. */
export interface KnownTransfer {
  transfer: FoundTransfer;
  merchantId: string;
  /** The merchant is told of it if it is nobody's payment. */
  isReported: boolean;
  ordinal: number;
  /** As it was before; undefined if it is new. */
  before: TransferRow | undefined;
  /** It was in this place of this block before. */
  isThere: boolean;
}

/**
 * What is known of each transfer of a block, for each merchant to whom it matters. One that is there is known by its place.
 * Another takes the lowest number that none which is there has, among the transfers of its transaction that are equal in
 * everything else: where the transaction was in another block before, it had other places.
 */
export async function matchKnown(
  block: Pick<Header, 'hash'>,
  found: readonly FoundTransfer[],
  known: readonly TransferRow[],
): Promise<KnownTransfer[]> {
  const there = new Map<string, TransferRow>();
  const elsewhere = new Map<string, TransferRow>();
  const used = new Set<string>();
  /** The number that was tried last: numbers are not given back, so that the search goes on from there. */
  const tried = new Map<string, number>();
  await mapInSlices(known, (row) => {
    const identity = identityOf(row.merchantId, row);
    const numbered = `${identity} ${row.ordinal}`;
    if (row.state === 'reorged' || row.blockHash !== block.hash.slice(2)) {
      elsewhere.set(numbered, row);
    } else {
      there.set(`${identity} ${row.logIndex}`, row);
      used.add(numbered);
    }
  });
  const entries = found.flatMap((transfer) => {
    const hasPayoutWallet = transfer.owners.some(({ isPayoutWallet }) => isPayoutWallet);
    return transfer.owners.map(({ merchantId, isPayoutWallet, isExpected }) => ({
      transfer,
      merchantId,
      isReported: hasPayoutWallet ? isPayoutWallet : isExpected,
    }));
  });
  return mapInSlices(entries, (entry) => {
    const { log } = entry.transfer;
    const identity = identityOf(entry.merchantId, {
      transactionHash: log.transactionHash.slice(2),
      tokenAddress: log.token,
      fromAddress: log.from,
      toAddress: log.to,
      amountUnits: log.amountUnits,
    });
    const before = there.get(`${identity} ${log.logIndex}`);
    if (before !== undefined) return { ...entry, ordinal: before.ordinal, before, isThere: true };
    let ordinal = tried.get(identity) ?? 0;
    while (used.has(`${identity} ${ordinal}`)) ordinal++;
    tried.set(identity, ordinal + 1);
    return { ...entry, ordinal, before: elsewhere.get(`${identity} ${ordinal}`), isThere: false };
  });
}

type Identity = Pick<
  TransferRow,
  'transactionHash' | 'tokenAddress' | 'fromAddress' | 'toAddress' | 'amountUnits'
>;

function identityOf(merchantId: string, row: Identity): string {
  const { transactionHash, tokenAddress, fromAddress, toAddress, amountUnits } = row;
  return [merchantId, transactionHash, tokenAddress, fromAddress, toAddress, amountUnits]
    .join(' ')
    .toLowerCase();
}
