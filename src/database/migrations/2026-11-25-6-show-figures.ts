/** Confirmed transfers of a refund or in the token of their intent, by the hour of their block. */
const bookedTransfers = (from: string) => `
  select t.sign, t.merchant_id, t.mode, date_trunc('hour', t.block_time, 'UTC') as hour, t.chain_id,
         case when t.refund is null then 'received' else 'refunded' end::report_kind as kind, t.amount_units as units
    from (${from}) t
   where t.state = 'confirmed'
     and (t.refund is not null
          or t.payment_intent is not null and not coalesce('wrong_token' = any (t.labels), false))`;

/** Ended intents, by the hour of their end. */
const bookedIntents = (from: string) => `
  select i.sign, i.merchant_id, i.mode,
         date_trunc('hour', case i.status when 'succeeded' then i.succeeded_at when 'expired' then i.expired_at
                                          else i.canceled_at end, 'UTC') as hour,
         n.chain_id, i.status::text::report_kind as kind, 0 as units
    from (${from}) i
    join networks n on n.id = i.network
   where i.status in ('succeeded', 'expired', 'canceled')`;

const booked = [
  ['transfers', bookedTransfers],
  ['payment_intents', bookedIntents],
] as const;

/**
 * The console's first page: what needs a person, and figures of money and of ended intents. Triggers book
 * them, so that processes of the previous release do so too, without a new right. Existing rows are counted
 * here. Meanwhile transfers, intents and refunds cannot be written: about two seconds for a million.
 */
export default [
  // In the ledger's order, to prevent a deadlock with it.
  'lock table transfers, payment_intents, refunds in share row exclusive mode',
  `create type report_kind as enum ('received', 'refunded', 'succeeded', 'expired', 'canceled')`,
  `
      create table report_hours (
        merchant_id uuid           not null,
        mode        payment_mode   not null,
        hour        timestamptz(3) not null,
        chain_id    int            not null,
        kind        report_kind    not null,
        count       bigint         not null,
        units       numeric        not null,
        primary key (merchant_id, mode, hour, chain_id, kind)
      )`,
  `
      create table report_changes (
        id          uuid           not null primary key,
        merchant_id uuid           not null,
        mode        payment_mode   not null,
        hour        timestamptz(3) not null,
        chain_id    int            not null,
        kind        report_kind    not null,
        count       bigint         not null,
        units       numeric        not null
      )`,
  'create index report_changes_hour_index on report_changes (merchant_id, mode, hour)',
  `
      create table resolved_attention (
        merchant_id uuid           not null,
        mode        payment_mode   not null,
        item        text           not null,
        note        text           not null,
        resolved_at timestamptz(3) not null,
        primary key (merchant_id, mode, item)
      )`,
  `
      create table export_tickets (
        ticket_hash bytea          not null primary key,
        merchant_id uuid           not null,
        mode        payment_mode   not null,
        from_time   timestamptz(3) not null,
        before_time timestamptz(3) not null,
        expires_at  timestamptz(3) not null
      )`,
  `
      create index payment_intents_labels_index on payment_intents (merchant_id, mode, id)
       where labels is not null and amount_refunded_units is null`,
  `
      create index payment_intents_refunded_index on payment_intents (merchant_id, mode, id)
       where labels is not null and amount_refunded_units is not null`,
  "create index refunds_waiting_index on refunds (merchant_id, mode, id) where status = 'requires_transfer'",
  'create index refunds_labels_index on refunds (merchant_id, mode, id) where labels is not null',
  ...booked.flatMap(([table, rows]) => [
    `
        create function report_${table}() returns trigger as $$
        begin
          insert into report_changes (id, merchant_id, mode, hour, chain_id, kind, count, units)
          select gen_random_uuid(), b.merchant_id, b.mode, b.hour, b.chain_id, b.kind, sum(b.sign), sum(b.sign * b.units)
            from (${rows('select -1 as sign, o.* from was o union all select 1, n.* from now n')}) b
           where b.hour is not null
           group by b.merchant_id, b.mode, b.hour, b.chain_id, b.kind
          having sum(b.sign) <> 0 or sum(b.sign * b.units) <> 0;
          return null;
        end;
        $$ language plpgsql security definer`,
    // The caller must not choose what the names mean, and only the triggers may call the function.
    `
        do $do$ begin
          execute format('alter function report_${table}() set search_path = pg_catalog, %I, pg_temp', current_schema());
        end $do$`,
    `revoke execute on function report_${table}() from public`,
    `
        create trigger ${table}_reported after update on ${table} referencing old table as was new table as now
        for each statement execute function report_${table}()`,
    `
        insert into report_hours
        select b.merchant_id, b.mode, b.hour, b.chain_id, b.kind, count(*), sum(b.units)
          from (${rows(`select 1 as sign, t.* from ${table} t`)}) b
         where b.hour is not null
         group by b.merchant_id, b.mode, b.hour, b.chain_id, b.kind`,
  ]),
];
