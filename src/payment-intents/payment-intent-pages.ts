// Pages of a list, by descending id.

import type { EntityManager } from '@mikro-orm/postgresql';
import { MAX as highestUuid } from 'uuid';
import { networks } from '../contract/chains.ts';
import { Chain } from '../contract/gen/payments/v1/payment_intent_pb.ts';
import { chainWords } from '../contract/gen/words.ts';
import type { LaneName, ModeName, StatusName } from '../contract/words.ts';
import { Batcher, usualWaits } from '../database/batcher.ts';
import { lowestUuid } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement, unpreparedStatement } from '../database/prepared.ts';
import { pageOfScanned, scannedRows, Values } from '../database/scanned-page.ts';
import { isoOf } from '../requests/moments.ts';
import type { Identity } from '../requests/request-context.ts';
import { type MetadataPair, metadataDigest } from './metadata-index.ts';
import { readShownRow, type ShownColumns, shownRow } from './payment-intent-text.ts';

/** The values that unset filters stand for. */
export interface PaymentIntentFilter {
  status: StatusName | undefined;
  chain: Chain;
  lane: LaneName | undefined;
  idempotencyKey: string;
  createdFromMs: number | undefined;
  createdBeforeMs: number | undefined;
  label: string | undefined;
  /** A parameter of type `bytea`. */
  wallet: string | undefined;
  succeededFromMs: number | undefined;
  succeededBeforeMs: number | undefined;
  metadata: MetadataPair | undefined;
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
    { table, range, order, conditions, values }: Query,
    size: number,
  ): Promise<PaymentIntentPage> => {
    if (conditions === '') {
      const text = `select ${columns} from payment_intents i where ${range} order by i.id desc limit ${size + 1}`;
      const { rows } = await read(merchantId, preparedStatement('list_payment_intents', text), [...values]);
      return pageOf(rows.map(readShownRow), size);
    }
    const scan = scannedRows({ table, alias: 'i', range, order, matching: conditions });
    const text = `select ${columns}, i.matches, i.is_last_scanned from ${scan} order by i.id desc limit ${size + 2}`;
    const { rows } = await read(merchantId, unpreparedStatement(text), [...values]);
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
  const plainPages = new Batcher<PlainPage, PaymentIntentPage>({
    slots,
    maxBatchSize,
    ...usualWaits,
    async run(batch) {
      const keys = batch.map(({ merchantId, mode, below, size }) => `${merchantId} ${mode} ${below} ${size}`);
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
    },
  });

  return (identity, filter, below, size) => {
    if (isForAll(filter) && size <= maxSharedSize) {
      return plainPages.add({ ...identity, below: below ?? highestUuid, size });
    }
    return list(identity.merchantId, queryOf(identity, filter, below), size);
  };
}

function pageOf(found: ShownColumns[], size: number): PaymentIntentPage {
  const rows = found.slice(0, size);
  return { rows, next: found.length > size ? rows.at(-1)?.id : undefined };
}

interface Query {
  table: string;
  /** Conditions that the index supports, and its order. */
  range: string;
  order: string;
  /** Further conditions, or an empty text. */
  conditions: string;
  values: readonly unknown[];
}

function queryOf(
  { merchantId, mode }: Identity,
  filter: PaymentIntentFilter,
  below: string | undefined,
): Query {
  const values = new Values();
  const { chain, createdBeforeMs, createdFromMs, succeededFromMs, succeededBeforeMs, metadata } = filter;
  // With metadata, its table selects the intents, in the same order.
  const [table, of, id] =
    metadata === undefined
      ? ['payment_intents', 'i', 'i.id']
      : ['payment_intent_metadata m cross join payment_intents', 'm', 'm.payment_intent'];
  const range = values.and([
    [`${of}.merchant_id = ?`, merchantId],
    [`${of}.mode = ?`, mode],
    ['m.digest = ?::bytea and i.id = m.payment_intent', metadata && metadataDigest(metadata)],
    [`${id} < ?`, below],
    [`${id} < ?`, createdBeforeMs === undefined ? undefined : lowestUuid(createdBeforeMs)],
    [`${id} >= ?`, createdFromMs === undefined ? undefined : lowestUuid(createdFromMs)],
    // Nothing succeeds before it is created, as far as the clocks of two machines can tell.
    [`${id} < ?`, succeededBeforeMs === undefined ? undefined : lowestUuid(succeededBeforeMs + 60_000)],
    ['i.idempotency_key = ?', filter.idempotencyKey === '' ? undefined : filter.idempotencyKey],
  ]);
  const conditions = values.and([
    ['i.status = ?::payment_intent_status', filter.status],
    ['i.lane = ?::payment_lane', filter.lane],
    ['i.network = any (?::smallint[])', chain === Chain.UNSPECIFIED ? undefined : networkIdsOf(chain)],
    ['? = any (i.labels)', filter.label],
    ['i.expected_wallet = ?::bytea', filter.wallet],
    ['i.succeeded_at >= ?', isoOf(succeededFromMs)],
    ['i.succeeded_at < ?', isoOf(succeededBeforeMs)],
    // Two values may share a digest.
    ['i.metadata::jsonb @> ?::jsonb', metadata && JSON.stringify({ [metadata.key]: metadata.value })],
  ]);
  return { table, range, order: `${id} desc`, conditions, values: values.list };
}

function networkIdsOf(chain: Chain): number[] {
  return networks.filter((network) => chainWords[network.chain] === chain).map(({ id }) => id);
}

/** True if only the merchant and the mode select the rows. */
function isForAll({ chain, idempotencyKey, ...others }: PaymentIntentFilter): boolean {
  const isUnset = chain === Chain.UNSPECIFIED && idempotencyKey === '';
  return isUnset && Object.values(others).every((value) => value === undefined);
}
