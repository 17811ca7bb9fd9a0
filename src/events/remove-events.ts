import type { EntityManager } from '@mikro-orm/postgresql';
import { lowestUuid } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement, type RunPrepared } from '../database/prepared.ts';

const maxBatchSize = 1_000;
const dayMs = 86_400_000;
/** How long the ids of removed events are kept, so that a reader who continues from one gets `cursor_expired`. */
const rememberedDays = 90;

/** SQL about rows that refer to events; `e` is the event. */
export interface EventReferences {
  /** SQL that is true for an event that is still needed. */
  isNeeded: string;
  /** Removes the rows that refer to these events, in the transaction that removes them. */
  removeOf(run: RunPrepared, ids: readonly string[]): Promise<void>;
}

/**
 * Returns a function that removes a batch of events older than `retentionDays`, and a batch of ids removed long ago.
 * Resolves with true if there are probably more.
 */
export function createEventRemoval(
  em: EntityManager,
  retentionDays: number,
  { isNeeded, removeOf }: EventReferences = noReferences,
): () => Promise<boolean> {
  const { transaction, run } = createPreparedStatements(em);
  const remove = removeStatement(isNeeded);
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
      await removeOf(runInside, row.ids);
      return row.ids.length;
    });
    const forgotten = await run(forget, [new Date(now - rememberedDays * dayMs).toISOString(), maxBatchSize]);
    return removed === maxBatchSize || forgotten.rowCount === maxBatchSize;
  };
}

const noReferences: EventReferences = { isNeeded: 'false', removeOf: async () => {} };

const removeStatement = (isNeeded: string) =>
  preparedStatement(
    'remove_events',
    `with removed as (
     delete from events
      where id in (
        select e.id from events e where e.id < $1 and e.position is not null and not (${isNeeded})
         order by e.id limit $3 for update skip locked
      )
     returning id, merchant_id, mode, position
   ), remembered as (
     insert into removed_events (id, merchant_id, mode, removed_at)
     select id, merchant_id, mode, $2 from removed
   )
   select array_agg(id) as ids, max(position) as highest from removed`,
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
