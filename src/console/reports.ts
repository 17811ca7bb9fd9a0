// Figures by day for the console, and the task that adds their changes to the hourly sums.

import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { EntityManager } from '@mikro-orm/postgresql';
import { chains } from '../contract/chains.ts';
import type { GetSummaryRequest } from '../contract/gen/console/v1/console_service_pb.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { violationsIn } from '../requests/errors.ts';
import { type ConsoleMethod, merchantOf } from './rights.ts';

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
const maxDays = 400;
/** Each further period of this many days counts as another request. */
const daysOfRequest = 40;

/** `GetSummary`: the figures of a merchant by day. */
export function getSummary(em: EntityManager): ConsoleMethod<'getSummary'> {
  const { read } = createPreparedStatements(em);
  return {
    ratePolicy: 'reads',
    violations,
    async run(request, caller, { context }) {
      const { merchantId, mode } = merchantOf(caller);
      const { firstDay, lastDay } = request;
      context.charge?.(Math.floor((Date.parse(lastDay) - Date.parse(firstDay)) / (daysOfRequest * dayMs)));
      const own = daysOf(request.timeZone, firstDay, lastDay);
      const { timeZone, dates, starts, end } =
        own ?? (daysOf('UTC', firstDay, lastDay) as NonNullable<typeof own>);
      const [row] = (await read(merchantId, sumDays, [merchantId, mode, dates, starts, end])).rows;
      const byDate = Map.groupBy<string, Figures>(row?.figures ?? [], ({ date }) => date);
      const days = [...byDate].map(([date, figures]) => ({ date, ...sumsOf(figures) }));
      return { timeZone, asOf: timestampFromDate(new Date(row?.as_of)), days };
    },
  };
}

/** A row of the statement's JSON. */
interface Figures {
  date: string;
  chain_id: number;
  kind: 'received' | 'refunded' | 'succeeded' | 'expired' | 'canceled';
  count: number;
  /** Digits: a sum may be larger than a number holds. */
  units: string;
}

/** The sums of a day, and of each chain. */
function sumsOf(figures: readonly Figures[]) {
  const countOf = (kind: Figures['kind'], some = figures) =>
    some.reduce((all, each) => (each.kind === kind ? all + BigInt(each.count) : all), 0n);
  const unitsOf = (kind: Figures['kind'], some: readonly Figures[]) =>
    some.find((each) => each.kind === kind)?.units ?? '0';
  const moved = figures.filter(({ kind }) => kind === 'received' || kind === 'refunded');
  return {
    succeededCount: countOf('succeeded'),
    expiredCount: countOf('expired'),
    canceledCount: countOf('canceled'),
    chains: [...Map.groupBy(moved, ({ chain_id }) => chain_id)].map(([id, some]) => ({
      chain: chains.find(({ chainId }) => chainId === id)?.chain ?? String(id),
      receivedCount: countOf('received', some),
      receivedUnits: unitsOf('received', some),
      refundedCount: countOf('refunded', some),
      refundedUnits: unitsOf('refunded', some),
    })),
  };
}

function violations({ firstDay, lastDay, timeZone }: GetSummaryRequest) {
  const [first, last] = [dayOf(firstDay), dayOf(lastDay)];
  const notADay = 'must be a day, such as 2026-11-01';
  return violationsIn(
    ['first_day', Number.isNaN(first) && notADay],
    ['last_day', Number.isNaN(last) && notADay],
    ['last_day', last < first && 'must not be before first_day'],
    ['last_day', last - first > maxDays * dayMs && `must be at most ${maxDays} days after first_day`],
    ['time_zone', !isTimeZone(timeZone) && 'must be an IANA time zone, such as Europe/Berlin'],
  );
}

/** Midnight in UTC, in ms; NaN if it is no day. */
function dayOf(text: string): number {
  const ms = /^[12]\d{3}-\d\d-\d\d$/.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(ms) || new Date(ms).toISOString().slice(0, 10) !== text ? Number.NaN : ms;
}

/** Only names: Node also takes offsets, which have no summer time. */
function isTimeZone(text: string): boolean {
  if (!/^[A-Za-z][A-Za-z0-9_+/-]{0,63}$/.test(text)) return false;
  try {
    new Intl.DateTimeFormat('en', { timeZone: text });
    return true;
  } catch {
    return false;
  }
}

/**
 * The days, the first hour of each, and the first hour after them; undefined if one does not begin at a whole hour
 * of UTC: figures are kept by the hour. PostgreSQL's rules of zones may be older than those of Node and of
 * browsers, and it takes names such as `CET` for abbreviations.
 */
function daysOf(timeZone: string, firstDay: string, lastDay: string) {
  const format = new Intl.DateTimeFormat('sv-SE', { timeZone, dateStyle: 'short' });
  const dates: string[] = [];
  const starts: string[] = [];
  // Before the first day begins in any zone.
  let hour = Date.parse(firstDay) - 15 * hourMs;
  for (let ms = Date.parse(firstDay); ms <= Date.parse(lastDay) + dayMs; ms += dayMs) {
    const date = new Date(ms).toISOString().slice(0, 10);
    dates.push(date);
    for (const step of [12 * hourMs, hourMs]) while (format.format(hour + step - hourMs) < date) hour += step;
    if (format.format(hour - 1) === date) return undefined;
    starts.push(new Date(hour).toISOString());
  }
  return { timeZone, dates: dates.slice(0, -1), starts: starts.slice(0, -1), end: starts.at(-1) };
}

const sumDays = preparedStatement(
  'sum_days',
  `with hours as (
     select hour, chain_id, kind, count, units from report_hours
      where merchant_id = $1 and mode = $2
        and hour >= ($4::timestamptz[])[1] and hour < $5::timestamptz
     union all
     select hour, chain_id, kind, count, units from report_changes
      where merchant_id = $1 and mode = $2
        and hour >= ($4::timestamptz[])[1] and hour < $5::timestamptz
   ), days as (
     select ($3::text[])[width_bucket(hour, $4::timestamptz[])] as date, chain_id, kind,
            sum(count)::bigint as count, sum(units)::text as units
       from hours group by 1, 2, 3 having sum(count) <> 0 or sum(units) <> 0
   )
   select now() as as_of, (select json_agg(d order by d.date, d.chain_id, d.kind) from days d) as figures`,
);

const maxFolded = 5_000;

/**
 * Returns a function that adds some changes of figures to their hours. Resolves with true if there are
 * probably more. Concurrent processes take different changes. The sums that are shown stay the same.
 */
export function createReportFolding(em: EntityManager): () => Promise<boolean> {
  const { run } = createPreparedStatements(em);
  return async () => (await run(fold, [maxFolded])).rows[0]?.folded >= maxFolded;
}

/** Hours are updated in one order, to prevent deadlocks. */
const fold = preparedStatement(
  'fold_report_changes',
  `with folded as (
     delete from report_changes
      where id in (select id from report_changes limit $1 for update skip locked)
     returning merchant_id, mode, hour, chain_id, kind, count, units
   ), added as (
     insert into report_hours as h (merchant_id, mode, hour, chain_id, kind, count, units)
     select merchant_id, mode, hour, chain_id, kind, sum(count), sum(units) from folded
      group by merchant_id, mode, hour, chain_id, kind order by merchant_id, mode, hour, chain_id, kind
     on conflict (merchant_id, mode, hour, chain_id, kind)
     do update set count = h.count + excluded.count, units = h.units + excluded.units
   )
   select count(*)::int as folded from folded`,
);
