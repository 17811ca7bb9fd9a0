// Generated from the contract by src/contract/typescript: change proto/ and run `npm run generate`.


/**
 * What a session of the console needs to call a method. API keys may call every method of the public
 * contract.
 */
export type Access =
  /** Changes nothing, and returns no secret. */
  | 'read'
  /** Changes what one merchant has in one mode. */
  | 'change'
  /** Only an operator's session. */
  | 'operate';

/** The numbers of a {@link Access} in messages. */
export const accessWords = {
  read: 1,
  change: 2,
  operate: 3,
} as const satisfies Record<Access, number>;

/** Where a transfer stands. */
export type PaymentStatus =
  /** In a block, with fewer confirmations than required. */
  | 'pending'
  /** In a block with every confirmation. */
  | 'confirmed'
  /** The block it was in is no longer part of the chain. It does not count. */
  | 'reorged';

/** The numbers of a {@link PaymentStatus} in messages. */
export const paymentStatusWords = {
  pending: 1,
  confirmed: 2,
  reorged: 3,
} as const satisfies Record<PaymentStatus, number>;

/** Chains a payment can be made on. A testnet key reaches the chain's test network. */
export type Chain =
  /** Base: mainnet 8453, or Base Sepolia 84532. */
  | 'base'
  /** Polygon PoS: mainnet 137, or Amoy 80002. */
  | 'polygon';

/** The numbers of a {@link Chain} in messages. */
export const chainWords = {
  base: 1,
  polygon: 2,
} as const satisfies Record<Chain, number>;

/** Test money or real money. */
export type Mode =
  /** Test networks: tokens without value. */
  | 'testnet'
  /** Main networks: real money. */
  | 'mainnet';

/** The numbers of a {@link Mode} in messages. */
export const modeWords = {
  testnet: 1,
  mainnet: 2,
} as const satisfies Record<Mode, number>;

/** Checkout lane: how the payer is led through the payment. */
export type Lane =
  /** Hosted checkout, opened by the client SDK. */
  | 'sdk'
  /** The payer sends the transfer on their own. */
  | 'manual';

/** The numbers of a {@link Lane} in messages. */
export const laneWords = {
  sdk: 1,
  manual: 2,
} as const satisfies Record<Lane, number>;

/** Tokens a payment can be made in. */
export type Token =
  /** USD Coin, Circle's native contract on each chain. Never USDC.e nor USDbC. */
  | 'USDC';

/** The numbers of a {@link Token} in messages. */
export const tokenWords = {
  USDC: 1,
} as const satisfies Record<Token, number>;

/** Where a payment stands. */
export type PaymentIntentStatus =
  /** Created; the payments so far do not reach the amount. */
  | 'requires_payment'
  /** Paid in full and in time; the payments are not final on the chain yet. */
  | 'processing'
  /** Paid: final. */
  | 'succeeded'
  /** Not paid in full in time: final. Money that arrives later is reported and changes nothing here. */
  | 'expired'
  /** Canceled by the merchant: final. */
  | 'canceled';

/** The numbers of a {@link PaymentIntentStatus} in messages. */
export const paymentIntentStatusWords = {
  requires_payment: 1,
  processing: 2,
  succeeded: 3,
  expired: 4,
  canceled: 5,
} as const satisfies Record<PaymentIntentStatus, number>;

/** Where a delivery stands. */
export type WebhookDeliveryStatus =
  /** To be tried, or tried again. */
  | 'pending'
  /** Answered with a status of 200 to 299. */
  | 'delivered'
  /** Given up after the last attempt, or because the endpoint was disabled or deleted. */
  | 'failed';

/** The numbers of a {@link WebhookDeliveryStatus} in messages. */
export const webhookDeliveryStatusWords = {
  pending: 1,
  delivered: 2,
  failed: 3,
} as const satisfies Record<WebhookDeliveryStatus, number>;

/** Why a person is needed. */
export type AttentionKind =
  /** A transfer that belongs to no intent. */
  | 'unattributed'
  /** Money of an intent that is to be returned, or decided on: its labels say why. */
  | 'payment'
  /** Deliveries to an endpoint that have failed for good. */
  | 'deliveries'
  /**
   * An endpoint that was disabled because it answered 410 or has failed for days, or that has failed since 15
   * minutes.
   */
  | 'endpoint'
  /** A refund whose transfer nobody has signed yet. */
  | 'refund'
  /** A refund that went otherwise than it was prepared: its labels say how. */
  | 'unexpected_refund'
  /**
   * A chain whose payments nobody sees now. A merchant is told of those that it is paid on; it ends by
   * itself.
   */
  | 'chain';

/** The numbers of a {@link AttentionKind} in messages. */
export const attentionKindWords = {
  unattributed: 1,
  payment: 2,
  deliveries: 3,
  endpoint: 4,
  refund: 5,
  unexpected_refund: 6,
  chain: 7,
} as const satisfies Record<AttentionKind, number>;

/** Whether payments on a chain are seen. */
export type ChainState =
  /** They are. */
  | 'watched'
  /** Nobody watches it, or ever has. */
  | 'unwatched'
  /** Nobody holds the lease: no process watches it now. */
  | 'idle'
  /** The node has not answered for a minute. */
  | 'silent'
  /** More than a hundred blocks have not been read yet. */
  | 'behind';

/** The numbers of a {@link ChainState} in messages. */
export const chainStateWords = {
  watched: 1,
  unwatched: 2,
  idle: 3,
  silent: 4,
  behind: 5,
} as const satisfies Record<ChainState, number>;

/** Why the merchant has no transfer of a transaction. */
export type TransactionFinding =
  /** No chain that was asked has it in a block. */
  | 'not_found'
  /** It is on a chain of the other mode. */
  | 'other_mode'
  /** It moved no token: it may have failed. */
  | 'no_transfer'
  /** It moved tokens out of a wallet of the merchant, and none to one. */
  | 'outgoing'
  /** It moved tokens, and none to a wallet of the merchant. */
  | 'other_wallet'
  /** It moved a token to a wallet of the merchant in which nobody pays. */
  | 'other_token'
  /** Its block is not read yet. */
  | 'not_read'
  /**
   * Its block is read, and what it moved to the merchant's wallet is not kept: no payment of that chain
   * expected it there then, or it is too little.
   */
  | 'too_little';

/** The numbers of a {@link TransactionFinding} in messages. */
export const transactionFindingWords = {
  not_found: 1,
  other_mode: 2,
  no_transfer: 3,
  outgoing: 4,
  other_wallet: 5,
  other_token: 6,
  not_read: 7,
  too_little: 8,
} as const satisfies Record<TransactionFinding, number>;

/** What can become of a signed authorization. */
export type PaymentAuthorizationStatus =
  /** It can still be used. */
  | 'submitted'
  /** It never reached the facilitator. */
  | 'failed';

/** The numbers of a {@link PaymentAuthorizationStatus} in messages. */
export const paymentAuthorizationStatusWords = {
  submitted: 1,
  failed: 2,
} as const satisfies Record<PaymentAuthorizationStatus, number>;

/** Where a refund stands. */
export type RefundStatus =
  /** Its transfer has not been seen yet. */
  | 'requires_transfer'
  /** Its transfer is on the chain, and not final yet. */
  | 'processing'
  /** Returned. A reorganisation of the chain takes it back to `requires_transfer`. */
  | 'succeeded'
  /** Canceled by the merchant: final. */
  | 'canceled'
  /** Not sent within 30 days: final. */
  | 'expired';

/** The numbers of a {@link RefundStatus} in messages. */
export const refundStatusWords = {
  requires_transfer: 1,
  processing: 2,
  succeeded: 3,
  canceled: 4,
  expired: 5,
} as const satisfies Record<RefundStatus, number>;

/** Whether a transfer belongs to an intent. */
export type TransferStatus =
  /** It belongs to no known intent. */
  | 'unattributed'
  /** To `payment_intent`. */
  | 'attributed';

/** The numbers of a {@link TransferStatus} in messages. */
export const transferStatusWords = {
  unattributed: 1,
  attributed: 2,
} as const satisfies Record<TransferStatus, number>;

