// The pages of a list, down a merchant's ids.

import type { EntityManager } from '@mikro-orm/postgresql';
import { chainOf, type ModeName, networks } from '../contract/chains.ts';
import { Chain } from '../contract/gen/payments/v1/payment_intent_pb.ts';
import { createBatcher, waitingReads } from '../database/batcher.ts';
import type { LaneName, StatusName } from '../database/entities/payment-intent.ts';
import { lowestUuid } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { orUnavailable } from '../database/unavailable.ts';
import type { Identity } from '../requests/request-context.ts';
import { readShownRow, type ShownColumns, shownRow } from './payment-intent-text.ts';

/** What an unset field of the request leaves open. */
export interface PaymentIntentFilter {
  status: StatusName | undefined;
  chain: Chain;
  lane: LaneName | undefined;
  idempotencyKey: string;
  createdFromMs: number | undefined;
  createdBeforeMs: number | undefined;
}

export interface PaymentIntentPage {
  rows: ShownColumns[];
  /** The id below which the next page begins, unless this is the last one. */
  next: string | undefined;
}

/** Most intents that one page looks through for those that match: some tens of milliseconds. */
const maxScanned = 10_000;

/** A page of all intents of a merchant and mode. */
interface PlainPage {
  merchantId: string;
  mode: ModeName;
  /** UUID. */
  below: string;
  size: number;
}

/** Longer pages have a statement each, so that the rows of a statement stay bounded. */
const maxSharedSize = 20;

/** Statements in flight for pages that share them. */
const slots = 4;
const maxBatchSize = 16;

/** Above every id. */
const highestUuid = 'ffffffff-ffff-ffff-ffff-ffffffffffff';

/** Throws `unavailable`. */
export type ReadPaymentIntentPage = (
  identity: Identity,
  filter: PaymentIntentFilter,
  /** UUID above the page; undefined for the first one. */
  below: string | undefined,
  size: number,
) => Promise<PaymentIntentPage>;

export function createPaymentIntentPageReader(em: EntityManager): ReadPaymentIntentPage {
  const columns = shownRow('i');
  const { run } = createPreparedStatements(em);
  const list = async (query: Query, limit: number, lowest?: string): Promise<ShownColumns[]> => {
    const values = [...query.rangeValues];
    const and = (condition: string, value: unknown) =>
      ` and ${condition.replace('?', `$${values.push(value)}`)}`;
    const range = query.range + (lowest === undefined ? '' : and('i.id >= ?', lowest));
    // Down to a fixed id there is no limit: intents that were created meanwhile would push others out at its end.
    const limitScanned = lowest === undefined ? ` limit ${maxScanned}` : '';
    const scanned = `select * from payment_intents i where ${range} order by i.id desc${limitScanned}`;
    const matching = query.conditions.map(([condition, value]) => and(condition, value)).join('');
    const from =
      matching === '' ? `payment_intents i where ${range}` : `(${scanned}) i where true${matching}`;
    const text = `select ${columns} from ${from} order by i.id desc limit $${values.push(limit)}`;
    const { rows } = await run(preparedStatement('list_payment_intents', text), values);
    return rows.map(readShownRow);
  };
  const findLastScanned = async ({ range, rangeValues }: Query): Promise<string | undefined> => {
    const text = `select i.id from payment_intents i where ${range} order by i.id desc offset ${maxScanned - 1} limit 1`;
    const { rows } = await run(preparedStatement('last_scanned_payment_intent', text), [...rangeValues]);
    return rows[0]?.id;
  };

  const listPlain = preparedStatement(
    'list_pages_of_payment_intents',
    `select wanted.place::int, ${columns}
       from unnest($1::uuid[], $2::payment_mode[], $3::uuid[], $4::int[])
              with ordinality as wanted (merchant_id, mode, below, size, place)
      cross join lateral
            (select * from payment_intents i
              where i.merchant_id = wanted.merchant_id and i.mode = wanted.mode and i.id < wanted.below
              order by i.id desc limit wanted.size + 1) i
      order by wanted.place, i.id desc`,
  );
  /** Pages that are asked for while the statements in flight last share the next one, and equal pages their rows. */
  const plainPages = createBatcher<PlainPage, PaymentIntentPage>({
    slots,
    maxBatchSize,
    ...waitingReads,
    run: (batch) =>
      orUnavailable(async () => {
        const keys = batch.map(
          ({ merchantId, mode, below, size }) => `${merchantId} ${mode} ${below} ${size}`,
        );
        const wanted = [...new Map(batch.map((page, i) => [keys[i], page]))];
        const { rows } = await run(listPlain, [
          wanted.map(([, { merchantId }]) => merchantId),
          wanted.map(([, { mode }]) => mode),
          wanted.map(([, { below }]) => below),
          wanted.map(([, { size }]) => size),
        ]);
        const found = wanted.map((): ShownColumns[] => []);
        for (const row of rows) found[row.place - 1]?.push(readShownRow(row));
        const pages = new Map(
          wanted.map(([key, { size }], i) => [key, pageOf(found[i] ?? [], size, undefined)]),
        );
        return keys.map((key) => pages.get(key) as PaymentIntentPage);
      }),
  });

  return (identity, filter, below, size) => {
    if (isForAll(filter) && size <= maxSharedSize) {
      return plainPages.add({ ...identity, below: below ?? highestUuid, size });
    }
    return orUnavailable(async () => {
      const query = queryOf(identity, filter, below);
      const found = await list(query, size + 1);
      if (found.length > size) return pageOf(found, size, undefined);
      const lowest = query.conditions.length === 0 ? undefined : await findLastScanned(query);
      if (lowest === undefined) return { rows: found, next: undefined };
      // There is more to look through. Asked again down to a fixed id, so that what has been committed since then comes
      // on this page or on a later one, and never on both.
      return pageOf(await list(query, size + 1, lowest), size, lowest);
    });
  };
}

/** `lowest`: how far down was looked, if there may be more below. */
function pageOf(found: ShownColumns[], size: number, lowest: string | undefined): PaymentIntentPage {
  const rows = found.slice(0, size);
  return { rows, next: found.length > size ? rows.at(-1)?.id : lowest };
}

interface Query {
  /** What the index finds. */
  range: string;
  rangeValues: readonly unknown[];
  /** What has to hold besides, with a `?` for its value. */
  conditions: readonly (readonly [condition: string, value: unknown])[];
}

function queryOf(identity: Identity, filter: PaymentIntentFilter, below: string | undefined): Query {
  const rangeValues: unknown[] = [identity.merchantId, identity.mode];
  let range = 'i.merchant_id = $1 and i.mode = $2';
  const and = (condition: string, value: unknown) => {
    if (value !== undefined) range += ` and ${condition} $${rangeValues.push(value)}`;
  };
  and('i.id <', below);
  and('i.id <', filter.createdBeforeMs === undefined ? undefined : lowestUuid(filter.createdBeforeMs));
  and('i.id >=', filter.createdFromMs === undefined ? undefined : lowestUuid(filter.createdFromMs));
  and('i.idempotency_key =', filter.idempotencyKey === '' ? undefined : filter.idempotencyKey);
  const conditions: [string, unknown][] = [];
  if (filter.status !== undefined) conditions.push(['i.status = ?::payment_intent_status', filter.status]);
  if (filter.lane !== undefined) conditions.push(['i.lane = ?::payment_lane', filter.lane]);
  if (filter.chain !== Chain.UNSPECIFIED) {
    conditions.push(['i.network = any (?::smallint[])', networkIdsOf(filter.chain)]);
  }
  return { range, rangeValues, conditions };
}

function networkIdsOf(chain: Chain): number[] {
  return networks.filter((network) => chainOf[network.chain] === chain).map(({ id }) => id);
}

/** True if nothing but the merchant and the mode selects the rows. */
function isForAll({ chain, idempotencyKey, ...others }: PaymentIntentFilter): boolean {
  const isUnset = chain === Chain.UNSPECIFIED && idempotencyKey === '';
  return isUnset && Object.values(others).every((value) => value === undefined);
}
