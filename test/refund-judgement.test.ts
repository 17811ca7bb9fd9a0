// The effect of transfers on a refund: each status, amount, destination and time; reverts; what payments no longer cover.

import { describe, expect, test } from 'vitest';
import type { RefundRow } from '../src/database/entities/refund.ts';
import type { TransferRow } from '../src/database/entities/settlement.ts';
import { arrive, confirm, revert, uncover } from '../src/refunds/judgement.ts';
import { refundOf } from '../src/settlement/ledger/known-transfers.ts';

const expiresAt = new Date('2026-01-31T12:00:00Z');
const at = new Date('2026-01-20T12:00:00Z');

/** Only what the rules look at. */
const refund = (status: RefundRow['status'], labels: string[] | null = null) =>
  ({ status, labels, amountUnits: 100n, destination: '0xd0', expiresAt }) as Partial<RefundRow> as RefundRow;

const transfers = {
  exact: { amountUnits: 100n, toAddress: '0xd0', blockTime: expiresAt },
  late: { amountUnits: 100n, toAddress: '0xd0', blockTime: new Date(expiresAt.getTime() + 1_000) },
  more: { amountUnits: 101n, toAddress: '0xd0', blockTime: at },
  elsewhere: { amountUnits: 100n, toAddress: '0xe0', blockTime: at },
} as const;
type TransferName = keyof typeof transfers;

const processing = { type: 'processing', fields: { status: 'processing' } };
const unexpected = (labels: string[]) => ({ type: 'unexpected', fields: { labels } });

describe('the transfers of a block', () => {
  test.for<[RefundRow['status'], TransferName[], string[][]]>([
    ['requires_transfer', ['exact'], [[]]],
    ['requires_transfer', ['exact', 'exact'], [[], ['twice']]],
    ['requires_transfer', ['more', 'exact'], [['other_amount'], []]],
    ['requires_transfer', ['elsewhere'], [['other_destination']]],
    ['requires_transfer', ['late'], [['late']]],
    ['processing', ['exact'], [['twice']]],
    ['processing', ['late'], [['twice']]],
    ['processing', ['more'], [['other_amount', 'twice']]],
    ['succeeded', ['exact', 'elsewhere'], [['twice'], ['other_destination', 'twice']]],
    ['canceled', ['exact'], [['after_cancel']]],
    ['canceled', ['late'], [['after_cancel']]],
    ['expired', ['exact'], [['late']]],
    ['expired', ['more'], [['other_amount', 'late']]],
  ])('%s: %j have the labels %j', ([status, names, labels]) => {
    const { judged, steps } = arrive(
      refund(status, ['payment_reorged']),
      names.map((name) => transfers[name]),
    );
    expect(judged).toEqual(labels.map((each) => ({ counts: each.length === 0, labels: each })));
    expect(steps).toEqual([
      ...(labels.some((each) => each.length === 0) ? [processing] : []),
      ...(labels.flat().length > 0 ? [unexpected([...new Set(['payment_reorged', ...labels.flat()])])] : []),
    ]);
  });
});

describe('transfers that are confirmed', () => {
  const succeeded = { type: 'succeeded', fields: { status: 'succeeded', succeededAt: at } };
  const other = { type: 'unexpected', fields: {} };
  test.for<[RefundRow['status'], boolean[], object[]]>([
    ['processing', [true], [succeeded]],
    ['processing', [false], [other]],
    ['processing', [false, true], [succeeded, other]],
    ['succeeded', [false, false], [other]],
    ['canceled', [false], [other]],
    ['processing', [], []],
  ])('%s: of those that count %j', ([status, counts, steps]) => {
    expect(confirm(refund(status), counts, at)).toEqual(steps);
  });
});

describe('a reorganisation leaves transfers', () => {
  type Remaining = Parameters<typeof revert>[1][number];
  const own: Remaining = { id: 'own', state: 'pending', counts: true, labels: null };
  const twice: Remaining = { id: 'twice', state: 'pending', counts: false, labels: ['twice'] };
  const confirmed: Remaining = { id: 'confirmed', state: 'confirmed', counts: false, labels: ['twice'] };
  const more: Remaining = {
    id: 'more',
    state: 'confirmed',
    counts: false,
    labels: ['other_amount', 'twice'],
  };
  test.for<[RefundRow['status'], Remaining[], string | undefined, string[], string[]]>([
    ['processing', [], undefined, ['requires_transfer'], []],
    ['succeeded', [], undefined, ['requires_transfer'], []],
    ['processing', [own, twice], undefined, [], ['twice']],
    ['processing', [more, twice], 'twice', ['requires_transfer', 'processing'], ['other_amount', 'twice']],
    ['processing', [twice, confirmed], 'twice', ['requires_transfer', 'processing'], ['twice']],
    ['succeeded', [confirmed], 'confirmed', ['requires_transfer', 'processing', 'succeeded'], []],
    ['succeeded', [more], undefined, ['requires_transfer'], ['other_amount', 'twice']],
    ['requires_transfer', [twice], undefined, [], ['twice']],
    ['canceled', [twice], undefined, [], ['twice']],
    ['expired', [], undefined, [], []],
  ])('%s, %j: promotes %s', ([status, remaining, promoted, statuses, labels]) => {
    const reverted = revert(refund(status, ['late', 'payment_reorged']), remaining, at);
    expect(reverted.promoted).toBe(promoted);
    expect(reverted.steps.flatMap(({ fields }) => fields.status ?? [])).toEqual(statuses);
    expect(reverted.steps[0]).toMatchObject({
      type: 'reorged',
      fields: { labels: ['payment_reorged', ...labels], ...(statuses.length > 0 && { succeededAt: null }) },
    });
    expect(reverted.steps.slice(1).map(({ type }) => type)).toEqual(statuses.slice(1));
    expect(reverted.steps[2]?.fields.succeededAt).toEqual(statuses[2] && at);
  });
});

test('that the payments no longer cover a refund is reported once', () => {
  expect(uncover(refund('processing', ['twice']))).toEqual(unexpected(['twice', 'payment_reorged']));
  expect(uncover(refund('processing', ['payment_reorged']))).toBeUndefined();
});

test.each([
  ['a new transfer is what it proves', { id: 'a' }, undefined, { id: 'a' }],
  ['an unattributed one, too', { id: 'a' }, { paymentIntent: null }, { id: 'a' }],
  ['a payment stays a payment', { id: 'a' }, { paymentIntent: 'pi' }, undefined],
  ['a refund stays the one it is', { id: 'a' }, { isRefund: true, refund: 'b' }, { id: 'b' }],
  ['one that only looked like a refund may prove which', { id: 'a' }, { isRefund: true }, { id: 'a' }],
  ['and stays one without proof', undefined, { isRefund: true }, { id: undefined }],
])('a transfer that is read again: %s', (_, refund, before, expected) => {
  expect(refundOf({ refund }, before as TransferRow | undefined)).toEqual(expected);
});
