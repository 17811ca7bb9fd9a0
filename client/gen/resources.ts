// Generated from the contract by src/contract/typescript: change proto/ and run `npm run generate`.

import type * as words from '../../src/contract/gen/words.ts';
import type { ApiResource, EventType, JsonObject, Label, Unknown } from '../values.ts';

/** A transfer on the chain that belongs to an intent. */
export interface Payment extends ApiResource {
  /** The transaction that holds the transfer. */
  transactionHash: string;
  /** Place of the transfer among the logs of its block. */
  logIndex: number;
  /** The block that holds the transaction. */
  blockNumber: number;
  /** Hash of that block. */
  blockHash: string;
  /** Time of that block. */
  blockTime: Date;
  /** Wallet the money came from, as an EIP-55 checksummed address. */
  fromAddress: string;
  /** Wallet the money went to. */
  toAddress: string;
  /** Contract of the token that was transferred. */
  tokenAddress: string;
  /** Amount of the transfer, in the token's smallest unit. */
  amountUnits: bigint;
  /**
   * Blocks since the transfer, its own being the first. Counting stops at the intent's
   * `confirmationsRequired`.
   */
  confirmations: number;
  /** Where the transfer stands. A value newer than this client is an {@link Unknown}. */
  status: words.PaymentStatus | Unknown;
  /** Facts about the transfer, such as `late` and `wrong_token`: the words of the intent's `labels`. */
  labels: Label[];
  /**
   * Payment: whether it is part of the intent's `amountReceivedUnits`. Refund: whether it is, once confirmed,
   * part of `amountRefundedUnits`. Undefined from events older than this field.
   */
  counts: boolean | undefined;
}

/**
 * What a merchant expects to be paid: how much, in which token, on which chain, to which wallet, until when.
 * The first sixteen fields but `status` are frozen when the intent is created. The others say what has
 * happened since; creation does not return them.
 *
 * What is known from creation on.
 */
export interface AnyPaymentIntent extends ApiResource {
  /**
   * Identifier of the intent: `pi_` and 26 characters of Crockford base32. It sorts by the millisecond of
   * creation.
   */
  id: string;
  /**
   * Where the payment stands. Every answer to its creation, retries included, has `requires_payment`. A value
   * newer than this client is an {@link Unknown}.
   */
  status: words.PaymentIntentStatus | Unknown;
  /**
   * Test money or real money. It follows from the API key that created the intent. A value newer than this
   * client is an {@link Unknown}.
   */
  mode: words.Mode | Unknown;
  /** The chain the payment is made on. A value newer than this client is an {@link Unknown}. */
  chain: words.Chain | Unknown;
  /** EIP-155 id of the chain: 8453 or 84532 for Base, 137 or 80002 for Polygon. */
  chainId: number;
  /** Blocks after which the payment counts as final on the chain: 10 on Base, 12 on Polygon. */
  confirmationsRequired: number;
  /** Amount to be paid, in the token's smallest unit: 1000000 is 1 USDC. */
  amountUnits: bigint;
  /** Decimal places of the token: 6 for USDC. */
  decimals: number;
  /** Symbol of the token: `USDC`. */
  tokenSymbol: string;
  /** Contract of the token on the chain (Circle's native USDC), as an EIP-55 checksummed address. */
  tokenAddress: string;
  /** Wallet that has to receive the payment, as an EIP-55 checksummed address. */
  expectedWallet: string;
  /** The moment the intent expires: its creation and `expiresInMinutes` exactly. */
  expiresAt: Date;
  /** Minutes the payer has, after clamping: 5 to 60. */
  expiresInMinutes: number;
  /** The checkout lane the intent was created for. A value newer than this client is an {@link Unknown}. */
  lane: words.Lane | Unknown;
  /** The merchant's own identifiers, as they were sent. */
  metadata: JsonObject;
}

/**
 * What a merchant expects to be paid: how much, in which token, on which chain, to which wallet, until when.
 * The first sixteen fields but `status` are frozen when the intent is created. The others say what has
 * happened since; creation does not return them.
 *
 * As its creation returned it. A later call with the same key returns the same again.
 */
export interface PaymentIntent extends AnyPaymentIntent {
  /**
   * Opens the hosted checkout for this one intent: the only value a frontend may receive. It is derived, not
   * stored, and is the same each time the creation is retried. Lists and events do not have it.
   */
  clientSecret: string;
  /** True if an earlier call with the same idempotency key did this, and this one only found it. */
  replayed: boolean;
}

/**
 * What a merchant expects to be paid: how much, in which token, on which chain, to which wallet, until when.
 * The first sixteen fields but `status` are frozen when the intent is created. The others say what has
 * happened since; creation does not return them.
 *
 * In its present state; in an event, as it was right after the change.
 */
export interface PaymentIntentState extends AnyPaymentIntent {
  /** The moment the intent was created. */
  createdAt: Date;
  /** Sum of the payments that count, in the token's smallest unit: USDC, on the chain now, in time. */
  amountReceivedUnits: bigint;
  /** The newest 100 transfers attributed to the intent, oldest first, including those that do not count. */
  payments: Payment[];
  /** How many transfers are attributed to the intent. */
  paymentsCount: number;
  /**
   * Facts you have to know: `underpaid` (ended with more than 0 and less than the amount), `overpaid`,
   * `late`, `after_cancel`, `found_late`, `wrong_token`, `reorged`. Labels may be added.
   */
  labels: Label[];
  /** The moment the intent succeeded. */
  succeededAt: Date | undefined;
  /** The moment the intent was canceled. */
  canceledAt: Date | undefined;
  /** The moment the intent expired: when this was decided, not `expiresAt`. */
  expiredAt: Date | undefined;
  /**
   * Sum of the confirmed transfers of its refunds, in the token's smallest unit. A refund never changes the
   * status. Undefined from events older than this field.
   */
  amountRefundedUnits: bigint | undefined;
}

/**
 * What a merchant expects to be paid: how much, in which token, on which chain, to which wallet, until when.
 * The first sixteen fields but `status` are frozen when the intent is created. The others say what has
 * happened since; creation does not return them.
 *
 * In its present state, with its secret: lists and events do not have that.
 */
export interface RetrievedPaymentIntent extends PaymentIntentState {
  /**
   * Opens the hosted checkout for this one intent: the only value a frontend may receive. It is derived, not
   * stored, and is the same each time the creation is retried. Lists and events do not have it.
   */
  clientSecret: string;
}

/** An address of the merchant's backend that events are sent to. */
export interface WebhookEndpoint extends ApiResource {
  /** Identifier of the endpoint: `we_` and 26 characters of Crockford base32. */
  id: string;
  /** Where events are sent, by POST. */
  url: string;
  /** The types of events that are sent; `*` is every type, later ones included. */
  eventTypes: EventType[];
  /** False: nothing is sent. */
  enabled: boolean;
  /** Why the service disabled the endpoint, if it did. */
  disabledReason: string | undefined;
  /** The merchant's own note. */
  description: string | undefined;
  /**
   * Test money or real money. It follows from the API key that created the endpoint. A value newer than this
   * client is an {@link Unknown}.
   */
  mode: words.Mode | Unknown;
  /** The moment the endpoint was created. */
  createdAt: Date;
}

/** An address of the merchant's backend that events are sent to. */
export interface WebhookEndpointWithSecret extends WebhookEndpoint {
  /**
   * Verifies what is sent (Standard Webhooks). Only creation and rotation return it: keep it with your other
   * secrets.
   */
  secret: string;
  /** True if an earlier call with the same idempotency key did this, and this one only found it. */
  replayed: boolean;
}

/** An intent that an unattributed transfer may be for. */
export interface TransferCandidate extends ApiResource {
  /** Identifier of the intent. */
  id: string;
  /** Amount of the intent, in the token's smallest unit. */
  amountUnits: bigint;
  /** Where the intent stands. A value newer than this client is an {@link Unknown}. */
  status: words.PaymentIntentStatus | Unknown;
  /** The moment the intent was created. */
  createdAt: Date;
}

/**
 * A transfer to a wallet of the merchant on a chain that is watched. Most are payments of an intent; those
 * that cannot be matched to exactly one intent are unattributed until you attribute them.
 */
export interface Transfer extends ApiResource {
  /**
   * Identifier of the transfer: `tr_` and 26 characters of Crockford base32. It stays when a reorganisation
   * of the chain moves the transfer to another block.
   */
  id: string;
  /** Chain of the transfer. A value newer than this client is an {@link Unknown}. */
  chain: words.Chain | Unknown;
  /** Whether the transfer belongs to an intent. A value newer than this client is an {@link Unknown}. */
  status: words.TransferStatus | Unknown;
  /** The intent that it belongs to. Undefined for an unattributed transfer. */
  paymentIntent: string | undefined;
  /** The transaction that holds the transfer. */
  transactionHash: string;
  /** Place of the transfer among the logs of its block. */
  logIndex: number;
  /** The block that holds the transaction. */
  blockNumber: number;
  /** Hash of that block. */
  blockHash: string;
  /** Time of that block. */
  blockTime: Date;
  /** Wallet the money came from, as an EIP-55 checksummed address. */
  fromAddress: string;
  /** Wallet the money went to. */
  toAddress: string;
  /** Contract of the token that was transferred. */
  tokenAddress: string;
  /** Amount of the transfer, in the token's smallest unit. */
  amountUnits: bigint;
  /**
   * Blocks since the transfer, its own being the first. Counting stops at the confirmations that its chain
   * requires; 0 for a transfer that is no longer on the chain.
   */
  confirmations: number;
  /** Facts about the transfer, such as `late` and `wrong_token`. */
  labels: Label[];
  /**
   * Intents that an unattributed transfer may be for: at most 5 of those that name its wallet, the nearest
   * amount first. Only in the answer of GetTransfer.
   */
  candidates: TransferCandidate[];
}

/**
 * A transaction as wallets take it: the transfer of the money, with the refund's id behind it. Whoever can
 * sign for your wallet sends it, and pays the network's fee.
 */
export interface RefundTransaction extends ApiResource {
  /** EIP-155 id of the chain. */
  chainId: number;
  /** The token's contract. */
  to: string;
  /** Native currency sent along: none. */
  value: string;
  /** `transfer(destination, amount_units)`, and the 29 ASCII characters of the refund's id. */
  data: string;
}

/**
 * Money that you return to a payer. You sign `transaction` with your own wallet; the service never holds
 * money. It recognises the transfer by the refund's id in its calldata. Anybody can check it on the chain.
 */
export interface Refund extends ApiResource {
  /** Identifier of the refund: `rf_` and 26 characters of Crockford base32. */
  id: string;
  /** The intent whose money is returned. */
  paymentIntent: string;
  /** Test money or real money. A value newer than this client is an {@link Unknown}. */
  mode: words.Mode | Unknown;
  /**
   * The chain the money is returned on: that of the intent. A value newer than this client is an
   * {@link Unknown}.
   */
  chain: words.Chain | Unknown;
  /** EIP-155 id of the chain. */
  chainId: number;
  /** Amount to be returned, in the token's smallest unit. */
  amountUnits: bigint;
  /** Contract of the token that is returned, as an EIP-55 checksummed address. */
  tokenAddress: string;
  /** Wallet that the money goes to, as an EIP-55 checksummed address. */
  destination: string;
  /** Where the refund stands. A value newer than this client is an {@link Unknown}. */
  status: words.RefundStatus | Unknown;
  /** Why the money is returned, in your words. The payer never sees it. */
  reason: string | undefined;
  /** Your own data, as you sent it. */
  metadata: JsonObject;
  /** The moment of creation. */
  createdAt: Date;
  /**
   * The moment the refund expires: 30 days after its creation. A transfer after it is recorded and labeled
   * `late`.
   */
  expiresAt: Date;
  /** The moment the refund succeeded. */
  succeededAt: Date | undefined;
  /**
   * The moment the refund was canceled. A transaction that was signed before can still land: `labels` then
   * has `after_cancel`.
   */
  canceledAt: Date | undefined;
  /** The moment the refund expired: when this was decided, not `expiresAt`. */
  expiredAt: Date | undefined;
  /** The transaction to sign with your wallet, unchanged. */
  transaction: RefundTransaction;
  /**
   * The newest 100 transfers of the refund, oldest first. Normally there is one. The labels of any other say
   * what is wrong with it.
   */
  transfers: Payment[];
  /**
   * Facts you have to know: `other_amount`, `other_destination`, `twice`, `after_cancel` and `late` of its
   * transfers, and `payment_reorged`: a payment has left the chain, and what was received no longer covers
   * what is returned. Labels may be added.
   */
  labels: Label[];
}

/** The resource that an event is about: one of the messages. */
export interface EventData extends ApiResource {
  /** The intent, without `clientSecret`. */
  paymentIntent: PaymentIntentState | undefined;
  /** The webhook endpoint, without its secret. */
  webhookEndpoint: WebhookEndpoint | undefined;
  /** The transfer. Of several in one block, the largest. */
  transfer: Transfer | undefined;
  /**
   * How many new transfers of the same block are unattributed, this one included. All of them are in the list
   * of transfers.
   */
  transfersCount: number | undefined;
  /** The refund. */
  refund: Refund | undefined;
}

/** Something that has happened to a resource of the merchant. An event never changes. */
export interface Event extends ApiResource {
  /** Identifier of the event: `evt_` and 26 characters of Crockford base32. */
  id: string;
  /**
   * What has happened. A payment intent: `payment_intent.partially_paid`, `payment_intent.processing`,
   * `payment_intent.succeeded`, `payment_intent.overpaid` (a payment went beyond the amount, or came after
   * success), `payment_intent.expired`, `payment_intent.canceled`, `payment_intent.late_payment` (after
   * expiry or cancellation), `payment_intent.wrong_token`, `payment_intent.reorged`,
   * `payment_intent.payment_detached`. Transfers: `transfer.unattributed`. Refunds: `refund.processing`,
   * `refund.succeeded`, `refund.canceled`, `refund.expired`, `refund.reorged`, `refund.unexpected` (look at
   * its labels). A webhook endpoint: `webhook_endpoint.ping`. Creation is answered to its caller and has no
   * event. Types may be added: ignore those that you do not know.
   */
  type: EventType;
  /** The moment of the change. */
  createdAt: Date;
  /** Test money or real money. A value newer than this client is an {@link Unknown}. */
  mode: words.Mode | Unknown;
  /**
   * Place of the event among those of its intent, or of its refund: 1, 2, 3, without a gap. Sort by it where
   * order matters.
   */
  sequence: number | undefined;
  /** The resource as it was right after the change. */
  data: EventData;
}

/** One try to deliver. */
export interface WebhookAttempt extends ApiResource {
  /** The moment it began. */
  at: Date;
  /** HTTP status of the answer, if there was one. */
  statusCode: number | undefined;
  /** How long it took, in milliseconds. */
  durationMs: number;
  /** What went wrong, if something did. */
  error: string | undefined;
  /** The first 1,024 bytes of the answer, as UTF-8. */
  response: string | undefined;
}

/** One event for one endpoint. */
export interface WebhookDelivery extends ApiResource {
  /** Identifier of the delivery: `del_` and 26 characters of Crockford base32. */
  id: string;
  /** Identifier of the event. */
  event: string;
  /** Identifier of the endpoint. */
  webhookEndpoint: string;
  /** Where the delivery stands. A value newer than this client is an {@link Unknown}. */
  status: words.WebhookDeliveryStatus | Unknown;
  /** The newest 20 attempts, oldest first. */
  attempts: WebhookAttempt[];
  /**
   * The moment from which the next attempt is due, while there is one. While the endpoint fails, one delivery
   * at a time is attempted, and the others wait for longer.
   */
  nextAttemptAt: Date | undefined;
  /** The moment the delivery was made. */
  createdAt: Date;
  /** The type of the event. */
  eventType: EventType;
  /** Identifier of the intent that the event is about. Undefined if it is about something else. */
  paymentIntent: string | undefined;
}

/** A message of the stream. */
export interface WatchEventsResponse extends ApiResource {
  /** The event. Undefined in the first message, and in those that only say that the stream is alive. */
  event: Event | undefined;
  /** How far the stream has come: `after` for the stream that resumes it. */
  position: string;
}

