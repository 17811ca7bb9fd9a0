// Finds intents by their metadata. A background task enters them in a table of their own, so that a create
// does not pay for it. An intent is found some seconds after its creation.

import { hash } from 'node:crypto';
import type { EntityManager } from '@mikro-orm/postgresql';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';

const maxBytes = 255;
const maxPairs = 10;
const digestBytes = 16;

/** Returns why a text cannot be searched for, as the end of a sentence. */
export function searchedTextProblem(text: string): string | undefined {
  const isText = text !== '' && text.isWellFormed() && !text.includes('\0');
  if (isText && Buffer.byteLength(text) <= maxBytes) return undefined;
  return `must be a text of 1 to ${maxBytes} bytes`;
}

/** The digest of a top-level key and its text, by which intents are found. A parameter of type `bytea`. */
export function metadataDigest({ key, value }: { key: string; value: string }): string {
  return `\\x${hash('sha256', `${key}\0${value}`, 'hex').slice(0, 2 * digestBytes)}`;
}

const maxBatchSize = 4_000;
const minBatchSize = 100;
/** Longest insert: how far back late commits are looked for. The time that a create may wait is added. */
const insertMs = 60_000;
const nowMs = 'extract(epoch from now())::bigint * 1000';
/** The time in a position's UUID, in milliseconds; at most now, because its maker's clock may be ahead. */
const positionMs = (position: string) =>
  `least(('x' || left(replace(${position}::text, '-', ''), 12))::bit(48)::bigint, ${nowMs})`;
/** Newer intents are entered as fast as they are created. Older ones are a backlog that can wait. */
const backlogAgeMs = 60_000;
/** Longest run. A process that stops waits for it. */
const maxRunMs = 1_000;

/**
 * Returns a function that enters some intents, and resolves with true if there are more. Any number of
 * processes may run it; one works at a time. `maxWaitMs`: how long a create may wait before its insert.
 */
export function createMetadataIndexing(em: EntityManager, maxWaitMs = 0): () => Promise<boolean> {
  const { run } = createPreparedStatements(em);
  let nextSize = maxBatchSize;
  return async () => {
    for (let isFirst = true, endsAtMs = performance.now() + maxRunMs; ; isFirst = false) {
      const size = nextSize;
      // If this times out, the next try is smaller.
      nextSize = Math.max(minBatchSize, size >> 1);
      const [row] = (await run(enterIntents, [size, insertMs + maxWaitMs, isFirst])).rows;
      nextSize = Math.min(maxBatchSize, 2 * size);
      const hasMore = row?.fresh >= size;
      if (!hasMore || Number(row?.behind_ms) > backlogAgeMs || performance.now() > endsAtMs) return hasMore;
    }
  };
}

/**
 * Enters the intents after the position. The first statement of a run also enters earlier ones that the first
 * of the previous run could not see because their transactions had not committed. If each statement read the
 * last minute again, the work would grow with the square of their rate. A row has only the low 32 bits of
 * its transaction's id. The comparison of ages is cheap, and excludes nearly all rows that were seen.
 */
const enterIntents = preparedStatement(
  'enter_metadata',
  `with progress as (
     select position, snapshot::pg_snapshot as snapshot,
            pg_snapshot_xmax(pg_current_snapshot())::text::bigint as newest,
            age(pg_snapshot_xmin(snapshot::pg_snapshot)::xid) as youth,
            (lpad(to_hex(greatest(0, ${positionMs('position')} - $2::bigint)), 12, '0') || repeat('0', 20))::uuid as since
       from metadata_progress where id = 1 for update skip locked
   ), fresh as materialized (
     select i.id, i.merchant_id, i.mode, i.metadata
       from progress p
      cross join lateral (select * from payment_intents i where i.id > p.position order by i.id limit $1) i
   ), late as materialized (
     select i.id, i.merchant_id, i.mode, i.metadata
       from progress p join payment_intents i on i.id >= p.since and i.id <= p.position
      where $3::boolean and age(i.xmin) <= p.youth
        and not pg_visible_in_snapshot(
              (p.newest - ((p.newest - i.xmin::text::bigint) & 4294967295))::text::xid8, p.snapshot)
   ), entered as (
     insert into payment_intent_metadata (merchant_id, mode, digest, payment_intent)
     select i.merchant_id, i.mode,
            substr(sha256(convert_to(pair.key, 'UTF8') || '\\x00' || convert_to(pair.value, 'UTF8')), 1, ${digestBytes}),
            i.id
       from (select * from fresh union all select * from late) i
      cross join lateral (
        select key, value #>> '{}' as value from json_each(i.metadata)
         where json_typeof(value) = 'string' and octet_length(value #>> '{}') between 1 and ${maxBytes}
         order by key collate "C" limit ${maxPairs}
      ) pair
     on conflict do nothing
   )
   update metadata_progress m
      set position = coalesce((select id from fresh order by id desc limit 1), m.position),
          snapshot = case when $3 then pg_current_snapshot()::text else m.snapshot end
     from progress where m.id = 1
   returning (select count(*)::int from fresh) as fresh, ${nowMs} - ${positionMs('m.position')} as behind_ms`,
);
