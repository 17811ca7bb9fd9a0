import { create } from '@bufbuild/protobuf';
import type { Timestamp } from '@bufbuild/protobuf/wkt';
import type { EntityManager } from '@mikro-orm/postgresql';
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
import { labelNames, type ModeName, nameOf } from '../contract/words.ts';
import { Batcher } from '../database/batcher.ts';
import { PaymentIntentEntity, type PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { lowestUuid } from '../database/identifiers.ts';
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
import {
  parseShownColumns,
  paymentIntentText,
  presentPaymentIntent,
  readShownRow,
  type ShownColumns,
  shownRow,
} from './payment-intent.ts';
import { createPaymentsReader, maxPayments } from './payments.ts';

const intentCodec = createJsonCodec(PaymentIntentSchema);

/** `ListPaymentIntents`: newest first. An id begins with its time, so pages go down the merchant's ids. */
export function listPaymentIntents(
  em: EntityManager,
): MethodsOf<typeof PaymentIntentService>['listPaymentIntents'] {
  const readPage = createPageReader(em);
  const readPayments = createPaymentsReader(em);
  const { run } = createPreparedStatements(em);
  const columns = entityColumns<PaymentIntentRow>(em, PaymentIntentEntity);

  const present = async (found: readonly ShownColumns[]): Promise<PaymentIntent[]> => {
    const rows = found.map((shown) => columns.read(parseShownColumns(shown)));
    return mapLargeInSlices(
      await readPayments(run, rows),
      ({ payments }) => 1 + payments.length,
      ({ row, payments }) => presentPaymentIntent(row, payments),
    );
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

/** The rows an intent counts as in the rate limit: one, or one per payment shown or per 2 KiB of metadata. */
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
      ['label', !['', ...labelNames].includes(request.label) && `must be "${labelNames.join('" or "')}"`],
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
    const of = { ...query, columns, table: 'payment_intents', alias: 'i', size };
    const { rows, next } = await readScannedPage(read, merchantId, of);
    return { rows: rows.map(readShownRow), next: next && readShownRow(next).id };
  };

  // A constant limit: one from a column is estimated as a tenth of the table, and JIT would compile each run.
  // Ordered by the mode, too, so that only the index by merchant gives the order. For a few rows this costs less
  // than `firstRows`.
  const listPlain = preparedStatement(
    'list_pages_of_payment_intents',
    `select wanted.place::int, ${columns}
       from rows from (json_to_recordset($1) as ("merchantId" uuid, mode payment_mode, below uuid))
              with ordinality as wanted (merchant_id, mode, below, place)
      cross join lateral
            (select * from payment_intents i
              where i.merchant_id = wanted.merchant_id and (i.mode, i.id) < (wanted.mode, wanted.below)
                and (i.mode, i.id) >= (wanted.mode, '${lowestUuid(0)}')
              order by i.mode desc, i.id desc limit ${maxSharedSize + 1}) i
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

type Query = Pick<Parameters<typeof readScannedPage>[2], 'keysIn' | 'range' | 'matching' | 'values'>;

function queryOf(
  { merchantId, mode }: Identity,
  request: ListPaymentIntentsRequest,
  below: string | undefined,
): Query {
  const values = new Values();
  const { idempotencyKey, label, metadataKey, metadataValue, succeededFrom, succeededBefore } = request;
  const pair = metadataKey === '' ? undefined : { key: metadataKey, value: metadataValue };
  const chain = nameOf(chainWords, request.chain);
  const idAt = (moment: Timestamp | undefined, laterMs = 0) =>
    moment && lowestUuid((wholeMs(moment) ?? 0) + laterMs);
  // With a metadata filter, `payment_intent_metadata` selects the intents, in the same order.
  // An idempotency key finds its intent by itself.
  const metadata = idempotencyKey === '' ? pair : undefined;
  const [of, id] = metadata === undefined ? ['i', 'i.id'] : ['m', 'm.payment_intent'];
  const range = values.and([
    [`${of}.merchant_id = ?`, merchantId],
    [`${of}.mode = ?`, mode],
    ['m.digest = ?::bytea', metadata && metadataDigest(metadata)],
    [`${id} < ?`, below],
    [`${id} < ?`, idAt(request.createdBefore)],
    [`${id} >= ?`, idAt(request.createdFrom)],
    // An intent succeeds after its creation. Two clocks measure this, so ten minutes' difference is allowed.
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
    ['i.metadata::jsonb @> ?::jsonb', pair && JSON.stringify({ [pair.key]: pair.value })],
  ]);
  const keysIn = metadata && { table: 'payment_intent_metadata m', column: id };
  return { ...(keysIn && { keysIn }), range, matching: matching || 'true', values };
}

/** The filters that are set. */
function filtersOf(request: ListPaymentIntentsRequest): [name: string, value: unknown][] {
  const { $typeName, $unknown, pageSize, pageToken, ...others } = request;
  const { createdFrom, createdBefore, succeededFrom, succeededBefore, ...filters } = others;
  // The order of these fields depends on the query string. It must not change the token.
  const times = { createdFrom, createdBefore, succeededFrom, succeededBefore };
  return Object.entries({ ...filters, ...times }).filter(
    ([, value]) => value !== undefined && value !== '' && value !== 0,
  );
}
