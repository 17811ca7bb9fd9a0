import type { EntityManager } from '@mikro-orm/postgresql';
import { lowestUuid } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';

const maxBatchSize = 1_000;
const dayMs = 86_400_000;
/** How long the id of a removed event is remembered, so that a reader who comes back with it is told. */
const rememberedDays = 90;

/**
 * Returns a function that removes some events older than `retentionDays`, and forgets some ids of events removed long
 * ago. It resolves with true if there are probably more.
 */
export function createEventRemoval(em: EntityManager, retentionDays: number): () => Promise<boolean> {
  const { transaction, run } = createPreparedStatements(em);
  return async () => {
    const now = Date.now();
    const removed = await transaction(async (runInside) => {
      const { rows } = await runInside(remove, [
        // An event's id begins with the time of its change.
        lowestUuid(now - retentionDays * dayMs),
        new Date(now).toISOString(),
        maxBatchSize,
      ]);
      const [row] = rows;
      if (row?.highest != null) await runInside(recordRemoved, [row.highest]);
      return Number(row?.removed ?? 0);
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
        select id from events where id < $1 and position is not null
         order by id limit $3 for update skip locked
      )
     returning id, merchant_id, mode, position
   ), remembered as (
     insert into removed_events (id, merchant_id, mode, removed_at)
     select id, merchant_id, mode, $2 from removed
   )
   select count(*) as removed, max(position) as highest from removed`,
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
