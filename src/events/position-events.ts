// Gives events their place in the one order that readers follow. An event gets it after its transaction has committed,
// from one transaction at a time, so nothing can appear behind a place that a reader has passed. Numbers drawn by the
// writers themselves (a sequence, a timestamp, the transaction's id) cannot have this property: a transaction that
// commits late would put its event behind readers, or hold all readers up.

import type { EntityManager } from '@mikro-orm/postgresql';
import { eventsPositionedChannel } from '../database/entities/event.ts';
import { createPreparedStatements, preparedStatement, type RunPrepared } from '../database/prepared.ts';

/** Held by the transaction that gives positions, in whatever process it runs. The number is arbitrary. */
const lockId = 4_611_733_002_118_207n;
/** Events of one transaction. */
const maxBatchSize = 1_000;

export interface Positioner {
  /** Gives a position to every event that was committed before the call. Returns how many there were. */
  positionAll(): Promise<number>;
}

/** Called in the transaction that gave the positions behind `after` up to `upTo`. */
export type OnPositioned = (run: RunPrepared, after: bigint, upTo: bigint) => Promise<unknown>;

export function createPositioner(em: EntityManager, onPositioned?: OnPositioned): Positioner {
  const { run, transaction } = createPreparedStatements(em);

  const positionBatch = (): Promise<number> =>
    transaction(async (runInside) => {
      // A statement of its own: the next one takes its snapshot when the lock is held.
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
      // Asked without the lock, because nearly always there are none.
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
 * first, and takes it first.
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
