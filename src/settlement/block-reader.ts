// Reads a block's transfers to merchants' wallets and to refund destinations, and the ids named in them.

import { fromNumber } from 'ox/Hex';
import type { Hash } from 'viem';
import { type ChainSettings, isRightToken } from '../contract/chains.ts';
import { authorizationSelectors, authorizationUsedTopic, uuidInNonce } from '../contract/eip-3009.ts';
import { formatIdentifier } from '../database/identifiers.ts';
import { mapInSlices, nextSlice } from '../scheduling/slices.ts';
import type { FoundTransfer } from './ledger/known-transfers.ts';
import type { Ledger } from './ledger/ledger.ts';
import { readNamedIntents } from './named-intent.ts';
import type { Node } from './node.ts';
import { type Header, NodeError, type Receipt, type TransferLog, transferTopic } from './node-answers.ts';

/** A transfer, and the merchants that it concerns by its wallets. */
export type RelevantLog = TransferLog &
  Pick<FoundTransfer, 'owners' | 'mayBeRefund'> & {
    /** The sender has signed an authorization for the wallet that is paid. */
    mayBeAuthorized?: boolean;
  };

/**
 * Keeps the transfers to merchants' wallets, and those that may be their refunds. Both are looked up after
 * the block has arrived, so that new intents and refunds are included.
 */
export async function transfersToMerchants(
  logs: readonly TransferLog[],
  { ownersOf, refundsAt, authorizedAt }: Pick<Ledger, 'ownersOf' | 'refundsAt' | 'authorizedAt'>,
): Promise<RelevantLog[]> {
  const owners = await ownersOf([...new Set(logs.map(({ to }) => to))]);
  const refunds = await refundsAt(logs);
  const authorized = await authorizedAt(logs.filter(({ to }) => owners.has(to)));
  return logs.flatMap((log) => {
    const own = owners.get(log.to);
    const lookingAlike = refunds.get(log);
    if (own === undefined && lookingAlike === undefined) return [];
    const known = new Set(own?.map(({ merchantId }) => merchantId));
    const ofRefunds = (lookingAlike ?? []).flatMap((merchantId) =>
      known.has(merchantId)
        ? []
        : [{ merchantId, isPayoutWallet: false, isExpected: false, refund: { id: undefined } }],
    );
    const mayBeRefund = lookingAlike !== undefined;
    const mayBeAuthorized = authorized.has(log);
    return [{ ...log, owners: [...(own ?? []), ...ofRefunds], mayBeRefund, mayBeAuthorized }];
  });
}

/** Reads the ids named in a block's transfers. Awaits `onProgress` between requests. Throws NodeError. */
export async function readTransfers(
  node: Node,
  settings: ChainSettings,
  header: Header,
  logs: readonly RelevantLog[],
  onProgress: () => Promise<void>,
): Promise<FoundTransfer[]> {
  if (logs.length === 0) return [];
  const hashes = [...new Set(logs.map(({ transactionHash }) => transactionHash))];
  const transactions = await node.transactionsOf(header, hashes);
  // Polygon's state-sync logs belong to transactions that nodes may not have. They never move native USDC,
  // only bridged tokens.
  const isSent = ({ token }: TransferLog) =>
    settings.networks.some((network) => isRightToken(network, token));
  if (logs.some((log) => isSent(log) && !transactions.has(log.transactionHash))) {
    throw new NodeError('no_answer', `${node.name} has a block but not one of its transactions`);
  }
  const readers = new Map(
    [...transactions].map(([hash, transaction]) => [hash, readNamedIntents(transaction)]),
  );
  const needing = new Set<TransferLog>();
  const sentAuthorization = new Set<Hash>();
  for (const { hash, input } of transactions.values()) {
    await nextSlice();
    if (authorizationSelectors.some((selector) => input.includes(selector))) sentAuthorization.add(hash);
  }
  for (const log of logs) {
    await nextSlice();
    if (isSent(log) && (log.mayBeAuthorized || sentAuthorization.has(log.transactionHash))) needing.add(log);
    else if (await readers.get(log.transactionHash)?.needsReceipt(log)) needing.add(log);
  }
  const tooLarge = new Set<Hash>();
  const receipts = await receiptsOf(
    node,
    [...needing].map(({ transactionHash }) => transactionHash),
    onProgress,
    tooLarge,
  );
  const namedBy = (log: RelevantLog): Promise<string | undefined> | undefined => {
    const receipt = receipts.get(log.transactionHash);
    const isTooLarge = tooLarge.has(log.transactionHash);
    if (needing.has(log) && !isTooLarge && (receipt === undefined || !receiptHasTransfer(receipt, log))) {
      throw new NodeError(
        'contradiction',
        `${node.name} has a transfer that is missing from the receipt of its transaction`,
      );
    }
    return readers.get(log.transactionHash)?.of(log, receipt?.logs ?? []);
  };
  const inOrder = [...logs].sort((a, b) => a.logIndex - b.logIndex);
  return mapInSlices(inOrder, async (found) => {
    const { owners, mayBeRefund, mayBeAuthorized, ...log } = found;
    const named = await namedBy(found);
    const nonce = isSent(log) ? nonceUsedBy(log, receipts.get(log.transactionHash)) : undefined;
    // Otherwise the receipt may be read only since the sender has signed something else, and not before that.
    const isNaming = nonce !== undefined && sentAuthorization.has(log.transactionHash);
    const intent = isNaming ? uuidInNonce(nonce) : undefined;
    return {
      log,
      blockTime: header.time,
      named: intent ? formatIdentifier('pi', intent) : named,
      nonce,
      isUnread: tooLarge.has(log.transactionHash),
      owners,
      mayBeRefund,
    };
  });
}

/**
 * The nonce of the authorization that a transfer has used. Circle's contract marks it as used and then
 * transfers, with no call in between, so the log before the transfer's has the nonce.
 */
function nonceUsedBy({ token, from, logIndex }: TransferLog, receipt: Receipt | undefined): Hash | undefined {
  const { address, topics = [] } = receipt?.logAt.get(logIndex - 1) ?? {};
  const [topic, authorizer = '', nonce] = topics;
  const isUsed = address === token && topic === authorizationUsedTopic;
  return isUsed && authorizer.slice(26) === from.slice(2) ? nonce : undefined;
}

/** True if the receipt is of this block and has this transfer. */
export function receiptHasTransfer(
  { blockHash, logAt }: Receipt,
  { logIndex, token, from, to, amountUnits, blockHash: inBlock }: TransferLog,
): boolean {
  const log = logAt.get(logIndex);
  const [topic, sender, recipient] = log?.topics ?? [];
  return (
    blockHash === inBlock &&
    log?.address === token &&
    // An `Approval` has the same form.
    topic === transferTopic &&
    sender?.slice(26) === from.slice(2) &&
    recipient?.slice(26) === to.slice(2) &&
    log.data === fromNumber(amountUnits, { size: 32 })
  );
}

/** Returns the headers of these blocks that a node has, by number. Awaits `onProgress` between requests. */
export async function headersOf(
  node: Node,
  numbers: Iterable<number>,
  onProgress: () => Promise<void>,
): Promise<Map<number, Header>> {
  const found = new Map<number, Header>();
  const wanted = [...new Set(numbers)];
  while (wanted.length > 0) {
    await onProgress();
    const some = wanted.splice(0, node.burst).map((number) => node.header(number));
    for (const header of await Promise.all(some)) if (header) found.set(header.number, header);
  }
  return found;
}

/**
 * Returns the receipts of the transactions that are in a block. Awaits `onProgress` between requests. Adds
 * the hashes of receipts larger than the node serves to `tooLarge`; without it, throws NodeError for them.
 */
export async function receiptsOf(
  node: Node,
  hashes: readonly Hash[],
  onProgress: () => Promise<void>,
  tooLarge?: Set<Hash>,
): Promise<Map<Hash, Receipt>> {
  const wanted = [...new Set(hashes)];
  const receipts = new Map<Hash, Receipt>();
  while (wanted.length > 0) {
    await onProgress();
    const some = await node.receipts.reading(Math.min(wanted.length, node.burst), (count) =>
      Promise.all(
        wanted.slice(0, count).map((hash) =>
          node.receiptOf(hash).catch((reason) => {
            const isTooLarge = reason instanceof NodeError && reason.fault === 'too_large';
            if (tooLarge === undefined || !isTooLarge) throw reason;
            tooLarge.add(hash);
            return undefined;
          }),
        ),
      ),
    );
    wanted.splice(0, some.length);
    for (const receipt of some) if (receipt !== undefined) receipts.set(receipt.transactionHash, receipt);
  }
  return receipts;
}
