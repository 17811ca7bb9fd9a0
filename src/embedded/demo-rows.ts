// The rows of `demo-month.ts`, and its statements.

import { randomBytes } from 'node:crypto';
import { networkOf } from '../contract/chains.ts';
import type { WalletAddress } from '../contract/wallet-address.ts';
import type { PaymentIntentRow } from '../database/entities/payment-intent.ts';
import type { RefundRow } from '../database/entities/refund.ts';
import type { TransferRow } from '../database/entities/settlement.ts';
import { newUuid } from '../database/identifiers.ts';
import { preparedStatement } from '../database/prepared.ts';

type DemoTransfer = Pick<
  TransferRow,
  'fromAddress' | 'toAddress' | 'amountUnits' | 'blockTime' | 'blockNumber' | 'logIndex'
>;

/** A transfer of an intent's token, not confirmed yet. */
export function transferRow({ merchantId, mode, network }: PaymentIntentRow, of: DemoTransfer): TransferRow {
  const { chainId = 0, tokenAddress = '' } = networkOf(network) ?? {};
  return {
    ...of,
    id: newUuid(of.blockTime.getTime()),
    merchantId,
    mode,
    chainId,
    transactionHash: randomBytes(32).toString('hex'),
    blockHash: randomBytes(32).toString('hex'),
    blockTime: new Date(Math.floor(of.blockTime.getTime() / 1_000) * 1_000),
    tokenAddress,
    ordinal: 0,
    state: 'pending',
    paymentIntent: null,
    attributedByHand: false,
    isDetached: false,
    isRefund: false,
    refund: null,
    authorizedBy: null,
    counts: false,
    labels: null,
    createdAt: of.blockTime,
  };
}

interface DemoRefund {
  payer: string;
  units: bigint;
  reason: string;
  createdAt: Date;
  /** If false, it waits, and has a week left. */
  isSigned: boolean;
}

const weekMs = 7 * 86_400_000;

export function refundRow(intent: PaymentIntentRow, of: DemoRefund): RefundRow {
  const { payer, units, reason, createdAt, isSigned } = of;
  return {
    id: newUuid(createdAt.getTime()),
    merchantId: intent.merchantId,
    mode: intent.mode,
    paymentIntent: intent.id,
    network: intent.network,
    amountUnits: units,
    destination: payer as WalletAddress,
    wallet: intent.expectedWallet,
    status: 'requires_transfer',
    reason,
    metadata: {},
    createdAt,
    expiresAt: new Date((isSigned ? createdAt.getTime() : Date.now()) + weekMs),
    succeededAt: null,
    canceledAt: null,
    expiredAt: null,
    watchedUntil: new Date('9999-12-31T00:00:00Z'),
    eventCount: 0,
    labels: null,
    idempotencyKey: null,
    requestFingerprint: null,
  };
}

/** Moves the transfers of intents, or of refunds, from one state to another. */
export const moveTransfers = preparedStatement(
  'move_demo_transfers',
  `update transfers set state = $3
    where (payment_intent = any ($1::uuid[]) or refund = any ($1::uuid[])) and state = $2`,
);
export const insertDeliveries = preparedStatement(
  'insert_demo_deliveries',
  `insert into webhook_deliveries (merchant_id, event_id, endpoint_id, id, status, created_at, scheduled, attempts)
   select $1, e.id, $2, gen_random_uuid(),
          case when row_number() over (order by e.created_at desc) <= $4 then 'failed' else 'delivered' end::webhook_delivery_status,
          e.created_at, 1, 1
     from (select id, created_at from events where merchant_id = $1 order by created_at desc limit $3) e`,
);
export const insertAttempts = preparedStatement(
  'insert_demo_attempts',
  `insert into webhook_attempts (event_id, endpoint_id, number, at, duration_ms, status_code, error, response)
   select event_id, endpoint_id, 1, created_at + interval '1 second', 40 + (random() * 200)::int,
          case when status = 'failed' then 502 else 200 end, null,
          convert_to(case when status = 'failed' then '<h1>Bad gateway</h1>' else 'ok' end, 'UTF8')
     from webhook_deliveries where endpoint_id = $1`,
);
