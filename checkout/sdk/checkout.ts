// The JSON of `GET /v1/checkout`. A test compares these types with the OpenAPI document.

/** One of the known values, or one that a newer service has added. */
export type OrNewer<Known extends string> = Known | (string & Record<never, never>);

/**
 * Where the payment stands:
 *
 * - `requires_payment`: the payments so far do not reach the amount;
 * - `processing`: paid in full and in time, not final on the chain yet. A reorganisation of the chain can take it back to
 *   `requires_payment`;
 * - `succeeded`: paid, final;
 * - `expired`: not paid in full in time, final;
 * - `canceled`: canceled by the merchant, final.
 */
export type CheckoutStatus = OrNewer<
  'requires_payment' | 'processing' | 'succeeded' | 'expired' | 'canceled'
>;

/** Test money or real money. */
export type CheckoutMode = OrNewer<'testnet' | 'mainnet'>;

/** `sdk`: the hosted checkout. `manual`: the payer sends the transfer on their own. */
export type CheckoutLane = OrNewer<'sdk' | 'manual'>;

/** The chain that the payment is made on. */
export type CheckoutChain = OrNewer<'base' | 'polygon'>;

/**
 * Where a transfer stands: `pending` with fewer confirmations than required, `confirmed` with all of them, `reorged` if
 * its block is no longer part of the chain.
 */
export type CheckoutPaymentStatus = OrNewer<'pending' | 'confirmed' | 'reorged'>;

/** What a payer may know of an intent. */
export interface Checkout {
  /** Identifier of the intent, such as `pi_01m7yzn0mtexwagr0spq4wg7vz`. */
  id: string;
  /** Where the payment stands. */
  status: CheckoutStatus;
  /** Test money or real money. */
  mode: CheckoutMode;
  /** The merchant who is paid. */
  merchant_name: string;
  /** The lane that the intent was created for. */
  lane: CheckoutLane;
  /** The chain that the payment is made on. */
  chain: CheckoutChain;
  /** EIP-155 id of the chain: 8453 or 84532 for Base, 137 or 80002 for Polygon. */
  chain_id: number;
  /** Blocks after which a payment counts as final on the chain. */
  confirmations_required: number;
  /** Amount to be paid, in the token's smallest unit: 12500000 is 12.50 USDC. */
  amount_units: number;
  /** Decimal places of the token: 6 for USDC. */
  decimals: number;
  /** Symbol of the token. */
  token_symbol: OrNewer<'USDC'>;
  /** The token's contract on the chain, as an EIP-55 checksummed address. */
  token_address: string;
  /** The wallet that has to receive the payment, as an EIP-55 checksummed address. */
  expected_wallet: string;
  /** The moment the intent expires, in UTC: `2026-11-21T12:30:15.514Z`. */
  expires_at: string;
  /** Sum of the payments that count, in the token's smallest unit. */
  amount_received_units: number;
  /** The newest 100 payments, oldest first, including those that do not count. Absent if there are none. */
  payments?: CheckoutPayment[];
  /** How many payments there are. */
  payments_count: number;
  /** Facts about the intent, such as `overpaid` and `late`. Absent if there are none. */
  labels?: string[];
  /** Origins of the merchant's own pages. The checkout returns to them and sends messages to them, and to no others. */
  allowed_origins: string[];
}

/** A transfer on the chain that belongs to the intent. */
export interface CheckoutPayment {
  /** The transaction that holds the transfer. */
  transaction_hash: string;
  /** Place of the transfer among the logs of its block. */
  log_index: number;
  /** The block that holds the transaction. */
  block_number: number;
  /** Hash of that block. */
  block_hash: string;
  /** Time of that block, in UTC. */
  block_time?: string;
  /** The wallet that the money came from. */
  from_address: string;
  /** The wallet that the money went to. */
  to_address: string;
  /** Contract of the token that was transferred. */
  token_address: string;
  /** Amount of the transfer, in the token's smallest unit. */
  amount_units: number;
  /** Blocks since the transfer, its own being the first. Counting stops at `confirmations_required`. */
  confirmations: number;
  /** Where the transfer stands. */
  status: CheckoutPaymentStatus;
  /** Facts about the transfer, such as `late` and `wrong_token`. Absent if there are none. */
  labels?: string[];
  /** Whether the transfer is part of `amount_received_units`. */
  counts?: boolean;
}
