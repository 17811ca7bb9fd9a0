// A model of the promises about refunds (docs/settlement.md), given the chain and the order of calls. Written
// from the promises alone, like `settlement-model.ts`.
//
// What the promises leave open, the model assumes:
// - A transfer is judged by the refund's state when it is found. In one block, what counts is one event, and
//   everything unexpected is one more.
// - One reorganisation is one `reorged` event for each refund that loses transfers. A returning transfer is
//   judged again. If the one that counted is gone, one that only came second takes its place.
// - Refunds say `payment_reorged` once a reorganisation of a confirmed payment has left less than they return or hold.

import type { ModelTransfer } from './settlement-model.ts';

export type ModelRefundStatus = 'requires_transfer' | 'processing' | 'succeeded' | 'canceled' | 'expired';

export interface ModelRefund {
  /** The index of the intent in the model. */
  readonly intent: number;
  readonly amountUnits: number;
  readonly destination: string;
  /** The wallet of the intent. */
  readonly wallet: string;
  /** In whole seconds. */
  readonly expiresAt: number;
  status: ModelRefundStatus;
  isUncovered: boolean;
  /** Types of its events, in order, without `refund.`. */
  readonly events: string[];
}

/** A transfer that is not a payment. */
export interface ModelReturn {
  /** The index of the refund, if it is known. */
  refund: number | undefined;
  counts: boolean;
  labels: readonly string[];
  /** Undefined if the transfer is reorged. */
  height: number | undefined;
  time: number;
  isConfirmed: boolean;
}

/** The facts about payments that refunds depend on. */
export interface PaidMoney {
  /** Confirmed USDC of the intent, counted or not. */
  confirmedUnits(intent: number): number;
  /** True for a wallet of the merchant. */
  isOwn(wallet: string): boolean;
}

export class RefundModel {
  readonly refunds: ModelRefund[] = [];
  readonly transfers = new Map<ModelTransfer, ModelReturn>();
  readonly #paid: PaidMoney;

  constructor(paid: PaidMoney) {
    this.#paid = paid;
  }

  /** Returns what can still be returned of an intent. */
  refundableUnits(intent: number): number {
    return Math.max(0, this.#paid.confirmedUnits(intent) - this.#committedUnits(intent));
  }

  create(refund: Pick<ModelRefund, 'intent' | 'amountUnits' | 'destination' | 'wallet' | 'expiresAt'>): void {
    this.refunds.push({ ...refund, status: 'requires_transfer', isUncovered: false, events: [] });
  }

  /** Returns false if it is refused. */
  cancel(refund: ModelRefund): boolean {
    if (refund.status === 'canceled') return true;
    if (refund.status !== 'requires_transfer') return false;
    end(refund, 'canceled');
    return true;
  }

  /** The merchant confirms a refund with a transfer. Returns false if that is refused. */
  confirm(place: number, transfer: ModelTransfer): boolean {
    const known = this.transfers.get(transfer);
    const refund = this.refunds[place];
    if (known?.height === undefined || refund === undefined) return false;
    if (known.refund === place) return true;
    if (known.refund !== undefined || !looksLike(transfer, refund)) return false;
    known.refund = place;
    this.#judge(refund, [[transfer, known]]);
    this.#succeed(refund);
    return true;
  }

  labelsOf(refund: ModelRefund): string[] {
    const labels = this.#returnsOf(refund).flatMap((each) => each.labels);
    return [...new Set([...labels, ...(refund.isUncovered ? ['payment_reorged'] : [])])].sort();
  }

  refundedUnits(intent: number): number {
    return this.#sum(intent, ({ isConfirmed }) => isConfirmed);
  }

  /** True if the transfer is one of a refund, or looks like one, so that it is not a payment. */
  takes(transfer: ModelTransfer): boolean {
    const { way } = transfer;
    if (way === undefined) return false;
    if (way.named !== undefined || this.transfers.has(transfer)) return true;
    return !this.#paid.isOwn(way.to) && this.refunds.some((refund) => looksLike(transfer, refund));
  }

  /** Handles the transfers of a new block that are not payments. */
  arrive(transfers: readonly ModelTransfer[], height: number, time: number): void {
    for (const transfer of transfers) {
      const refund = this.transfers.get(transfer)?.refund ?? transfer.way?.named;
      // In the order of the chain.
      this.transfers.delete(transfer);
      this.transfers.set(transfer, { refund, counts: false, labels: [], height, time, isConfirmed: false });
    }
    this.refunds.forEach((refund, place) => {
      const own = transfers.flatMap((transfer): [ModelTransfer, ModelReturn][] => {
        const known = this.transfers.get(transfer);
        return known?.refund === place ? [[transfer, known]] : [];
      });
      this.#judge(refund, own);
    });
  }

  /** Reverts everything in blocks from this height on, with the confirmed payments of these intents. */
  revert(common: number, unpaid: ReadonlySet<number>): void {
    const gone = [...this.transfers.values()].filter(({ height = -1 }) => height >= common);
    for (const each of gone)
      Object.assign(each, { height: undefined, isConfirmed: false, counts: false, labels: [] });
    this.refunds.forEach((refund, place) => {
      if (!gone.some((each) => each.refund === place)) return;
      this.#takeBack(refund);
    });
    for (const intent of unpaid) {
      if (this.#committedUnits(intent) <= this.#paid.confirmedUnits(intent)) continue;
      for (const refund of this.refunds) {
        const isEnded = refund.status === 'canceled' || refund.status === 'expired';
        if (refund.intent !== intent || refund.isUncovered) continue;
        if (isEnded && this.#returnsOf(refund).length === 0) continue;
        refund.isUncovered = true;
        refund.events.push('unexpected');
      }
    }
  }

  /** `isOver`: the chain's clock is past a time. */
  expire(isOver: (time: number) => boolean): void {
    for (const refund of this.refunds) {
      if (refund.status === 'requires_transfer' && isOver(refund.expiresAt)) end(refund, 'expired');
    }
  }

  /** `isDeep`: a height has all confirmations. `isOver`: the chain's clock is past a time. */
  settle(isDeep: (height: number) => boolean, isOver: (time: number) => boolean): void {
    this.expire(isOver);
    const due = [...this.transfers.values()].filter(
      ({ isConfirmed, height }) => !isConfirmed && height !== undefined && isDeep(height),
    );
    // Blocks are confirmed one after the other.
    const byHeight = Map.groupBy(due, ({ height = 0 }) => height);
    for (const [, own] of [...byHeight].sort(([a], [b]) => a - b)) {
      for (const each of own) each.isConfirmed = true;
      for (const [place, refund] of this.refunds.entries()) {
        this.#succeed(refund);
        if (own.some((each) => each.refund === place && !each.counts)) refund.events.push('unexpected');
      }
    }
    for (const refund of this.refunds) this.#succeed(refund);
  }

  #judge(refund: ModelRefund, arrived: readonly [ModelTransfer, ModelReturn][]): void {
    for (const [{ amountUnits, way }, known] of arrived) {
      known.labels = [
        ...(amountUnits === refund.amountUnits ? [] : ['other_amount']),
        ...(way?.to === refund.destination ? [] : ['other_destination']),
        ...labelsOfStatus(refund, known.time),
      ].sort();
      known.counts = known.labels.length === 0;
      if (!known.counts) continue;
      refund.status = 'processing';
      refund.events.push('processing');
    }
    if (arrived.some(([, { counts }]) => !counts)) refund.events.push('unexpected');
  }

  #takeBack(refund: ModelRefund): void {
    refund.events.push('reorged');
    const left = this.#returnsOf(refund);
    const isSent = refund.status === 'processing' || refund.status === 'succeeded';
    if (!isSent || left.some(({ counts }) => counts)) return;
    refund.status = 'requires_transfer';
    const next = left.find(({ labels }) => labels.join() === 'twice');
    if (next === undefined) return;
    Object.assign(next, { counts: true, labels: [] });
    refund.status = 'processing';
    refund.events.push('processing');
    this.#succeed(refund);
  }

  #succeed(refund: ModelRefund): void {
    const isConfirmed = this.#returnsOf(refund).some((each) => each.counts && each.isConfirmed);
    if (refund.status !== 'processing' || !isConfirmed) return;
    refund.status = 'succeeded';
    refund.events.push('succeeded');
  }

  /** Its transfers on the chain. */
  #returnsOf(refund: ModelRefund): ModelReturn[] {
    const place = this.refunds.indexOf(refund);
    return [...this.transfers.values()].filter((each) => each.refund === place && each.height !== undefined);
  }

  #sum(intent: number, isWanted: (transfer: ModelReturn) => boolean): number {
    let sum = 0;
    for (const [{ amountUnits }, known] of this.transfers) {
      const isOwn = known.refund !== undefined && this.refunds[known.refund]?.intent === intent;
      if (isOwn && known.height !== undefined && isWanted(known)) sum += amountUnits;
    }
    return sum;
  }

  /** What is returned, and what open refunds hold that still wait for their own transfer. */
  #committedUnits(intent: number): number {
    const held = this.refunds.filter(
      (refund) => refund.intent === intent && refund.status === 'requires_transfer',
    );
    return this.#sum(intent, () => true) + held.reduce((sum, { amountUnits }) => sum + amountUnits, 0);
  }
}

function labelsOfStatus({ status, expiresAt }: ModelRefund, time: number): string[] {
  if (status === 'processing' || status === 'succeeded') return ['twice'];
  if (status === 'canceled') return ['after_cancel'];
  return status === 'expired' || time > expiresAt ? ['late'] : [];
}

function looksLike(
  { amountUnits, way }: ModelTransfer,
  refund: Pick<ModelRefund, 'amountUnits' | 'destination' | 'wallet'>,
): boolean {
  return way?.from === refund.wallet && way.to === refund.destination && amountUnits === refund.amountUnits;
}

function end(refund: ModelRefund, status: 'canceled' | 'expired'): void {
  refund.status = status;
  refund.events.push(status);
}

/** What happened to a refund on the chain, whatever the nodes told the watcher. */
export interface RefundTruth extends Pick<ModelRefund, 'amountUnits' | 'destination' | 'expiresAt'> {
  /** At some moment, it had a correct transfer with all confirmations. */
  wasSent: boolean;
  wasOver: boolean;
  isCanceled: boolean;
}

/** Returns what is wrong with a refund's status, at any time and whatever the nodes say. */
export function refundFalsehoods(status: string | undefined, truth: RefundTruth): string[] {
  return [
    ...(status === 'succeeded' && !truth.wasSent ? ['it succeeded, and was never sent on the chain'] : []),
    ...(status === 'expired' && !truth.wasOver ? ['it expired before its time'] : []),
    ...((status === 'canceled') !== truth.isCanceled ? ['it is canceled, or not, against its merchant'] : []),
  ];
}

export function isAsPrepared(
  { amountUnits, way }: ModelTransfer,
  refund: Pick<ModelRefund, 'amountUnits' | 'destination'>,
): boolean {
  return amountUnits === refund.amountUnits && way?.to === refund.destination;
}
