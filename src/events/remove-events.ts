import type { EntityManager } from '@mikro-orm/postgresql';
import { lowestUuid } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';

const maxBatchSize = 1_000;
const dayMs = 86_400_000;
/** How long the ids of removed events are kept, so that a reader who continues from one gets `cursor_expired`. */
const rememberedDays = 90;

/**
 * Returns a function that removes a batch of events older than `retentionDays` with their deliveries, and a batch of ids
 * removed long ago. Resolves with true if there are probably more. Events with pending deliveries are kept.
 */
export function createEventRemoval(em: EntityManager, retentionDays: number): () => Promise<boolean> {
  const { transaction, run } = createPreparedStatements(em);
  return async () => {
    const now = Date.now();
    const removed = await transaction(async (runInside) => {
      const { rows } = await runInside(remove, [
        // An event's id begins with its time.
        lowestUuid(now - retentionDays * dayMs),
        new Date(now).toISOString(),
        maxBatchSize,
      ]);
      const [row] = rows;
      if (row?.highest == null) return 0;
      await runInside(recordRemoved, [row.highest]);
      await runInside(removeAttempts, [row.ids]);
      await runInside(removeDeliveries, [row.ids]);
      return row.ids.length;
    });
    const forgotten = await run(forget, [new Date(now - rememberedDays * dayMs).toISOString(), maxBatchSize]);
    return removed === maxBatchSize || forgotten.rowCount === maxBatchSize;
  };
}

const remove = preparedStatement(
  'remove_events',
  `with removed as (
     delete from events
      where id in (
        select e.id from events e
         where e.id < $1 and e.position is not null
           and not exists (select from webhook_deliveries d
                            where d.merchant_id = e.merchant_id and d.event_id = e.id and d.status = 'pending')
         order by e.id limit $3 for update skip locked
      )
     returning id, merchant_id, mode, position
   ), remembered as (
     insert into removed_events (id, merchant_id, mode, removed_at)
     select id, merchant_id, mode, $2 from removed
   )
   select array_agg(id) as ids, max(position) as highest from removed`,
);

const removeAttempts = preparedStatement(
  'remove_webhook_attempts',
  'delete from webhook_attempts where event_id = any ($1::uuid[])',
);
/** Joins `removed_events`, because the index begins with the merchant. */
const removeDeliveries = preparedStatement(
  'remove_webhook_deliveries',
  `delete from webhook_deliveries d using removed_events r
    where r.id = any ($1::uuid[]) and d.merchant_id = r.merchant_id and d.event_id = r.id`,
);

const recordRemoved = preparedStatement(
  'record_removed_events',
  'update event_progress set removed_position = greatest(removed_position, $1)',
);

const forget = preparedStatement(
  'forget_removed_events',
  `delete from removed_events
    where id in (select id from removed_events where removed_at < $1 order by removed_at limit $2 for update skip locked)`,
);
