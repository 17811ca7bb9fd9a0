// Changes refunds: locks them, determines the effects of transfers on them, and stores the result with its
// events. If a transfer is the reason, the caller has locked the intent first.

import type { EntityManager } from '@mikro-orm/postgresql';
import type { PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { RefundEntity, type RefundRow } from '../database/entities/refund.ts';
import type { TransferRow } from '../database/entities/settlement.ts';
import { type EntityColumns, entityColumns } from '../database/entity-columns.ts';
import { insertEvents, newEvent } from '../database/new-events.ts';
import { jsonOfRows, preparedStatement, type RunPrepared } from '../database/prepared.ts';
import { keepRefundSums } from '../payment-intents/payment-sums.ts';
import { createTransfersReader } from '../payment-intents/payments.ts';
import { mapInSlices } from '../scheduling/slices.ts';
import { chainTraceparent } from '../telemetry/spans.ts';
import { arrive, confirm, type RefundStep, revert, uncover } from './judgement.ts';
import { toRefund } from './refund.ts';
import { readReturnedMoney, storeRefundedUnits } from './returned-money.ts';

/** Maximum refunds that expire in one transaction. */
const maxExpired = 100;

type Steps = Map<RefundRow, RefundStep[]>;
type Intents = ReadonlyMap<string, PaymentIntentRow>;

export type Refunding = ReturnType<typeof createRefunding>;

export function createRefunding(em: EntityManager) {
  const columns = entityColumns<RefundRow>(em, RefundEntity);
  const changes = createChanges(em, columns);
  const { lock, apply } = changes;
  const lockOverdue = preparedStatement(
    'lock_overdue_refunds',
    `select ${columns.of('r')} from refunds r
      where r.network = $1 and r.status = 'requires_transfer' and r.expires_at <= $2
      order by r.expires_at limit ${maxExpired}
        for update skip locked`,
  );

  return {
    ...changes,
    /** Judges the refund transfers of one block and sets the verdicts in the rows, which are stored later. */
    async arrive(inside: RunPrepared, rows: readonly TransferRow[]): Promise<Steps> {
      const steps: Steps = new Map();
      const unexpected: string[] = [];
      const byRefund = Map.groupBy(rows, ({ refund }) => refund as string);
      for (const [id, refund] of await lock(inside, byRefund.keys())) {
        const own = byRefund.get(id) ?? [];
        const { judged, steps: taken } = arrive(refund, own);
        for (const [i, { counts, labels }] of judged.entries()) {
          Object.assign(own[i] as TransferRow, { counts, labels: labels.length > 0 ? labels : null });
        }
        steps.set(refund, taken);
        if (taken.some(({ type }) => type === 'unexpected')) unexpected.push(id);
      }
      // Anybody can add unexpected transfers, so there may be very many.
      await keepRefundSums(inside, unexpected);
      return steps;
    },
    /** Returns the steps after these transfers of refunds were confirmed. Updates the intents, too. */
    async confirm(
      inside: RunPrepared,
      transferIds: readonly string[],
      refundIds: readonly string[],
      intents: Intents,
      at: Date,
    ): Promise<Steps> {
      const steps: Steps = new Map();
      if (refundIds.length === 0) return steps;
      const refunds = await lock(inside, refundIds);
      const { rows } = await inside(findConfirmed, [transferIds]);
      for (const { refund, counts } of rows) {
        const row = refunds.get(refund) as RefundRow;
        steps.set(row, confirm(row, counts, at));
      }
      await updateIntents(inside, intents);
      return steps;
    },
    /**
     * Returns the steps after transfers of these refunds, or payments of these intents, were reverted.
     * `confirmed`: the intents that have lost a confirmed payment. Updates the intents, too.
     */
    async revert(
      inside: RunPrepared,
      refundIds: readonly string[],
      { intents, confirmed }: { intents: Intents; confirmed: ReadonlySet<string | null> },
      at: Date,
    ): Promise<Steps> {
      const overdrawn = (await updateIntents(inside, intents)).filter((id) => confirmed.has(id));
      const uncovered = overdrawn.length === 0 ? [] : (await inside(findUncovered, [overdrawn])).rows;
      const refunds = await lock(inside, [...refundIds, ...uncovered.map(({ id }) => id)]);
      const steps: Steps = new Map();
      if (refunds.size === 0) return steps;
      const { rows } = await inside(findRemaining, [refundIds]);
      const remaining = Map.groupBy(rows, ({ refund }) => refund);
      const reverted = new Set(refundIds);
      const isUncovered = new Set(uncovered.map(({ id }) => id));
      const promoted: string[] = [];
      for (const [id, refund] of refunds) {
        const own: RefundStep[] = [];
        if (reverted.has(id)) {
          const { promoted: next, steps: taken } = revert(refund, remaining.get(id) ?? [], at);
          if (next !== undefined) promoted.push(next);
          own.push(...taken);
        }
        const now: RefundRow = Object.assign({ ...refund }, ...own.map(({ fields }) => fields));
        const unexpected = isUncovered.has(id) ? uncover(now) : undefined;
        if (unexpected !== undefined) own.push(unexpected);
        steps.set(refund, own);
      }
      if (promoted.length > 0) await inside(promote, [promoted]);
      return steps;
    },
    /** Expires some refunds of a network that were not sent by `until`, a time of the chain's clock. */
    async expire(inside: RunPrepared, network: number, until: Date) {
      const { rows } = await inside(lockOverdue, [network, until.toISOString()]);
      const at = new Date();
      const step: RefundStep = { type: 'expired', fields: { status: 'expired', expiredAt: at } };
      await apply(inside, new Map(rows.map((row) => [columns.read(row), [step]])), at, null);
      return { expired: rows.length, hasMore: rows.length === maxExpired };
    },
  };
}

function createChanges(em: EntityManager, columns: EntityColumns<RefundRow>) {
  const readTransfers = createTransfersReader(em, 'refund');
  const lockRefunds = preparedStatement(
    'lock_refunds',
    `select ${columns.of('r')} from refunds r where r.id = any ($1::uuid[]) order by r.id for update`,
  );
  return {
    /** Locks refunds in id order to prevent deadlocks. */
    async lock(inside: RunPrepared, ids: Iterable<string>): Promise<Map<string, RefundRow>> {
      const wanted = [...new Set(ids)];
      if (wanted.length === 0) return new Map();
      const { rows } = await inside(lockRefunds, [wanted]);
      return new Map(rows.map((row) => [row.id as string, columns.read(row)]));
    },
    /**
     * Stores the steps of locked refunds, and their events. Refunds without steps stay as they are. Call it
     * after the transfers are stored. Returns each change, with one of its events.
     */
    async apply(
      inside: RunPrepared,
      steps: ReadonlyMap<RefundRow, readonly RefundStep[]>,
      at: Date,
      traceparent: string | null = chainTraceparent(),
    ) {
      const changing = [...steps].filter(([, own]) => own.length > 0);
      if (changing.length === 0) return [];
      const before = changing.map(([row]) => row);
      const transfers = await readTransfers(inside, before);
      const changed = await mapInSlices(changing, ([before, own]) => {
        let row = before;
        const events = own.map(({ type: name, fields }) => {
          row = { ...row, ...fields, eventCount: row.eventCount + 1 };
          row.watchedUntil = watchedUntil(row);
          const { id, merchantId, status, eventCount: sequence } = row;
          const type = `refund.${name}` as const;
          const data = { refund: toRefund(row, transfers.get(id) ?? []) };
          return {
            event: newEvent(row, at, { type, data, refund: id, sequence, traceparent }),
            change: { merchantId, event: type, refund: { id, status, labels: row.labels ?? [] } },
          };
        });
        return { row, events };
      });
      const rows = changed.map(({ row }) => row);
      const events = changed.flatMap((each) => each.events);
      await inside(storeRefunds, [columns.json(rows), jsonOfRows(events.map(({ event }) => event))]);
      return events.map(({ change }) => change);
    },
  };
}

const dayMs = 86_400_000;
const watchedDays = 30;
/** Later than any time that is compared with it. */
const forEver = new Date('9999-12-31T00:00:00Z');

/** The time until which a transfer may be the refund's own. */
function watchedUntil({ succeededAt, canceledAt, expiredAt }: RefundRow): Date {
  const endedAt = succeededAt ?? canceledAt ?? expiredAt;
  return endedAt == null ? forEver : new Date(endedAt.getTime() + watchedDays * dayMs);
}

/** What every refund has at first. */
export const asPrepared = {
  status: 'requires_transfer',
  succeededAt: null,
  canceledAt: null,
  expiredAt: null,
  watchedUntil: forEver,
  eventCount: 0,
  labels: null,
} as const satisfies Partial<RefundRow>;

/** Stores the refunded amounts of intents. Returns those that have committed more than they have received. */
async function updateIntents(inside: RunPrepared, intents: Intents): Promise<string[]> {
  const money = await readReturnedMoney(inside, [...intents.keys()]);
  await storeRefundedUnits(inside, money);
  for (const [id, { refundedUnits }] of money) {
    (intents.get(id) as PaymentIntentRow).amountRefundedUnits = refundedUnits;
  }
  return [...money].flatMap(([id, of]) => (of.refundableUnits < 0n ? id : []));
}

const findConfirmed = preparedStatement(
  'find_confirmed_refunds',
  `select refund, array_agg(distinct counts) as counts from transfers
    where id = any ($1::uuid[]) and state = 'confirmed' and refund is not null group by refund`,
);
const findRemaining = preparedStatement(
  'find_remaining_refund_transfers',
  `select id, refund, state, counts, labels from transfers
    where refund = any ($1::uuid[]) and state <> 'reorged' order by block_number, log_index`,
);
/** The refunds of intents that commit money: open ones, and those with a transfer on the chain. */
const findUncovered = preparedStatement(
  'find_uncovered_refunds',
  `select r.id from refunds r
    where r.payment_intent = any ($1::uuid[])
      and (r.status in ('requires_transfer', 'processing', 'succeeded')
           or (select true from transfers t where t.refund = r.id and t.state <> 'reorged' limit 1))`,
);
const promote = preparedStatement(
  'promote_refund_transfers',
  'update transfers set counts = true, labels = null where id = any ($1::uuid[])',
);
const storeRefunds = preparedStatement(
  'change_refunds',
  `with changed as (
     update refunds r
        set status = n.status, event_count = n.event_count, labels = n.labels,
            succeeded_at = n.succeeded_at, canceled_at = n.canceled_at, expired_at = n.expired_at,
            watched_until = n.watched_until
       from json_populate_recordset(null::refunds, $1) n
      where r.id = n.id
   ) ${insertEvents('$2')}`,
);
