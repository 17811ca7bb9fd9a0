// Records the transfers of a block and their effect on intents. A stranger decides how many there are, so
// they are recorded in chunks, and the cursor moves with the last one.
//
// A partly recorded block is recorded again from its beginning. That is idempotent, because a transfer is
// identified by its position. If the block was reorged in between, what does not return is reverted first.

import type { Hash } from 'viem';
import { NewerThanProcess } from '../../contract/words.ts';
import { TransferEntity, type TransferRow } from '../../database/entities/settlement.ts';
import { type EntityColumns, entityColumns } from '../../database/entity-columns.ts';
import { inHalves } from '../../database/halves.ts';
import { formatIdentifier, newUuid, timeOfUuid } from '../../database/identifiers.ts';
import { type PreparedStatement, preparedStatement } from '../../database/prepared.ts';
import { faultOf, insufficientPrivilege } from '../../database/remedies.ts';
import { mapInSlices, nextSlice } from '../../scheduling/slices.ts';
import type { TransferLog } from '../node-answers.ts';
import { type Attribution, createAttribution } from './attribution.ts';
import { type Claim, findClaims, noteDoubtful } from './authorizations.ts';
import { findConfirmed, type RecordedTransfer } from './confirming.ts';
import type { LedgerContext } from './context.ts';
import { moveCursor, type Tip } from './cursor.ts';
import {
  clockAllowanceMs,
  type FoundTransfer,
  type KnownTransfer,
  matchKnown,
  refundOf,
} from './known-transfers.ts';
import { LeaseLost } from './lease.ts';
import { createOwners } from './owners.ts';
import { createReverting } from './reverting.ts';
import { createStoring, type Entry } from './storing.ts';
import { bytes, idsOf, inChunks, maxAtOnce } from './values.ts';

export type Block = Tip & {
  isDoubtful?: boolean;
  /** Blocks after the cursor, with known headers, that have no transfers to record. */
  between?: readonly Tip[];
  /** It is after the cursor, which a later block moves past it. */
  isAhead?: boolean;
  /** Blocks after the cursor that are recorded already. This block moves the cursor past them. */
  recorded?: readonly Hash[];
};

/** Returns the transfers that no node has any more. */
type GoneOf = (confirmed: readonly RecordedTransfer[]) => Promise<readonly RecordedTransfer[]>;

interface Recorded {
  /** The number of changes, without those by transfers that an earlier reading may rightly have left out. */
  changes: number;
  /** The number of unattributed transfers that were too small to be recorded. */
  dust: number;
  /** Payments that prove another intent than theirs, and transactions in two blocks: one node is wrong. */
  contradicted: number;
}

/** Not caused by the transfers, such as a role that lacks a right, or intents of a newer release. */
const isFatal = (reason: unknown) =>
  reason instanceof LeaseLost ||
  reason instanceof NewerThanProcess ||
  faultOf(reason)?.code === insufficientPrivilege;

/** Records the blocks of one chain. */
export class Recording {
  readonly #context: LedgerContext;
  readonly #transfers: EntityColumns<TransferRow>;
  readonly #findOfTransactions: PreparedStatement;
  readonly #findByIds: PreparedStatement;
  readonly #attribute: ReturnType<typeof createAttribution>;
  readonly #store: ReturnType<typeof createStoring>;
  readonly #proveRefunds: ReturnType<typeof createOwners>['proveRefunds'];
  readonly #revertTransfers: ReturnType<typeof createReverting>['revertTransfers'];

  constructor(context: LedgerContext) {
    const { em, lease, settings } = context;
    this.#context = context;
    const transfers = entityColumns<TransferRow>(em, TransferEntity);
    this.#transfers = transfers;
    this.#findOfTransactions = preparedStatement(
      'find_transfers_of_transactions',
      `select ${transfers.of('t')} from transfers t where t.transaction_hash = any ($1::bytea[]) and t.chain_id = $2`,
    );
    this.#findByIds = preparedStatement(
      'find_transfers_as_they_are',
      `select ${transfers.of('t')} from transfers t where t.id = any ($1::uuid[])`,
    );
    const onFailedAlone = (reason: unknown) => this.#logFailed(reason);
    this.#attribute = createAttribution(lease.runLimited, { ...settings, onFailedAlone, isFatal });
    this.#store = createStoring(transfers, context);
    this.#proveRefunds = createOwners(lease.runLimited, settings).proveRefunds;
    this.#revertTransfers = createReverting(context).revertTransfers;
  }

  /**
   * Records a block. `after` is the hash of the cursor, which moves to this block; undefined if it does not.
   * A payment confirmed in another block stays there unless `goneOf` returns it. Throws LeaseLost.
   */
  async record(
    lease: bigint,
    block: Block,
    read: readonly FoundTransfer[],
    after: Hash | undefined,
    goneOf: GoneOf,
  ): Promise<Recorded> {
    const { run, settings } = this.#context;
    const at = new Date();
    await this.#noteUnread(block, read);
    const proven = await this.#proveRefunds(read);
    const kept = [block.hash, ...(block.recorded ?? [])].map(bytes);
    const replaced = [settings.chainId, block.number, kept];
    const left = after === undefined ? [] : (await run(findReplaced, replaced)).rows;
    const all = await this.#readKnown(proven);
    const staying = await this.#stayingOf(all, block, goneOf);
    const found = proven.filter(({ log }) => !staying.has(log.transactionHash));
    const known = all.filter(({ transactionHash }) => !staying.has(`0x${transactionHash}`));
    const matched = await matchKnown(block, found, known);
    // A transaction is in one block only. What is in another block and not in this one is reverted.
    const moved = known.filter((row) => isInAnotherBlock(row, block));
    const returning = new Set(matched.flatMap(({ before }) => before?.id ?? []));
    const gone = idsOf([...left, ...moved]).filter((id) => !returning.has(id));
    const leftIds = new Set<string>(idsOf(left));
    // The last chunk reports a block and moves the cursor. What is there before was not reported, but for
    // blocks that are read a second time.
    const unreported = matched.filter(
      ({ before, isThere, refund }) =>
        before?.paymentIntent === null &&
        refund === undefined &&
        (leftIds.has(before.id) || (isThere && (after !== undefined || block.isAhead === true))),
    );
    const reverted = await this.#revertTransfers(lease, gone);
    const { entries, ...seen } = await this.#entriesOf(lease, block, matched, at, after === undefined);
    const ordered = reportLargest(groupedByIntent(entries), unreported);
    const changes = await this.#recordAll(lease, block, ordered, after);
    return { changes: reverted + changes, ...seen, contradicted: seen.contradicted + staying.size };
  }

  /**
   * True if an earlier reading may rightly have left it out: its wallet was watched only later; or it is dust, or
   * reported to another merchant, and just its amount was missing only later. Strangers can cause each.
   */
  #mayHaveBeenLeftOut({
    before,
    refund,
    authorizedBy,
    intentId,
    isRest,
    transfer,
    ...known
  }: Entry): boolean {
    if (before !== undefined || authorizedBy !== undefined) return false;
    // Another refund may have made its receiver known since.
    if (refund !== undefined) return refund.isElsewhere === true;
    const laterMs = known.watchedSinceMs - transfer.blockTime.getTime();
    // What no intent expects may have come shortly before.
    if (laterMs > clockAllowanceMs || (intentId === undefined && laterMs > -clockAllowanceMs)) return true;
    return isRest === true && (this.#isSmall(transfer.log) || !known.isReported);
  }

  readonly #isSmall = ({ amountUnits }: TransferLog) => amountUnits < this.#context.unattributedMinUnits;

  /** The transactions that one node has in this block, and another still where they were confirmed. */
  async #stayingOf(known: readonly TransferRow[], block: Block, goneOf: GoneOf): Promise<ReadonlySet<Hash>> {
    const moved = known.filter((row) => row.state === 'confirmed' && isInAnotherBlock(row, block));
    if (moved.length === 0) return new Set();
    const confirmed = await findConfirmed(this.#context.run, idsOf(moved));
    const gone = new Set(await goneOf(confirmed));
    const staying = confirmed.filter((transfer) => !gone.has(transfer));
    if (staying.length > 0) {
      const { transactionHash } = (staying[0] as RecordedTransfer).log;
      this.#context.logger.error(
        { transaction_hash: transactionHash, transfers: staying.length, block_number: block.number },
        'confirmed transfers are in another block for one node: they stay where they are',
      );
    }
    return new Set(staying.map(({ log }) => log.transactionHash));
  }

  /** Runs first: even if recording fails, no authorization that may be used is released and signed anew. */
  async #noteUnread(block: Block, read: readonly FoundTransfer[]): Promise<void> {
    const { run, settings, logger } = this.#context;
    const unread = read.filter(({ isUnread }) => isUnread);
    for (const intent of await noteDoubtful(run, settings, unread)) {
      logger.warn(
        { payment_intent: formatIdentifier('pi', intent), block_number: block.number },
        'a payment by a signature may be in a transaction whose receipt the node does not serve: attribute it by hand',
      );
    }
  }

  async #readKnown(found: readonly FoundTransfer[]): Promise<TransferRow[]> {
    const { run, settings } = this.#context;
    const hashes = [...new Set(found.map(({ log }) => bytes(log.transactionHash)))];
    const known: TransferRow[] = [];
    for (const some of inChunks(hashes)) {
      const { rows } = await run(this.#findOfTransactions, [some, settings.chainId]);
      for (const row of await mapInSlices(rows, this.#transfers.read)) known.push(row);
    }
    return known;
  }

  /** Returns the transfers of a block to record, with their intents, and the other counts of `Recorded`. */
  async #entriesOf(
    lease: bigint,
    block: Block,
    matched: readonly KnownTransfer[],
    at: Date,
    isLater: boolean,
  ) {
    // A recorded transfer is attributed again if a node had hidden the id in it.
    const arriving = matched.filter(({ isThere, before, transfer, refund }) => {
      if (!isThere) return true;
      if (refund !== undefined) return before?.refund == null && refund.id !== undefined;
      if (before?.paymentIntent == null) return (transfer.named ?? transfer.nonce) !== undefined;
      const isSame = transfer.named === formatIdentifier('pi', before.paymentIntent);
      return transfer.named !== undefined && !before.attributedByHand && !isSame;
    });
    const payments = arriving.filter(({ refund }) => refund === undefined);
    const claims = await findClaims(this.#context.lease.runLimited, this.#context.settings, payments);
    const attributions = await this.#attribute(
      block.time,
      payments.map((known) => ({
        merchantId: known.merchantId,
        wallet: known.transfer.log.to,
        amountUnits: known.transfer.log.amountUnits,
        named: namedBy(claims.get(known)) ?? known.transfer.named,
        requiresId: known.isThere || known.before?.isDetached === true || known.transfer.isUnread === true,
      })),
      () => this.#context.lease.renew(lease),
    );
    const entries: Entry[] = arriving
      .filter(({ refund }) => refund !== undefined)
      .map((known) => ({ ...known, id: newUuid(at.getTime()), intentId: undefined }));
    let [dust, contradicted] = [0, 0];
    for (const [i, known] of payments.entries()) {
      await nextSlice();
      const { intentId: found, isAmbiguous = true, isRest }: Partial<Attribution> = attributions[i] ?? {};
      if (known.isThere && known.before?.paymentIntent != null) {
        if (found === undefined || found === known.before.paymentIntent) continue;
        contradicted++;
        this.#logContradicted(known.before, found);
        continue;
      }
      // A transfer that returns stays with its intent, even if it was attributed by hand.
      const intentId = known.before?.paymentIntent ?? found;
      // A later reading finds transfers from before the merchant used the wallet: no node has hidden them.
      const isNew = known.before === undefined;
      // What could not be looked up may still be an intent of the merchant.
      const mayBeOwn = isAmbiguous && known.transfer.named !== undefined;
      const isForeign = isNew && (!known.isReported || (isLater && known.isOlder && !mayBeOwn));
      if (intentId === undefined && (known.isThere || isForeign)) continue;
      const claim = claims.get(known);
      // Unset if the transfer pays another intent than that of the authorization.
      const authorizedBy = intentId === undefined || claim?.intent === intentId ? claim?.id : undefined;
      if (intentId === undefined && isNew && !isAmbiguous && this.#isSmall(known.transfer.log)) dust++;
      else entries.push({ ...known, id: newUuid(at.getTime()), intentId, authorizedBy, isRest });
    }
    return { entries, dust, contradicted };
  }

  /** Records a chunk in one transaction. The last one moves the cursor. Returns the number of changes. */
  #recordSome(lease: bigint, block: Block, some: readonly Entry[], after: Hash | undefined) {
    const { settings, commit } = this.#context;
    const mayBeLeftOut = some.every((entry) => this.#mayHaveBeenLeftOut(entry));
    return commit(lease, async (inside) => {
      if (after !== undefined) await moveCursor(inside, settings.chainId, block, after);
      if (some.length === 0) return [];
      // Read again: a transfer may have been attributed by hand meanwhile, or this is a retry after a COMMIT
      // with an unknown outcome.
      const { rows } = await inside(this.#findByIds, [some.map(({ id, before }) => before?.id ?? id)]);
      const fresh = new Map((await mapInSlices(rows, this.#transfers.read)).map((row) => [row.id, row]));
      const entries = some.flatMap((entry) =>
        refreshed(entry, fresh.get(entry.before?.id ?? entry.id), block),
      );
      return (await this.#store(inside, block, entries)).map((change) => ({ ...change, mayBeLeftOut }));
    });
  }

  async #recordAll(
    lease: bigint,
    block: Block,
    entries: readonly Entry[],
    after: Hash | undefined,
  ): Promise<number> {
    const { run, onSettled } = this.#context;
    let changes = 0;
    if (entries.length === 0 && after === undefined) return changes;
    const last = entries.at(-1);
    const work = async (some: readonly Entry[]): Promise<void> => {
      const isLast = some.at(-1)?.id === last?.id;
      changes += await this.#recordSome(lease, block, some, isLast ? after : undefined);
      for (const { authorizedBy, intentId, before } of some) {
        if (authorizedBy !== undefined && intentId !== undefined && before === undefined)
          onSettled?.(block.time.getTime() - timeOfUuid(authorizedBy));
      }
    };
    const alone = async (entry: Entry, reason: unknown): Promise<void> => {
      await work([
        {
          ...entry,
          intentId: undefined,
          hasFailed: true,
          ...(entry.refund === undefined
            ? { reportedCount: entry.reportedCount ?? 1 }
            : { refund: { id: undefined } }),
        },
      ]);
      this.#logFailed(reason, entry.transfer.log);
    };
    const beforeRetry = () => this.#context.lease.renew(lease);
    // Without entries, one empty chunk moves the cursor.
    const chunks = entries.length === 0 ? [[]] : inChunks(entries);
    for (const some of chunks) await inHalves(some, { work, alone, run, isFatal, beforeRetry });
    return changes;
  }

  /** The payment keeps its intent: only a person can find out which of two nodes is wrong. */
  #logContradicted({ transactionHash, paymentIntent }: TransferRow, proven: string): void {
    this.#context.logger.error(
      {
        transaction_hash: `0x${transactionHash}`,
        payment_intent: formatIdentifier('pi', paymentIntent as string),
        proven: formatIdentifier('pi', proven),
      },
      'a payment proves another intent than it was recorded for: one node gave wrong data',
    );
  }

  /** A statement failed for a single transfer, which stays unattributed. */
  #logFailed(reason: unknown, log?: TransferLog): void {
    this.#context.onFailed?.();
    this.#context.logger.error(
      { err: reason, ...(log && { transaction_hash: log.transactionHash, log_index: log.logIndex }) },
      'recording a transfer failed; it is left unattributed: attribute it by hand',
    );
  }
}

/** The public id of the intent that was shown the authorization. */
function namedBy(claim: Claim | undefined): string | undefined {
  return claim && formatIdentifier('pi', claim.intent);
}

/** Updates the entry to its current row. Returns no entry if it is recorded already. */
function refreshed(entry: Entry, row: TransferRow | undefined, block: Block): Entry[] {
  if (row === undefined) return [entry];
  const isThere =
    row.state !== 'reorged' && !isInAnotherBlock(row, block) && row.logIndex === entry.transfer.log.logIndex;
  const refund = entry.hasFailed ? entry.refund : refundOf(entry, row);
  if (refund !== undefined) {
    const isKnown = isThere && (row.refund != null || refund.id === undefined);
    return isKnown ? [] : [{ ...entry, before: row, isThere, intentId: undefined, refund }];
  }
  const wasDetached = row.isDetached && entry.before?.isDetached !== true;
  const found = wasDetached ? undefined : entry.intentId;
  const intentId = entry.hasFailed ? undefined : (row.paymentIntent ?? found);
  // A previous attempt recorded it.
  if (isThere && (entry.before === undefined || row.paymentIntent != null || intentId === undefined))
    return [];
  return [{ ...entry, before: row, isThere, intentId, refund }];
}

/** Keeps an intent's entries together if there are several chunks, so that it gets few events. */
function groupedByIntent(entries: readonly Entry[]): readonly Entry[] {
  if (entries.length <= maxAtOnce) return entries;
  return [...Map.groupBy(entries, ({ intentId, refund }) => intentId ?? refund?.id).values()].flat();
}

/**
 * Each merchant is notified of the largest of its new unattributed transfers, once all are recorded: returns
 * the entries with these at the end. `unreported` are recorded already, but were not reported.
 */
function reportLargest(entries: readonly Entry[], unreported: readonly KnownTransfer[]): readonly Entry[] {
  const ids = new Set(unreported.map(({ before }) => before?.id));
  const isNew = ({ intentId, before, refund }: Entry) =>
    intentId === undefined && refund === undefined && (before === undefined || ids.has(before.id));
  const arriving = new Set(entries.map(({ before }) => before?.id));
  const others = unreported.filter(({ before }) => !arriving.has(before?.id));
  const othersOf = Map.groupBy(others, ({ merchantId }) => merchantId);
  const reported = new Set<Entry>();
  for (const [merchantId, own] of Map.groupBy(entries.filter(isNew), (entry) => entry.merchantId)) {
    const largest = own.reduce((a, b) => (b.transfer.log.amountUnits > a.transfer.log.amountUnits ? b : a));
    largest.reportedCount = own.length + (othersOf.get(merchantId)?.length ?? 0);
    reported.add(largest);
  }
  return [...entries.filter((entry) => !reported.has(entry)), ...reported];
}

function isInAnotherBlock({ state, blockHash }: TransferRow, block: Block): boolean {
  return state !== 'reorged' && blockHash !== block.hash.slice(2);
}

/** Transfers of a partly recorded block that was reorged. It is above the cursor, which never reached it. */
const findReplaced = preparedStatement(
  'find_transfers_in_place',
  `select id from transfers
    where chain_id = $1 and block_number > (select cursor_number from watched_chains where chain_id = $1)
      and block_number <= $2 and block_hash <> all ($3::bytea[]) and state <> 'reorged'`,
);
