// Pages of a list, by descending id.

import type { EntityManager } from '@mikro-orm/postgresql';
import { MAX as highestUuid } from 'uuid';
import { networks } from '../contract/chains.ts';
import { Chain } from '../contract/gen/payments/v1/payment_intent_pb.ts';
import { chainWords } from '../contract/gen/words.ts';
import type { LaneName, ModeName, StatusName } from '../contract/words.ts';
import { createBatcher, waitingReads } from '../database/batcher.ts';
import { lowestUuid } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { pageOfScanned, scannedRows } from '../database/scanned-page.ts';
import { orUnavailable } from '../database/unavailable.ts';
import type { Identity } from '../requests/request-context.ts';
import { readShownRow, type ShownColumns, shownRow } from './payment-intent-text.ts';

/** The values that unset filters stand for. */
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
  /** The id below which the next page begins; undefined on the last page. */
  next: string | undefined;
}

/** A page of all intents of a merchant and mode. */
interface PlainPage {
  merchantId: string;
  mode: ModeName;
  /** UUID. */
  below: string;
  size: number;
}

/** Longer pages have their own statement, so that the rows of a shared one stay bounded. */
const maxSharedSize = 20;

/** Concurrent statements for shared pages. */
const slots = 4;
const maxBatchSize = 16;

/** Throws `unavailable`. */
export type ReadPaymentIntentPage = (
  identity: Identity,
  filter: PaymentIntentFilter,
  /** UUID below which the page begins; undefined for the first one. */
  below: string | undefined,
  size: number,
) => Promise<PaymentIntentPage>;

export function createPaymentIntentPageReader(em: EntityManager): ReadPaymentIntentPage {
  const columns = shownRow('i');
  const { run, read } = createPreparedStatements(em);
  const list = async (
    merchantId: string,
    { range, conditions, values }: Query,
    size: number,
  ): Promise<PaymentIntentPage> => {
    const scan = { table: 'payment_intents', alias: 'i', range, order: 'i.id desc', matching: conditions };
    const text =
      conditions === ''
        ? `select ${columns} from payment_intents i where ${range} order by i.id desc limit ${size + 1}`
        : `select ${columns}, i.matches, i.is_last_scanned from ${scannedRows(scan)} order by i.id desc limit ${size + 2}`;
    const { rows } = await read(merchantId, preparedStatement('list_payment_intents', text), [...values]);
    if (conditions === '') return pageOf(rows.map(readShownRow), size);
    const page = pageOfScanned(rows, size);
    return { rows: page.rows.map(readShownRow), next: page.next && readShownRow(page.next).id };
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
  /** Concurrent requests for pages share a statement, and equal pages share their rows. */
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
        const pages = new Map(wanted.map(([key, { size }], i) => [key, pageOf(found[i] ?? [], size)]));
        return keys.map((key) => pages.get(key) as PaymentIntentPage);
      }),
  });

  return (identity, filter, below, size) => {
    if (isForAll(filter) && size <= maxSharedSize) {
      return plainPages.add({ ...identity, below: below ?? highestUuid, size });
    }
    return orUnavailable(() => list(identity.merchantId, queryOf(identity, filter, below), size));
  };
}

function pageOf(found: ShownColumns[], size: number): PaymentIntentPage {
  const rows = found.slice(0, size);
  return { rows, next: found.length > size ? rows.at(-1)?.id : undefined };
}

interface Query {
  /** Conditions that the index supports. */
  range: string;
  /** Further conditions, or an empty text. */
  conditions: string;
  values: readonly unknown[];
}

function queryOf(identity: Identity, filter: PaymentIntentFilter, below: string | undefined): Query {
  const values: unknown[] = [identity.merchantId, identity.mode];
  const range = ['i.merchant_id = $1', 'i.mode = $2'];
  const conditions: string[] = [];
  /** Adds a condition with a `?` for its value, if there is one. */
  const and = (to: string[], condition: string, value: unknown) => {
    if (value !== undefined) to.push(condition.replace('?', `$${values.push(value)}`));
  };
  and(range, 'i.id < ?', below);
  and(
    range,
    'i.id < ?',
    filter.createdBeforeMs === undefined ? undefined : lowestUuid(filter.createdBeforeMs),
  );
  and(range, 'i.id >= ?', filter.createdFromMs === undefined ? undefined : lowestUuid(filter.createdFromMs));
  and(range, 'i.idempotency_key = ?', filter.idempotencyKey === '' ? undefined : filter.idempotencyKey);
  and(conditions, 'i.status = ?::payment_intent_status', filter.status);
  and(conditions, 'i.lane = ?::payment_lane', filter.lane);
  const isAnyChain = filter.chain === Chain.UNSPECIFIED;
  and(conditions, 'i.network = any (?::smallint[])', isAnyChain ? undefined : networkIdsOf(filter.chain));
  return { range: range.join(' and '), conditions: conditions.join(' and '), values };
}

function networkIdsOf(chain: Chain): number[] {
  return networks.filter((network) => chainWords[network.chain] === chain).map(({ id }) => id);
}

/** True if only the merchant and the mode select the rows. */
function isForAll({ chain, idempotencyKey, ...others }: PaymentIntentFilter): boolean {
  const isUnset = chain === Chain.UNSPECIFIED && idempotencyKey === '';
  return isUnset && Object.values(others).every((value) => value === undefined);
}
