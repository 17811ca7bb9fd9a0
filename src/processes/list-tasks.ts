// Implements the commands that list and show intents, transfers, refunds, events and deliveries of any merchant.

import { timestampDate } from '@bufbuild/protobuf/wkt';
import type { EntityManager } from '@mikro-orm/postgresql';
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
import { WebhookDeliveryEntity, type WebhookDeliveryRow } from '../database/entities/webhook.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { formatIdentifier, lowestUuid } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { type Condition, Values } from '../database/scanned-page.ts';
import { eventText } from '../events/event.ts';
import { findMerchant } from '../merchants/administration.ts';
import {
  AdministrationError,
  endpointUuidOf,
  intentUuidOf,
  refundUuidOf,
  transferUuidOf,
} from '../merchants/operator-ids.ts';
import { presentPaymentIntent } from '../payment-intents/payment-intent.ts';
import { createTransfersReader } from '../payment-intents/payments.ts';
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
  const scan = (where: string, by: string) =>
    `(select * from ${table} t where ${where}${and(range)} order by t.${by} desc limit ${maxScanned}) t`;
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
  const counted = preparedStatement(`admin_count_${table}`, `select count(*)::int as n from ${from}`);
  const scanned = (await run(counted, scannedValues)).rows[0]?.n ?? 0;
  if (scanned < maxScanned) return { rows };
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

interface IntentListOptions extends ListOptions {
  status?: StatusName;
  chain?: ChainName;
  lane?: LaneName;
  idempotencyKey?: string;
  createdFrom?: Date;
  createdBefore?: Date;
  label?: string;
  metadataKey?: string;
  metadataValue?: string;
}

export async function listIntents({ orm: { em } }: Database, options: IntentListOptions): Promise<Output> {
  const columns = entityColumns<PaymentIntentRow>(em, PaymentIntentEntity);
  const { status, chain, lane, idempotencyKey, createdFrom, createdBefore, label } = options;
  const { metadataKey = '', metadataValue } = options;
  // The index of idempotency keys begins with the merchant.
  const hasIndex = options.merchant !== undefined;
  const { rows, note } = await readNewest(em, options, {
    table: 'payment_intents',
    columns: columns.of('t'),
    range: [
      ['t.id >= ?::uuid', createdFrom && lowestUuid(createdFrom.getTime())],
      ['t.id < ?::uuid', createdBefore && lowestUuid(createdBefore.getTime())],
      ['t.idempotency_key = ?', hasIndex ? idempotencyKey : undefined],
    ],
    matching: [
      ['t.status = ?::payment_intent_status', status],
      ['t.lane = ?::payment_lane', lane],
      ['? = any (t.labels)', label],
      [
        't.metadata::jsonb @> ?::jsonb',
        metadataValue === undefined ? undefined : JSON.stringify({ [metadataKey]: metadataValue }),
      ],
      ['t.idempotency_key = ?', hasIndex ? undefined : idempotencyKey],
      [
        't.network = any (?::smallint[])',
        chain && networks.filter((network) => network.chain === chain).map(({ id }) => id),
      ],
    ],
  });
  return { ...(await ofIntents(em, rows.map(columns.read))), note };
}

/** Returns what was found. Throws AdministrationError if nothing was. */
function existing<Found>(row: Found | null, what: string, list: string): Found {
  if (row !== null) return row;
  throw new AdministrationError(`there is no ${what}: "${list}" shows them`);
}

/** One resource, of an output with one. */
function single({ json: [shown = {}], rows }: { json: object[]; rows: Row[] }): Output {
  return { json: shown, rows };
}

export async function findIntent(em: EntityManager, intent: string): Promise<PaymentIntentRow> {
  const row = await em.fork().findOne(PaymentIntentEntity, { id: intentUuidOf(intent) });
  return existing(row, `payment intent ${intent}`, 'intent list');
}

export async function showIntent({ orm: { em } }: Database, { intent }: { intent: string }): Promise<Output> {
  return single(await ofIntents(em, [await findIntent(em, intent)]));
}

/** Without client secrets. */
async function ofIntents(em: EntityManager, intents: readonly PaymentIntentRow[]) {
  const { run } = createPreparedStatements(em);
  const payments = await createTransfersReader(em, 'payment_intent')(run, intents);
  return {
    json: intents.map((row) => ({
      merchant_id: formatIdentifier('mer', row.merchantId),
      ...JSON.parse(intentCodec.encode(presentPaymentIntent(row, payments.get(row.id) ?? []))),
    })),
    rows: intents.map((row) => ({
      payment_intent: formatIdentifier('pi', row.id),
      ...ofMerchant(row),
      chain: networkOf(row.network)?.chain,
      status: row.status,
      amount_units: String(row.amountUnits),
      received: String(row.amountReceivedUnits),
      labels: row.labels?.join(', ') || undefined,
      idempotency_key: row.idempotencyKey ?? undefined,
      'created (UTC)': formatMinute(row.createdAt),
    })),
  };
}

interface TransferListOptions extends ListOptions {
  status?: 'unattributed' | 'attributed';
  transactionHash?: string;
  fromAddress?: string;
  toAddress?: string;
  intent?: string;
}

export async function listTransfers(
  { orm: { em } }: Database,
  options: TransferListOptions,
): Promise<Output> {
  const columns = entityColumns<TransferRow>(em, TransferEntity);
  const isAttributed = options.status === undefined ? undefined : options.status === 'attributed';
  const { rows, note } = await readNewest(em, options, {
    table: 'transfers',
    columns: columns.of('t'),
    range: [
      ['t.transaction_hash = ?::bytea', byteaOf(options.transactionHash ?? '')],
      ['t.payment_intent = ?::uuid', options.intent && intentUuidOf(options.intent)],
    ],
    // As in the API: a transfer that was reorged before it was attributed can no longer be attributed.
    matching: [
      ['(t.payment_intent is not null) = ?::boolean', isAttributed],
      ["(t.state <> 'reorged' or ?::boolean)", isAttributed],
      ['t.is_refund = ?::boolean', false],
      ['t.from_address = ?::bytea', byteaOf(options.fromAddress ?? '')],
      ['t.to_address = ?::bytea', byteaOf(options.toAddress ?? '')],
    ],
  });
  return { ...(await ofTransfers(em, rows.map(columns.read))), note };
}

export async function findTransfer(em: EntityManager, transfer: string): Promise<TransferRow> {
  const row = await em.fork().findOne(TransferEntity, { id: transferUuidOf(transfer), isRefund: false });
  return existing(row, `transfer ${transfer}`, 'transfer list');
}

export async function showTransfer({ orm: { em } }: Database, { transfer }: { transfer: string }) {
  return single(await ofTransfers(em, [await findTransfer(em, transfer)]));
}

async function ofTransfers(em: EntityManager, transfers: readonly TransferRow[]) {
  const watched = await em.fork().find(WatchedChainEntity, {});
  const headOf = ({ chainId, blockNumber }: TransferRow) =>
    Number(watched.find((chain) => chain.chainId === chainId)?.cursorNumber ?? blockNumber);
  return {
    json: transfers.map((row) => ({
      ...ofMerchant(row),
      ...JSON.parse(transferCodec.encode(toTransfer(row, headOf(row)))),
    })),
    rows: transfers.map((row) => ({
      transfer: formatIdentifier('tr', row.id),
      ...ofMerchant(row),
      chain: networks.findLast(({ chainId }) => chainId === row.chainId)?.chain,
      state: row.state,
      payment_intent: row.paymentIntent == null ? 'unattributed' : formatIdentifier('pi', row.paymentIntent),
      amount_units: String(row.amountUnits),
      from_address: row.fromAddress,
      transaction_hash: `0x${row.transactionHash}`,
      'block (UTC)': formatMinute(row.blockTime),
    })),
  };
}

export async function listRefunds(
  { orm: { em } }: Database,
  options: ListOptions & { status?: RefundStatusName; intent?: string },
): Promise<Output> {
  const columns = entityColumns<RefundRow>(em, RefundEntity);
  const { rows, note } = await readNewest(em, options, {
    table: 'refunds',
    columns: columns.of('t'),
    range: [['t.payment_intent = ?::uuid', options.intent && intentUuidOf(options.intent)]],
    matching: [['t.status = ?::refund_status', options.status]],
  });
  return { ...(await ofRefunds(em, rows.map(columns.read))), note };
}

export async function findRefund(em: EntityManager, refund: string): Promise<RefundRow> {
  const row = await em.fork().findOne(RefundEntity, { id: refundUuidOf(refund) });
  return existing(row, `refund ${refund}`, 'refund list');
}

export async function showRefund({ orm: { em } }: Database, { refund }: { refund: string }): Promise<Output> {
  return single(await ofRefunds(em, [await findRefund(em, refund)]));
}

async function ofRefunds(em: EntityManager, refunds: readonly RefundRow[]) {
  const { run } = createPreparedStatements(em);
  const transfers = await createTransfersReader(em, 'refund')(run, refunds);
  return {
    json: refunds.map((row) => ({
      merchant_id: formatIdentifier('mer', row.merchantId),
      ...JSON.parse(refundCodec.encode(toRefund(row, transfers.get(row.id) ?? []))),
    })),
    rows: refunds.map((row) => ({
      refund: formatIdentifier('rf', row.id),
      ...ofMerchant(row),
      payment_intent: formatIdentifier('pi', row.paymentIntent),
      status: row.status,
      amount_units: String(row.amountUnits),
      destination: row.destination,
      labels: row.labels?.join(', ') || undefined,
      'created (UTC)': formatMinute(row.createdAt),
    })),
  };
}

export async function listEvents(
  { orm: { em } }: Database,
  options: ListOptions & { type?: string; intent?: string; refund?: string },
): Promise<Output> {
  const columns = entityColumns<EventRow>(em, EventEntity);
  const intent = options.intent === undefined ? undefined : await findIntent(em, options.intent);
  const refund = options.refund === undefined ? undefined : await findRefund(em, options.refund);
  // The indexes of their events begin with the merchant.
  const owner = intent ?? refund;
  const merchant = options.merchant ?? (owner && formatIdentifier('mer', owner.merchantId));
  const { rows, note } = await readNewest(em, merchant === undefined ? options : { ...options, merchant }, {
    table: 'events',
    columns: columns.of('t'),
    range: [
      [
        '(t.payment_intent = ?::uuid or t.refund = any (array (select id from refunds where payment_intent = ?::uuid)))',
        intent?.id,
      ],
      ['t.refund = ?::uuid', refund?.id],
    ],
    matching: [['t.type = ?', options.type]],
  });
  const events = rows.map(columns.read);
  return {
    json: events.map((row) => ({
      merchant_id: formatIdentifier('mer', row.merchantId),
      ...JSON.parse(eventText(row)),
    })),
    rows: events.map(
      (row): Row => ({
        event: formatIdentifier('evt', row.id),
        ...ofMerchant(row),
        type: row.type,
        payment_intent: row.paymentIntent == null ? undefined : formatIdentifier('pi', row.paymentIntent),
        'created (UTC)': formatMinute(row.createdAt),
      }),
    ),
    note,
  };
}

export async function listDeliveries(
  { orm: { em } }: Database,
  options: ListOptions & { status?: DeliveryStatusName; failed?: boolean; endpoint?: string },
): Promise<Output> {
  const columns = entityColumns<WebhookDeliveryRow>(em, WebhookDeliveryEntity);
  const { rows, note } = await readNewest(em, options, {
    table: 'events',
    columns: `${columns.of('d')}, t.type as event_type, t.payment_intent, t.mode`,
    join: 'join webhook_deliveries d on d.merchant_id = t.merchant_id and d.event_id = t.id',
    matching: [
      ['d.status = ?::webhook_delivery_status', options.failed ? 'failed' : options.status],
      ['d.endpoint_id = ?::uuid', options.endpoint && endpointUuidOf(options.endpoint)],
    ],
  });
  const present = createDeliveryPresenter(em, createPreparedStatements(em).read);
  const shown = rows.map((row) => ({
    row: columns.read(row),
    eventType: String(row.event_type),
    paymentIntent: row.payment_intent as string | null,
  }));
  const deliveries = await present(shown);
  const about = rows.map((row) => ({
    merchant_id: formatIdentifier('mer', String(row.merchant_id)),
    mode: row.mode as ModeName,
  }));
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
