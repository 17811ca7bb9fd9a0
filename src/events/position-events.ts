// Gives each event its position in the total order that readers follow. A position is assigned after the event's
// transaction has committed, by one transaction at a time, so no event can appear before a position that a reader has
// passed. A number chosen by the writer (a sequence, a timestamp, the transaction's id) does not have this property:
// late commits would appear behind readers, or delay all of them.

import type { EntityManager } from '@mikro-orm/postgresql';
import { eventsPositionedChannel } from '../database/entities/event.ts';
import { createPreparedStatements, preparedStatement, type RunPrepared } from '../database/prepared.ts';

/** Advisory lock of the transaction that assigns positions, in any process. The number is arbitrary. */
const lockId = 4_611_733_002_118_207n;
/** Events positioned in one transaction. */
const maxBatchSize = 1_000;

export interface Positioner {
  /** Assigns a position to every event committed before the call. Returns their number. */
  positionAll(): Promise<number>;
}

/** Called in the transaction that assigned the positions after `after` up to `upTo`. */
export type OnPositioned = (run: RunPrepared, after: bigint, upTo: bigint) => Promise<unknown>;

export function createPositioner(em: EntityManager, onPositioned?: OnPositioned): Positioner {
  const { run, transaction } = createPreparedStatements(em);

  const positionBatch = (): Promise<number> =>
    transaction(async (runInside) => {
      // A separate statement: the next one's snapshot must be taken after the lock.
      await runInside(lock, [String(lockId)]);
      const { rows } = await runInside(position, [maxBatchSize]);
      if (rows.length === 0) return 0;
      const [first] = rows;
      const after = BigInt(first?.before);
      await onPositioned?.(runInside, after, after + BigInt(rows.length));
      await runInside(notify, [eventsPositionedChannel]);
      return rows.length;
    });

  return {
    async positionAll() {
      let total = 0;
      // Checked without the lock, because usually there are none.
      const { rows } = await run(findUnpositioned, []);
      if (rows[0]?.found !== true) return total;
      for (;;) {
        const positioned = await positionBatch();
        total += positioned;
        if (positioned < maxBatchSize) return total;
      }
    },
  };
}

const findUnpositioned = preparedStatement(
  'find_unpositioned_event',
  'select exists (select from events where position is null) as found',
);
const lock = preparedStatement('lock_event_positions', 'select pg_advisory_xact_lock($1)');
const notify = preparedStatement('notify_event_positions', "select pg_notify($1, '')");

/**
 * In order of the sequence: an intent's second event is committed after its first, so whoever sees the second sees the
 * first.
 */
const position = preparedStatement(
  'position_events',
  `with batch as materialized (
     select id, row_number() over (order by sequence, id) as place
       from (select id, sequence from events where position is null order by sequence, id limit $1) as next
   ), moved as (
     update event_progress set last_position = last_position + (select count(*) from batch)
      where exists (select from batch)
     returning last_position - (select count(*) from batch) as before
   )
   update events e set position = moved.before + batch.place from batch, moved where e.id = batch.id
   returning moved.before`,
);
