// `GetTransfer` and `ListTransfers`.

import { create } from '@bufbuild/protobuf';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { EntityManager } from '@mikro-orm/postgresql';
import { MAX as highestUuid } from 'uuid';
import { chains, networks } from '../contract/chains.ts';
import type { FieldViolation } from '../contract/error-catalogue.ts';
import type { TransferCandidate } from '../contract/gen/payments/v1/transfer_pb.ts';
import { TransferCandidateSchema, TransferStatus } from '../contract/gen/payments/v1/transfer_pb.ts';
import {
  type ListTransfersRequest,
  ListTransfersResponseSchema,
  type TransferService,
} from '../contract/gen/payments/v1/transfer_service_pb.ts';
import { chainWords, paymentIntentStatusWords, transferStatusWords } from '../contract/gen/words.ts';
import { nameOf, numberOf, type StatusName } from '../contract/words.ts';
import { TransferEntity, type TransferRow } from '../database/entities/settlement.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { formatIdentifier, idViolations, lowestUuid, parseIdentifier } from '../database/identifiers.ts';
import { createPreparedStatements, preparedStatement } from '../database/prepared.ts';
import { readScannedPage, Values } from '../database/scanned-page.ts';
import { addressViolations, byteaOf, hashViolations, wordViolations } from '../requests/filters.ts';
import type { MethodsOf } from '../requests/method.ts';
import { isoOf, momentViolations, wholeMs } from '../requests/moments.ts';
import { pageSizeOf, pageSizeViolations, uuidCursorOf, uuidPageTokenOf } from '../requests/page-token.ts';
import type { Identity } from '../requests/request-context.ts';
import { createFindTransfer } from './change-transfer.ts';
import { clockAllowanceMs } from './ledger/known-transfers.ts';
import { toTransfer } from './transfer.ts';

type Methods = MethodsOf<typeof TransferService>;

const maxCandidates = 5;
/** Amounts looked at in each direction: some are only of another chain, or of later intents. */
const maxAmounts = 50;
/** How many of the newest intents of one amount are searched: those of another chain are left out. */
const maxSearched = 200;

/** `GetTransfer`: the transfer; if it is unattributed, with the intents that it may be for. */
export function getTransfer(em: EntityManager): Methods['getTransfer'] {
  const { read } = createPreparedStatements(em);
  const find = createFindTransfer(em);

  const candidatesOf = async (row: TransferRow): Promise<TransferCandidate[]> => {
    if (row.paymentIntent != null || row.state === 'reorged') return [];
    const { rows } = await read(row.merchantId, findNearest, [
      byteaOf(row.toAddress),
      row.merchantId,
      String(row.amountUnits),
      networks.filter(({ chainId }) => chainId === row.chainId).map(({ id }) => id),
      lowestUuid(row.blockTime.getTime() + clockAllowanceMs),
      lowestUuid(row.blockTime.getTime() + 1_000),
    ]);
    return rows.map(({ id, amount_units, status, created_at }) =>
      create(TransferCandidateSchema, {
        id: formatIdentifier('pi', id),
        amountUnits: BigInt(amount_units),
        status: numberOf(paymentIntentStatusWords, status as StatusName),
        createdAt: timestampFromDate(new Date(created_at)),
      }),
    );
  };

  return {
    ratePolicy: 'reads',
    async run(request, identity) {
      const { row, head } = await find((...of) => read(identity.merchantId, ...of), request.id, identity);
      return toTransfer(row, head, await candidatesOf(row));
    },
  };
}

/** The next amounts in one direction, each by one look-up in the index of wallets. */
const nextAmounts = (name: string, next: string) => `
   ${name} as (
     select $3::bigint as units, 0 as step
     union all
     select (select ${next} from payment_intents i where i.expected_wallet = $1 and i.merchant_id = $2
               and i.amount_units ${name === 'above' ? '>' : '<'} n.units), n.step + 1
       from ${name} n where n.units is not null and n.step < ${maxAmounts}
   )`;

/** The newest intents of the same amount and of the nearest amounts above and below. */
const findNearest = preparedStatement(
  'find_nearest_payment_intents',
  `with recursive ${nextAmounts('above', 'min(i.amount_units)')}, ${nextAmounts('below', 'max(i.amount_units)')}
   select i.id, amount_units, status, created_at
     from (select units from above union select units from below) near
    cross join lateral (
      select * from payment_intents i
       where i.expected_wallet = $1 and i.merchant_id = $2 and i.amount_units = near.units and i.id < $5
       order by i.id desc limit ${maxSearched}
    ) i
    where network = any ($4::smallint[])
    order by abs(amount_units - $3), id >= $6, status not in ('requires_payment', 'expired', 'canceled'), id desc
    limit ${maxCandidates}`,
);

/** `ListTransfers`: newest first. */
export function listTransfers(em: EntityManager): Methods['listTransfers'] {
  const columns = entityColumns<TransferRow>(em, TransferEntity);
  const { read } = createPreparedStatements(em);
  return {
    ratePolicy: 'reads',
    violations,
    async run(request, { merchantId, mode }) {
      const filter = ['transfers', merchantId, mode, ...filtersOf(request)];
      const below = uuidCursorOf(request.pageToken, filter) ?? highestUuid;
      const size = pageSizeOf(request.pageSize);
      const values = new Values();
      const { rows, next } = await readScannedPage(read, merchantId, {
        columns: `${columns.of('t')}, coalesce((select cursor_number from watched_chains c where c.chain_id = t.chain_id), t.block_number) as head`,
        table: 'transfers',
        alias: 't',
        ...conditionsOf(values, request, { merchantId, mode }, below),
        values,
        size,
      });
      return create(ListTransfersResponseSchema, {
        transfers: rows.map((row) => toTransfer(columns.read(row), Number(row.head))),
        nextPageToken: uuidPageTokenOf(filter, next?.id),
      });
    },
  };
}

/** What a page token is bound to besides merchant and mode: the status, and other filters that are set. */
function filtersOf(request: ListTransfersRequest): unknown[] {
  const { $typeName, $unknown, pageSize, pageToken, status, blockTimeFrom, blockTimeBefore, ...others } =
    request;
  // The times come last, as in the query. Their order has no meaning.
  const all = Object.entries({ ...others, blockTimeFrom, blockTimeBefore });
  const set = all.filter(([, value]) => value !== undefined && value !== '' && value !== 0);
  return set.length === 0 ? [status] : [status, set];
}

/** The conditions that an index supports, and the others. */
function conditionsOf(
  values: Values,
  request: ListTransfersRequest,
  { merchantId, mode }: Pick<Identity, 'merchantId' | 'mode'>,
  below: string,
): { range: string; matching: string } {
  const { status, blockTimeFrom, blockTimeBefore } = request;
  const chain = nameOf(chainWords, request.chain);
  const isUnattributed = status === TransferStatus.UNATTRIBUTED;
  const range = values.and([
    ['t.merchant_id = ?', merchantId],
    ['t.mode = ?', mode],
    ['t.id < ?', below],
    ['t.transaction_hash = ?::bytea', byteaOf(request.transactionHash)],
    ['t.payment_intent = ?', parseIdentifier('pi', request.paymentIntent)],
  ]);
  const matching = values.and([
    ['t.from_address = ?::bytea', byteaOf(request.fromAddress)],
    ['t.to_address = ?::bytea', byteaOf(request.toAddress)],
    ['t.chain_id = ?', chains.find((each) => each.mode === mode && each.chain === chain)?.chainId],
    ['t.block_time >= ?', isoOf(wholeMs(blockTimeFrom))],
    ['t.block_time < ?', isoOf(wholeMs(blockTimeBefore))],
  ]);
  const all = [
    'not t.is_refund',
    matching,
    // A transfer that was reorged before it was attributed can no longer be attributed.
    isUnattributed ? "t.state <> 'reorged'" : '',
    status === TransferStatus.ATTRIBUTED ? 't.payment_intent is not null' : '',
  ].filter((condition) => condition !== '');
  return {
    range: isUnattributed ? `${range} and t.payment_intent is null and not t.is_refund` : range,
    matching: all.join(' and '),
  };
}

function violations(request: ListTransfersRequest): FieldViolation[] {
  const { status, transactionHash, paymentIntent, fromAddress, toAddress, chain } = request;
  const { blockTimeFrom: block_time_from, blockTimeBefore: block_time_before } = request;
  return [
    ...pageSizeViolations(request.pageSize),
    ...wordViolations({ status: [status, transferStatusWords], chain: [chain, chainWords] }),
    ...hashViolations({ transaction_hash: transactionHash }),
    ...idViolations({ payment_intent: [paymentIntent, 'pi'] }),
    ...addressViolations({ from_address: fromAddress, to_address: toAddress }),
    ...momentViolations({ block_time_from, block_time_before }),
  ];
}
