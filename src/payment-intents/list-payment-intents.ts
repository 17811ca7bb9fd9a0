import { create } from '@bufbuild/protobuf';
import type { Timestamp } from '@bufbuild/protobuf/wkt';
import type { EntityManager } from '@mikro-orm/postgresql';
import { LRUCache } from 'lru-cache';
import { checksum } from 'ox/Address';
import { MAX as highestUuid } from 'uuid';
import { networks } from '../contract/chains.ts';
import { type PaymentIntent, PaymentIntentSchema } from '../contract/gen/payments/v1/payment_intent_pb.ts';
import {
  type ListPaymentIntentsRequest,
  ListPaymentIntentsResponseSchema,
  type PaymentIntentService,
} from '../contract/gen/payments/v1/payment_intent_service_pb.ts';
import { chainWords, laneWords, paymentIntentStatusWords } from '../contract/gen/words.ts';
import { createJsonCodec, encodedAs } from '../contract/json/json-codec.ts';
import { laneNames, type ModeName, nameOf, statusNames } from '../contract/words.ts';
import { Batcher } from '../database/batcher.ts';
import { PaymentIntentEntity, type PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { formatIdentifier, lowestUuid } from '../database/identifiers.ts';
import { createPreparedStatements, jsonOfRows, preparedStatement } from '../database/prepared.ts';
import { readScannedPage, Values } from '../database/scanned-page.ts';
import { violationsIn } from '../requests/errors.ts';
import { addressViolations, byteaOf, wordViolations } from '../requests/filters.ts';
import { isIdempotencyKey } from '../requests/idempotency-key.ts';
import type { MethodsOf } from '../requests/method.ts';
import { isoOf, momentViolations, wholeMs } from '../requests/moments.ts';
import { pageSizeOf, pageSizeViolations, uuidCursorOf, uuidPageTokenOf } from '../requests/page-token.ts';
import type { Identity } from '../requests/request-context.ts';
import { chargedByRows, rowsOfText } from '../requests/row-cost.ts';
import { mapLargeInSlices } from '../scheduling/slices.ts';
import { metadataDigest, searchedTextProblem } from './metadata-index.ts';
import { presentPaymentIntent } from './payment-intent.ts';
import { createTransfersReader, maxPayments } from './payments.ts';

const intentCodec = createJsonCodec(PaymentIntentSchema);

/** `ListPaymentIntents`: newest first. An id begins with its time, so pages go down the merchant's ids. */
export function listPaymentIntents(
  em: EntityManager,
): MethodsOf<typeof PaymentIntentService>['listPaymentIntents'] {
  const readPage = createPageReader(em);
  const readPayments = createTransfersReader(em, 'payment_intent');
  const { run } = createPreparedStatements(em);
  const columns = entityColumns<PaymentIntentRow>(em, PaymentIntentEntity);

  /** Converts rows to messages. */
  const present = async (found: readonly ShownColumns[]): Promise<PaymentIntent[]> => {
    const rows = found.map((shown) => columns.read(parseShownColumns(shown)));
    const payments = await readPayments(run, rows);
    const weightOf = ({ id }: PaymentIntentRow) => 1 + (payments.get(id)?.length ?? 0);
    return mapLargeInSlices(rows, weightOf, (row) => presentPaymentIntent(row, payments.get(row.id) ?? []));
  };

  /** Writes JSON directly, except for intents that need a message. */
  const write = async (found: readonly ShownColumns[]): Promise<string> => {
    const texts = found.map((row) => paymentIntentText(row));
    const others = await mapLargeInSlices(
      await present(found.filter((_, i) => texts[i] === undefined)),
      ({ payments }) => 1 + payments.length,
      intentCodec.encode,
    );
    return texts.map((text) => text ?? others.shift()).join(',');
  };

  /** Requests that share a page share its text. */
  const texts = new WeakMap<readonly ShownColumns[], Promise<string>>();

  return {
    ratePolicy: 'reads',
    violations: violationsOf,
    async run(request, identity, { context }) {
      const token = ['payment_intents', identity.merchantId, identity.mode, filtersOf(request)];
      const below = uuidCursorOf(request.pageToken, token);
      const size = pageSizeOf(request.pageSize);
      const work = () => readPage(identity, request, below, size);
      const { rows, next } = await chargedByRows(context, size, work, (page) =>
        page.rows.reduce((sum, row) => sum + rowsOf(row), 0),
      );
      const nextPageToken = uuidPageTokenOf(token, next);
      if (context.door === 'public') {
        const end = nextPageToken === '' ? '' : `,"next_page_token":"${nextPageToken}"`;
        const text = texts.get(rows) ?? write(rows);
        texts.set(rows, text);
        return encodedAs(
          create(ListPaymentIntentsResponseSchema),
          `{"payment_intents":[${await text}]${end}}`,
        );
      }
      return create(ListPaymentIntentsResponseSchema, { paymentIntents: await present(rows), nextPageToken });
    },
  };
}

/** The rows that an intent counts as in the rate limit: one, or one for each payment shown or each 2 KiB of metadata. */
function rowsOf({ payments_count, metadata }: ShownColumns): number {
  return Math.max(1, Math.min(Number(payments_count), maxPayments), rowsOfText(metadata));
}

function violationsOf(request: ListPaymentIntentsRequest) {
  const { status, chain, lane, idempotencyKey, expectedWallet, metadataKey, metadataValue } = request;
  const { createdFrom: created_from, createdBefore: created_before } = request;
  const { succeededFrom: succeeded_from, succeededBefore: succeeded_before } = request;
  const isKey = idempotencyKey === '' || isIdempotencyKey(idempotencyKey);
  return [
    ...pageSizeViolations(request.pageSize),
    ...wordViolations({
      status: [status, paymentIntentStatusWords],
      chain: [chain, chainWords],
      lane: [lane, laneWords],
    }),
    ...momentViolations({ created_from, created_before, succeeded_from, succeeded_before }),
    ...addressViolations({ expected_wallet: expectedWallet }),
    ...violationsIn(
      ['idempotency_key', !isKey && 'must be 1 to 255 visible ASCII characters'],
      ['label', !/^[a-z_]{0,64}$/.test(request.label) && 'must be a label, such as overpaid'],
      ['metadata_key', metadataKey === '' && metadataValue !== '' && 'is required with metadata_value'],
      ['metadata_key', metadataKey !== '' && searchedTextProblem(metadataKey)],
      ['metadata_value', metadataKey !== '' && searchedTextProblem(metadataValue)],
    ),
  ];
}

// Pages of a list, by descending id.

interface PaymentIntentPage {
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

function createPageReader(em: EntityManager) {
  const columns = shownRow('i');
  const { run, read } = createPreparedStatements(em);
  const list = async (merchantId: string, query: Query, size: number): Promise<PaymentIntentPage> => {
    const { rows, next } = await readScannedPage(read, merchantId, { ...query, columns, alias: 'i', size });
    return { rows: rows.map(readShownRow), next: next && readShownRow(next).id };
  };

  // A limit that is a column counts as a tenth of the table: so long a plan is compiled for each run where PostgreSQL has JIT.
  const listPlain = preparedStatement(
    'list_pages_of_payment_intents',
    `select wanted.place::int, ${columns}
       from rows from (json_to_recordset($1) as ("merchantId" uuid, mode payment_mode, below uuid))
              with ordinality as wanted (merchant_id, mode, below, place)
      cross join lateral
            (select * from payment_intents i
              where i.merchant_id = wanted.merchant_id and i.mode = wanted.mode and i.id < wanted.below
              order by i.id desc limit ${maxSharedSize + 1}) i
      order by wanted.place, i.id desc`,
  );
  /** Concurrent requests for pages share a statement, and equal pages share their rows. */
  const plainPages = new Batcher<PlainPage, PaymentIntentPage>({
    slots,
    maxBatchSize,
    async run(batch) {
      const keys = batch.map(({ merchantId, mode, below, size }) => `${merchantId} ${mode} ${below} ${size}`);
      const wanted = [...new Map(batch.map((page, i) => [keys[i], page]))];
      const { rows } = await run(listPlain, [jsonOfRows(wanted.map(([, page]) => page))]);
      const found = wanted.map((): ShownColumns[] => []);
      for (const row of rows) found[row.place - 1]?.push(readShownRow(row));
      const pages = new Map(wanted.map(([key, { size }], i) => [key, pageOf(found[i] ?? [], size)]));
      return keys.map((key) => pages.get(key) as PaymentIntentPage);
    },
  });

  /** `below` is undefined for the first page. */
  return (
    identity: Identity,
    request: ListPaymentIntentsRequest,
    below: string | undefined,
    size: number,
  ): Promise<PaymentIntentPage> => {
    if (filtersOf(request).length === 0 && size <= maxSharedSize) {
      const { merchantId, mode } = identity;
      return plainPages.add({ merchantId, mode, below: below ?? highestUuid, size });
    }
    return list(identity.merchantId, queryOf(identity, request, below), size);
  };
}

function pageOf(found: ShownColumns[], size: number): PaymentIntentPage {
  const rows = found.slice(0, size);
  return { rows, next: found.length > size ? rows.at(-1)?.id : undefined };
}

type Query = Pick<Parameters<typeof readScannedPage>[2], 'table' | 'range' | 'order' | 'matching' | 'values'>;

function queryOf(
  { merchantId, mode }: Identity,
  request: ListPaymentIntentsRequest,
  below: string | undefined,
): Query {
  const values = new Values();
  const { idempotencyKey, label, metadataKey, metadataValue, succeededFrom, succeededBefore } = request;
  const metadata = metadataKey === '' ? undefined : { key: metadataKey, value: metadataValue };
  const chain = nameOf(chainWords, request.chain);
  const idAt = (moment: Timestamp | undefined, laterMs = 0) =>
    moment && lowestUuid((wholeMs(moment) ?? 0) + laterMs);
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
    [`${id} < ?`, idAt(request.createdBefore)],
    [`${id} >= ?`, idAt(request.createdFrom)],
    // Nothing succeeds before it is created, but by the clocks of two machines: more than ten minutes apart an operator knows.
    [`${id} < ?`, idAt(succeededBefore, 600_000)],
    ['i.idempotency_key = ?', idempotencyKey === '' ? undefined : idempotencyKey],
  ]);
  const matching = values.and([
    ['i.status = ?::payment_intent_status', nameOf(paymentIntentStatusWords, request.status)],
    ['i.lane = ?::payment_lane', nameOf(laneWords, request.lane)],
    [
      'i.network = any (?::smallint[])',
      chain && networks.filter((network) => network.chain === chain).map((network) => network.id),
    ],
    ['? = any (i.labels)', label === '' ? undefined : label],
    ['i.expected_wallet = ?::bytea', byteaOf(request.expectedWallet)],
    ['i.succeeded_at >= ?', isoOf(wholeMs(succeededFrom))],
    ['i.succeeded_at < ?', isoOf(wholeMs(succeededBefore))],
    // Two values may share a digest.
    ['i.metadata::jsonb @> ?::jsonb', metadata && JSON.stringify({ [metadata.key]: metadata.value })],
  ]);
  return { table, range, order: `${id} desc`, matching: matching || 'true', values };
}

/** The filters that are set. */
function filtersOf(request: ListPaymentIntentsRequest): [name: string, value: unknown][] {
  const { $typeName, $unknown, pageSize, pageToken, ...others } = request;
  const { createdFrom, createdBefore, succeededFrom, succeededBefore, ...filters } = others;
  // Times are in the order in which the query has them, which says nothing.
  const times = { createdFrom, createdBefore, succeededFrom, succeededBefore };
  return Object.entries({ ...filters, ...times }).filter(
    ([, value]) => value !== undefined && value !== '' && value !== 0,
  );
}

// Writes the intents of a list as public JSON directly from PostgreSQL's text. A page has twenty of them: converting rows
// to messages takes 7 µs each instead of 2, more than everything else. `test/payment-intent-text.test.ts` checks that both
// ways return the same text.

/** The columns shown, and the merchant. */
const columns = [
  ...(['id', 'merchant_id', 'mode', 'status', 'network', 'amount_units', 'expected_wallet', 'lane'] as const),
  ...(['created_at', 'expires_at', 'amount_received_units', 'payments_count'] as const),
  ...(['labels', 'succeeded_at', 'canceled_at', 'expired_at', 'amount_refunded_units'] as const),
] as const;

/** The nullable ones, for which null is written as an empty text. */
const nullable: ReadonlySet<string> = new Set(columns.slice(-5));

/** A row as selected: its columns in one text, and its metadata separately, because it may contain any character. */
type ShownRow = { readonly shown: string; readonly metadata: string };

/**
 * The expressions to SELECT for `readShownRow`, of the table or subquery with this alias. The columns come as one
 * text, because `pg` takes several times as long for seventeen columns.
 */
export function shownRow(alias: string): string {
  const texts = columns.map((column) =>
    nullable.has(column) ? `coalesce(${alias}.${column}::text, '')` : `${alias}.${column}`,
  );
  return `concat_ws('|', ${texts.join(', ')}) as shown, ${alias}.metadata::text as metadata`;
}

/** The columns in PostgreSQL's text format. */
export type ShownColumns = Readonly<Record<(typeof columns)[number] | 'metadata', string>>;

export function readShownRow({ shown, metadata }: ShownRow): ShownColumns {
  const texts = shown.split('|');
  return {
    id: texts[0] as string,
    merchant_id: texts[1] as string,
    mode: texts[2] as string,
    status: texts[3] as string,
    network: texts[4] as string,
    amount_units: texts[5] as string,
    expected_wallet: texts[6] as string,
    lane: texts[7] as string,
    created_at: texts[8] as string,
    expires_at: texts[9] as string,
    amount_received_units: texts[10] as string,
    payments_count: texts[11] as string,
    labels: texts[12] as string,
    succeeded_at: texts[13] as string,
    canceled_at: texts[14] as string,
    expired_at: texts[15] as string,
    amount_refunded_units: texts[16] as string,
    metadata,
  };
}

/** The same columns as returned by `pg`. */
export function parseShownColumns(row: ShownColumns): Record<string, unknown> {
  const orNull = (text: string) => (text === '' ? null : text);
  return {
    ...row,
    network: Number(row.network),
    expected_wallet: Buffer.from(row.expected_wallet.slice(2), 'hex'),
    payments_count: Number(row.payments_count),
    labels: row.labels === '' ? null : labelsOf(row.labels),
    succeeded_at: orNull(row.succeeded_at),
    canceled_at: orNull(row.canceled_at),
    expired_at: orNull(row.expired_at),
    amount_refunded_units: orNull(row.amount_refunded_units),
  };
}

/** The elements of an array of names, which PostgreSQL does not quote. */
const labelsOf = (array: string): string[] => (array === '{}' ? [] : array.slice(1, -1).split(','));

/** The parts of the JSON that depend on the network: before and after the amount. */
const networkTexts = new Map(
  networks.map(({ id, mode, chain, chainId, confirmationsRequired, decimals, tokenSymbol, tokenAddress }) => [
    `${id} ${mode}`,
    [
      `"mode":"${mode}","chain":"${chain}","chain_id":${chainId},"confirmations_required":${confirmationsRequired}`,
      `"decimals":${decimals},"token_symbol":"${tokenSymbol}","token_address":"${tokenAddress}"`,
    ],
  ]),
);

const statuses: ReadonlySet<string> = new Set(statusNames);
const lanes: ReadonlySet<string> = new Set(laneNames);

/** Checksummed addresses, by PostgreSQL's form of them. Cached: a checksum takes a hash and merchants have few wallets. */
const addresses = new LRUCache<string, string>({
  max: 1_000,
  memoMethod: (bytea) => checksum(`0${bytea.slice(1)}`),
});

/**
 * The JSON of an intent. Undefined if the intent needs more than its columns or a column has an unknown form: then it must
 * be converted through its message, which throws for values of a newer version.
 */
export function paymentIntentText(row: ShownColumns): string | undefined {
  const network = networkTexts.get(`${row.network} ${row.mode}`);
  const createdAt = momentOf(row.created_at);
  const expiresAt = momentOf(row.expires_at);
  const minutes = minutesBetween(createdAt, expiresAt);
  if (
    network === undefined ||
    minutes === undefined ||
    row.payments_count !== '0' ||
    !statuses.has(row.status) ||
    !lanes.has(row.lane)
  ) {
    return undefined;
  }
  const labels = row.labels === '' ? [] : labelsOf(row.labels);
  return (
    `{"id":"${formatIdentifier('pi', row.id)}","status":"${row.status}",${network[0]},` +
    `"amount_units":${row.amount_units},${network[1]},` +
    `"expected_wallet":"${addresses.memo(row.expected_wallet)}","expires_at":"${expiresAt}",` +
    `"expires_in_minutes":${minutes},"lane":"${row.lane}","metadata":${compact(row.metadata)},` +
    `"created_at":"${createdAt}","amount_received_units":${row.amount_received_units},"payments_count":0` +
    `${labels.length === 0 ? '' : `,"labels":${JSON.stringify(labels)}`}` +
    `${moment('succeeded_at', row.succeeded_at)}${moment('canceled_at', row.canceled_at)}` +
    `${moment('expired_at', row.expired_at)},"amount_refunded_units":${row.amount_refunded_units || 0}}`
  );
}

/** PostgreSQL's text format of a timestamp, with the session's time zone UTC. */
const utc = /^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,3}))?\+00$/;

/** RFC 3339 in UTC with milliseconds. */
function momentOf(text: string): string {
  const [, date, time, fraction = ''] = utc.exec(text) ?? [];
  return time === undefined ? new Date(text).toISOString() : `${date}T${time}.${fraction.padEnd(3, '0')}Z`;
}

const moment = (name: string, text: string): string => (text === '' ? '' : `,"${name}":"${momentOf(text)}"`);

/** Whole minutes of less than a day; undefined for anything else. */
function minutesBetween(begin: string, end: string): number | undefined {
  const isWhole = begin.slice(16) === end.slice(16);
  const minuteOf = (text: string) => Number(text.slice(11, 13)) * 60 + Number(text.slice(14, 16));
  const minutes = (minuteOf(end) - minuteOf(begin) + 1_440) % 1_440;
  return isWhole && minutes > 0 ? minutes : undefined;
}

/** The service writes JSON without spaces; text written by hand may have some. */
const compact = (json: string): string => (/\s/.test(json) ? JSON.stringify(JSON.parse(json)) : json);
