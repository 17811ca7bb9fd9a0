// Implements commands that list and show intents, transfers, refunds, events and deliveries of any merchant.

import { timestampDate } from '@bufbuild/protobuf/wkt';
import type { EntityManager, EntitySchema } from '@mikro-orm/postgresql';
import { networkOf, networks } from '../contract/chains.ts';
import { PaymentIntentSchema } from '../contract/gen/payments/v1/payment_intent_pb.ts';
import { RefundSchema } from '../contract/gen/payments/v1/refund_pb.ts';
import { TransferSchema } from '../contract/gen/payments/v1/transfer_pb.ts';
import type { WebhookDelivery } from '../contract/gen/payments/v1/webhook_endpoint_pb.ts';
import { WebhookDeliverySchema } from '../contract/gen/payments/v1/webhook_endpoint_pb.ts';
import { webhookDeliveryStatusWords } from '../contract/gen/words.ts';
import { createJsonCodec } from '../contract/json/json-codec.ts';
import type {
  ChainName,
  DeliveryStatusName,
  LaneName,
  ModeName,
  RefundStatusName,
  StatusName,
} from '../contract/words.ts';
import { modeNames, nameOf } from '../contract/words.ts';
import { EventEntity, type EventRow } from '../database/entities/event.ts';
import { PaymentIntentEntity, type PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { RefundEntity, type RefundRow } from '../database/entities/refund.ts';
import { TransferEntity, type TransferRow, WatchedChainEntity } from '../database/entities/settlement.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { formatIdentifier, lowestUuid } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { type Condition, firstRows, Values } from '../database/scanned-page.ts';
import { eventText } from '../events/event.ts';
import { findMerchant } from '../merchants/administration.ts';
import { AdministrationError, type NamedKind, noneWith, uuidOf } from '../merchants/operator-ids.ts';
import { presentPaymentIntent } from '../payment-intents/payment-intent.ts';
import { createPaymentsReader, createRefundsReader } from '../payment-intents/payments.ts';
import { toRefund } from '../refunds/refund.ts';
import { byteaOf } from '../requests/filters.ts';
import { toTransfer } from '../settlement/transfer.ts';
import { createDeliveryPresenter } from '../webhooks/deliveries.ts';
import { formatMinute, type Output, type Row } from './admin-program.ts';
import type { Database } from './open-database.ts';

/** Most rows that a list searches, newest first; with `--merchant`, for each mode. */
const maxScanned = 10_000;

/** Filters of every list, and its number of rows. */
type ListOptions = { merchant?: string; mode?: ModeName; limit: number };

/** Its conditions are on `t`, or on a joined table. */
interface Selection {
  table: 'payment_intents' | 'transfers' | 'refunds' | 'events';
  /** Columns of `t` and of joined tables. */
  columns: string;
  join?: string;
  /** Conditions that an index supports. */
  range?: readonly Condition[];
  matching: readonly Condition[];
}

/** Reads the newest matching rows. Adds a note if not all rows were searched. */
async function readNewest(
  em: EntityManager,
  options: ListOptions,
  { table, columns, join = '', range = [], matching }: Selection,
): Promise<{ rows: Record<string, unknown>[]; note?: string }> {
  const { merchant, mode, limit } = options;
  const merchantId = merchant === undefined ? undefined : await findMerchant(em, merchant);
  const values = new Values();
  const and = (conditions: readonly Condition[]) => {
    const sql = values.and(conditions);
    return sql === '' ? '' : ` and ${sql}`;
  };
  const scan = (where: string, key: string) =>
    `(select t.* from ${firstRows({ table, alias: 't', key, range: `${where}${and(range)}`, limit: maxScanned })}) t`;
  const isOfEvents = table === 'events';
  const positioned = isOfEvents ? ' and t.position is not null' : '';
  const from =
    merchantId === undefined
      ? scan(`true${positioned}`, 'id')
      : `unnest($${values.list.push(mode === undefined ? modeNames : [mode])}::payment_mode[]) as wanted (mode) cross join lateral ` +
        scan(
          `t.merchant_id = $${values.list.push(merchantId)}::uuid and t.mode = wanted.mode${positioned}`,
          // The order of the index by merchant.
          isOfEvents ? 'position' : 'id',
        );
  const scannedValues = [...values.list];
  const where = and([['t.mode = ?::payment_mode', merchant === undefined ? mode : undefined], ...matching]);
  const text = `select ${columns} from ${from} ${join} where true${where} order by t.id desc limit $${values.list.push(limit)}`;
  const { run } = createPreparedStatements(em);
  const { rows } = await run(preparedStatement(`admin_list_${table}`, text), values.list);
  if (rows.length >= limit || where === '') return { rows };
  // Each mode of a merchant has a limit of its own.
  const count = `select count(*)::int as n from ${from} group by ${merchant === undefined ? '()' : 'wanted.mode'}`;
  const counts = (await run(preparedStatement(`admin_count_${table}`, count), scannedValues)).rows;
  if (counts.every(({ n }) => n < maxScanned)) return { rows };
  const scanned = counts.reduce((sum, { n }) => sum + n, 0);
  const hint = merchant === undefined ? ': --merchant searches those of one merchant' : '';
  return { rows, note: `only the newest ${scanned} rows were searched; there may be older matches${hint}` };
}

const ofMerchant = (row: { merchantId: string; mode: ModeName }) => ({
  merchant_id: formatIdentifier('mer', row.merchantId),
  mode: row.mode,
});
const intentCodec = createJsonCodec(PaymentIntentSchema);
const transferCodec = createJsonCodec(TransferSchema);
const refundCodec = createJsonCodec(RefundSchema);
const deliveryCodec = createJsonCodec(WebhookDeliverySchema);

/** Resources of one kind: how they are listed, found by their ids, and shown. */
interface Kind<Stored, Options> {
  /** The name in the commands. */
  name: 'intent' | 'transfer' | 'refund' | 'event';
  prefix: NamedKind;
  entity: EntitySchema;
  /** A condition that all of them meet. */
  where?: object;
  /** With the merchant, if the other options imply one. */
  conditionsOf(
    options: Options,
    em: EntityManager,
  ): Promise<Pick<Selection, 'range' | 'matching'> & { merchant?: string | undefined }>;
  /** The JSON of the API, without secrets. */
  textsOf(em: EntityManager, rows: readonly Stored[]): Promise<string[]>;
  /** The columns of the table after the id and the merchant. */
  rowOf(row: Stored): Row;
}

type Owned = { id: string; merchantId: string; mode: ModeName };

function resources<Stored extends Owned, Options extends ListOptions>(kind: Kind<Stored, Options>) {
  const { name, prefix, entity } = kind;
  const resource = name === 'intent' ? 'payment_intent' : name;
  const present = async (em: EntityManager, all: readonly Stored[]) => {
    const texts = await kind.textsOf(em, all);
    const rows = all.map((row) => {
      return { [resource]: formatIdentifier(prefix, row.id), ...ofMerchant(row), ...kind.rowOf(row) };
    });
    const json = all.map((row, i) => {
      const fields = JSON.parse(texts[i] as string);
      const { mode, ...merchant } = ofMerchant(row);
      return { ...merchant, ...(!('mode' in fields) && { mode }), ...fields };
    });
    return { json, rows };
  };
  /** Throws AdministrationError if there is none. */
  const find = async (em: EntityManager, publicId: string): Promise<Stored> => {
    const where = { id: uuidOf(prefix, publicId), ...kind.where };
    const row: Stored | null = await em.fork().findOne(entity, where);
    return row ?? Promise.reject(noneWith(prefix, publicId));
  };
  return {
    find,
    async list({ orm: { em } }: Database, options: Options): Promise<Output> {
      const columns = entityColumns<Stored>(em, entity);
      const { merchant = options.merchant, ...conditions } = await kind.conditionsOf(options, em);
      const of = { ...options, ...(merchant && { merchant }) };
      const selection = { table: `${resource}s` as const, columns: columns.of('t'), ...conditions };
      const { rows, note } = await readNewest(em, of, selection);
      return { ...(await present(em, rows.map(columns.read))), note };
    },
    /** The id is the option with the name of the kind. */
    async show({ orm: { em } }: Database, options: Readonly<Record<string, string>>): Promise<Output> {
      const { json, rows } = await present(em, [await find(em, options[name] ?? '')]);
      return { json: json[0] ?? {}, rows };
    },
  };
}

interface IntentListOptions extends ListOptions {
  status?: StatusName;
  chain?: ChainName;
  lane?: LaneName;
  idempotencyKey?: string;
  createdFrom?: Date;
  createdBefore?: Date;
  succeededFrom?: Date;
  succeededBefore?: Date;
  expectedWallet?: string;
  label?: string;
  metadataKey?: string;
  metadataValue?: string;
}

export const intents = resources<PaymentIntentRow, IntentListOptions>({
  name: 'intent',
  prefix: 'pi',
  entity: PaymentIntentEntity,
  async conditionsOf({ merchant, status, chain, lane, idempotencyKey, label, ...options }) {
    const { createdFrom, createdBefore, metadataKey = '', metadataValue } = options;
    const { succeededFrom, succeededBefore, expectedWallet = '' } = options;
    if ((metadataKey === '') !== (metadataValue === undefined)) {
      throw new AdministrationError('--metadata-key and --metadata-value go together');
    }
    // The index of idempotency keys begins with the merchant.
    const hasIndex = merchant !== undefined;
    const metadata = metadataValue === undefined ? undefined : { [metadataKey]: metadataValue };
    const ofChain = networks.filter((network) => network.chain === chain).map(({ id }) => id);
    return {
      range: [
        ['t.id >= ?::uuid', createdFrom && lowestUuid(createdFrom.getTime())],
        ['t.id < ?::uuid', createdBefore && lowestUuid(createdBefore.getTime())],
        ['t.idempotency_key = ?', hasIndex ? idempotencyKey : undefined],
      ],
      matching: [
        ['t.status = ?::payment_intent_status', status],
        ['t.lane = ?::payment_lane', lane],
        ['? = any (t.labels)', label],
        ['t.metadata::jsonb @> ?::jsonb', metadata && JSON.stringify(metadata)],
        ['t.idempotency_key = ?', hasIndex ? undefined : idempotencyKey],
        ['t.network = any (?::smallint[])', chain && ofChain],
        ['t.succeeded_at >= ?::timestamptz', succeededFrom],
        ['t.succeeded_at < ?::timestamptz', succeededBefore],
        ['t.expected_wallet = ?::bytea', byteaOf(expectedWallet)],
      ],
    };
  },
  async textsOf(em, rows) {
    const found = await createPaymentsReader(em)(createPreparedStatements(em).run, rows);
    return found.map(({ row, payments }) => intentCodec.encode(presentPaymentIntent(row, payments)));
  },
  rowOf: (row) => ({
    chain: networkOf(row.network)?.chain,
    status: row.status,
    amount_units: String(row.amountUnits),
    received: String(row.amountReceivedUnits),
    labels: row.labels?.join(', ') || undefined,
    idempotency_key: row.idempotencyKey ?? undefined,
    'created (UTC)': formatMinute(row.createdAt),
  }),
});

interface TransferListOptions extends ListOptions {
  status?: 'unattributed' | 'attributed';
  transactionHash?: string;
  fromAddress?: string;
  toAddress?: string;
  chain?: ChainName;
  blockTimeFrom?: Date;
  blockTimeBefore?: Date;
  intent?: string;
}

export const transfers = resources<TransferRow, TransferListOptions>({
  name: 'transfer',
  prefix: 'tr',
  entity: TransferEntity,
  where: { isRefund: false },
  async conditionsOf({ status, transactionHash = '', fromAddress = '', toAddress = '', intent, ...options }) {
    const { chain, blockTimeFrom, blockTimeBefore } = options;
    const chainIds = networks.filter((network) => network.chain === chain).map(({ chainId }) => chainId);
    const isAttributed = status === undefined ? undefined : status === 'attributed';
    return {
      range: [
        ['t.transaction_hash = ?::bytea', byteaOf(transactionHash)],
        ['t.payment_intent = ?::uuid', intent && uuidOf('pi', intent)],
      ],
      // As in the API: a transfer that was reorged before it was attributed can no longer be attributed.
      matching: [
        ['(t.payment_intent is not null) = ?::boolean', isAttributed],
        ["(t.state <> 'reorged' or ?::boolean)", isAttributed],
        ['t.is_refund = ?::boolean', false],
        ['t.from_address = ?::bytea', byteaOf(fromAddress)],
        ['t.to_address = ?::bytea', byteaOf(toAddress)],
        ['t.chain_id = any (?::int[])', chain && chainIds],
        ['t.block_time >= ?::timestamptz', blockTimeFrom],
        ['t.block_time < ?::timestamptz', blockTimeBefore],
      ],
    };
  },
  async textsOf(em, rows) {
    const watched = await em.fork().find(WatchedChainEntity, {});
    const headOf = ({ chainId, blockNumber }: TransferRow) =>
      Number(watched.find((chain) => chain.chainId === chainId)?.cursorNumber ?? blockNumber);
    return rows.map((row) => transferCodec.encode(toTransfer(row, headOf(row))));
  },
  rowOf: (row) => ({
    chain: networks.findLast(({ chainId }) => chainId === row.chainId)?.chain,
    state: row.state,
    payment_intent: row.paymentIntent == null ? 'unattributed' : formatIdentifier('pi', row.paymentIntent),
    amount_units: String(row.amountUnits),
    from_address: row.fromAddress,
    transaction_hash: `0x${row.transactionHash}`,
    'block (UTC)': formatMinute(row.blockTime),
  }),
});

type RefundListOptions = ListOptions & { status?: RefundStatusName; intent?: string };

export const refunds = resources<RefundRow, RefundListOptions>({
  name: 'refund',
  prefix: 'rf',
  entity: RefundEntity,
  conditionsOf: async ({ status, intent }) => ({
    range: [['t.payment_intent = ?::uuid', intent && uuidOf('pi', intent)]],
    matching: [['t.status = ?::refund_status', status]],
  }),
  async textsOf(em, rows) {
    const found = await createRefundsReader(em)(createPreparedStatements(em).run, rows);
    return found.map(({ row, payments }) => refundCodec.encode(toRefund(row, payments)));
  },
  rowOf: (row) => ({
    payment_intent: formatIdentifier('pi', row.paymentIntent),
    status: row.status,
    amount_units: String(row.amountUnits),
    destination: row.destination,
    labels: row.labels?.join(', ') || undefined,
    'created (UTC)': formatMinute(row.createdAt),
  }),
});

type EventListOptions = ListOptions & { type?: string; intent?: string; refund?: string };

export const { list: listEvents } = resources<EventRow, EventListOptions>({
  name: 'event',
  prefix: 'evt',
  entity: EventEntity,
  async conditionsOf({ merchant, type, ...of }, em) {
    const intent = of.intent === undefined ? undefined : await intents.find(em, of.intent);
    const refund = of.refund === undefined ? undefined : await refunds.find(em, of.refund);
    // The indexes of their events begin with the merchant.
    const owner = intent ?? refund;
    const ofIntent =
      '(t.payment_intent = ?::uuid or t.refund = any (array (select id from refunds where payment_intent = ?::uuid)))';
    return {
      merchant: merchant ?? (owner && formatIdentifier('mer', owner.merchantId)),
      range: [
        [ofIntent, intent?.id],
        ['t.refund = ?::uuid', refund?.id],
      ],
      matching: [['t.type = ?', type]],
    };
  },
  textsOf: async (_, rows) => rows.map(eventText),
  rowOf: (row) => ({
    type: row.type,
    // The first field of an event's data.
    resource: Object.values(JSON.parse(row.data) as Record<string, { id?: string }>)[0]?.id,
    'created (UTC)': formatMinute(row.createdAt),
  }),
});

export async function listDeliveries(
  { orm: { em } }: Database,
  options: ListOptions & { status?: DeliveryStatusName; failed?: boolean; endpoint?: string },
): Promise<Output> {
  const { columns, present } = createDeliveryPresenter(em);
  const { rows, note } = await readNewest(em, options, {
    table: 'events',
    columns: `${columns}, t.type as event_type, coalesce(t.payment_intent, (select r.payment_intent from refunds r where r.id = t.refund)) as payment_intent, t.mode`,
    join: 'join webhook_deliveries d on d.merchant_id = t.merchant_id and d.event_id = t.id',
    matching: [
      ['d.status = ?::webhook_delivery_status', options.failed ? 'failed' : options.status],
      ['d.endpoint_id = ?::uuid', options.endpoint && uuidOf('we', options.endpoint)],
    ],
  });
  const deliveries = await present(rows);
  const about = rows.map((row) =>
    ofMerchant({ merchantId: String(row.merchant_id), mode: row.mode as ModeName }),
  );
  return {
    json: deliveries.map((delivery, i) => {
      const { id, ...fields } = JSON.parse(deliveryCodec.encode(delivery));
      return { ...about[i], webhook_delivery: id, ...fields };
    }),
    rows: deliveries.map((delivery, i) => ({ ...about[i], ...deliveryRow(delivery) })),
    note,
  };
}

function deliveryRow(delivery: WebhookDelivery): Row {
  const { event, eventType, paymentIntent, webhookEndpoint, status, attempts, nextAttemptAt, createdAt } =
    delivery;
  const last = attempts.at(-1);
  return {
    event_type: eventType,
    payment_intent: paymentIntent || undefined,
    webhook_endpoint: webhookEndpoint,
    event,
    status: nameOf(webhookDeliveryStatusWords, status),
    attempts: attempts.length,
    last: last?.error ?? (last && `${last.statusCode} in ${last.durationMs} ms`),
    'next (UTC)': nextAttemptAt && formatMinute(timestampDate(nextAttemptAt)),
    'created (UTC)': createdAt && formatMinute(timestampDate(createdAt)),
  };
}
