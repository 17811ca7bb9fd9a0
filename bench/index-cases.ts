// The indexes that are not primary keys, each with the query that needs it; and how each table is written.

export interface IndexCase {
  name: string;
  table: string;
  /** What needs the index, for the report. */
  purpose: string;
  /** Returns one row: the values of the query's parameters, which begin with a colon. */
  values?: string;
  /** As the service runs it; undefined if the index only keeps values unique. */
  query?: string;
}

const page = 21;

export const indexCases: readonly IndexCase[] = [
  {
    name: 'payment_intents_merchant_index',
    table: 'payment_intents',
    purpose: 'a page of the list of intents',
    values: `select merchant_id, id from payment_intents order by id offset (select count(*) / 2 from payment_intents) limit 1`,
    query: `select * from payment_intents
             where merchant_id = :merchant_id and mode = 'testnet' and id < :id order by id desc limit ${page}`,
  },
  {
    name: 'payment_intents_idempotency_key_unique',
    table: 'payment_intents',
    purpose: 'the first intent of an idempotency key; keys are unique',
    values: `select merchant_id, idempotency_key as key from payment_intents where idempotency_key is not null limit 1`,
    query: `select * from payment_intents
             where merchant_id = :merchant_id and mode = 'testnet' and idempotency_key = :key`,
  },
  {
    name: 'payment_intents_open_index',
    table: 'payment_intents',
    purpose: 'intents that have to expire',
    query: `select * from payment_intents
             where network = 3 and status = 'requires_payment' and expires_at <= now() and id <> all ('{}'::uuid[])
             order by expires_at limit 250 for update skip locked`,
  },
  {
    name: 'payment_intents_wallet_index',
    table: 'payment_intents',
    purpose: 'intents that a transfer of this amount may be for',
    values: `select encode(expected_wallet, 'hex') as wallet, merchant_id from payment_intents limit 1`,
    query: `select id from payment_intents
             where expected_wallet = decode(:wallet, 'hex') and merchant_id = :merchant_id and amount_units = 1
               and status = 'requires_payment' order by id desc limit 2`,
  },
  {
    name: 'payment_intents_partial_index',
    table: 'payment_intents',
    purpose: 'intents that a transfer of what is missing may be for',
    values: `select encode(expected_wallet, 'hex') as wallet, merchant_id from payment_intents limit 1`,
    query: `select id from payment_intents
             where expected_wallet = decode(:wallet, 'hex') and merchant_id = :merchant_id
               and status in ('requires_payment', 'expired', 'canceled')
               and amount_received_units > 0 and amount_units - amount_received_units = 1 limit 2`,
  },
  {
    name: 'events_merchant_index',
    table: 'events',
    purpose: 'a page of the list of events',
    values: 'select merchant_id, position from events where position is not null offset 1000 limit 1',
    query: `select * from events
             where merchant_id = :merchant_id and mode = 'testnet' and position > :position order by position limit ${page}`,
  },
  {
    name: 'events_turns_index',
    table: 'events',
    purpose: 'events of a merchant that have to get their position',
    values: 'select merchant_id from events limit 1',
    query: `select id, sequence from events
             where merchant_id = :merchant_id and position is null order by sequence, id limit 1000`,
  },
  {
    name: 'events_position_unique',
    table: 'events',
    purpose: 'deliveries of new events; positions are unique',
    values: 'select max(position) - 1000 as after, max(position) as up_to from events',
    query: `select e.merchant_id, e.id, w.id from events e
              join webhook_endpoints w on w.merchant_id = e.merchant_id and w.mode = e.mode and w.enabled
               and case when e.webhook_endpoint is null
                        then w.event_types && array['*', e.type]
                        else w.id = e.webhook_endpoint end
             where e.position > :after and e.position <= :up_to`,
  },
  {
    name: 'events_payment_intent_unique',
    table: 'events',
    purpose: 'the list of the events of an intent; sequences are unique',
    values: 'select merchant_id, payment_intent from events limit 1',
    query: `select * from events
             where merchant_id = :merchant_id and mode = 'testnet' and position > 0 and payment_intent = :payment_intent
             order by sequence limit ${page}`,
  },
  {
    name: 'webhook_endpoints_merchant_index',
    table: 'webhook_endpoints',
    purpose: 'the list of endpoints',
    values: 'select merchant_id from webhook_endpoints limit 1',
    query: `select * from webhook_endpoints
             where merchant_id = :merchant_id and mode = 'testnet' and deleted_at is null order by id desc limit ${page}`,
  },
  {
    name: 'webhook_endpoints_idempotency_key_unique',
    table: 'webhook_endpoints',
    purpose: 'the endpoint of an idempotency key; keys are unique',
    values: `select merchant_id, idempotency_key as key from webhook_endpoints where idempotency_key is not null limit 1`,
    query: `select * from webhook_endpoints
             where merchant_id = :merchant_id and mode = 'testnet' and idempotency_key = :key`,
  },
  {
    name: 'webhook_secrets_idempotency_key_unique',
    table: 'webhook_secrets',
    purpose: 'no query; keys are unique',
  },
  {
    name: 'webhook_deliveries_endpoint_index',
    table: 'webhook_deliveries',
    purpose: 'a page of the list of deliveries',
    values: 'select merchant_id, endpoint_id, event_id from webhook_deliveries offset 1000 limit 1',
    query: `select * from webhook_deliveries
             where merchant_id = :merchant_id and endpoint_id = :endpoint_id and event_id < :event_id
             order by event_id desc limit ${page}`,
  },
  {
    name: 'webhook_deliveries_pending_index',
    table: 'webhook_deliveries',
    purpose: 'deliveries that are due, of each endpoint in turn',
    query: `with recursive turns as (
              (select d.endpoint_id from webhook_deliveries d
                where d.status = 'pending' and d.endpoint_id > '00000000-0000-0000-0000-000000000000'
                order by d.endpoint_id limit 1)
              union all
              select (select d.endpoint_id from webhook_deliveries d
                       where d.status = 'pending' and d.endpoint_id > t.endpoint_id order by d.endpoint_id limit 1)
                from turns t where t.endpoint_id is not null
            )
            select d.merchant_id, d.event_id, d.endpoint_id
              from turns t
              join webhook_endpoints w on w.id = t.endpoint_id and w.enabled
              cross join lateral (
                select d.merchant_id, d.event_id, d.endpoint_id from webhook_deliveries d
                 where d.endpoint_id = t.endpoint_id and d.status = 'pending' and d.next_attempt_at <= now()
                 order by d.next_attempt_at limit 8 for update skip locked
              ) d
             limit 128`,
  },
  {
    name: 'removed_events_removed_at_index',
    table: 'removed_events',
    purpose: 'ids of removed events that are forgotten',
    query: `select id from removed_events
             where removed_at < now() - interval '90 days' order by removed_at limit 1000 for update skip locked`,
  },
];

/** The statements of a transaction that writes a row of each table, for \`pgbench\`. */
export function writesOf(merchantId: string): Readonly<Record<string, string>> {
  const endpointId = '01900000-0000-7000-8000-000000000000';
  const delivery = `merchant_id = '${merchantId}' and event_id = :event and endpoint_id = '${endpointId}'`;
  return {
    payment_intents: `insert into payment_intents
 (id, merchant_id, mode, status, network, amount_units, expected_wallet, lane, metadata, created_at, expires_at, client_secret_version, idempotency_key, request_fingerprint)
 values (uuidv7(), '${merchantId}', 'testnet', 'requires_payment', 3, 12500000, '\\x${'1'.repeat(40)}', 'sdk',
 '{"order_id":"order-1001"}', now(), now() + interval '30 minutes', 1, gen_random_uuid()::text, '\\x${'1'.repeat(64)}')`,
    events: `begin;
insert into events (id, merchant_id, mode, type, created_at, payment_intent, sequence, data)
 values (uuidv7(), '${merchantId}', 'testnet', 'payment_intent.canceled', now(), uuidv7(), 1, '{"payment_intent":"${'x'.repeat(550)}"}')
 returning id \\gset
update events set position = nextval('bench_positions') where id = :id;
commit`,
    webhook_endpoints: `insert into webhook_endpoints
 (id, merchant_id, mode, url, event_types, enabled, created_at, idempotency_key)
 values (uuidv7(), '${merchantId}', 'testnet', 'https://shop.example/webhooks', '{*}', true, now(), gen_random_uuid()::text)`,
    webhook_secrets: `insert into webhook_secrets (endpoint_id, generation, key_version, created_at, idempotency_key)
 values (uuidv7(), 1, 1, now(), gen_random_uuid()::text)`,
    webhook_deliveries: `begin;
insert into webhook_deliveries (merchant_id, event_id, endpoint_id, id, status, created_at, next_attempt_at)
 values ('${merchantId}', uuidv7(), '${endpointId}', gen_random_uuid(), 'pending', now(), now()) returning event_id as event \\gset
update webhook_deliveries set next_attempt_at = now() + interval '30 seconds' where ${delivery};
update webhook_deliveries set status = 'delivered', next_attempt_at = null, scheduled = 1, attempts = 1 where ${delivery};
commit`,
    webhook_attempts: `insert into webhook_attempts (event_id, endpoint_id, number, at, duration_ms, status_code)
 values (uuidv7(), '${endpointId}', 1, now(), 12, 204)`,
    removed_events: `insert into removed_events (id, merchant_id, mode, removed_at)
 values (gen_random_uuid(), '${merchantId}', 'testnet', now())`,
  };
}
