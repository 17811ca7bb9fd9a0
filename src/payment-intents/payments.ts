// The payments of an intent: its attributed transfers, as messages of the contract.

import { create } from '@bufbuild/protobuf';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { EntityManager } from '@mikro-orm/postgresql';
import type { QueryResultRow } from 'pg';
import { networkOf } from '../contract/chains.ts';
import { type Payment, PaymentSchema } from '../contract/gen/payments/v1/payment_pb.ts';
import { paymentStatusWords } from '../contract/gen/words.ts';
import {
  laterProperties,
  PaymentIntentEntity,
  type PaymentIntentRow,
} from '../database/entities/payment-intent.ts';
import { RefundEntity, type RefundRow } from '../database/entities/refund.ts';
import { TransferEntity, type TransferRow } from '../database/entities/settlement.ts';
import { type EntityColumns, entityColumns } from '../database/entity-columns.ts';
import { jsonOfRows, preparedStatement, type RunPrepared } from '../database/prepared.ts';
import { mapLargeInSlices } from '../scheduling/slices.ts';

/** Maximum payments of an intent that are shown, the newest. */
export const maxPayments = 100;

/** What transfers belong to: an intent or a refund. An intent without payments is not queried. */
type Owner = Pick<PaymentIntentRow, 'id' | 'merchantId' | 'network'> & { paymentsCount?: number };

const newest = `order by t.block_number desc, t.log_index desc limit ${maxPayments}`;
// `is not distinct from` prevents the use of an index: with `=`, a planner without statistics would read
// every transfer of the merchant for each owner.
const newestOf = (owner: string) =>
  `select * from transfers t where ${owner} and t.merchant_id is not distinct from wanted."merchantId" ${newest}`;
/** The transfers of an intent, of a refund, or of all refunds of an intent. */
const belonging = {
  payment_intent: newestOf('t.payment_intent = wanted.id'),
  refund: newestOf('t.refund = wanted.id'),
  refunds: `select t.* from refunds r cross join lateral (${newestOf('t.refund = r.id')}) t
             where r.payment_intent = wanted.id ${newest}`,
} as const;

/** Returns a function that reads the newest transfers of each owner, in chain order. */
export function createTransfersReader(em: EntityManager, of: keyof typeof belonging) {
  const read = createReader(em, of);
  return async (run: RunPrepared, owners: readonly Owner[]): Promise<ReadonlyMap<string, Payment[]>> =>
    (await read(run, owners)).payments;
}

/**
 * Returns a function that adds their newest payments to intents. An intent that has payments is returned as it
 * is when they are read: its sums and its status are those of its payments. `also` is read of it then, too.
 */
export const createPaymentsReader = (em: EntityManager, also = { columns: '', join: '' }) =>
  createOwnersReader(
    em,
    'payment_intent',
    entityColumns<PaymentIntentRow>(em, PaymentIntentEntity, ['status', ...laterProperties]),
    also,
  );

const laterOfRefund = ['status', 'succeededAt', 'canceledAt', 'expiredAt', 'labels'] as const;

/** The same for refunds and their transfers. */
export const createRefundsReader = (em: EntityManager) =>
  createOwnersReader(em, 'refund', entityColumns<RefundRow>(em, RefundEntity, laterOfRefund));

function createOwnersReader<Row extends Owner>(
  em: EntityManager,
  of: 'payment_intent' | 'refund',
  now: EntityColumns<Row>,
  also = { columns: '', join: '' },
) {
  const read = createReader(em, of, {
    columns: `, ${now.of('i')}${also.columns}`,
    join: `cross join lateral (select * from ${of}s i where i.id = wanted.id limit 1) i ${also.join}`,
  });
  return async (run: RunPrepared, rows: readonly Row[]) => {
    const { payments, first } = await read(run, rows);
    return rows.map((row) => {
      const found = first.get(row.id);
      const current = found ? { ...row, ...now.read(found) } : row;
      return { row: current, payments: payments.get(row.id) ?? [], found };
    });
  };
}

function createReader(em: EntityManager, of: keyof typeof belonging, also = { columns: '', join: '' }) {
  const columns = entityColumns<TransferRow>(em, TransferEntity);
  const find = preparedStatement(
    'find_payments',
    `select ${columns.of('t')}, wanted.id as owner, coalesce(c.cursor_number, t.block_number) as head${also.columns}
       from json_to_recordset($1) as wanted (id uuid, "merchantId" uuid)
      cross join lateral (${belonging[of]}) t
       left join watched_chains c on c.chain_id = t.chain_id
       ${also.join}
      order by t.block_number, t.log_index`,
  );
  return async (run: RunPrepared, all: readonly Owner[]) => {
    const owners = all.filter(({ paymentsCount }) => paymentsCount !== 0);
    const payments = new Map<string, Payment[]>();
    /** The first row of each owner. */
    const first = new Map<string, QueryResultRow>();
    if (owners.length === 0) return { payments, first };
    const { rows } = await run(find, [jsonOfRows(owners.map(({ id, merchantId }) => ({ id, merchantId })))]);
    const required = new Map(
      owners.map(({ id, network }) => [id, networkOf(network)?.confirmationsRequired ?? 0]),
    );
    const add = (found: QueryResultRow) => {
      const { owner } = found;
      const payment = toPayment(columns.read(found), Number(found.head), required.get(owner) ?? 0);
      const known = payments.get(owner);
      if (known !== undefined) return known.push(payment);
      first.set(owner, found);
      return payments.set(owner, [payment]);
    };
    await mapLargeInSlices(rows, () => 1, add);
    return { payments, first };
  };
}

function toPayment(row: TransferRow, head: number, required: number): Payment {
  return create(PaymentSchema, {
    ...transferFields(row),
    confirmations: confirmationsOf(row, head, required),
    status: paymentStatusWords[row.state],
    counts: (row.counts || row.refund != null) && row.state !== 'reorged',
  });
}

/** The fields that a payment and a transfer of the contract have in common. */
export function transferFields(row: TransferRow) {
  return {
    transactionHash: `0x${row.transactionHash}`,
    logIndex: row.logIndex,
    blockNumber: BigInt(row.blockNumber),
    blockHash: `0x${row.blockHash}`,
    blockTime: timestampFromDate(row.blockTime),
    fromAddress: row.fromAddress,
    toAddress: row.toAddress,
    tokenAddress: row.tokenAddress,
    amountUnits: BigInt(row.amountUnits),
    labels: row.labels ?? [],
  };
}

/** Blocks since the transfer, its own included, up to the required number. `head` is the last block read. */
export function confirmationsOf(row: TransferRow, head: number, required: number): number {
  if (row.state === 'reorged') return 0;
  if (row.state === 'confirmed') return required;
  return Math.min(Math.max(0, head - Number(row.blockNumber) + 1), required);
}
