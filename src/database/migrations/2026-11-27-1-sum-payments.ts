const changes = [
  ['insert', 'new table as now', 'select 1 as sign, n.* from now n'],
  [
    'update',
    'old table as was new table as now',
    'select -1 as sign, o.* from was o union all select 1, n.* from now n',
  ],
] as const;

/**
 * The sums of intents with very many payments, so that a payment does not read all of them again. Triggers
 * keep the sums of the intents that have rows here, whichever release changes a transfer. Meanwhile transfers
 * cannot be written: about a second for a million.
 */
export default [
  `
      create table payment_sums (
        payment_intent uuid           not null,
        state          transfer_state not null,
        counts         boolean        not null,
        labels         text[]         not null,
        count          bigint         not null,
        units          numeric        not null,
        primary key (payment_intent, state, counts, labels)
      )`,
  'create index transfers_authorized_index on transfers (authorized_by) where authorized_by is not null',
  ...changes.flatMap(([change, tables, rows]) => [
    `
        create function sum_payments_${change}() returns trigger as $$
        begin
          insert into payment_sums as s (payment_intent, state, counts, labels, count, units)
          select t.payment_intent, t.state, t.counts, coalesce(t.labels, '{}'), sum(t.sign), sum(t.sign * t.amount_units)
            from (${rows}) t
           where exists (select from payment_sums k where k.payment_intent = t.payment_intent)
           group by 1, 2, 3, 4
              on conflict (payment_intent, state, counts, labels)
              do update set count = s.count + excluded.count, units = s.units + excluded.units;
          return null;
        end;
        $$ language plpgsql security definer`,
    `
        do $do$ begin
          execute format('alter function sum_payments_${change}() set search_path = pg_catalog, %I, pg_temp', current_schema());
        end $do$`,
    `revoke execute on function sum_payments_${change}() from public`,
    `
        create trigger transfers_summed_${change} after ${change} on transfers referencing ${tables}
        for each statement execute function sum_payments_${change}()`,
  ]),
  `
      insert into payment_sums
      select t.payment_intent, t.state, t.counts, coalesce(t.labels, '{}'), count(*), sum(t.amount_units)
        from transfers t
       where t.payment_intent in (select payment_intent from transfers group by 1 having count(*) > 1000)
       group by 1, 2, 3, 4`,
];
