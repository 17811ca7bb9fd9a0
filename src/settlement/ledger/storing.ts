import { checksum } from 'ox/Address';
import { type ChainSettings, isRightToken, networkOf } from '../../contract/chains.ts';
import type { PaymentIntentRow } from '../../database/entities/payment-intent.ts';
import type { TransferRow } from '../../database/entities/settlement.ts';
import type { EntityColumns } from '../../database/entity-columns.ts';
import { insertEvents, newEvent } from '../../database/new-events.ts';
import { jsonOfRows, preparedStatement, type RunPrepared } from '../../database/prepared.ts';
import type { ChangeStep } from '../../payment-intents/change-payment-intents.ts';
import { keepSums, readPaymentSums } from '../../payment-intents/payment-sums.ts';
import { mapInSlices } from '../../scheduling/slices.ts';
import { chainTraceparent } from '../../telemetry/spans.ts';
import { type Arrival, arrive, isOpen, type Judged, judge, revert } from '../judgement.ts';
import { toTransfer } from '../transfer.ts';
import { noteLanded } from './authorizations.ts';
import type { Change, LedgerContext } from './context.ts';
import type { KnownTransfer } from './known-transfers.ts';
import { recordedOf, revertRows } from './reverting.ts';
import { idsOf } from './values.ts';

export interface Entry extends KnownTransfer {
  /** The id of the new row, if there is none yet. */
  id: string;
  intentId: string | undefined;
  /** The UUID of the signed authorization that it has used. */
  authorizedBy?: string | undefined;
  /** See `Attribution`. */
  isRest?: boolean | undefined;
  /** Recording it as a payment failed: it is recorded as unattributed. */
  hasFailed?: boolean;
  /** The number of the merchant's new unattributed transfers of a block. Set on the largest of them. */
  reportedCount?: number;
}

/** The row of a transfer, and its arrival at an intent. */
interface Arrived {
  row: TransferRow;
  intent?: PaymentIntentRow;
  arrival?: Arrival & { judged: Judged };
  /** The UUID of the refund that it belongs to. */
  refundId?: string | undefined;
  reportedCount?: number | undefined;
}

/** Returns a function that stores transfers of one block, their events and their effect on intents. */
export function createStoring(transfers: EntityColumns<TransferRow>, context: LedgerContext) {
  const { settings, steps, refunding } = context;
  const upsert = preparedStatement(
    'upsert_transfers',
    `${transfers.insert}
     on conflict (transaction_hash, merchant_id, chain_id, token_address, from_address, to_address, amount_units, ordinal)
     do update set log_index = excluded.log_index, block_number = excluded.block_number, block_hash = excluded.block_hash,
                   block_time = excluded.block_time, state = 'pending', payment_intent = excluded.payment_intent,
                   counts = excluded.counts, labels = excluded.labels, is_refund = excluded.is_refund,
                   refund = excluded.refund, authorized_by = excluded.authorized_by`,
  );
  return async (
    inside: RunPrepared,
    block: { number: number },
    entries: readonly Entry[],
  ): Promise<Change[]> => {
    if (entries.length === 0) return [];
    const intentIds = entries.flatMap(({ intentId }) => intentId ?? []);
    const refundIds = entries.flatMap(({ refund }) => refund?.id ?? []);
    let intents = await steps.lock(inside, intentIds, refundIds);
    // What moves from another block is reverted in this transaction: its intent must not expire in between.
    const returning = entries.flatMap(({ before, isThere }) => (isThere ? [] : (before?.id ?? [])));
    const moved = await recordedOf(inside, returning);
    const reverted = await revertRows(inside, context, moved);
    if (moved.length > 0) intents = await steps.lock(inside, intentIds, refundIds);
    // Taken under the locks: an event is not older than the one before it.
    const at = new Date();
    await keepSums(inside, intents.values());
    const arrived = await mapInSlices(entries, (entry) =>
      arrivedOf(settings, entry, intents.get(entry.intentId ?? ''), at),
    );
    const rows = arrived.map(({ row }) => row);
    const ofRefunds = arrived.filter(({ refundId }) => refundId !== undefined).map(({ row }) => row);
    const refunds = await refunding.arrive(inside, ofRefunds);
    await noteLanded(inside, rows);
    await inside(upsert, [transfers.json(rows)]);
    const changes = await steps.apply(inside, await stepsOf(inside, arrived), at);
    const refunded = await refunding.apply(inside, refunds, at);
    const reported = await recordTransferEvents(inside, arrived, block.number, at);
    return [...reverted, ...changes, ...refunded, ...reported];
  };
}

function newRow(
  { mode, chainId }: ChainSettings,
  { transfer: { log, blockTime }, merchantId, ordinal, before, id, refund, authorizedBy }: Entry,
  at: Date,
): TransferRow {
  return {
    id: before?.id ?? id,
    merchantId,
    mode,
    chainId,
    transactionHash: log.transactionHash.slice(2),
    logIndex: log.logIndex,
    blockNumber: BigInt(log.blockNumber),
    blockHash: log.blockHash.slice(2),
    blockTime,
    fromAddress: checksum(log.from),
    toAddress: checksum(log.to),
    tokenAddress: checksum(log.token),
    amountUnits: log.amountUnits,
    ordinal,
    state: 'pending',
    paymentIntent: null,
    attributedByHand: false,
    isDetached: false,
    isRefund: refund !== undefined,
    refund: refund?.id ?? null,
    authorizedBy: authorizedBy ?? before?.authorizedBy ?? null,
    counts: false,
    labels: null,
    createdAt: before?.createdAt ?? at,
  };
}

function arrivedOf(
  settings: ChainSettings,
  entry: Entry,
  intent: PaymentIntentRow | undefined,
  at: Date,
): Arrived {
  const { transfer, before } = entry;
  const { log, blockTime } = transfer;
  const row = newRow(settings, entry, at);
  if (entry.refund !== undefined) return { row, refundId: entry.refund.id };
  if (intent === undefined) {
    const isUsdc = settings.networks.some((each) => isRightToken(each, log.token));
    return { row: { ...row, labels: isUsdc ? null : ['wrong_token'] }, reportedCount: entry.reportedCount };
  }
  const network = networkOf(intent.network);
  const isReturned = before?.paymentIntent === intent.id;
  const arrival = {
    amountUnits: log.amountUnits,
    blockTime,
    isRightToken: network !== undefined && isRightToken(network, log.token),
    isReturned,
  };
  // A payment that returns after the intent ended keeps its earlier verdict, unless reverted before that.
  const isRestored = isReturned && !isOpen(intent) && (before.counts || (before.labels ?? []).length > 0);
  const judged: Judged = isRestored
    ? { counts: before.counts, labels: before.labels ?? [] }
    : judge(intent, arrival);
  const { counts } = judged;
  const labels = judged.labels.length > 0 ? judged.labels : null;
  return {
    row: { ...row, paymentIntent: intent.id, counts, labels },
    intent,
    ...(!isRestored && { arrival: { ...arrival, judged } }),
  };
}

/** What the arrived transfers change in each intent. */
async function stepsOf(
  inside: RunPrepared,
  arrived: readonly Arrived[],
): Promise<Map<PaymentIntentRow, ChangeStep[]>> {
  const steps = new Map<PaymentIntentRow, ChangeStep[]>();
  const paid = arrived.filter(({ intent }) => intent !== undefined);
  for (const [intent, own] of Map.groupBy(paid, (each) => each.intent as PaymentIntentRow)) {
    const arrivals = own.flatMap(({ arrival }) => arrival ?? []);
    steps.set(intent, arrive(intent, arrivals));
  }
  const restored = new Set(paid.flatMap(({ intent, arrival }) => (arrival === undefined && intent) || []));
  const remaining = await readPaymentSums(inside, idsOf([...restored]));
  for (const intent of restored) {
    // After the other steps: the sum includes all returned payments.
    const before = steps.get(intent) ?? [];
    const now = Object.assign({ ...intent }, ...before.map(({ fields }) => fields));
    steps.set(intent, [...before, ...revert(now, { ...remaining(intent.id), wasConfirmed: false })]);
  }
  return steps;
}

/** Records one event for each merchant to notify. */
async function recordTransferEvents(
  inside: RunPrepared,
  arrived: readonly Arrived[],
  head: number,
  at: Date,
): Promise<Change[]> {
  const reported = arrived.flatMap(({ row, reportedCount: count }) =>
    count === undefined ? [] : [{ row, count }],
  );
  if (reported.length === 0) return [];
  const type = 'transfer.unattributed';
  const traceparent = chainTraceparent();
  const events = reported.map(({ row, count }) => {
    const data = { transfer: toTransfer(row, head), transfersCount: count };
    return newEvent(row, at, { type, data, traceparent });
  });
  await inside(insertTransferEvents, [jsonOfRows(events)]);
  return reported.map(({ row: { id, merchantId, transactionHash, amountUnits }, count }) => ({
    merchantId,
    event: type,
    transfer: { id, transactionHash, amountUnits: BigInt(amountUnits), count },
  }));
}

const insertTransferEvents = preparedStatement('insert_transfer_events', insertEvents('$1'));
