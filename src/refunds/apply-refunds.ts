// Changes refunds: locks them, applies steps, and stores the result with its events. If a transfer is the
// reason, the caller has locked the intent first.

import type { EntityManager } from '@mikro-orm/postgresql';
import type { EventType } from '../contract/event-types.ts';
import type { RefundStatusName } from '../contract/words.ts';
import { RefundEntity, type RefundRow } from '../database/entities/refund.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { insertEvents, newEvent } from '../database/new-events.ts';
import { jsonOfRows, preparedStatement, type RunPrepared } from '../database/prepared.ts';
import { createTransfersReader } from '../payment-intents/payments.ts';
import { mapInSlices } from '../scheduling/slices.ts';
import { chainTraceparent } from '../telemetry/spans.ts';
import type { RefundStep } from './judgement.ts';
import { toRefund } from './refund.ts';

/** A durable change of a refund, with one of its events. */
export interface RefundChange {
  merchantId: string;
  event: EventType;
  refund: { id: string; status: RefundStatusName; labels: readonly string[] };
}

export function createApplyRefunds(em: EntityManager) {
  const columns = entityColumns<RefundRow>(em, RefundEntity);
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
    /** Stores the steps of locked refunds, and their events. Refunds without steps stay as they are. */
    async apply(
      inside: RunPrepared,
      steps: ReadonlyMap<RefundRow, readonly RefundStep[]>,
      at: Date,
      traceparent: string | null = chainTraceparent(),
    ): Promise<{ rows: RefundRow[]; changes: RefundChange[] }> {
      const changing = [...steps].filter(([, own]) => own.length > 0);
      if (changing.length === 0) return { rows: [], changes: [] };
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
      return { rows, changes: events.map(({ change }) => change) };
    },
  };
}

const dayMs = 86_400_000;
const watchedDays = 30;
/** Later than any time that is compared with it. */
const forEver = new Date('9999-12-31T00:00:00Z');

/** The time until which a transfer may be the refund's own. */
export function watchedUntil({
  succeededAt,
  canceledAt,
  expiredAt,
}: Partial<Pick<RefundRow, 'succeededAt' | 'canceledAt' | 'expiredAt'>>): Date {
  const endedAt = succeededAt ?? canceledAt ?? expiredAt;
  return endedAt == null ? forEver : new Date(endedAt.getTime() + watchedDays * dayMs);
}

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
