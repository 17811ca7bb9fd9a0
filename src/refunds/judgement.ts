// How transfers change a refund: the rules for its status and its labels, as in docs/settlement.md. Pure
// functions: no database, no chain, no clock.

import type { RefundRow } from '../database/entities/refund.ts';
import type { TransferRow } from '../database/entities/settlement.ts';
import { withLabels } from '../payment-intents/change-payment-intents.ts';

/** One step of a change, and the event that reports it. */
export interface RefundStep {
  type: 'processing' | 'succeeded' | 'canceled' | 'expired' | 'reorged' | 'unexpected';
  fields: Partial<Pick<RefundRow, 'status' | 'labels' | 'succeededAt' | 'canceledAt' | 'expiredAt'>>;
}

/** A transfer that has the refund's id, or that the merchant has named. */
type RefundArrival = Pick<TransferRow, 'amountUnits' | 'toAddress' | 'blockTime'>;

interface JudgedRefundTransfer {
  /** It is the one that the refund waits for. */
  counts: boolean;
  labels: string[];
}

/** Judges a transfer by the refund's state at the time it was found. */
function judge(
  refund: RefundRow,
  { amountUnits, toAddress, blockTime }: RefundArrival,
): JudgedRefundTransfer {
  const { status } = refund;
  const labels = [
    ...(BigInt(amountUnits) === BigInt(refund.amountUnits) ? [] : ['other_amount']),
    ...(toAddress === refund.destination ? [] : ['other_destination']),
    ...(status === 'processing' || status === 'succeeded' ? ['twice'] : []),
    ...(status === 'canceled' ? ['after_cancel'] : []),
    ...(status === 'expired' || (status === 'requires_transfer' && blockTime > refund.expiresAt)
      ? ['late']
      : []),
  ];
  return { counts: labels.length === 0, labels };
}

/** Judges the transfers of one block in their order. Returns the verdicts and the steps. */
export function arrive(
  refund: RefundRow,
  arrivals: readonly RefundArrival[],
): { judged: JudgedRefundTransfer[]; steps: RefundStep[] } {
  const steps: RefundStep[] = [];
  let now = refund;
  const judged = arrivals.map((arrival) => {
    const verdict = judge(now, arrival);
    if (verdict.counts) {
      steps.push({ type: 'processing', fields: { status: 'processing' } });
      now = { ...now, status: 'processing' };
    }
    return verdict;
  });
  const unexpected = judged.flatMap(({ labels }) => labels);
  if (unexpected.length > 0) {
    steps.push({ type: 'unexpected', fields: { labels: withLabels(refund.labels, unexpected) } });
  }
  return { judged, steps };
}

/** The steps of a refund whose transfers were confirmed: its own (`counts`), unexpected ones, or both. */
export function confirm({ status }: RefundRow, counts: readonly boolean[], at: Date): RefundStep[] {
  const steps: RefundStep[] = [];
  if (status === 'processing' && counts.includes(true)) {
    steps.push({ type: 'succeeded', fields: { status: 'succeeded', succeededAt: at } });
  }
  // The refunded sum has changed.
  if (counts.includes(false)) steps.push({ type: 'unexpected', fields: {} });
  return steps;
}

/** A transfer of a refund that is still on the chain. */
type RemainingTransfer = Pick<TransferRow, 'id' | 'state' | 'counts' | 'labels'>;

/**
 * The steps of a refund after transfers of it were reverted. `remaining` is in chain order: the first that is
 * labeled only `twice` takes the place of the reverted one, and is returned as `promoted`.
 */
export function revert(refund: RefundRow, remaining: readonly RemainingTransfer[], at: Date) {
  const isPaid = refund.status === 'processing' || refund.status === 'succeeded';
  const lacksTransfer = isPaid && !remaining.some(({ counts }) => counts);
  const next = lacksTransfer
    ? remaining.find(({ labels }) => labels?.length === 1 && labels[0] === 'twice')
    : undefined;
  const labels = withLabels(
    // Kept: a person decides what happens to a refund whose payment was reorged.
    (refund.labels ?? []).filter((label) => label === 'payment_reorged'),
    remaining.filter((transfer) => transfer !== next).flatMap((transfer) => transfer.labels ?? []),
  );
  const steps: RefundStep[] = [
    {
      type: 'reorged',
      fields: { labels, ...(lacksTransfer && { status: 'requires_transfer', succeededAt: null }) },
    },
  ];
  if (next !== undefined) steps.push({ type: 'processing', fields: { status: 'processing' } });
  if (next?.state === 'confirmed')
    steps.push({ type: 'succeeded', fields: { status: 'succeeded', succeededAt: at } });
  return { promoted: next?.id, steps };
}

/** The step of a refund that its intent's payments no longer cover; undefined if it is labeled already. */
export function uncover({ labels }: RefundRow): RefundStep | undefined {
  if (labels?.includes('payment_reorged')) return undefined;
  return { type: 'unexpected', fields: { labels: withLabels(labels, ['payment_reorged']) } };
}
