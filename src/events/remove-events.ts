import type { EntityManager } from '@mikro-orm/postgresql';
import { NIL } from 'uuid';
import { lowestUuidOfAge } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';

/** Maximum events of a batch. Halved after a failure: an event may have thousands of attempts. */
const maxBatchSize = 1_000;
const dayMs = 86_400_000;
/** How long ids of removed events are kept: a reader who continues after one gets `cursor_expired`. */
const rememberedDays = 90;

/**
 * Returns a function that removes a batch of events older than `retentionDays` with their deliveries, unless
 * some are pending, and a batch of ids removed long ago. Resolves with true if there are probably more. Age
 * is by the database's clock or this machine's, whichever is behind, so a clock that is ahead does no harm.
 */
export function createEventRemoval(em: EntityManager, retentionDays: number): () => Promise<boolean> {
  const { transaction, run } = createPreparedStatements(em);
  /** The last event that was looked at: kept events are looked at again only after all the others. */
  let last: string = NIL;
  let size = maxBatchSize;
  return async () => {
    const batchSize = size;
    size = Math.max(1, size >> 1);
    const row = await transaction(async (runInside) => {
      const [row] = (await runInside(remove, [retentionDays * dayMs, last, batchSize, Date.now()])).rows;
      if (row?.highest != null) {
        await runInside(removeAttempts, [row.ids]);
        const [removed] = (await runInside(removeDeliveries, [row.ids])).rows;
        // Redelivered between the check and the lock. Nothing is removed; a smaller batch is tried next.
        if (removed?.pending > 0) throw new Error('an event was redelivered while it was to be removed');
        // Last, because the positioner waits for this row.
        await runInside(recordRemoved, [row.highest]);
      }
      return row;
    });
    const isFull = row?.looked === batchSize;
    size = isFull ? Math.min(maxBatchSize, Math.ceil(batchSize * 1.1)) : batchSize;
    last = isFull ? row?.last : NIL;
    const forgotten = await run(forget, [rememberedDays * dayMs, maxBatchSize]);
    return isFull || forgotten.rowCount === maxBatchSize;
  };
}

// An event's id begins with its time.
const remove = preparedStatement(
  'remove_events',
  `with looked as materialized (
     select e.id, e.merchant_id from events e
      where e.id > $2 and e.id < ${lowestUuidOfAge('$1', '$4')} and e.position is not null order by e.id limit $3
   ), removed as (
     delete from events
      where id in (
        select e.id
          from (select * from looked l
                 where not exists (select from webhook_deliveries d
                                    where d.merchant_id = l.merchant_id and d.event_id = l.id and d.status = 'pending')) l
         cross join lateral (select e.id from events e where e.id = l.id limit 1 for update skip locked) e
      )
     returning id, merchant_id, mode, position
   ), remembered as (
     insert into removed_events (id, merchant_id, mode, removed_at)
     select id, merchant_id, mode, now() from removed
   )
   select array_agg(id) as ids, max(position) as highest, (select count(*)::int from looked) as looked,
          (select id from looked order by id desc limit 1) as last
     from removed`,
);

const removeAttempts = preparedStatement(
  'remove_webhook_attempts',
  'delete from webhook_attempts where event_id = any ($1::uuid[])',
);
/** Joins `removed_events`, because the index begins with the merchant. */
const removeDeliveries = preparedStatement(
  'remove_webhook_deliveries',
  `with removed as (
     delete from webhook_deliveries d using removed_events r
      where r.id = any ($1::uuid[]) and d.merchant_id = r.merchant_id and d.event_id = r.id
     returning d.status
   )
   select count(*) filter (where status = 'pending')::int as pending from removed`,
);

const recordRemoved = preparedStatement(
  'record_removed_events',
  'update event_progress set removed_position = greatest(removed_position, $1)',
);

const forget = preparedStatement(
  'forget_removed_events',
  `delete from removed_events
    where id in (select id from removed_events where removed_at < now() - $1 * interval '1 millisecond'
                  order by removed_at limit $2)`,
);
