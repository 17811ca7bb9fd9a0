// Confirms transfers, and the intents that they pay.

import type { QueryResultRow } from 'pg';
import type { Hash } from 'viem';
import type { PaymentIntentRow } from '../../database/entities/payment-intent.ts';
import { preparedStatement, type RunPrepared } from '../../database/prepared.ts';
import type { ChangeStep } from '../../payment-intents/change-payment-intents.ts';
import { readPaymentSums } from '../../payment-intents/payment-sums.ts';
import { mapInSlices } from '../../scheduling/slices.ts';
import { confirm } from '../judgement.ts';
import type { TransferLog } from '../node-answers.ts';
import type { Change, LedgerContext } from './context.ts';
import { assertUnchanged, recordedOf } from './reverting.ts';
import { bytes, hashOf, idsOf, inChunks } from './values.ts';

/** A recorded transfer that is not reorged. `isPayment`: it belongs to an intent or a refund. */
export type RecordedTransfer = { id: string; blockTime: Date; isPayment: boolean; log: TransferLog };

export function createConfirming({
  run,
  commit,
  steps: { lock, apply },
  refunding,
  settings,
}: LedgerContext) {
  const { chainId } = settings;
  const confirmSome = async (
    inside: RunPrepared,
    blockHash: Hash,
    ids: readonly string[],
  ): Promise<Change[]> => {
    const rows = await recordedOf(inside, ids);
    const refundIds = rows.flatMap(({ refund }) => refund ?? []);
    const paid = new Set(rows.flatMap(({ payment_intent }) => payment_intent ?? []));
    const locked = await lock(inside, paid, refundIds);
    const at = new Date();
    assertUnchanged((await inside(markConfirmed, [ids, bytes(blockHash)])).rows, rows);
    const refunds = await refunding.confirm(inside, ids, refundIds, locked, at);
    const processing = [...locked.values()].filter(
      ({ id, status }) => paid.has(id) && status === 'processing',
    );
    if (processing.length === 0) return refunding.apply(inside, refunds, at);
    const sums = await readPaymentSums(inside, idsOf(processing));
    const steps = new Map(
      processing.map((row): [PaymentIntentRow, ChangeStep[]] => {
        const step = confirm(row, sums(row.id).confirmedUnits, at);
        return [row, step === undefined ? [] : [step]];
      }),
    );
    return [...(await apply(inside, steps, at)), ...(await refunding.apply(inside, refunds, at))];
  };

  return {
    /** Up to `maxDue` pending transfers in blocks up to this one. Those in `last` come last, in its order. */
    async due(upTo: number, last: readonly number[]): Promise<RecordedTransfer[]> {
      return mapInSlices((await run(findDue, [chainId, upTo, last])).rows, readRecorded);
    },
    /** Confirms transfers that are still in this block, and the intents that they pay. Throws LeaseLost. */
    async confirmAll(lease: bigint, blockHash: Hash, ids: readonly string[]): Promise<void> {
      for (const some of inChunks(ids)) {
        await commit(lease, (inside) => confirmSome(inside, blockHash, some));
      }
    },
    /** Transfers in these blocks that are not reorged. */
    async transfersIn(from: number, to: number): Promise<RecordedTransfer[]> {
      return mapInSlices((await run(findBetween, [chainId, from, to])).rows, readRecorded);
    },
  };
}

/** Returns those of the transfers that are confirmed. */
export async function findConfirmed(run: RunPrepared, ids: readonly string[]): Promise<RecordedTransfer[]> {
  return mapInSlices((await run(findConfirmedByIds, [ids])).rows, readRecorded);
}

function readRecorded(row: QueryResultRow): RecordedTransfer {
  return {
    id: row.id,
    blockTime: new Date(row.block_time),
    isPayment: row.is_payment,
    log: {
      token: hashOf(row.token_address),
      from: hashOf(row.from_address),
      to: hashOf(row.to_address),
      amountUnits: BigInt(row.amount_units),
      transactionHash: hashOf(row.transaction_hash),
      logIndex: row.log_index,
      blockNumber: Number(row.block_number),
      blockHash: hashOf(row.block_hash),
    },
  };
}

const markConfirmed = preparedStatement(
  'mark_transfers_confirmed',
  `update transfers set state = 'confirmed' where id = any ($1::uuid[]) and block_hash = $2::bytea and state = 'pending'
   returning id, payment_intent, refund`,
);
const transferColumns = `id, transaction_hash, log_index, block_number, block_hash, block_time, token_address, from_address, to_address, amount_units, coalesce(payment_intent, refund) is not null as is_payment`;
/** Transfers due for confirmation at once. */
export const maxDue = 2_000;
/** Strangers can make any number of transfers that no node can prove. The others must not wait for these. */
const findDue = preparedStatement(
  'find_due_transfers',
  `with last as materialized (select number, place from unnest($3::bigint[]) with ordinality as l (number, place))
   (select ${transferColumns}, 0 as place from transfers
     where chain_id = $1 and state = 'pending' and block_number <= $2 and block_number not in (select number from last)
     order by block_number, transaction_hash limit ${maxDue})
   union all
   (select ${transferColumns}, place from last l
     cross join lateral (select * from transfers t where t.chain_id = $1 and t.state = 'pending'
                            and t.block_number = l.number and t.block_number <= $2) t
     order by place limit ${maxDue})
   order by place, block_number, transaction_hash limit ${maxDue}`,
);
const findConfirmedByIds = preparedStatement(
  'find_confirmed_transfers',
  `select ${transferColumns} from transfers where id = any ($1::uuid[]) and state = 'confirmed'`,
);
const findBetween = preparedStatement(
  'find_transfers_between',
  `select ${transferColumns} from transfers
    where chain_id = $1 and state <> 'reorged' and block_number between $2 and $3`,
);
