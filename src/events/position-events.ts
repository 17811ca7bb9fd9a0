// Gives each event its position in the total order that readers follow. A position is assigned after the
// event's transaction has committed, by one transaction at a time, so no event can appear before a position
// that a reader has passed. A number chosen by the writer (a sequence, a timestamp, the transaction's id)
// does not have this property: late commits would appear behind readers, or delay all of them.

import type { EntityManager } from '@mikro-orm/postgresql';
import { NIL as lowestUuid } from 'uuid';
import { eventsPositionedChannel } from '../database/entities/event.ts';
import { createPreparedStatements, preparedStatement, type RunPrepared } from '../database/prepared.ts';
import { ring } from '../database/ring.ts';
import { lockPositions } from './event-epochs.ts';

/** Maximum events positioned in one transaction. */
const maxBatchSize = 1_000;
/** Maximum deliveries created for them, unless there is only one event. */
const maxBatchDeliveries = 2_000;

/** Called in the transaction that assigned the positions after `after` up to `upTo`. */
type OnPositioned = (run: RunPrepared, after: bigint, upTo: bigint) => Promise<unknown>;

/**
 * Returns the positioner. Each batch continues after the merchant at which the previous one ended, so one
 * merchant's backlog delays another's events by only one batch.
 */
export function createPositioner(em: EntityManager, onPositioned?: OnPositioned) {
  const { run, transaction } = createPreparedStatements(em);
  /** The merchant at which the last batch ended. */
  let lastMerchant: string = lowestUuid;

  const positionBatch = () =>
    transaction(async (runInside) => {
      await lockPositions(runInside);
      const [batch] = (await runInside(position, [lastMerchant, maxBatchSize, maxBatchDeliveries])).rows;
      if (batch === undefined) return { size: 0, hasMore: false };
      const after = BigInt(batch.before);
      await onPositioned?.(runInside, after, after + BigInt(batch.size));
      await runInside(notify, [eventsPositionedChannel]);
      return { size: batch.size, hasMore: batch.has_more, endsAt: batch.last_merchant };
    });

  /** Assigns positions to a batch of events that have none. Returns its size, and whether there are more. */
  const positionSome = async (): Promise<{ size: number; hasMore: boolean }> => {
    // Checked without the lock, because usually there are none.
    const { rows } = await run(findUnpositioned, []);
    if (rows[0]?.found !== true) return { size: 0, hasMore: false };
    const { endsAt, ...batch } = await positionBatch();
    lastMerchant = endsAt ?? lastMerchant;
    return batch;
  };
  return {
    positionSome,
    /** Assigns a position to every event committed before the call. Returns their number. */
    async positionAll(): Promise<number> {
      for (let total = 0; ; ) {
        const { size, hasMore } = await positionSome();
        total += size;
        if (!hasMore) return total;
      }
    },
  };
}

const findUnpositioned = preparedStatement(
  'find_unpositioned_event',
  'select exists (select from events where position is null) as found',
);
const notify = preparedStatement('notify_event_positions', "select pg_notify($1, '')");

/** The merchants with unpositioned events, starting after the last batch's merchant. */
const merchants = ring({
  name: 'merchants',
  column: 'merchant_id',
  begin: '$1::uuid',
  from: 'events e',
  where: 'e.position is null',
  order: 'e.merchant_id, e.sequence, e.id',
});

/**
 * Merchants take turns, one event each. A merchant's events are taken by sequence, which keeps an intent's
 * events in order: if the second is visible, so is the first, which was committed earlier.
 *
 * Reads at most `$2` merchants and an equal share of `$2` events of each, less than twice `$2` events: a
 * backlog does not slow a batch. Events left out because of their deliveries come first in a later batch.
 */
const position = preparedStatement(
  'position_events',
  `with recursive ${merchants},
   taking_turns as materialized (
     select m.merchant_id, m.place, ceil($2::int::numeric / count(*) over ())::int as share, w.testnet, w.mainnet
       from (select merchant_id, place from merchants where place > 0 limit $2) m
      cross join lateral (
        select count(*) filter (where mode = 'testnet') as testnet, count(*) filter (where mode = 'mainnet') as mainnet
          from webhook_endpoints w where w.merchant_id = m.merchant_id and w.enabled
      ) w
   ), candidates as materialized (
     select e.row_place, e.merchant_id, t.place as turn, t.share,
            row_number() over (partition by t.place order by e.sequence, e.id) as round,
            case when e.webhook_endpoint is not null then 1 when e.mode = 'testnet' then t.testnet else t.mainnet end
              as deliveries
       from taking_turns t
      cross join lateral (
        select e.ctid as row_place, e.* from events e
         where e.position is null and e.merchant_id = t.merchant_id
         order by e.sequence, e.id
         limit t.share
      ) e
   ), in_turns as (
     select row_place, merchant_id, row_number() over turns as place, sum(deliveries) over turns as deliveries
       from candidates
     window turns as (order by round, turn)
   ), batch as materialized (
     select * from in_turns where place <= $2 and (place = 1 or deliveries <= $3)
   ), moved as (
     update event_progress set last_position = last_position + (select count(*) from batch)
      where id = 1 and exists (select from batch)
     returning last_position - (select count(*) from batch) as before
   ), positioned as (
     update events e set position = moved.before + batch.place
       from batch, moved where e.ctid = batch.row_place
     returning e.id
   )
   select moved.before, (select count(*)::int from positioned) as size,
          exists (select from candidates where round = share)
            or (select count(*) from candidates) > (select count(*) from batch) as has_more,
          (select merchant_id from batch order by place desc limit 1) as last_merchant
     from moved`,
);
