// The effect of transfers on an intent: each status, in time and late, in the right token and in a wrong one.

import { describe, expect, test } from 'vitest';
import type { StatusName } from '../src/contract/words.ts';
import type { PaymentIntentRow } from '../src/database/entities/payment-intent.ts';
import {
  type Arrival,
  arrive,
  confirm,
  detach,
  type Judged,
  judge,
  revert,
} from '../src/settlement/judgement.ts';

const amount = 100n;
const expiresAt = new Date('2026-01-01T12:00:00Z');
const inTime = expiresAt;
const tooLate = new Date(expiresAt.getTime() + 1_000);

/** Only what the rules look at. */
function intent(status: StatusName, received = 0n, labels: string[] | null = null): PaymentIntentRow {
  const row = {
    status,
    expiresAt,
    amountUnits: amount,
    amountReceivedUnits: received,
    paymentsCount: 3,
    labels,
  };
  return row as Partial<PaymentIntentRow> as PaymentIntentRow;
}

const times = { 'in time': inTime, late: tooLate } as const;
const tokens = { right: true, wrong: false } as const;

describe('whether a payment counts, and its labels', () => {
  test.for<[StatusName, keyof typeof times, keyof typeof tokens, boolean, string[]]>([
    ['requires_payment', 'in time', 'right', true, []],
    ['requires_payment', 'late', 'right', false, ['late']],
    ['requires_payment', 'in time', 'wrong', false, ['wrong_token']],
    ['requires_payment', 'late', 'wrong', false, ['wrong_token']],
    ['processing', 'in time', 'right', true, []],
    ['processing', 'late', 'right', false, ['late']],
    ['processing', 'in time', 'wrong', false, ['wrong_token']],
    ['processing', 'late', 'wrong', false, ['wrong_token']],
    ['succeeded', 'in time', 'right', true, []],
    ['succeeded', 'late', 'right', false, ['late']],
    ['succeeded', 'in time', 'wrong', false, ['wrong_token']],
    ['succeeded', 'late', 'wrong', false, ['wrong_token']],
    ['expired', 'in time', 'right', false, ['late', 'found_late']],
    ['expired', 'late', 'right', false, ['late']],
    ['expired', 'in time', 'wrong', false, ['wrong_token']],
    ['expired', 'late', 'wrong', false, ['wrong_token']],
    ['canceled', 'in time', 'right', false, ['after_cancel']],
    ['canceled', 'late', 'right', false, ['after_cancel', 'late']],
    ['canceled', 'in time', 'wrong', false, ['wrong_token']],
    ['canceled', 'late', 'wrong', false, ['wrong_token']],
  ])('%s, %s, %s token', ([status, time, token, counts, labels]) => {
    const judged = judge(intent(status), { blockTime: times[time], isRightToken: tokens[token] });
    expect(judged).toEqual({ counts, labels });
  });
});

/** A transfer as it was judged. */
const arrived = (
  amountUnits: bigint,
  labels: string[] = [],
  isReturned = false,
): Arrival & { judged: Judged } => ({
  amountUnits,
  blockTime: inTime,
  isRightToken: !labels.includes('wrong_token'),
  isReturned,
  judged: { counts: labels.length === 0, labels },
});

/** A step without fields only names what the step before has changed. */
type Step =
  | { type: string; status?: StatusName; received: bigint; count: number; labels: string[] | null }
  | { type: string; status?: never };

const renamed = ({ received, count, ...other }: { received: bigint; count: number }) => ({
  amountReceivedUnits: received,
  paymentsCount: count,
  ...other,
});

describe('the steps of an intent after the transfers of a block', () => {
  const late = arrived(7n, ['late']);
  const wrong = arrived(9n, ['wrong_token']);
  const step = (type: string, received: bigint, count: number, labels: string[] | null = null): Step => ({
    ...{ type, received, count, labels },
  });
  const partlyPaid = (received: bigint, count: number) => step('partially_paid', received, count);
  const processing = (received: bigint, count: number, labels: string[] | null = null): Step => ({
    ...{ type: 'processing', status: 'processing', received, count, labels },
  });
  test.for<[string, PaymentIntentRow, (Arrival & { judged: Judged })[], Step[]]>([
    ['nothing', intent('requires_payment'), [], []],
    ['a part', intent('requires_payment'), [arrived(1n)], [partlyPaid(1n, 4)]],
    ['several parts', intent('requires_payment', 10n), [arrived(1n), arrived(2n)], [partlyPaid(13n, 5)]],
    ['one less than the amount', intent('requires_payment'), [arrived(99n)], [partlyPaid(99n, 4)]],
    ['the amount', intent('requires_payment'), [arrived(100n)], [processing(100n, 4)]],
    ['the amount that is missing', intent('requires_payment', 60n), [arrived(40n)], [processing(100n, 4)]],
    [
      'one more than the amount',
      intent('requires_payment'),
      [arrived(101n)],
      [processing(101n, 4, ['overpaid']), { type: 'overpaid' }],
    ],
    [
      'more while it is being paid',
      intent('processing', 100n),
      [arrived(1n)],
      [processing(101n, 4, ['overpaid']), { type: 'overpaid' }],
    ],
    [
      'more when it is overpaid already',
      intent('processing', 101n, ['overpaid']),
      [arrived(1n)],
      [processing(102n, 4, ['overpaid'])],
    ],
    [
      'more after success',
      intent('succeeded', 100n),
      [arrived(1n)],
      [step('overpaid', 101n, 4, ['overpaid'])],
    ],
    [
      'after success, what a reorg had reverted',
      intent('succeeded', 0n, ['reorged']),
      [arrived(100n)],
      [step('overpaid', 100n, 4, ['reorged'])],
    ],
    ['a payment that returns', intent('requires_payment'), [arrived(100n, [], true)], [processing(100n, 3)]],
    ...(['requires_payment', 'processing', 'succeeded', 'expired', 'canceled'] as const).flatMap(
      (status): [string, PaymentIntentRow, (Arrival & { judged: Judged })[], Step[]][] => [
        [`late, ${status}`, intent(status, 5n), [late], [step('late_payment', 5n, 4, ['late'])]],
        [
          `another token, ${status}`,
          intent(status, 5n),
          [wrong, wrong],
          [step('wrong_token', 5n, 5, ['wrong_token'])],
        ],
      ],
    ),
    [
      'labels are kept, without duplicates',
      intent('expired', 5n, ['underpaid', 'late']),
      [late, arrived(7n, ['late', 'found_late'])],
      [step('late_payment', 5n, 5, ['underpaid', 'late', 'found_late'])],
    ],
    [
      'transfers of every kind',
      intent('requires_payment'),
      [wrong, late, arrived(150n)],
      [
        processing(150n, 6, ['overpaid']),
        { type: 'overpaid' },
        step('late_payment', 150n, 6, ['overpaid', 'late']),
        step('wrong_token', 150n, 6, ['overpaid', 'late', 'wrong_token']),
      ],
    ],
  ])('%s', ([, row, arrivals, steps]) => {
    expect(arrive(row, arrivals)).toEqual(
      steps.map(({ type, status, ...fields }) => ({
        type: `payment_intent.${type}`,
        fields: 'received' in fields ? { ...(status && { status }), ...renamed(fields) } : {},
      })),
    );
  });
});

const tooMuch = intent('processing', 150n, ['overpaid']);
const overpaid = intent('succeeded', 150n, ['overpaid']);

describe('an intent whose payments were reorged', () => {
  test.for<[string, PaymentIntentRow, bigint, string[], StatusName | undefined, string[] | null]>([
    ['everything', intent('processing', 100n), 0n, [], 'requires_payment', null],
    ['less than the amount is left', tooMuch, 99n, [], 'requires_payment', null],
    ['exactly the amount is left', tooMuch, 100n, [], 'processing', null],
    ['more than the amount is left', tooMuch, 101n, [], 'processing', ['overpaid']],
    ['a part', intent('requires_payment', 50n), 20n, [], 'requires_payment', null],
    ['a late payment', intent('requires_payment', 50n, ['late']), 50n, [], 'requires_payment', null],
    [
      'one of two late payments',
      intent('requires_payment', 0n, ['late']),
      0n,
      ['late'],
      'requires_payment',
      ['late'],
    ],
    ['a payment in a wrong token', intent('processing', 100n, ['wrong_token']), 100n, [], 'processing', null],
    ['everything after success', intent('succeeded', 100n), 0n, [], undefined, ['reorged']],
    ['an excess payment after success', overpaid, 100n, [], undefined, ['reorged']],
    ['a second time after success', intent('succeeded', 0n, ['reorged']), 0n, [], undefined, ['reorged']],
    [
      'a late payment after the end',
      intent('expired', 5n, ['underpaid', 'late', 'found_late']),
      5n,
      [],
      undefined,
      ['underpaid'],
    ],
    ['the only part after the end', intent('expired', 40n, ['underpaid']), 0n, [], undefined, null],
    ['a part that returns after the end', intent('canceled', 0n), 40n, [], undefined, ['underpaid']],
    [
      'a payment after cancellation',
      intent('canceled', 0n, ['after_cancel', 'late']),
      0n,
      ['late'],
      undefined,
      ['late'],
    ],
  ])('%s', ([, row, receivedUnits, left, status, labels]) => {
    expect(revert(row, { receivedUnits, labels: left, wasConfirmed: true })).toEqual([
      {
        type: 'payment_intent.reorged',
        fields: { ...(status && { status }), amountReceivedUnits: receivedUnits, labels },
      },
    ]);
  });

  test('gets no label for an unconfirmed payment after success', () => {
    const more = overpaid;
    expect(revert(more, { receivedUnits: 100n, labels: [], wasConfirmed: false })).toEqual([
      { type: 'payment_intent.reorged', fields: { amountReceivedUnits: 100n, labels: null } },
    ]);
  });

  test('gets the overpaid event, too, if a returned payment overpays it', () => {
    const less = intent('succeeded', 0n, ['reorged']);
    expect(revert(less, { receivedUnits: 150n, labels: [], wasConfirmed: false })).toEqual([
      {
        type: 'payment_intent.reorged',
        fields: { amountReceivedUnits: 150n, labels: ['reorged', 'overpaid'] },
      },
      { type: 'payment_intent.overpaid', fields: {} },
    ]);
  });
});

describe('an intent with confirmed payments', () => {
  const at = new Date();
  test.for<[StatusName, bigint, boolean]>([
    ['processing', 99n, false],
    ['processing', 100n, true],
    ['processing', 101n, true],
    ['requires_payment', 100n, false],
    ['succeeded', 100n, false],
    ['expired', 100n, false],
    ['canceled', 100n, false],
  ])('%s with %d of 100', ([status, confirmed, succeeds]) => {
    expect(confirm(intent(status, 101n), confirmed, at)).toEqual(
      succeeds
        ? { type: 'payment_intent.succeeded', fields: { status: 'succeeded', succeededAt: at } }
        : undefined,
    );
  });
});

describe('an intent whose manual payment is detached', () => {
  test.for<[string, PaymentIntentRow, bigint, string[], StatusName | undefined, string[] | null]>([
    ['the only one', intent('processing', 100n), 0n, [], 'requires_payment', null],
    [
      'one of several that are enough',
      intent('processing', 200n, ['overpaid']),
      100n,
      [],
      'processing',
      null,
    ],
    ['an excess payment', overpaid, 100n, [], undefined, null],
    ['a late payment', intent('expired', 0n, ['late', 'found_late']), 0n, [], undefined, null],
    ['one of two late payments', intent('expired', 0n, ['late']), 0n, ['late'], undefined, ['late']],
    ['the only partial payment', intent('expired', 40n, ['underpaid']), 0n, [], undefined, null],
    [
      'one of two partial payments',
      intent('canceled', 40n, ['underpaid']),
      10n,
      [],
      undefined,
      ['underpaid'],
    ],
    ['one beside a reorged one', intent('succeeded', 120n, ['reorged']), 100n, [], undefined, ['reorged']],
  ])('%s', ([, row, receivedUnits, left, status, labels]) => {
    expect(detach(row, { receivedUnits, labels: left })).toEqual({
      type: 'payment_intent.payment_detached',
      fields: { ...(status && { status }), amountReceivedUnits: receivedUnits, paymentsCount: 2, labels },
    });
  });
});
