// How transfers change an intent: the rules for its status, sum and labels, as in docs/settlement.md. Pure
// functions: no database, no chain, no clock.

import type { StatusName } from '../contract/words.ts';
import type { PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { type ChangeStep, withLabels } from '../payment-intents/change-payment-intents.ts';
import type { PaymentSums } from '../payment-intents/payment-sums.ts';

/** A transfer that was attributed to an intent. */
export interface Arrival {
  amountUnits: bigint;
  blockTime: Date;
  /** The token is the one in which the intent is paid. */
  isRightToken: boolean;
  /** It was attributed to this intent before and returned in another block. */
  isReturned: boolean;
}

export interface Judged {
  /** Whether the payment is part of the intent's sum. */
  counts: boolean;
  labels: string[];
}

/** Judges a transfer by the intent's state at the time it was found. */
export function judge(
  { status, expiresAt }: Pick<PaymentIntentRow, 'status' | 'expiresAt'>,
  { blockTime, isRightToken }: Pick<Arrival, 'blockTime' | 'isRightToken'>,
): Judged {
  if (!isRightToken) return { counts: false, labels: ['wrong_token'] };
  const isInTime = blockTime <= expiresAt;
  if (status === 'canceled') {
    return { counts: false, labels: isInTime ? ['after_cancel'] : ['after_cancel', 'late'] };
  }
  if (!isInTime) return { counts: false, labels: ['late'] };
  if (status === 'expired') return { counts: false, labels: ['late', 'found_late'] };
  return { counts: true, labels: [] };
}

const sumOf = (arrivals: readonly Arrival[]) =>
  arrivals.reduce((sum, { amountUnits }) => sum + amountUnits, 0n);

/** The steps of an intent for these transfers of one block. */
export function arrive(row: PaymentIntentRow, arrivals: readonly (Arrival & { judged: Judged })[]) {
  const amount = BigInt(row.amountUnits);
  const counting = arrivals.filter(({ judged }) => judged.counts);
  const late = arrivals.filter(({ judged, isRightToken }) => !judged.counts && isRightToken);
  const wrong = arrivals.filter(({ isRightToken }) => !isRightToken);
  // Each event has all payments, so each has their number.
  const paymentsCount = row.paymentsCount + arrivals.filter(({ isReturned }) => !isReturned).length;

  let received = BigInt(row.amountReceivedUnits);
  let labels = row.labels;
  const steps: ChangeStep[] = [];
  const step = (
    type: ChangeStep['type'],
    of: readonly (Arrival & { judged: Judged })[],
    status?: StatusName,
  ) => {
    const isOver = received > amount;
    labels = withLabels(labels, [
      ...of.flatMap(({ judged }) => judged.labels),
      ...(isOver ? ['overpaid'] : []),
    ]);
    steps.push({
      type,
      fields: { ...(status && { status }), amountReceivedUnits: received, paymentsCount, labels },
    });
  };
  if (counting.length > 0) {
    received += sumOf(counting);
    if (row.status === 'succeeded') step('payment_intent.overpaid', counting);
    else if (received >= amount) step('payment_intent.processing', counting, 'processing');
    else step('payment_intent.partially_paid', counting);
  }
  if (late.length > 0) step('payment_intent.late_payment', late);
  if (wrong.length > 0) step('payment_intent.wrong_token', wrong);
  return withOverpaid(row, steps);
}

/** Adds the `overpaid` event after the step that made the intent overpaid. */
function withOverpaid(row: PaymentIntentRow, steps: readonly ChangeStep[]): ChangeStep[] {
  let wasOver = row.labels?.includes('overpaid') ?? false;
  return steps.flatMap((step) => {
    const isOver = step.fields.labels?.includes('overpaid') ?? false;
    const isNews = isOver && !wasOver && step.type !== 'payment_intent.overpaid';
    wasOver = isOver;
    return isNews ? [step, { type: 'payment_intent.overpaid' as const, fields: {} }] : [step];
  });
}

/** An intent's payments after a revert. */
interface Remaining extends Pick<PaymentSums, 'receivedUnits' | 'labels'> {
  /** A reverted payment had been confirmed. */
  wasConfirmed: boolean;
}

const labelsOfPayments: ReadonlySet<string> = new Set([
  ...['late', 'found_late', 'after_cancel', 'wrong_token'],
  ...['overpaid', 'underpaid'],
]);

/** True while payments can change the intent's status. */
export function isOpen({ status }: Pick<PaymentIntentRow, 'status'>): boolean {
  return status === 'requires_payment' || status === 'processing';
}

/** The labels of an intent after payments were removed. Labels that do not come from payments stay. */
function labelsOf(row: PaymentIntentRow, { receivedUnits, labels }: Omit<Remaining, 'wasConfirmed'>) {
  const amount = BigInt(row.amountUnits);
  const isUnpaid = row.status === 'expired' || row.status === 'canceled';
  const lasting = (row.labels ?? []).filter((label) => !labelsOfPayments.has(label));
  return [
    ...lasting,
    ...(isUnpaid && receivedUnits > 0n && receivedUnits < amount ? ['underpaid'] : []),
    ...labels,
    ...(receivedUnits > amount ? ['overpaid'] : []),
  ];
}

/** The status of an open intent with this sum. */
function openStatusOf(row: PaymentIntentRow, receivedUnits: bigint): StatusName {
  return receivedUnits >= BigInt(row.amountUnits) ? 'processing' : 'requires_payment';
}

/** The steps of an intent after payments were reverted or returned. */
export function revert(row: PaymentIntentRow, { receivedUnits, labels, wasConfirmed }: Remaining) {
  return withOverpaid(row, [
    {
      type: 'payment_intent.reorged',
      fields: {
        ...(isOpen(row) && { status: openStatusOf(row, receivedUnits) }),
        amountReceivedUnits: receivedUnits,
        labels: withLabels(labelsOf(row, { receivedUnits, labels }), [
          // A person decides what happens to an intent that was reported as paid.
          ...(row.status === 'succeeded' && wasConfirmed ? ['reorged'] : []),
        ]),
      },
    },
  ]);
}

export function detach(row: PaymentIntentRow, remaining: Omit<Remaining, 'wasConfirmed'>): ChangeStep {
  const { receivedUnits } = remaining;
  return {
    type: 'payment_intent.payment_detached',
    fields: {
      ...(isOpen(row) && { status: openStatusOf(row, receivedUnits) }),
      amountReceivedUnits: receivedUnits,
      paymentsCount: row.paymentsCount - 1,
      labels: withLabels(labelsOf(row, remaining), []),
    },
  };
}

/** The step of an intent whose confirmed payments add up to this sum; undefined if it does not succeed. */
export function confirm(row: PaymentIntentRow, confirmedUnits: bigint, at: Date): ChangeStep | undefined {
  if (row.status !== 'processing' || confirmedUnits < BigInt(row.amountUnits)) return undefined;
  return { type: 'payment_intent.succeeded', fields: { status: 'succeeded', succeededAt: at } };
}
