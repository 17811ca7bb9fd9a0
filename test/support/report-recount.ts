/** What the console's figures say otherwise than a recount of transfers and intents: nothing, at any time. */
export const wrongFigures = `
  with recount as (
    select t.merchant_id, t.mode, t.chain_id, floor(extract(epoch from t.block_time) / 3600) as hour,
           'received' as kind, t.amount_units as units
      from transfers t join payment_intents i on i.id = t.payment_intent join networks n on n.id = i.network
     where t.state = 'confirmed' and t.token_address = n.token_address
    union all
    select t.merchant_id, t.mode, t.chain_id, floor(extract(epoch from t.block_time) / 3600), 'refunded', t.amount_units
      from transfers t join refunds r on r.id = t.refund where t.state = 'confirmed'
    union all
    select i.merchant_id, i.mode, n.chain_id,
           floor(extract(epoch from coalesce(i.succeeded_at, i.expired_at, i.canceled_at)) / 3600), i.status::text, 0
      from payment_intents i join networks n on n.id = i.network
     where i.status in ('succeeded', 'expired', 'canceled')
  ), counted as (
    select merchant_id, mode, chain_id, hour, kind, count(*) as count, sum(units) as units from recount
     group by merchant_id, mode, chain_id, hour, kind
  ), kept as (
    select merchant_id, mode, chain_id, floor(extract(epoch from hour) / 3600) as hour, kind::text as kind,
           sum(count) as count, sum(units) as units
      from (select merchant_id, mode, chain_id, hour, kind, count, units from report_hours
            union all
            select merchant_id, mode, chain_id, hour, kind, count, units from report_changes) f
     group by merchant_id, mode, chain_id, hour, kind having sum(count) <> 0 or sum(units) <> 0
  )
  select merchant_id, mode, chain_id, hour, kind, c.count as counted, k.count as kept, c.units as counted_units,
         k.units as kept_units
    from counted c full join kept k using (merchant_id, mode, chain_id, hour, kind)
   where c.count is distinct from k.count or c.units is distinct from k.units`;
