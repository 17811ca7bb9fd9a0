// The queue of webhooks: the pending rows of `webhook_deliveries`. Merchants read these rows anyway, so a
// separate queue would only be a copy to keep in sync.

import type { EntityManager } from '@mikro-orm/postgresql';
import { LRUCache } from 'lru-cache';
import { NIL as lowestUuid } from 'uuid';
import type { DeliveryStatusName } from '../contract/words.ts';
import { Batcher } from '../database/batcher.ts';
import { EventEntity, type EventRow } from '../database/entities/event.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { createPreparedStatements, preparedStatement, type RunPrepared } from '../database/prepared.ts';
import { ring } from '../database/ring.ts';
import type { AttemptResult } from './sender.ts';
import type { SecretGeneration } from './signature.ts';

/** Maximum attempts stored for a delivery. */
export const maxKeptAttempts = 20;
/** How long a claim lasts: longer than an attempt can take. */
export const leaseMs = 30_000;
const maxRecordedAtOnce = 128;
/** Maximum secrets of an endpoint that sign at the same time. */
const maxSecrets = 6;

/** Creates the deliveries of the events at these positions, for the endpoints enabled now. */
export async function createDeliveries(run: RunPrepared, after: bigint, upTo: bigint): Promise<number> {
  const { rowCount } = await run(insertDeliveries, [String(after), String(upTo)]);
  return rowCount ?? 0;
}

/** A delivery's id begins with the time of its event, like the event's (UUIDv7). */
export const newDeliveryId =
  "(substr(e.id::text, 1, 13) || '-7' || substr(gen_random_uuid()::text, 16))::uuid";

const insertDeliveries = preparedStatement(
  'insert_webhook_deliveries',
  `insert into webhook_deliveries (merchant_id, event_id, endpoint_id, id, status, created_at, next_attempt_at)
   select e.merchant_id, e.id, w.id, ${newDeliveryId}, 'pending', now(), now()
     from events e
     join webhook_endpoints w on w.merchant_id = e.merchant_id and w.mode = e.mode and w.enabled
      and case when e.webhook_endpoint is null
               then w.event_types && array['*', e.type]
               else w.id = e.webhook_endpoint end
    where e.position > $1 and e.position <= $2
   on conflict do nothing`,
);

/** SQL that is true for a delivery `d` with an attempt in flight, in any process. */
export const isInFlight =
  "(d.status = 'pending' and d.next_attempt_at = d.leased_until and d.leased_until > now())";

/** A delivery claimed by this process. */
export interface ClaimedDelivery {
  event: EventRow;
  endpointId: string;
  url: string;
  failures: number;
  /** Attempts since the delivery was created or last made due by hand. */
  scheduled: number;
  /** The secrets to sign with, newest first. */
  secrets: SecretGeneration[];
  /** Beginning and end of the claim, by the database's clock. */
  claimedAt: Date;
  leasedUntil: Date;
}

/** The attempts in flight in this process, and its limits. */
interface InFlight {
  /** Attempts in flight by endpoint, and by merchant. */
  byEndpoint: ReadonlyMap<string, number>;
  byMerchant: ReadonlyMap<string, number>;
  /** Slow endpoints. They are limited like those whose last attempt failed. */
  slow: { has(endpointId: string): boolean; keys(): Iterable<string> };
  /** Endpoints whose last answer was fast. */
  prompt: { has(endpointId: string): boolean };
  /** Endpoints for which nothing is claimed now. */
  paused: ReadonlyMap<string, unknown>;
  /** Maximum attempts in flight for a healthy endpoint, and for a failing or slow one. */
  maxHealthy: number;
  maxFailing: number;
  /**
   * Maximum attempts in flight for a merchant. The last `merchantReserve` are for healthy endpoints, one for
   * each, or `maxInReserve` for a prompt one: hanging endpoints do not delay the others.
   */
  maxOfMerchant: number;
  merchantReserve: number;
  maxInReserve: number;
  /** How many more may be claimed, and how many of these for failing or slow endpoints. */
  room: number;
  roomForFailing: number;
}

export type DeliveryQueue = ReturnType<typeof createDeliveryQueue>;

/** A delivery after an attempt. */
type AttemptOutcome = { status: DeliveryStatusName; attempts: number };

type AttemptRecord = { delivery: ClaimedDelivery; result: AttemptResult };

/** Returns the queue. Processes claim concurrently without blocking each other. */
export function createDeliveryQueue(em: EntityManager) {
  const { run } = createPreparedStatements(em);
  const columns = entityColumns<EventRow>(em, EventEntity);
  const claim = claimStatement(columns.of('e'));
  /** The merchant at which the last claim ended. */
  let lastMerchant: string = lowestUuid;
  /** The number of merchants in the last claim, and whether they were all that had something due. */
  let last = { merchants: 1, reachedEnd: true };
  /** The endpoint at which each merchant's last claim ended. A forgotten merchant starts at its lowest. */
  const lastEndpoints = new LRUCache<string, string>({ max: maxLastEndpoints });

  const recorder = new Batcher<AttemptRecord, AttemptOutcome | undefined>({
    slots: 2,
    maxBatchSize: maxRecordedAtOnce,
    maxWaiting: 100_000,
    maxWaitMs: 60_000,
    run: async (records) => {
      const { rows } = await run(recordAttempts, recordValues(records));
      // A batch may also contain the late result of an expired claim.
      const keyOf = (eventId: string, endpointId: string, leasedUntil: Date | string) =>
        `${eventId} ${endpointId} ${new Date(leasedUntil).getTime()}`;
      const recorded = new Map(
        rows.map((row) => [keyOf(row.event_id, row.endpoint_id, row.leased_until), row as AttemptOutcome]),
      );
      return records.map(({ delivery: { event, endpointId, leasedUntil } }) =>
        recorded.get(keyOf(event.id, endpointId, leasedUntil)),
      );
    },
  });

  const knownEndpoints = ({ byEndpoint, slow, prompt, paused, maxHealthy }: InFlight) => {
    const ids = new Set([...byEndpoint.keys(), ...slow.keys(), ...paused.keys()]);
    return Object.fromEntries(
      [...ids].map((id) => {
        const attempts = paused.has(id) ? maxHealthy : (byEndpoint.get(id) ?? 0);
        return [id, [attempts, slow.has(id), prompt.has(id)]];
      }),
    );
  };
  const knownMerchants = ({ byMerchant }: InFlight) => {
    const ids = new Set([...byMerchant.keys(), ...lastEndpoints.keys()]);
    return Object.fromEntries(
      [...ids].map((id) => [id, [byMerchant.get(id) ?? 0, lastEndpoints.peek(id) ?? lowestUuid]]),
    );
  };

  return {
    /**
     * Claims due deliveries, round-robin over merchants and over each merchant's endpoints. Each call
     * continues where the previous one ended. An endpoint gets one delivery, and more if there is room after
     * all other endpoints of its merchant. Other processes cannot claim these deliveries until the lease
     * expires.
     */
    async claim(inFlight: InFlight): Promise<ClaimedDelivery[]> {
      const { rows } = await run(claim, [
        lastMerchant,
        leaseMs,
        JSON.stringify(knownEndpoints(inFlight)),
        JSON.stringify(knownMerchants(inFlight)),
        inFlight.maxHealthy,
        // All claimed deliveries may be for failing endpoints, so there must be room for as many.
        inFlight.roomForFailing >= inFlight.room ? inFlight.maxFailing : 0,
        inFlight.maxOfMerchant,
        inFlight.merchantReserve,
        inFlight.maxInReserve,
        // The share of each merchant. The number of merchants is estimated from the last claim, or from the
        // attempts in flight.
        Math.ceil(inFlight.room / Math.max(last.merchants, last.reachedEnd ? 1 : inFlight.byMerchant.size)),
        inFlight.room,
      ]);
      const claimed = rows.map((row) => ({
        event: columns.read(row),
        endpointId: row.endpoint_id,
        url: row.url,
        failures: row.failures,
        scheduled: row.scheduled,
        secrets: row.secrets ?? [],
        claimedAt: new Date(new Date(row.leased_until).getTime() - leaseMs),
        leasedUntil: new Date(row.leased_until),
      }));
      for (const { event, endpointId } of claimed) lastEndpoints.set(event.merchantId, endpointId);
      lastMerchant = claimed.at(-1)?.event.merchantId ?? lastMerchant;
      const merchants = Math.max(1, new Set(claimed.map(({ event }) => event.merchantId)).size);
      last = { merchants, reachedEnd: claimed.length < inFlight.room };
      return claimed;
    },
    /** Records an attempt. Returns the state; undefined if the lease expired or the endpoint is disabled. */
    record: (delivery: ClaimedDelivery, result: AttemptResult) => recorder.add({ delivery, result }),
    /**
     * Returns, in milliseconds, the age of the oldest pending delivery, which may be waiting for a retry, and
     * how late the most overdue work is: an attempt to a healthy endpoint of a merchant that has none in flight
     * (otherwise its receivers may be slow), or an event that has no deliveries yet; 0 if there is none.
     */
    async backlog(): Promise<{ oldestMs: number; lagMs: number }> {
      const { rows } = await run(measureBacklog, []);
      return { oldestMs: Number(rows[0]?.oldest_ms ?? 0), lagMs: Number(rows[0]?.lag_ms ?? 0) };
    },
  };
}

/** Maximum merchants whose last endpoint is remembered. */
const maxLastEndpoints = 256;

/** If fewer are due, only their merchants are visited. Otherwise all with pending deliveries are. */
const maxDueSampled = 500;

/** Visits the merchants or endpoints of pending deliveries `d`. `order`: as in a `Ring`. */
const ringOfPending = (name: string, column: string, begin: string, where: string, order: string) =>
  ring({
    name,
    column,
    begin,
    from: 'webhook_deliveries d',
    where: `d.status = 'pending' and ${where}`,
    order,
  });

/**
 * Ten thousand waiting deliveries of one endpoint cost as much as ten, and nothing beyond the room is read.
 * If few are due, only their merchants are visited: tens of thousands may have one that waits for hours. Rows
 * are updated in place, after all claims are known. The ring of endpoints names `pass`, so that no plan takes
 * both passes of one endpoint before the next endpoint.
 */
const claimStatement = (eventColumns: string) =>
  preparedStatement(
    'claim_webhook_deliveries',
    `with recursive ${ringOfPending('pending_merchants', 'merchant_id', '$1::uuid', 'true', 'd.merchant_id, d.endpoint_id, d.next_attempt_at')},
     soonest as materialized (
       select d.merchant_id from webhook_deliveries d where d.status = 'pending' and d.next_attempt_at <= now()
        order by d.next_attempt_at limit ${maxDueSampled}
     ), merchants as (
       select * from (
         select s.merchant_id from soonest s where (select count(*) from soonest) < ${maxDueSampled}
          group by s.merchant_id order by s.merchant_id <= $1::uuid, s.merchant_id
       ) s
       union all
       select r.merchant_id from pending_merchants r
        where (select count(*) from soonest) = ${maxDueSampled} and r.place > 0
     ), due as materialized (
       select d.*, row_number() over () as turn
         from (
           select d.row_place, d.event_id, d.endpoint_id
             from merchants m
            cross join lateral (
              select coalesce(($4::jsonb -> m.merchant_id::text ->> 0)::int, 0) as attempts,
                     coalesce(($4::jsonb -> m.merchant_id::text ->> 1)::uuid, '${lowestUuid}') as behind
            ) held
            cross join lateral (
              select d.*
                from (values (1), (2)) as pass (number)
               cross join lateral (
                 with recursive ${ringOfPending('turns', 'endpoint_id', 'held.behind', 'd.merchant_id = m.merchant_id', 'd.endpoint_id, d.next_attempt_at')}
                 select t.endpoint_id from turns t
                  where t.place > 0 and pass.number > 0
               ) t
               cross join lateral (
                 select w.failures > 0 or coalesce(($3::jsonb -> w.id::text ->> 1)::bool, false) as is_limited,
                        coalesce(($3::jsonb -> w.id::text ->> 0)::int, 0) as attempts,
                        coalesce(($3::jsonb -> w.id::text ->> 2)::bool, false) as is_prompt
                   from webhook_endpoints w where w.id = t.endpoint_id and w.enabled limit 1
               ) w
               cross join lateral (
                 select d.ctid as row_place, d.event_id, d.endpoint_id from webhook_deliveries d
                  where d.merchant_id = m.merchant_id and d.endpoint_id = t.endpoint_id
                    and d.status = 'pending' and d.next_attempt_at <= now()
                  order by d.next_attempt_at
                 offset case when pass.number = 2 and w.attempts = 0 then 1 else 0 end
                  limit greatest(0, case
                        when w.is_limited and (pass.number = 2 or held.attempts >= $7::int - $8::int) then 0
                        when w.is_limited then $6::int - w.attempts
                        when pass.number = 1 then 1 - w.attempts
                        when held.attempts >= $7::int - $8::int
                        then case when w.is_prompt and w.attempts > 0 then $9::int - w.attempts else 0 end
                        when w.attempts = 0 then $5::int - 1
                        else $5::int - w.attempts end)
                    for update skip locked
               ) d
               limit greatest(0, least($10::int, $7::int - held.attempts
                              - case when held.attempts < $7::int - $8::int then $8::int else 0 end))
            ) d
            limit $11
         ) d
     ), claimed as (
       update webhook_deliveries d
          set next_attempt_at = now() + $2 * interval '1 millisecond', leased_until = now() + $2 * interval '1 millisecond'
        where d.ctid = any (array (select row_place from due))
       returning d.event_id, d.endpoint_id, d.scheduled, d.leased_until
     )
     select ${eventColumns}, c.endpoint_id, c.scheduled, c.leased_until, w.url, w.failures,
            (select json_agg(json_build_object('generation', s.generation, 'keyVersion', s.key_version) order by s.generation desc)
               from (select * from webhook_secrets s where s.endpoint_id = w.id
                      order by s.generation desc limit ${maxSecrets}) s
              where s.expires_at is null or s.expires_at > now()) as secrets
       from claimed c
       join due using (event_id, endpoint_id)
       join events e on e.id = c.event_id
       join webhook_endpoints w on w.id = c.endpoint_id
      order by due.turn`,
  );

function recordValues(records: readonly AttemptRecord[]): unknown[] {
  const next = records.map(({ delivery, result }) => outcomeOf(delivery, result));
  return [
    records.map(({ delivery }) => delivery.event.merchantId),
    records.map(({ delivery }) => delivery.event.id),
    records.map(({ delivery }) => delivery.endpointId),
    records.map(({ delivery }) => delivery.leasedUntil.toISOString()),
    next.map(({ status }) => status),
    next.map(({ retryAfterMs }) => retryAfterMs ?? null),
    records.map(({ result }) => result.at.toISOString()),
    records.map(({ result }) => result.durationMs),
    records.map(({ result }) => result.statusCode ?? null),
    records.map(({ result }) => result.error ?? null),
    records.map(({ result }) => result.response ?? null),
    maxKeptAttempts,
  ];
}

/**
 * Rows are locked in the order of events and endpoints. Each is found by its whole key and its status is
 * checked afterwards: a plan made while few were pending would read all pending rows.
 */
const recordAttempts = preparedStatement(
  'record_webhook_attempts',
  `with results as (
     select * from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::timestamptz[], $5::webhook_delivery_status[],
                          $6::int[], $7::timestamptz[], $8::int[], $9::smallint[], $10::text[], $11::bytea[])
       as r (merchant_id, event_id, endpoint_id, leased_until, status, retry_after_ms, at, duration_ms, status_code,
             error, response)
   ), locked as materialized (
     select d.place, r.status, r.retry_after_ms, r.leased_until
       from (select * from results order by event_id, endpoint_id) r
      cross join lateral (
        select d.ctid as place, d.status, d.next_attempt_at from webhook_deliveries d
         where d.merchant_id = r.merchant_id and d.event_id = r.event_id and d.endpoint_id = r.endpoint_id
         limit 1 for update
      ) d
      where d.status = 'pending' and d.next_attempt_at = r.leased_until
   ), recorded as (
     update webhook_deliveries d
        set status = l.status, next_attempt_at = now() + l.retry_after_ms * interval '1 millisecond', scheduled = d.scheduled + 1,
            attempts = d.attempts + 1
       from locked l where d.ctid = l.place
     returning d.event_id, d.endpoint_id, d.attempts, d.status, l.leased_until
   ), forgotten as (
     delete from webhook_attempts a using recorded
      where a.event_id = recorded.event_id and a.endpoint_id = recorded.endpoint_id
        and a.number <= recorded.attempts - $12
   ), kept as (
     insert into webhook_attempts (event_id, endpoint_id, number, at, duration_ms, status_code, error, response)
     select event_id, endpoint_id, recorded.attempts, r.at, r.duration_ms, r.status_code, r.error, r.response
       from recorded join results r using (event_id, endpoint_id, leased_until)
   )
   select event_id, endpoint_id, attempts, status, leased_until from recorded`,
);

/** Maximum rows searched for the oldest, due first and due last: an endpoint that was down may have a million. */
const maxMeasured = 10_000;
const pendingEnd = (order: 'asc' | 'desc') =>
  `(select created_at from webhook_deliveries where status = 'pending' order by next_attempt_at ${order} limit ${maxMeasured})`;
const measureBacklog = preparedStatement(
  'measure_webhook_backlog',
  `with served as materialized (
     select distinct d.merchant_id from webhook_deliveries d
      where d.next_attempt_at between now() and now() + interval '${leaseMs} milliseconds' and ${isInFlight}
   ), latest as (
     select created_at as since from (select created_at from events where position is null limit ${maxMeasured}) e
     union all
     select next.next_attempt_at
       from webhook_endpoints w
      cross join lateral (
        select d.next_attempt_at from webhook_deliveries d
         where d.endpoint_id = w.id and d.status = 'pending' order by d.next_attempt_at limit 1) next
      where w.enabled and w.failures = 0
        and w.merchant_id not in (select merchant_id from served))
   select (select greatest(0, extract(epoch from now() - min(created_at)) * 1000)::bigint
             from (${pendingEnd('asc')} union all ${pendingEnd('desc')}) d) as oldest_ms,
          (select greatest(0, extract(epoch from now() - min(since)) * 1000)::bigint from latest) as lag_ms`,
);

// When a delivery that failed is tried again.

/** Delays of the retries, in seconds. After the last one the delivery has failed. */
const retryAfterSeconds = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400];

/** A delivery's state after an attempt. Retries have 10% jitter, to spread out those of one outage. */
export function outcomeOf(
  { scheduled }: { scheduled: number },
  { error }: Pick<AttemptResult, 'error'>,
): { status: 'pending' | 'delivered' | 'failed'; retryAfterMs: number | undefined } {
  if (error === undefined) return { status: 'delivered', retryAfterMs: undefined };
  const seconds = retryAfterSeconds[scheduled];
  if (seconds === undefined) return { status: 'failed', retryAfterMs: undefined };
  return { status: 'pending', retryAfterMs: Math.round(seconds * 1000 * (0.9 + Math.random() / 5)) };
}
