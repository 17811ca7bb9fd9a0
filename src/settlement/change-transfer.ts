// What `AttributeTransfer` and `DetachTransfer` have in common.

import type { EntityManager } from '@mikro-orm/postgresql';
import type { PaymentIntentRow } from '../database/entities/payment-intent.ts';
import { TransferEntity, type TransferRow } from '../database/entities/settlement.ts';
import { entityColumns } from '../database/entity-columns.ts';
import { parseIdentifier } from '../database/identifiers.ts';
import {
  createPreparedStatements,
  type PreparedStatement,
  preparedStatement,
  type RunPrepared,
} from '../database/prepared.ts';
import { createIntentLock, holdChain } from '../payment-intents/apply-steps.ts';
import { ServiceError } from '../requests/errors.ts';
import type { Identity } from '../requests/request-context.ts';

/** A transfer of the merchant, and the last block read of its chain. */
export interface FoundTransferRow {
  row: TransferRow;
  head: number;
}

export interface TransferChanges {
  /**
   * Runs the work in a transaction that locks the transfer, and the chain against reverts and confirmations.
   * `intentIdOf` names the intent to lock too. Throws ServiceError (`resource_missing`).
   */
  change<T>(
    id: string,
    identity: Identity,
    intentIdOf: (transfer: TransferRow) => string | null | undefined,
    work: (inside: RunPrepared, found: FoundTransferRow, intent: PaymentIntentRow | undefined) => Promise<T>,
  ): Promise<T>;
}

/** Finds a transfer by its UUID, merchant and mode, with the last block read of its chain as `head`. */
export function findTransferStatement(em: EntityManager): PreparedStatement {
  const transfers = entityColumns<TransferRow>(em, TransferEntity);
  return preparedStatement(
    'find_transfer',
    `select ${transfers.of('t')}, coalesce(c.cursor_number, t.block_number) as head
       from transfers t left join watched_chains c on c.chain_id = t.chain_id
      where t.id = $1 and t.merchant_id = $2 and t.mode = $3 and not t.is_refund`,
  );
}

export function createTransferChanges(em: EntityManager): TransferChanges {
  const { transaction } = createPreparedStatements(em);
  const transfers = entityColumns<TransferRow>(em, TransferEntity);
  const lockIntent = createIntentLock(em);
  const findTransfer = findTransferStatement(em);
  const lockTransfer = preparedStatement('lock_transfer', `${findTransfer.text} for update of t`);
  return {
    change: (publicId, { merchantId, mode }, intentIdOf, work) =>
      transaction(async (inside) => {
        const find = async (statement: PreparedStatement): Promise<FoundTransferRow> => {
          const id = parseIdentifier('tr', publicId);
          const [row] = id === undefined ? [] : (await inside(statement, [id, merchantId, mode])).rows;
          if (row === undefined) throw new ServiceError('resource_missing');
          return { row: transfers.read(row), head: Number(row.head) };
        };
        // The lock order is the same everywhere: chain, intent, transfer.
        const { row } = await find(findTransfer);
        await inside(holdChain, [row.chainId]);
        const intent = await lockIntent(inside, intentIdOf(row), { merchantId, mode });
        return work(inside, await find(lockTransfer), intent);
      }),
  };
}
