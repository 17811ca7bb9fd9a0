// The queue of webhooks: the pending rows of `webhook_deliveries`. They are rows that merchants read anyway, so a queue
// of another kind would only have to be kept in step with them.

import type { EntityManager } from '@mikro-orm/postgresql';
import { createBatcher } from '../database/batcher.ts';
import { EventEntity, type EventRow } from '../database/entities/event.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { createPreparedStatements, preparedStatement, type RunPrepared } from '../database/prepared.ts';
import type { AttemptResult } from './sender.ts';
import type { SecretGeneration } from './signature.ts';

/** Pauses before the attempts behind the first, in seconds. After the last one the delivery has failed. */
const retryAfterSeconds = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400];
/** Attempts of a delivery that are kept. */
const maxKeptAttempts = 20;
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
  /** Attempts in flight by endpoint. */
  byEndpoint: ReadonlyMap<string, number>;
  /** Endpoints that answer, but slowly: they count like those whose last attempt failed. */
  slow: ReadonlySet<string>;
  /** Endpoints for which nothing is claimed. */
  paused: ReadonlyMap<string, unknown>;
  /** Most attempts in flight for an endpoint that answers at once, and for one that fails or is slow. */
  maxHealthy: number;
  maxFailing: number;
  /** How many more may be claimed, and of those for endpoints that fail or are slow. */
  room: number;
  roomForFailing: number;
}

export interface DeliveryQueue {
  /**
   * Claims deliveries that are due. The endpoints take turns, also over the calls: each call begins behind the endpoint
   * at which the one before ended. No other process gets them before the lease ends.
   */
  claim(inHand: InHand): Promise<ClaimedDelivery[]>;
  /**
   * Records an attempt. Resolves with false, and records nothing, if the lease has ended or the endpoint was disabled
   * meanwhile.
   */
  record(delivery: ClaimedDelivery, result: AttemptResult): Promise<boolean>;
  /**
   * Returns, in milliseconds, how old the oldest pending delivery is, which may wait for a retry, and how late the latest
   * attempt is of those for endpoints that do not fail; 0 if there is none.
   */
  backlog(): Promise<{ oldestMs: number; lagMs: number }>;
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
  /** The endpoint at which the last claim ended. */
  let turn = lowestEndpoint;

  const recorder = createBatcher<Record, boolean>({
    slots: 2,
    maxBatchSize: maxRecordedAtOnce,
    maxWaiting: 100_000,
    maxWaitMs: 60_000,
    run: async (records) => {
      const { rows } = await run(recordAttempts, recordValues(records));
      const recorded = new Set(rows.map(({ event_id, endpoint_id }) => `${event_id} ${endpoint_id}`));
      return records.map(({ delivery: { event, endpointId } }) => recorded.has(`${event.id} ${endpointId}`));
    },
  });

  const claimBehind = async (endpoint: string, inHand: InHand): Promise<ClaimedDelivery[]> => {
    const known = [...new Set([...inHand.byEndpoint.keys(), ...inHand.slow, ...inHand.paused.keys()])];
    const { rows } = await run(claim, [
      endpoint,
      leaseMs,
      known,
      known.map((id) => (inHand.paused.has(id) ? inHand.maxHealthy : (inHand.byEndpoint.get(id) ?? 0))),
      known.map((id) => inHand.slow.has(id)),
      inHand.maxHealthy,
      // All of a claim may be for endpoints that fail.
      inHand.roomForFailing >= inHand.room ? inHand.maxFailing : 0,
      inHand.room,
    ]);
    return rows.map((row) => ({
      event: columns.read(row),
      endpointId: row.endpoint_id,
      url: row.url,
      failures: row.failures,
      scheduled: row.scheduled,
      secrets: secretsOf(row.secrets),
      leasedUntil: new Date(row.leased_until),
    }));
  };

  return {
    async claim(inHand) {
      const begin = turn;
      let claimed = await claimBehind(begin, inHand);
      // Behind the last one that had its turn; from the beginning when the end was reached.
      if (claimed.length === 0 && begin !== lowestEndpoint)
        claimed = await claimBehind(lowestEndpoint, inHand);
      turn = claimed.at(-1)?.endpointId ?? lowestEndpoint;
      return claimed;
    },
    record: (delivery, result) => recorder.add({ delivery, result }),
    async backlog() {
      const { rows } = await run(measureBacklog, []);
      return { oldestMs: Number(rows[0]?.oldest_ms ?? 0), lagMs: Number(rows[0]?.lag_ms ?? 0) };
    },
  };
}

const lowestEndpoint = '00000000-0000-0000-0000-000000000000';

/** `generation:key version`, newest first. */
function secretsOf(texts: string[] | null): SecretGeneration[] {
  return (texts ?? []).map((text) => {
    const [generation, keyVersion] = text.split(':').map(Number);
    return { generation: generation ?? 0, keyVersion: keyVersion ?? 0 };
  });
}

/**
 * Goes from endpoint to endpoint by the index of pending rows, without reading the rows between: ten thousand waiting
 * deliveries of one endpoint cost as much as ten.
 */
const claimStatement = (eventColumns: string) =>
  preparedStatement(
    'claim_webhook_deliveries',
    `with recursive turns as (
       (select d.endpoint_id, 1 as place from webhook_deliveries d
         where d.status = 'pending' and d.endpoint_id > $1::uuid order by d.endpoint_id limit 1)
       union all
       select (select d.endpoint_id from webhook_deliveries d
                where d.status = 'pending' and d.endpoint_id > t.endpoint_id order by d.endpoint_id limit 1),
              t.place + 1
         from turns t where t.endpoint_id is not null
     ), due as materialized (
       select d.merchant_id, d.event_id, d.endpoint_id, t.place
         from turns t
         join webhook_endpoints w on w.id = t.endpoint_id and w.enabled
         left join unnest($3::uuid[], $4::int[], $5::bool[]) as known (endpoint_id, attempts, is_slow)
           on known.endpoint_id = t.endpoint_id
         cross join lateral (
           select d.merchant_id, d.event_id, d.endpoint_id from webhook_deliveries d
            where d.endpoint_id = t.endpoint_id and d.status = 'pending' and d.next_attempt_at <= now()
            order by d.next_attempt_at
            limit greatest(0, case when w.failures > 0 or known.is_slow then $7::int else $6::int end
                                - coalesce(known.attempts, 0))
              for update skip locked
         ) d
        limit $8
     ), claimed as (
       update webhook_deliveries d set next_attempt_at = now() + $2 * interval '1 millisecond'
         from due where d.merchant_id = due.merchant_id and d.event_id = due.event_id and d.endpoint_id = due.endpoint_id
       returning d.event_id, d.endpoint_id, d.scheduled, d.next_attempt_at as leased_until, due.place
     )
     select ${eventColumns}, c.endpoint_id, c.scheduled, c.leased_until, w.url, w.failures,
            (select array_agg(s.generation || ':' || s.key_version order by s.generation desc) from webhook_secrets s
              where s.endpoint_id = w.id and (s.expires_at is null or s.expires_at > now())) as secrets
       from claimed c
       join events e on e.id = c.event_id
       join webhook_endpoints w on w.id = c.endpoint_id
      order by c.place`,
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

const recordAttempts = preparedStatement(
  'record_webhook_attempts',
  `with results as (
     select * from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::timestamptz[], $5::webhook_delivery_status[],
                          $6::int[], $7::timestamptz[], $8::int[], $9::smallint[], $10::text[], $11::bytea[])
       as r (merchant_id, event_id, endpoint_id, leased_until, status, retry_after_ms, at, duration_ms, status_code,
             error, response)
   ), recorded as (
     update webhook_deliveries d
        set status = r.status, next_attempt_at = now() + r.retry_after_ms * interval '1 millisecond', scheduled = d.scheduled + 1,
            attempts = d.attempts + 1
       from results r
      where d.merchant_id = r.merchant_id and d.event_id = r.event_id and d.endpoint_id = r.endpoint_id
        and d.status = 'pending' and d.next_attempt_at = r.leased_until
     returning d.event_id, d.endpoint_id, d.attempts
   ), forgotten as (
     delete from webhook_attempts a using recorded
      where a.event_id = recorded.event_id and a.endpoint_id = recorded.endpoint_id
        and a.number <= recorded.attempts - $12
   )
   insert into webhook_attempts (event_id, endpoint_id, number, at, duration_ms, status_code, error, response)
   select event_id, endpoint_id, recorded.attempts, r.at, r.duration_ms, r.status_code, r.error, r.response
     from recorded join results r using (event_id, endpoint_id)
   returning event_id, endpoint_id`,
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
