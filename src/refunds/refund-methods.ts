import { create } from '@bufbuild/protobuf';
import type { EntityManager } from '@mikro-orm/postgresql';
import { MAX as highestUuid } from 'uuid';
import { networkOf } from '../contract/chains.ts';
import type { Payment } from '../contract/gen/payments/v1/payment_pb.ts';
import { type Refund, RefundSchema } from '../contract/gen/payments/v1/refund_pb.ts';
import type { RefundService } from '../contract/gen/payments/v1/refund_service_pb.ts';
import { ListRefundsResponseSchema } from '../contract/gen/payments/v1/refund_service_pb.ts';
import { refundStatusWords } from '../contract/gen/words.ts';
import { createJsonCodec, encodedAs } from '../contract/json/json-codec.ts';
import { nameOf } from '../contract/words.ts';
import { RefundEntity, type RefundRow } from '../database/entities/refund.ts';
import { TransferEntity, type TransferRow } from '../database/entities/settlement.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { formatIdentifier, idViolations, parseIdentifier } from '../database/identifiers.ts';
import type { PreparedStatement, RunPrepared } from '../database/prepared.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { readScannedPage, Values } from '../database/scanned-page.ts';
import { createApplySteps, holdChain } from '../payment-intents/change-payment-intents.ts';
import { createRefundsReader } from '../payment-intents/payments.ts';
import { invalidState, ServiceError } from '../requests/errors.ts';
import { byteaOf, hashViolations, wordViolations } from '../requests/filters.ts';
import type { MethodsOf } from '../requests/method.ts';
import { pageSizeOf, pageSizeViolations, uuidCursorOf, uuidPageTokenOf } from '../requests/page-token.ts';
import type { Identity, RequestContext } from '../requests/request-context.ts';
import { chargedByRows, rowsOfText } from '../requests/row-cost.ts';
import { traceparentOf } from '../requests/trace.ts';
import { mapLargeInSlices } from '../scheduling/slices.ts';
import { toRefund } from './refund.ts';
import { createRefunding } from './refunding.ts';

type Methods = MethodsOf<typeof RefundService>;

const refundCodec = createJsonCodec(RefundSchema);

/** The rows a refund counts as in the rate limit: one, or one per transfer or per 2 KiB of metadata. */
function rowsOf({ transfers, metadata }: { transfers: readonly Payment[]; metadata?: unknown }): number {
  return Math.max(1, transfers.length, rowsOfText(JSON.stringify(metadata ?? null)));
}

/** Finds refunds of a merchant and mode, and converts them. */
function createRefundReader(em: EntityManager) {
  const columns = entityColumns<RefundRow>(em, RefundEntity);
  const readTransfers = createRefundsReader(em);
  const find = preparedStatement(
    'find_refund',
    `select ${columns.of('r')} from refunds r where r.id = $1 and r.merchant_id = $2 and r.mode = $3`,
  );
  return {
    columns,
    /** Throws `resource_missing`. Notes the intent for the log. */
    async find(run: RunPrepared, publicId: string, { merchantId, mode }: Identity, context: RequestContext) {
      const id = parseIdentifier('rf', publicId);
      const [found] = id === undefined ? [] : (await run(find, [id, merchantId, mode])).rows;
      if (found === undefined) throw new ServiceError('resource_missing');
      const row = columns.read(found);
      context.paymentIntent = formatIdentifier('pi', row.paymentIntent);
      return row;
    },
    async present(run: RunPrepared, rows: readonly RefundRow[]): Promise<Refund[]> {
      return mapLargeInSlices(
        await readTransfers(run, rows),
        ({ payments }) => 1 + payments.length,
        ({ row, payments }) => toRefund(row, payments),
      );
    },
  };
}

/** `GetRefund`: the current state of the refund. */
export function getRefund(em: EntityManager): Methods['getRefund'] {
  const { run } = createPreparedStatements(em);
  const reader = createRefundReader(em);
  return {
    ratePolicy: 'reads',
    async run(request, identity, { context }) {
      const row = await reader.find(run, request.id, identity, context);
      return (await reader.present(run, [row]))[0] as Refund;
    },
  };
}

/** `ListRefunds`: newest first. */
export function listRefunds(em: EntityManager): Methods['listRefunds'] {
  const { read } = createPreparedStatements(em);
  const { columns, present } = createRefundReader(em);
  return {
    ratePolicy: 'reads',
    violations: ({ pageSize, status, paymentIntent }) => [
      ...pageSizeViolations(pageSize),
      ...wordViolations({ status: [status, refundStatusWords] }),
      ...idViolations({ payment_intent: [paymentIntent, 'pi'] }),
    ],
    async run(request, { merchantId, mode }, { context }) {
      const filter = ['refunds', merchantId, mode, request.paymentIntent, request.status];
      const below = uuidCursorOf(request.pageToken, filter) ?? highestUuid;
      const size = pageSizeOf(request.pageSize);
      const values = new Values();
      const range = values.and([
        ['r.merchant_id = ?', merchantId],
        ['r.mode = ?', mode],
        ['r.id < ?', below],
        ['r.payment_intent = ?', parseIdentifier('pi', request.paymentIntent)],
      ]);
      const matching =
        values.and([['r.status = ?::refund_status', nameOf(refundStatusWords, request.status)]]) || 'true';
      const of = { columns: columns.of('r'), table: 'refunds', alias: 'r' };
      const page = { ...of, range, matching, values, size };
      const work = async () => {
        const { rows, next } = await readScannedPage(read, merchantId, page);
        return { refunds: await present((...of) => read(merchantId, ...of), rows.map(columns.read)), next };
      };
      const { refunds, next } = await chargedByRows(context, size, work, (found) =>
        found.refunds.reduce((sum, refund) => sum + rowsOf(refund), 0),
      );
      const write = (refund: Refund) => encodedAs(refund, refundCodec.encode(refund));
      if (context.door === 'public') await mapLargeInSlices(refunds, rowsOf, write);
      return create(ListRefundsResponseSchema, { refunds, nextPageToken: uuidPageTokenOf(filter, next?.id) });
    },
  };
}

/** `CancelRefund`: cancels a refund without a transfer. Idempotent. Calls `onEvent` after the commit. */
export function cancelRefund(em: EntityManager, onEvent: () => void): Methods['cancelRefund'] {
  const { change } = createPreparedStatements(em);
  const reader = createRefundReader(em);
  const { lock, apply } = createRefunding(em);
  return {
    ratePolicy: 'changes',
    run: async (request, identity, { context }) => {
      const { refund, isNew } = await change(identity.merchantId, async (inside) => {
        const { id } = await reader.find(inside, request.id, identity, context);
        let row = (await lock(inside, [id])).get(id) as RefundRow;
        if (row.status !== 'requires_transfer' && row.status !== 'canceled') throw notCancelable(row);
        const isNew = row.status === 'requires_transfer';
        if (isNew) {
          const at = new Date();
          const fields = { status: 'canceled' as const, canceledAt: at };
          const steps = new Map([[row, [{ type: 'canceled' as const, fields }]]]);
          await apply(inside, steps, at, traceparentOf(context.trace));
          row = { ...row, ...fields };
        }
        return { refund: (await reader.present(inside, [row]))[0] as Refund, isNew };
      });
      if (isNew) onEvent();
      return refund;
    },
  };
}

function notCancelable({ status }: RefundRow): ServiceError {
  const why = {
    processing: 'Its transfer is on the chain and can no longer be taken back',
    succeeded: 'The money is returned',
    expired: 'It has expired already',
  }[status as 'processing' | 'succeeded' | 'expired'];
  return invalidState(`The refund cannot be canceled. ${why}.`);
}

/** `ConfirmRefund`: links a recorded transfer without an id to a refund. Calls `onEvent` after commit. */
export function confirmRefund(em: EntityManager, onEvent: () => void): Methods['confirmRefund'] {
  const { change } = createPreparedStatements(em);
  const reader = createRefundReader(em);
  const transfers = entityColumns<TransferRow>(em, TransferEntity);
  const intents = createApplySteps(em);
  const refunding = createRefunding(em);
  const findTransfers = preparedStatement(
    'find_transfers_of_refund',
    `select ${transfers.of('t')} from transfers t
      where t.transaction_hash = $1 and t.merchant_id = $2 and t.chain_id = $3 and t.is_refund and t.state <> 'reorged'
      order by t.log_index`,
  );
  const lockTransfers = preparedStatement('lock_transfers_of_refund', `${findTransfers.text} for update`);

  /** Resolves with false if the transfer already belongs to the refund. */
  const confirm = async (
    inside: RunPrepared,
    refund: RefundRow,
    hash: string,
    traceparent: string | null,
  ): Promise<boolean> => {
    const chainId = networkOf(refund.network)?.chainId;
    const find = async (statement: PreparedStatement) => {
      const { rows } = await inside(statement, [byteaOf(hash), refund.merchantId, chainId]);
      const all = rows.map((row) => transfers.read(row));
      if (all.some((transfer) => transfer.refund === refund.id)) return undefined;
      const found = all.find((transfer) => transfer.refund == null && looksLike(transfer, refund));
      return found ?? Promise.reject(noSuchTransfer(refund));
    };
    // Checked without a lock first: a merchant who calls this constantly must not keep the chain locked.
    if ((await find(findTransfers)) === undefined) return false;
    await inside(holdChain, [chainId]);
    const locked = await intents.lock(inside, [refund.paymentIntent]);
    // Two refunds of different intents may ask for the same transfer.
    const found = await find(lockTransfers);
    if (found === undefined) return false;
    const at = new Date();
    const transfer = { ...found, refund: refund.id };
    const steps = await refunding.arrive(inside, [transfer]);
    const { id, counts, labels } = transfer;
    await inside(setRefund, [id, refund.id, counts, labels?.join(' ') ?? null]);
    await refunding.apply(inside, steps, at, traceparent);
    if (transfer.state === 'confirmed') {
      const confirmed = await refunding.confirm(inside, [transfer.id], [refund.id], locked, at);
      // An unexpected transfer is already reported.
      if (counts) await refunding.apply(inside, confirmed, at, traceparent);
    }
    return true;
  };

  return {
    ratePolicy: 'changes',
    violations: ({ transactionHash }) =>
      transactionHash === ''
        ? [{ field: 'transaction_hash', message: 'is required' }]
        : hashViolations({ transaction_hash: transactionHash }),
    run: async (request, identity, { context }) => {
      const { refund, isNew } = await change(identity.merchantId, async (inside) => {
        const row = await reader.find(inside, request.id, identity, context);
        const isNew = await confirm(inside, row, request.transactionHash, traceparentOf(context.trace));
        const now = isNew ? await reader.find(inside, request.id, identity, context) : row;
        return { refund: (await reader.present(inside, [now]))[0] as Refund, isNew };
      });
      if (isNew) onEvent();
      return refund;
    },
  };
}

function looksLike(transfer: TransferRow, refund: RefundRow): boolean {
  return (
    transfer.fromAddress === refund.wallet &&
    transfer.toAddress === refund.destination &&
    BigInt(transfer.amountUnits) === BigInt(refund.amountUnits)
  );
}

function noSuchTransfer({ amountUnits, wallet, destination }: RefundRow): ServiceError {
  return invalidState(
    `No transfer of ${amountUnits} units from ${wallet} to ${destination} was found in this transaction. It must be later ` +
      'than the first such refund and belong to no other. If the transaction is new, try again in a few seconds.',
  );
}

const setRefund = preparedStatement(
  'confirm_refund',
  `update transfers set refund = $2, counts = $3, labels = string_to_array($4, ' ') where id = $1`,
);
