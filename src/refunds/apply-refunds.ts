// Changes of refunds: locked, changed by steps, stored, and told by events. Whoever changes one because of a transfer has
// locked its intent first.

import type { EntityManager } from '@mikro-orm/postgresql';
import type { EventType } from '../contract/event-types.ts';
import type { RefundStatusName } from '../contract/words.ts';
import { RefundEntity, type RefundRow } from '../database/entities/refund.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { newUuid } from '../database/identifiers.ts';
import { preparedStatement, type RunPrepared } from '../database/prepared.ts';
import { createTransfersReader } from '../payment-intents/payments.ts';
import { mapInSlices } from '../scheduling/slices.ts';
import { chainTraceparent } from '../telemetry/spans.ts';
import type { RefundStep } from './judgement.ts';
import { refundEventData } from './refund.ts';

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
    /** Stores the steps of locked refunds, and the events that tell of them. Refunds without steps stay as they are. */
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
        const events = own.map(({ type, fields }) => {
          row = { ...row, ...fields, eventCount: row.eventCount + 1 };
          row.watchedUntil = watchedUntil(row);
          const data = refundEventData(row, transfers.get(row.id) ?? []);
          return { type: `refund.${type}` as const, row, data };
        });
        return { row, events };
      });
      const rows = changed.map(({ row }) => row);
      const events = changed.flatMap((each) => each.events);
      await inside(storeRefunds, [
        columns.json(rows),
        events.map(() => newUuid(at.getTime())),
        events.map(({ row }) => row.merchantId),
        events.map(({ row }) => row.mode),
        events.map(({ type }) => type),
        events.map(({ row }) => row.id),
        events.map(({ row }) => row.eventCount),
        events.map(({ data }) => data),
        at.toISOString(),
        traceparent,
      ]);
      const changes = events.map(({ type, row }) => ({
        merchantId: row.merchantId,
        event: type,
        refund: { id: row.id, status: row.status, labels: row.labels ?? [] },
      }));
      return { rows, changes };
    },
  };
}

const dayMs = 86_400_000;
const watchedDays = 30;
/** Later than any time that is compared with it. */
const forEver = new Date('9999-12-31T00:00:00Z');

/** Until when transfers may be the refund's own. */
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
   )
   insert into events (id, merchant_id, mode, type, created_at, refund, sequence, data, traceparent)
   select e.id, e.merchant_id, e.mode, e.type, $9, e.refund, e.sequence, e.data, $10
     from unnest($2::uuid[], $3::uuid[], $4::payment_mode[], $5::text[], $6::uuid[], $7::int[], $8::text[])
            as e (id, merchant_id, mode, type, refund, sequence, data)`,
);
