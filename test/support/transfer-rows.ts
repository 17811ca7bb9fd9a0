// Inserts transfers with SQL as a watcher records them, without a chain, and in any state.

import { randomBytes } from 'node:crypto';
import { networkFor } from '../../src/contract/chains.ts';
import type { ChainName, ModeName } from '../../src/contract/words.ts';
import { formatIdentifier, newUuid, parseIdentifier } from '../../src/database/identifiers.ts';
import { nextMs } from './event-rows.ts';
import type { TestMerchant } from './service.ts';

export interface TransferSettings {
  mode?: ModeName;
  chain?: ChainName;
  /** Default: the payout wallet of the merchant. */
  toAddress?: string;
  fromAddress?: string;
  /** Default: USDC of the chain. */
  tokenAddress?: string;
  amountUnits?: number;
  state?: 'pending' | 'confirmed' | 'reorged';
  /** The intent's id. The intent itself is not changed. */
  paymentIntent?: string;
  labels?: string[];
  /** True for a transfer that looks like a refund of the merchant. */
  isRefund?: boolean;
  transactionHash?: string;
  logIndex?: number;
  blockNumber?: number;
  blockHash?: string;
  blockTime?: Date;
  createdAt?: Date;
}

/** Where the rows are written. */
export interface Rows {
  query(sql: string, values?: unknown[]): Promise<unknown>;
}

const randomHash = () => `0x${randomBytes(32).toString('hex')}`;
const bytes = (hex: string) => `\\x${hex.slice(2)}`;

/** Inserts transfers to a merchant's wallets with one statement. Returns their public ids. */
export async function insertTransfers(
  { query }: Rows,
  merchant: Pick<TestMerchant, 'id' | 'wallets'>,
  transfers: readonly TransferSettings[],
): Promise<string[]> {
  const rows = transfers.map(({ mode = 'testnet', chain = 'base', ...transfer }) => {
    const { chainId, tokenAddress } = networkFor(mode, chain);
    return {
      id: newUuid(transfer.createdAt?.getTime() ?? nextMs()),
      merchant_id: merchant.id,
      mode,
      chain_id: chainId,
      transaction_hash: bytes(transfer.transactionHash ?? randomHash()),
      log_index: transfer.logIndex ?? 0,
      block_number: transfer.blockNumber ?? 21_450_112,
      block_hash: bytes(transfer.blockHash ?? randomHash()),
      block_time: transfer.blockTime ?? new Date(),
      from_address: bytes(transfer.fromAddress ?? '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed'),
      to_address: bytes(transfer.toAddress ?? merchant.wallets[mode][chain]),
      token_address: bytes(transfer.tokenAddress ?? tokenAddress),
      amount_units: transfer.amountUnits ?? 12_500_000,
      ordinal: 0,
      state: transfer.state ?? 'pending',
      payment_intent: transfer.paymentIntent ? parseIdentifier('pi', transfer.paymentIntent) : null,
      attributed_by_hand: false,
      is_detached: false,
      is_refund: transfer.isRefund ?? false,
      counts: transfer.paymentIntent !== undefined && transfer.labels === undefined,
      labels: transfer.labels ?? null,
      created_at: transfer.createdAt ?? new Date(),
    };
  });
  await query('insert into transfers select * from jsonb_populate_recordset(null::transfers, $1)', [
    JSON.stringify(rows),
  ]);
  return rows.map(({ id }) => formatIdentifier('tr', id));
}

/** Writes the row of a chain that has been read up to that block. */
export async function insertWatchedChain(
  { query }: Rows,
  { mode = 'testnet' as ModeName, chain = 'base' as ChainName, cursorNumber = 21_450_112 },
): Promise<void> {
  await query(
    `insert into watched_chains (chain_id, mode, chain, genesis_hash, cursor_number, cursor_hash, cursor_time,
                                 second_number, head_number, finalized_number, seen_at, lease_number, created_at)
     values ($1, $4, $2, '\\x00', $3, '\\x00', now(), 0, $3, 0, now(), 0, now())`,
    [networkFor(mode, chain).chainId, chain, cursorNumber, mode],
  );
}
