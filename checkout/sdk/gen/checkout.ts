// Generated from the contract by src/contract/typescript: change proto/ and run `npm run generate`.


/** One of the known values, or one that a newer service has added. */
export type OrNewer<Known extends string> = Known | (string & Record<never, never>);

/** Where a payment stands. */
export type CheckoutStatus = OrNewer<
  /** Created; the payments so far do not reach the amount. */
  | 'requires_payment'
  /** Paid in full and in time; the payments are not final on the chain yet. */
  | 'processing'
  /** Paid: final. */
  | 'succeeded'
  /** Not paid in full in time: final. Money that arrives later is reported and changes nothing here. */
  | 'expired'
  /** Canceled by the merchant: final. */
  | 'canceled'
>;

/** Test money or real money. */
export type CheckoutMode = OrNewer<
  /** Test networks: tokens without value. */
  | 'testnet'
  /** Main networks: real money. */
  | 'mainnet'
>;

/** Checkout lane: how the payer is led through the payment. */
export type CheckoutLane = OrNewer<
  /** Hosted checkout, opened by the client SDK. */
  | 'sdk'
  /** The payer sends the transfer on their own. */
  | 'manual'
>;

/** Chains a payment can be made on. A testnet key reaches the chain's test network. */
export type CheckoutChain = OrNewer<
  /** Base: mainnet 8453, or Base Sepolia 84532. */
  | 'base'
  /** Polygon PoS: mainnet 137, or Amoy 80002. */
  | 'polygon'
>;

/** Where a transfer stands. */
export type CheckoutPaymentStatus = OrNewer<
  /** In a block, with fewer confirmations than required. */
  | 'pending'
  /** In a block with every confirmation. */
  | 'confirmed'
  /** The block it was in is no longer part of the chain. It does not count. */
  | 'reorged'
>;

/** What can become of a signed authorization. */
export type CheckoutPaymentAuthorizationStatus = OrNewer<
  /** It can still be used. */
  | 'submitted'
  /** It never reached the facilitator. */
  | 'failed'
>;

/**
 * What a payer may know of an intent: all that it takes to pay it, and what has arrived. Your metadata is not
 * part of it.
 */
export interface Checkout {
  /**
   * Identifier of the intent that is paid. A payment that carries this id is always attributed to the intent.
   */
  id: string;
  /** Where the payment stands. */
  status: CheckoutStatus;
  /** Test money or real money. */
  mode: CheckoutMode;
  /** The merchant who is paid. */
  merchant_name: string;
  /** The checkout lane the intent was created for. */
  lane: CheckoutLane;
  /** The chain the payment is made on. */
  chain: CheckoutChain;
  /** EIP-155 id of the chain. */
  chain_id: number;
  /** Blocks after which a payment counts as final on the chain. */
  confirmations_required: number;
  /** Amount to be paid, in the token's smallest unit. */
  amount_units: number;
  /** Decimal places of the token. */
  decimals: number;
  /** Symbol of the token. */
  token_symbol: string;
  /** Contract of the token on the chain, as an EIP-55 checksummed address. */
  token_address: string;
  /** Wallet that has to receive the payment, as an EIP-55 checksummed address. */
  expected_wallet: string;
  /** Moment the intent expires, in UTC with milliseconds. */
  expires_at: string;
  /** Sum of the payments that count, in the token's smallest unit. */
  amount_received_units: number;
  /** The newest 100 payments, oldest first, including those that do not count. */
  payments?: CheckoutPayment[];
  /** How many payments there are. */
  payments_count: number;
  /** Facts about the intent, such as `overpaid` and `late`. */
  labels?: string[];
  /**
   * Origins of the merchant's own pages. The checkout returns to these only, and exchanges messages with no
   * others.
   */
  allowed_origins: string[];
  /** Money that was returned, or is being returned: the newest 100 transfers, oldest first. */
  refunds?: CheckoutPayment[];
  /**
   * The payer can pay by a signature, without the chain's own coin for the fee: `POST /v1/checkout/pay`. In
   * the last 120 s before `expires_at` no new signature is asked for, and the field stays as it is.
   */
  gasless: boolean;
  /** The signed payment that has not been seen on the chain yet. Absent without one. */
  authorization?: CheckoutPaymentAuthorization;
}

/** A transfer on the chain that belongs to an intent. */
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
  block_time: string;
  /** Wallet the money came from, as an EIP-55 checksummed address. */
  from_address: string;
  /** Wallet the money went to. */
  to_address: string;
  /** Contract of the token that was transferred. */
  token_address: string;
  /** Amount of the transfer, in the token's smallest unit. */
  amount_units: number;
  /**
   * Blocks since the transfer, its own being the first. Counting stops at the intent's
   * `confirmations_required`.
   */
  confirmations: number;
  /** Where the transfer stands. */
  status: CheckoutPaymentStatus;
  /** Facts about the transfer, such as `late` and `wrong_token`: the words of the intent's `labels`. */
  labels?: string[];
  /**
   * Payment: whether it is part of the intent's `amount_received_units`. Refund: whether it is, once
   * confirmed, part of `amount_refunded_units`. Absent from events older than this field.
   */
  counts?: boolean;
}

/** A transfer on the chain that belongs to an intent. */
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
  block_time: string;
  /** Wallet the money came from, as an EIP-55 checksummed address. */
  from_address: string;
  /** Wallet the money went to. */
  to_address: string;
  /** Contract of the token that was transferred. */
  token_address: string;
  /** Amount of the transfer, in the token's smallest unit. */
  amount_units: number;
  /**
   * Blocks since the transfer, its own being the first. Counting stops at the intent's
   * `confirmations_required`.
   */
  confirmations: number;
  /** Where the transfer stands. */
  status: CheckoutPaymentStatus;
  /** Facts about the transfer, such as `late` and `wrong_token`: the words of the intent's `labels`. */
  labels?: string[];
  /**
   * Payment: whether it is part of the intent's `amount_received_units`. Refund: whether it is, once
   * confirmed, part of `amount_refunded_units`. Absent from events older than this field.
   */
  counts?: boolean;
}

/** A signed authorization to pay (EIP-3009). */
export interface CheckoutPaymentAuthorization {
  /**
   * `submitted`: it can still be used, so do not pay another way. `failed`: it never reached the facilitator.
   */
  status: CheckoutPaymentAuthorizationStatus;
  /** Moment after which no block takes it, in UTC with milliseconds. */
  expires_at: string;
  /** Hash of the transaction that is said to send it. Nothing is certain before it is one of the payments. */
  transaction_hash: string;
}

