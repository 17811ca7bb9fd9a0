// A model of the promises about an intent (docs/settlement.md), given the chain and the order of calls.
// Written from the promises alone, without code of the service, a database or a clock.
//
// What the promises leave open, the model assumes:
// - A watcher first reverts what the chain reverted, then reads the new blocks one by one, and then, at the newest
//   block, confirms and expires.
// - The payments of one block that count are one event, those that are late one more, those of another token one more.
// - What counts before success is reported as `processing` again if the amount was already reached.
// - What makes an intent overpaid is reported as `overpaid` right after, unless the change itself is that.
// - One reorganisation is one event for each intent that loses payments.
// - A payment that was reverted while its intent was open is judged again when it returns. One that was
//   reverted after the end returns as what it was, and is reported as `reorged`.

import { AuthorizationModel } from './authorization-model.ts';
import { RefundModel } from './refund-model.ts';

export const confirmationsRequired = 10;

export type ModelStatus = 'requires_payment' | 'processing' | 'succeeded' | 'expired' | 'canceled';

/** Money sent. The object itself is its identity: in another block it is the same transfer. */
export interface ModelTransfer {
  /** The index of the intent that is paid. */
  readonly intent: number | undefined;
  /** Set unless an intent is paid: everything that can be seen in the transfer. */
  readonly way?: TransferWay;
  readonly amountUnits: number;
  readonly isUsdc: boolean;
}

export interface TransferWay {
  readonly from: string;
  readonly to: string;
  /** The index of the refund whose id its sender wrote. */
  readonly named?: number | undefined;
}

export interface ModelBlock {
  /** In whole seconds. */
  readonly time: number;
  readonly transfers: readonly ModelTransfer[];
}

export interface ModelPayment {
  /** True if it is part of the intent's sum while it is on the chain. */
  counts: boolean;
  labels: readonly string[];
  /** Undefined if the payment is reorged. */
  height: number | undefined;
  isConfirmed: boolean;
}

export interface ModelIntent {
  readonly amountUnits: number;
  readonly wallet: string;
  /** In whole seconds. */
  readonly expiresAt: number;
  status: ModelStatus;
  readonly payments: Map<ModelTransfer, ModelPayment>;
  /** Labels that no payment removes. */
  readonly lasting: Set<'reorged'>;
  /** Types of its events, in order, without `payment_intent.`. */
  readonly events: string[];
}

const hasEnded = ({ status }: ModelIntent) => status !== 'requires_payment' && status !== 'processing';
const isOnChain = ({ height }: ModelPayment) => height !== undefined;

function sumOf(intent: ModelIntent, isWanted: (payment: ModelPayment) => boolean): number {
  let sum = 0;
  for (const [{ amountUnits }, payment] of intent.payments) {
    if (payment.counts && isOnChain(payment) && isWanted(payment)) sum += amountUnits;
  }
  return sum;
}

/** USDC that is on the chain and came in time. */
export const receivedUnits = (intent: ModelIntent): number => sumOf(intent, () => true);

/** USDC with all confirmations, whether it counts or not. */
function confirmedUnits({ payments }: ModelIntent): number {
  let sum = 0;
  for (const [{ isUsdc, amountUnits }, { isConfirmed }] of payments) {
    if (isUsdc && isConfirmed) sum += amountUnits;
  }
  return sum;
}

/** In alphabetical order. */
export function labelsOf(intent: ModelIntent): string[] {
  const labels = new Set<string>(intent.lasting);
  for (const payment of intent.payments.values()) {
    if (isOnChain(payment)) for (const label of payment.labels) labels.add(label);
  }
  const received = receivedUnits(intent);
  if (received > intent.amountUnits) labels.add('overpaid');
  const isUnpaid = intent.status === 'expired' || intent.status === 'canceled';
  if (isUnpaid && received > 0 && received < intent.amountUnits) labels.add('underpaid');
  return [...labels].sort();
}

export class SettlementModel {
  readonly intents: ModelIntent[] = [];
  readonly refunds: RefundModel;
  readonly authorizations = new AuthorizationModel();
  /** The blocks that were read. */
  #read: readonly ModelBlock[] = [];
  /** The indexes of the intents that transfers without an id were attributed to. */
  readonly #payees = new Map<ModelTransfer, { intent: number; isByHand: boolean }>();
  readonly #detached = new Set<ModelTransfer>();

  /** `payoutWallet` is the merchant's. */
  constructor(payoutWallet: string) {
    this.refunds = new RefundModel({
      confirmedUnits: (intent) => confirmedUnits(this.intents[intent] as ModelIntent),
      isOwn: (address) => address === payoutWallet || this.intents.some(({ wallet }) => wallet === address),
    });
  }

  create(intent: Pick<ModelIntent, 'amountUnits' | 'wallet' | 'expiresAt'>): void {
    const open = { status: 'requires_payment' as const, payments: new Map(), lasting: new Set<never>() };
    const { amountUnits, wallet, expiresAt } = intent;
    this.intents.push({ amountUnits, wallet, expiresAt, ...open, events: [] });
  }

  /** A person attributes an unattributed transfer. Returns false if that is refused. */
  attribute(transfer: ModelTransfer, place: number): boolean {
    const payee = this.#payees.get(transfer);
    if (payee !== undefined) return payee.intent === place;
    const intent = this.intents[place] as ModelIntent;
    const height = this.#read.findIndex(({ transfers }) => transfers.includes(transfer));
    const isNobodys = height !== -1 && transfer.way !== undefined && !this.refunds.takes(transfer);
    if (!isNobodys || transfer.way?.to !== intent.wallet) return false;
    this.#payees.set(transfer, { intent: place, isByHand: true });
    arrive(intent, [transfer], height, (this.#read[height] as ModelBlock).time);
    this.#confirm(intent);
    return true;
  }

  /** A person detaches a transfer. Returns false if that is refused, or the transfer is unattributed. */
  detach(transfer: ModelTransfer): boolean {
    const payee = this.#payees.get(transfer);
    if (payee === undefined) return false;
    const intent = this.intents[payee.intent] as ModelIntent;
    const payment = intent.payments.get(transfer) as ModelPayment;
    const units = payment.isConfirmed ? transfer.amountUnits : 0;
    const confirmed = sumOf(intent, ({ isConfirmed }) => isConfirmed) - units;
    const isNeeded = intent.status === 'succeeded' && payment.counts && confirmed < intent.amountUnits;
    if (!payee.isByHand || isNeeded || units > this.refunds.refundableUnits(payee.intent)) return false;
    intent.payments.delete(transfer);
    this.#payees.delete(transfer);
    this.#detached.add(transfer);
    const received = receivedUnits(intent);
    if (!hasEnded(intent)) intent.status = received >= intent.amountUnits ? 'processing' : 'requires_payment';
    intent.events.push('payment_detached');
    return true;
  }

  /** Returns false if it is refused. */
  cancel(intent: ModelIntent): boolean {
    if (intent.status === 'canceled') return true;
    if (intent.status !== 'requires_payment') return false;
    // The payer's authorization could still be sent.
    if (this.authorizations.isOccupied(this.intents.indexOf(intent))) return false;
    end(intent, 'canceled');
    return true;
  }

  /** The watcher reads the chain as it is now. */
  read(chain: readonly ModelBlock[]): void {
    // The head went back: wait.
    if (this.isBehind(chain)) return;
    const common = commonLength(chain, this.#read);
    const unpaid = this.intents.flatMap((intent, place) => (this.#revert(intent, common) ? place : []));
    this.refunds.revert(common, new Set(unpaid));
    if (common < this.#read.length) {
      // What was over by then ends before the blocks of the other branch are read.
      this.#read = chain.slice(0, common);
      for (const intent of this.intents) this.#expire(intent);
      this.refunds.expire((time) => isOver(this.#read, time));
    }
    this.#read = [...chain];
    for (let height = common; height < chain.length; height++) {
      const { time, transfers } = chain[height] as ModelBlock;
      const payees = new Map(transfers.map((transfer) => [transfer, this.#payeeOf(transfer)]));
      this.intents.forEach((intent, place) => {
        const own = transfers.filter((transfer) => payees.get(transfer) === place);
        if (own.length > 0) arrive(intent, own, height, time);
      });
      const returned = transfers.filter((transfer) => this.refunds.takes(transfer));
      this.refunds.arrive(returned, height, time);
    }
    for (const intent of this.intents) this.#confirm(intent);
    for (const intent of this.intents) this.#expire(intent);
    this.authorizations.read(chain, chain.at(-confirmationsRequired));
    this.refunds.settle(
      (height) => this.#depthOf(height) === confirmationsRequired,
      (time) => isOver(chain, time),
    );
  }

  /** A transfer without an id is for the only intent that ever had the wallet. */
  #payeeOf(transfer: ModelTransfer): number | undefined {
    const { intent, way } = transfer;
    if (way === undefined || this.refunds.takes(transfer)) return intent;
    const known = this.#payees.get(transfer);
    if (known !== undefined || this.#detached.has(transfer)) return known?.intent;
    const named = this.intents.flatMap(({ wallet }, place) => (wallet === way.to ? place : []));
    const [only] = named;
    if (only === undefined || named.length > 1) return undefined;
    this.#payees.set(transfer, { intent: only, isByHand: false });
    return only;
  }

  /** The time of the newest block that was read, in whole seconds. */
  get readTime(): number | undefined {
    return this.#read.at(-1)?.time;
  }

  #depthOf(height: number): number {
    return Math.min(confirmationsRequired, this.#read.length - height);
  }

  /** The block of the payment is the first confirmation. */
  confirmationsOf({ height }: ModelPayment): number {
    return height === undefined ? 0 : this.#depthOf(height);
  }

  /** True while the chain is shorter than the blocks read before. */
  isBehind(chain: readonly ModelBlock[]): boolean {
    return chain.length < this.#read.length;
  }

  /** True if the chain has reorganised since it was read, and is long enough to tell. */
  isReorganised(chain: readonly ModelBlock[]): boolean {
    return !this.isBehind(chain) && commonLength(chain, this.#read) < this.#read.length;
  }

  /** The number of blocks not read yet. */
  unreadBlocks(chain: readonly ModelBlock[]): number {
    return chain.length - commonLength(chain, this.#read);
  }

  /** Returns true if the intent has lost a confirmed payment. */
  #revert(intent: ModelIntent, common: number): boolean {
    const taken = [...intent.payments.values()].filter(({ height = -1 }) => height >= common);
    if (taken.length === 0) return false;
    const wasConfirmed = taken.some(({ isConfirmed }) => isConfirmed);
    for (const payment of taken) {
      payment.height = undefined;
      payment.isConfirmed = false;
      if (hasEnded(intent)) continue;
      payment.counts = false;
      payment.labels = [];
    }
    // The reorganisation was deeper than the confirmations, so a person has to decide.
    if (intent.status === 'succeeded' && wasConfirmed) intent.lasting.add('reorged');
    if (!hasEnded(intent)) {
      intent.status = receivedUnits(intent) >= intent.amountUnits ? 'processing' : 'requires_payment';
    }
    intent.events.push('reorged');
    return wasConfirmed;
  }

  #confirm(intent: ModelIntent): void {
    for (const payment of intent.payments.values()) {
      if (this.confirmationsOf(payment) === confirmationsRequired) payment.isConfirmed = true;
    }
    const confirmed = sumOf(intent, ({ isConfirmed }) => isConfirmed);
    if (intent.status !== 'processing' || confirmed < intent.amountUnits) return;
    intent.status = 'succeeded';
    intent.events.push('succeeded');
  }

  #expire(intent: ModelIntent): void {
    if (intent.status === 'requires_payment' && isOver(this.#read, intent.expiresAt)) end(intent, 'expired');
  }
}

/** True if a block later than this time has all confirmations. */
export function isOver(chain: readonly ModelBlock[], expiresAt: number): boolean {
  const confirmed = chain.at(-confirmationsRequired);
  return confirmed !== undefined && confirmed.time > expiresAt;
}

function commonLength(chain: readonly ModelBlock[], other: readonly ModelBlock[]): number {
  const first = chain.findIndex((block, height) => block !== other[height]);
  return first === -1 ? chain.length : first;
}

function arrive(
  intent: ModelIntent,
  transfers: readonly ModelTransfer[],
  height: number,
  time: number,
): void {
  const isLate = time > intent.expiresAt;
  const wasEnded = hasEnded(intent);
  const seen = { counting: false, late: false, wrongToken: false, returned: false };
  let received = receivedUnits(intent);
  let isOver = received > intent.amountUnits;
  /** Reports once that more than the amount was received. */
  const sayOver = () => {
    if (received > intent.amountUnits && !isOver) intent.events.push('overpaid');
    isOver = received > intent.amountUnits;
  };
  for (const transfer of transfers) {
    const known = intent.payments.get(transfer);
    if (known !== undefined && wasEnded && (known.counts || known.labels.length > 0)) {
      known.height = height;
      seen.returned = true;
      continue;
    }
    const labels = labelsOfNew(intent, transfer, isLate);
    const counts = labels.length === 0;
    intent.payments.set(transfer, { counts, labels, height, isConfirmed: false });
    if (counts) received += transfer.amountUnits;
    if (counts) seen.counting = true;
    else if (transfer.isUsdc) seen.late = true;
    else seen.wrongToken = true;
  }
  if (seen.counting) {
    if (intent.status === 'succeeded') {
      intent.events.push('overpaid');
      isOver = received > intent.amountUnits;
    } else if (received >= intent.amountUnits) {
      intent.status = 'processing';
      intent.events.push('processing');
    } else intent.events.push('partially_paid');
    sayOver();
  }
  if (seen.late) intent.events.push('late_payment');
  if (seen.wrongToken) intent.events.push('wrong_token');
  if (seen.returned) {
    intent.events.push('reorged');
    received = receivedUnits(intent);
    sayOver();
  }
}

/** Returns the labels of a new payment. Empty if it counts. */
function labelsOfNew({ status }: ModelIntent, { isUsdc }: ModelTransfer, isLate: boolean): string[] {
  if (!isUsdc) return ['wrong_token'];
  if (status === 'canceled') return isLate ? ['after_cancel', 'late'] : ['after_cancel'];
  if (isLate) return ['late'];
  return status === 'expired' ? ['found_late', 'late'] : [];
}

function end(intent: ModelIntent, status: 'expired' | 'canceled'): void {
  intent.status = status;
  intent.events.push(status);
}

/** What happened to an intent on the chain, whatever the nodes told the watcher. */
export interface Truth {
  amountUnits: number;
  expiresAt: number;
  /** At some moment, it was paid in time with all confirmations. */
  wasPaid: boolean;
  /** At some moment, its time was over by the chain's clock. */
  wasOver: boolean;
  isCanceled: boolean;
}

/** An intent as its service reports it. */
export interface Report {
  status: string;
  receivedUnits: number;
  labels: readonly string[];
  payments: readonly {
    /** Undefined if the transfer never existed. */
    transfer: ModelTransfer | undefined;
    isConfirmed: boolean;
    isReorged: boolean;
    labels: readonly string[];
  }[];
}

/** USDC for the intent in blocks up to this time that are at least this deep. */
export function paidUnits(
  chain: readonly ModelBlock[],
  place: number,
  { expiresAt }: Pick<Truth, 'expiresAt'>,
  confirmations: number,
): number {
  return chain
    .slice(0, Math.max(0, chain.length - confirmations + 1))
    .filter(({ time }) => time <= expiresAt)
    .flatMap(({ transfers }) => transfers)
    .filter(({ intent, isUsdc }) => intent === place && isUsdc)
    .reduce((sum, { amountUnits }) => sum + amountUnits, 0);
}

/** Returns what is wrong with a report, at any time and whatever the nodes say. */
export function falsehoods({ status }: Pick<Report, 'status'>, truth: Truth): string[] {
  return [
    ...(status === 'succeeded' && !truth.wasPaid ? ['it succeeded, and was never paid on the chain'] : []),
    ...(status === 'expired' && !truth.wasOver ? ['it expired before its time'] : []),
    ...((status === 'canceled') !== truth.isCanceled ? ['it is canceled, or not, against its merchant'] : []),
  ];
}

/**
 * Returns what is wrong with a report once the nodes are honest, everything was read twice, and all transfers
 * have their confirmations. Transfers that a lie has hidden may have been found only after the end.
 */
export function lastingFalsehoods(
  report: Report,
  chain: readonly ModelBlock[],
  place: number,
  truth: Truth,
): string[] {
  const problems = falsehoods(report, truth);
  const { status, payments, labels } = report;
  const onChain = payments.filter(({ isReorged }) => !isReorged);
  const timeOf = new Map(
    chain.flatMap(({ time, transfers }) => transfers.map((each) => [each, time] as const)),
  );
  for (const transfer of timeOf.keys()) {
    const times = onChain.filter((payment) => payment.transfer === transfer).length;
    if (transfer.intent === place && times !== 1)
      problems.push(`a transfer on the chain is there ${times} times`);
  }
  for (const payment of onChain) {
    const { transfer } = payment;
    const time = transfer && timeOf.get(transfer);
    if (transfer?.intent !== place || time === undefined) problems.push('a payment is not on the chain');
    if (!payment.isConfirmed) problems.push('a payment is not confirmed');
    if (transfer?.isUsdc === false && payment.labels.join() !== 'wrong_token') problems.push('USDC.e counts');
    for (const label of payment.labels)
      if (!labels.includes(label)) problems.push(`the label ${label} is missing`);
  }
  const received = onChain.reduce(
    (sum, { transfer, labels }) => sum + (labels.length === 0 ? (transfer?.amountUnits ?? 0) : 0),
    0,
  );
  if (report.receivedUnits !== received) problems.push('the sum is not that of the payments that count');
  if (labels.includes('overpaid') !== received > truth.amountUnits) problems.push('overpaid, or not');

  const isPaid = paidUnits(chain, place, truth, confirmationsRequired) >= truth.amountUnits;
  // Found after the end, or late in another block before a reorganisation.
  const isFoundLate = onChain.some(
    ({ transfer, labels }) =>
      labels.includes('late') && ((transfer && timeOf.get(transfer)) ?? Infinity) <= truth.expiresAt,
  );
  if (status === 'processing') problems.push('it is still processing');
  if (status === 'requires_payment' && isPaid) problems.push('it was paid, and requires payment');
  if (status === 'requires_payment' && isOver(chain, truth.expiresAt)) problems.push('its time is over');
  if (status === 'expired' && isPaid && !isFoundLate) problems.push('it was paid in time, and expired');
  return problems;
}
