import { exportPayments } from '../../src/console/export-payments.ts';
import type { TestService } from './service.ts';

/** Selects the console's figures that differ from a recount of transfers and intents. There may be none. */
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

/** Selects stored sums, of intents and refunds with very many transfers, that differ from a recount. */
export const wrongSums = `
  select * from payment_sums s full join (
           select coalesce(payment_intent, refund) as payment_intent, state, counts, coalesce(labels, '{}') as labels, count(*) as counted, sum(amount_units) as sum
             from transfers group by 1, 2, 3, 4) t using (payment_intent, state, counts, labels)
   where payment_intent in (select payment_intent from payment_sums)
     and (coalesce(s.count, 0) <> coalesce(t.counted, 0) or coalesce(s.units, 0) <> coalesce(t.sum, 0))`;

const figuresOfMoney = `
  select case kind when 'received' then 'payment' else 'refund' end || to_char(hour at time zone 'UTC', ' YYYY-MM-DD"T"HH24') as line,
         array[sum(count)::int, sum(units)::int] as sum
    from (select kind, hour, count, units from report_hours
          union all
          select kind, hour, count, units from report_changes) f
   where kind in ('received', 'refunded') group by line having sum(count) <> 0`;

/** Returns how often and how much came in and went back by hour: by the figures, and by the export. */
export async function sumsOfMoney({ query, database, merchant: { id: merchantId } }: TestService) {
  const figures = await query<{ line: string; sum: number[] }>(figuresOfMoney);
  let csv = '';
  const range = { from: new Date(0), before: new Date('2100-01-01') };
  const options = { merchantId, mode: 'testnet', format: 'csv', ...range } as const;
  for await (const text of exportPayments(database.orm.em, options)) csv += text;
  const exported: Record<string, number[]> = {};
  for (const line of csv.split('\r\n').slice(1, -1)) {
    const [time = '', type, , , status, , token, , units] = line.split(',');
    if (status !== 'confirmed' || token !== 'USDC') continue;
    const [count = 0, sum = 0] = exported[`${type} ${time.slice(0, 13)}`] ?? [];
    exported[`${type} ${time.slice(0, 13)}`] = [count + 1, sum + Number(units)];
  }
  return { figures: Object.fromEntries(figures.map(({ line, sum }) => [line, sum])), exported };
}
