// The queue of webhooks: the pending rows of `webhook_deliveries`. They are rows that merchants read anyway, so a queue
// of another kind would only have to be kept in step with them.

import type { EntityManager } from '@mikro-orm/postgresql';
import { LRUCache } from 'lru-cache';
import { MAX as highestUuid, NIL as lowestUuid } from 'uuid';
import type { DeliveryStatusName } from '../contract/words.ts';
import { createBatcher } from '../database/batcher.ts';
import { EventEntity, type EventRow } from '../database/entities/event.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { createPreparedStatements, preparedStatement, type RunPrepared } from '../database/prepared.ts';
import type { AttemptResult } from './sender.ts';
import type { SecretGeneration } from './signature.ts';

/** Pauses before the attempts behind the first, in seconds. After the last one the delivery has failed. */
const retryAfterSeconds = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400];
/** Attempts of a delivery that are kept. */
export const maxKeptAttempts = 20;
/** How long a claimed delivery belongs to its process: longer than an attempt can take. */
const leaseMs = 30_000;
const maxRecordedAtOnce = 128;

/** Makes the deliveries of the events with these positions, for the endpoints that are enabled now. */
export async function createDeliveries(run: RunPrepared, after: bigint, upTo: bigint): Promise<number> {
  const { rowCount } = await run(insertDeliveries, [String(after), String(upTo)]);
  return rowCount ?? 0;
}

/** A delivery's id begins with the time of its event, as that of the event does (UUIDv7). */
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

/** True in SQL for a delivery `d` of which an attempt is in flight, in whatever process. */
export const isInFlight =
  "(d.status = 'pending' and d.next_attempt_at = d.leased_until and d.leased_until > now())";

/**
 * SQL that locks pending deliveries `d`. Whatever waits for several takes them in this order, so that two statements never
 * wait for each other.
 */
export const lockPending = (condition: string) =>
  `select count(*) from (
     select from webhook_deliveries d where d.status = 'pending' and ${condition}
      order by d.event_id, d.endpoint_id for update) as locked`;

/** A delivery that this process has to attempt. */
export interface ClaimedDelivery {
  event: EventRow;
  endpointId: string;
  url: string;
  /** The endpoint's failures since its last success. */
  failures: number;
  /** Attempts of the present schedule so far. */
  scheduled: number;
  /** The secrets that sign, newest first. */
  secrets: SecretGeneration[];
  /** Until when the delivery belongs to this process. */
  leasedUntil: Date;
}

/** What this process has in hand. */
export interface InHand {
  /** Attempts in flight by endpoint, and by merchant. */
  byEndpoint: ReadonlyMap<string, number>;
  byMerchant: ReadonlyMap<string, number>;
  /** Endpoints that answer, but slowly: they count like those whose last attempt failed. */
  slow: ReadonlySet<string>;
  /** Endpoints that answered at once the last time. */
  prompt: ReadonlySet<string>;
  /** Endpoints for which nothing is claimed. */
  paused: ReadonlyMap<string, unknown>;
  /** Most attempts in flight for an endpoint that answers at once, and for one that fails or is slow. */
  maxHealthy: number;
  maxFailing: number;
  /**
   * Most attempts in flight for a merchant. The last `merchantReserve` of them are for endpoints that neither fail nor are
   * slow: one for each, and `maxInReserve` for one that is prompt. So some that hang do not hold up the others of their
   * merchant.
   */
  maxOfMerchant: number;
  merchantReserve: number;
  maxInReserve: number;
  /** How many more may be claimed, and of those for endpoints that fail or are slow. */
  room: number;
  roomForFailing: number;
}

export interface DeliveryQueue {
  /**
   * Claims deliveries that are due. The merchants take turns, and the endpoints of each, also over the calls: each call
   * begins behind the merchant at which the one before ended, and with each merchant behind the endpoint that had the turn
   * last. An endpoint gets one, and more if there is room after all others of its merchant. No other process gets them
   * before the lease ends.
   */
  claim(inHand: InHand): Promise<ClaimedDelivery[]>;
  /**
   * Records an attempt, and returns what it has led to. Resolves with undefined, and records nothing, if the lease has
   * ended or the endpoint was disabled meanwhile.
   */
  record(delivery: ClaimedDelivery, result: AttemptResult): Promise<Recorded | undefined>;
  /**
   * Returns, in milliseconds, how old the oldest pending delivery is, which may wait for a retry, and how late the latest
   * attempt is of those for endpoints that do not fail; 0 if there is none.
   */
  backlog(): Promise<{ oldestMs: number; lagMs: number }>;
}

/** A delivery after an attempt. */
export interface Recorded {
  status: DeliveryStatusName;
  /** All attempts so far. */
  attempts: number;
}

interface Record {
  delivery: ClaimedDelivery;
  result: AttemptResult;
}

/** Returns the deliveries that wait, which processes claim from each other without waiting. */
export function createDeliveryQueue(em: EntityManager): DeliveryQueue {
  const { run } = createPreparedStatements(em);
  const columns = entityColumns<EventRow>(em, EventEntity);
  const claim = claimStatement(columns.of('e'));
  /** The merchant at which the last claim ended. */
  let turn: string = lowestUuid;
  /** Merchants that had a turn in it, and whether that was all who had something due. */
  let last = { merchants: 1, wasAll: true };
  /** The endpoint that had a merchant's turn last. One that is forgotten begins at its lowest. */
  const turnsOfMerchants = new LRUCache<string, string>({ max: maxRememberedTurns });

  const recorder = createBatcher<Record, Recorded | undefined>({
    slots: 2,
    maxBatchSize: maxRecordedAtOnce,
    maxWaiting: 100_000,
    maxWaitMs: 60_000,
    run: async (records) => {
      const { rows } = await run(recordAttempts, recordValues(records));
      const recorded = new Map(
        rows.map(({ event_id, endpoint_id, ...row }) => [
          `${event_id} ${endpoint_id}`,
          { status: row.status, attempts: row.attempts },
        ]),
      );
      return records.map(({ delivery: { event, endpointId } }) => recorded.get(`${event.id} ${endpointId}`));
    },
  });

  const knownEndpoints = ({ byEndpoint, slow, prompt, paused, maxHealthy }: InHand) => {
    const ids = new Set([...byEndpoint.keys(), ...slow, ...paused.keys()]);
    return Object.fromEntries(
      [...ids].map((id) => {
        const attempts = paused.has(id) ? maxHealthy : (byEndpoint.get(id) ?? 0);
        return [id, [attempts, slow.has(id), prompt.has(id)]];
      }),
    );
  };
  const knownMerchants = ({ byMerchant }: InHand) => {
    const ids = new Set([...byMerchant.keys(), ...turnsOfMerchants.keys()]);
    return Object.fromEntries(
      [...ids].map((id) => [id, [byMerchant.get(id) ?? 0, turnsOfMerchants.peek(id) ?? lowestUuid]]),
    );
  };

  return {
    async claim(inHand) {
      const { rows } = await run(claim, [
        turn,
        leaseMs,
        JSON.stringify(knownEndpoints(inHand)),
        JSON.stringify(knownMerchants(inHand)),
        inHand.maxHealthy,
        // All of a claim may be for endpoints that fail.
        inHand.roomForFailing >= inHand.room ? inHand.maxFailing : 0,
        inHand.maxOfMerchant,
        inHand.merchantReserve,
        inHand.maxInReserve,
        // So much for each merchant: as many as last time will share the room, or as many as have something in flight.
        Math.ceil(inHand.room / Math.max(last.merchants, last.wasAll ? 1 : inHand.byMerchant.size)),
        inHand.room,
      ]);
      const claimed = rows.map((row) => ({
        event: columns.read(row),
        endpointId: row.endpoint_id,
        url: row.url,
        failures: row.failures,
        scheduled: row.scheduled,
        secrets: secretsOf(row.secrets),
        leasedUntil: new Date(row.leased_until),
      }));
      for (const { event, endpointId } of claimed) turnsOfMerchants.set(event.merchantId, endpointId);
      turn = claimed.at(-1)?.event.merchantId ?? turn;
      const merchants = Math.max(1, new Set(claimed.map(({ event }) => event.merchantId)).size);
      last = { merchants, wasAll: claimed.length < inHand.room };
      return claimed;
    },
    record: (delivery, result) => recorder.add({ delivery, result }),
    async backlog() {
      const { rows } = await run(measureBacklog, []);
      return { oldestMs: Number(rows[0]?.oldest_ms ?? 0), lagMs: Number(rows[0]?.lag_ms ?? 0) };
    },
  };
}

/** Merchants of which it is known whose turn it was. */
const maxRememberedTurns = 256;

/** `generation:key version`, newest first. */
function secretsOf(texts: string[] | null): SecretGeneration[] {
  return (texts ?? []).map((text) => {
    const [generation, keyVersion] = text.split(':').map(Number);
    return { generation: generation ?? 0, keyVersion: keyVersion ?? 0 };
  });
}

/**
 * A recursive query that goes round the values of a column of pending rows, from the first behind `begin` to the last up
 * to it, without reading the rows between. `order` is what the index has from the column on: no other index has that
 * order, whatever the statistics say.
 */
const ring = (name: string, column: string, begin: string, where: string, order: string) => {
  const next = (lap: string, condition: string) =>
    `(select d.${column}, ${lap} as lap from webhook_deliveries d
       where d.status = 'pending' and ${where} and ${condition} order by ${order} limit 1)`;
  return `${name} (${column}, lap, place) as (
       select ${begin}, 0, 0
       union all
       select n.${column}, n.lap, r.place + 1
         from ${name} r
        cross join lateral (
          ${next('r.lap', `d.${column} > r.${column} and d.${column} <= case r.lap when 0 then '${highestUuid}' else ${begin} end`)}
          union all
          ${next('1', `r.lap = 0 and d.${column} <= ${begin}`)}
          limit 1
        ) n
     )`;
};

/**
 * Ten thousand waiting deliveries of one endpoint cost as much as ten, and what is behind the room is not read. The rows
 * are updated in place, so that what is claimed is known before any of it changes. The ring of endpoints names `pass`: no
 * plan can take both passes of one endpoint before the next endpoint.
 */
const claimStatement = (eventColumns: string) =>
  preparedStatement(
    'claim_webhook_deliveries',
    `with recursive ${ring('merchants', 'merchant_id', '$1::uuid', 'true', 'd.merchant_id, d.endpoint_id, d.next_attempt_at')},
     due as materialized (
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
                 with recursive ${ring('turns', 'endpoint_id', 'held.behind', 'd.merchant_id = m.merchant_id', 'd.endpoint_id, d.next_attempt_at')}
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
            where m.place > 0
            limit $11
         ) d
     ), claimed as (
       update webhook_deliveries d
          set next_attempt_at = now() + $2 * interval '1 millisecond', leased_until = now() + $2 * interval '1 millisecond'
        where d.ctid = any (array (select row_place from due))
       returning d.event_id, d.endpoint_id, d.scheduled, d.leased_until
     )
     select ${eventColumns}, c.endpoint_id, c.scheduled, c.leased_until, w.url, w.failures,
            (select array_agg(s.generation || ':' || s.key_version order by s.generation desc) from webhook_secrets s
              where s.endpoint_id = w.id and (s.expires_at is null or s.expires_at > now())) as secrets
       from claimed c
       join due using (event_id, endpoint_id)
       join events e on e.id = c.event_id
       join webhook_endpoints w on w.id = c.endpoint_id
      order by due.turn`,
  );

function recordValues(records: readonly Record[]): unknown[] {
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

/** Where an attempt leads: retries come a tenth sooner or later, so that those of one outage do not come together. */
export function outcomeOf(
  { scheduled }: Pick<ClaimedDelivery, 'scheduled'>,
  { error }: Pick<AttemptResult, 'error'>,
): { status: 'pending' | 'delivered' | 'failed'; retryAfterMs: number | undefined } {
  if (error === undefined) return { status: 'delivered', retryAfterMs: undefined };
  const seconds = retryAfterSeconds[scheduled];
  if (seconds === undefined) return { status: 'failed', retryAfterMs: undefined };
  return { status: 'pending', retryAfterMs: Math.round(seconds * 1000 * (0.9 + Math.random() / 5)) };
}

/**
 * The rows are locked in the order of `lockPending`. Each is looked up by its whole key, its status only then: a plan made
 * while little was pending would read all that is.
 */
const recordAttempts = preparedStatement(
  'record_webhook_attempts',
  `with results as (
     select * from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::timestamptz[], $5::webhook_delivery_status[],
                          $6::int[], $7::timestamptz[], $8::int[], $9::smallint[], $10::text[], $11::bytea[])
       as r (merchant_id, event_id, endpoint_id, leased_until, status, retry_after_ms, at, duration_ms, status_code,
             error, response)
   ), locked as materialized (
     select d.place, r.status, r.retry_after_ms
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
     returning d.event_id, d.endpoint_id, d.attempts, d.status
   ), forgotten as (
     delete from webhook_attempts a using recorded
      where a.event_id = recorded.event_id and a.endpoint_id = recorded.endpoint_id
        and a.number <= recorded.attempts - $12
   ), kept as (
     insert into webhook_attempts (event_id, endpoint_id, number, at, duration_ms, status_code, error, response)
     select event_id, endpoint_id, recorded.attempts, r.at, r.duration_ms, r.status_code, r.error, r.response
       from recorded join results r using (event_id, endpoint_id)
   )
   select event_id, endpoint_id, attempts, status from recorded`,
);

const measureBacklog = preparedStatement(
  'measure_webhook_backlog',
  `select (select greatest(0, extract(epoch from now() - min(created_at)) * 1000)::bigint
             from webhook_deliveries where status = 'pending') as oldest_ms,
          (select greatest(0, extract(epoch from now() - min(next.next_attempt_at)) * 1000)::bigint
             from webhook_endpoints w
            cross join lateral (
              select d.next_attempt_at from webhook_deliveries d
               where d.endpoint_id = w.id and d.status = 'pending' order by d.next_attempt_at limit 1) next
            where w.enabled and w.failures = 0) as lag_ms`,
);
