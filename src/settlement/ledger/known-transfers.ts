import type { Hash } from 'viem';
import type { TransferRow } from '../../database/entities/settlement.ts';
import { mapInSlices } from '../../scheduling/slices.ts';
import type { Header, TransferLog } from '../node-answers.ts';

/** A merchant concerned by transfers to a wallet. */
export interface WalletOwner {
  merchantId: string;
  isPayoutWallet: boolean;
  /** An intent of the merchant expected a payment there recently. */
  isExpected: boolean;
  /** Since when the merchant has used the wallet, in milliseconds since 1970; 0 if for long. */
  sinceMs?: number;
  /** Since when its transfers on this chain are read for the merchant, in the same way. */
  watchedSinceMs?: number;
  /** The transfer is a refund of this merchant, not a payment. Without an id it only looks like one. */
  refund?: { id: string | undefined; isElsewhere?: boolean };
}

/** A transfer that concerns merchants, by its wallets or by a refund's id. */
export interface FoundTransfer {
  log: TransferLog;
  blockTime: Date;
  /** The public id of the intent or refund named by the owner of the money. */
  named: string | undefined;
  /** The nonce of the signed authorization that the transfer has used. */
  nonce?: Hash | undefined;
  /** Its receipt is larger than the node serves and may say more: it pays only an intent that it names. */
  isUnread?: boolean;
  owners: readonly WalletOwner[];
  /** It goes to the destination of a refund, and has its amount or comes from its wallet. */
  mayBeRefund: boolean;
}

/** How far the chain's clock may be from ours. */
export const clockAllowanceMs = 120_000;

/** A transfer for one of its merchants, and its row if it was recorded before. */
export interface KnownTransfer {
  transfer: FoundTransfer;
  merchantId: string;
  /** Set if it is a refund of the merchant and not a payment, with the refund's id if that is known. */
  refund?: { id: string | undefined; isElsewhere?: boolean } | undefined;
  /** The merchant is notified if the transfer stays unattributed. */
  isReported: boolean;
  /** It is from before the merchant used the wallet. */
  isOlder: boolean;
  /** See `WalletOwner`. */
  watchedSinceMs: number;
  ordinal: number;
  /** The existing row; undefined if the transfer is new. */
  before: TransferRow | undefined;
  /** The existing row is at the same position of the same block. */
  isThere: boolean;
}

/**
 * Matches the transfers of a block with the recorded ones, for each merchant. A recorded transfer at the same
 * position of this block is the same transfer. Otherwise its log index may have changed with the block, so it
 * is matched with a reverted or moved transfer of the same transaction with equal contents. `ordinal` numbers
 * equal transfers; each takes the lowest free one.
 */
export async function matchKnown(
  block: Pick<Header, 'hash'>,
  found: readonly FoundTransfer[],
  known: readonly TransferRow[],
): Promise<KnownTransfer[]> {
  const there = new Map<string, TransferRow>();
  const elsewhere = new Map<string, TransferRow>();
  const used = new Set<string>();
  /** The next ordinal to try. Ordinals are never freed, so the search continues from there. */
  const tried = new Map<string, number>();
  await mapInSlices(known, (row) => {
    const contents = contentsKeyOf(row.merchantId, row);
    const numbered = `${contents} ${row.ordinal}`;
    if (row.state === 'reorged' || row.blockHash !== block.hash.slice(2)) {
      elsewhere.set(numbered, row);
    } else {
      there.set(`${contents} ${row.logIndex}`, row);
      used.add(numbered);
    }
  });
  const entries = found.flatMap((transfer) => {
    const hasPayoutWallet = transfer.owners.some(({ isPayoutWallet }) => isPayoutWallet);
    return transfer.owners.map(
      ({ merchantId, isPayoutWallet, isExpected, sinceMs = 0, watchedSinceMs = 0, refund }) => ({
        transfer,
        merchantId,
        refund,
        isReported: hasPayoutWallet ? isPayoutWallet : isExpected,
        isOlder: transfer.blockTime.getTime() < sinceMs - clockAllowanceMs,
        watchedSinceMs,
      }),
    );
  });
  return mapInSlices(entries, (entry) => {
    const { log } = entry.transfer;
    const contents = contentsKeyOf(entry.merchantId, {
      transactionHash: log.transactionHash.slice(2),
      tokenAddress: log.token,
      fromAddress: log.from,
      toAddress: log.to,
      amountUnits: log.amountUnits,
    });
    const before = there.get(`${contents} ${log.logIndex}`);
    if (before !== undefined) {
      return { ...entry, ordinal: before.ordinal, before, isThere: true, refund: refundOf(entry, before) };
    }
    let ordinal = tried.get(contents) ?? 0;
    while (used.has(`${contents} ${ordinal}`)) ordinal++;
    tried.set(contents, ordinal + 1);
    const moved = elsewhere.get(`${contents} ${ordinal}`);
    return { ...entry, ordinal, before: moved, isThere: false, refund: refundOf(entry, moved) };
  });
}

/** A transfer stays what it was recorded as: a refund, or the payment of an intent. */
export function refundOf(
  { refund }: Pick<KnownTransfer, 'refund'>,
  before: TransferRow | undefined,
): KnownTransfer['refund'] {
  if (before?.isRefund) return { id: before.refund ?? refund?.id };
  return before?.paymentIntent == null ? refund : undefined;
}

type TransferContents = Pick<
  TransferRow,
  'transactionHash' | 'tokenAddress' | 'fromAddress' | 'toAddress' | 'amountUnits'
>;

function contentsKeyOf(merchantId: string, row: TransferContents): string {
  const { transactionHash, tokenAddress, fromAddress, toAddress, amountUnits } = row;
  return [merchantId, transactionHash, tokenAddress, fromAddress, toAddress, amountUnits]
    .join(' ')
    .toLowerCase();
}
