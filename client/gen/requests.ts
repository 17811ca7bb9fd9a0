// Generated from the contract by src/contract/typescript: change proto/ and run `npm run generate`.

import type * as words from '../../src/contract/gen/words.ts';
import type { EventType, JsonCompatible } from '../values.ts';

/** Says which events to list. Without a filter: all that are kept. */
export interface ListEvents {
  /** Most events on a page, 1 to 100. Default: 20. */
  pageSize?: number | undefined;
  /**
   * Only events after this one: the identifier of the last event that you have handled. Not together with
   * `pageToken`.
   */
  after?: string | undefined;
  /** Only events of this type. */
  type?: EventType | undefined;
  /** Only events of this intent and of its refunds. */
  paymentIntent?: string | undefined;
  /** Only events of this refund. */
  refund?: string | undefined;
}

/** What a merchant asks to be paid. Only `amountUnits` is required. */
export interface CreatePaymentIntent<Metadata extends object = object> {
  /**
   * Amount to be paid, in the token's smallest unit: 1000000 is 1 USDC. An integer from 1 to 9007199254740991
   * (2^53-1, which every JSON client holds exactly).
   */
  amountUnits: number | bigint;
  /** The chain to be paid on. Default: base. */
  chain?: words.Chain | undefined;
  /**
   * Wallet to be paid instead of the merchant's own: `0x` and 40 hexadecimal digits. Mixed case has to be the
   * address's EIP-55 checksum. Refused: the zero address, precompiled contracts, and the token contracts of
   * USDC, USDC.e and USDbC, where the money would be lost. Default: the merchant's payout wallet for the
   * key's mode and the chain.
   */
  walletAddress?: string | undefined;
  /** Minutes until the intent expires. Any integer; the server clamps it to 5 to 60. Default: 30. */
  expiresInMinutes?: number | undefined;
  /** Checkout lane. Default: sdk. */
  lane?: words.Lane | undefined;
  /**
   * The merchant's own identifiers, such as `order_id` and `customer_id`, answered as they were sent: an
   * object of at most 50 keys, each at most 64 characters, at most 15 levels deep and 16 KiB as JSON.
   * Refused: NUL characters, lone surrogates, and numbers that would come back changed, such as integers
   * beyond 2^53-1 and 0.10000000000000001 (send those as strings). Default: empty.
   */
  metadata?: (Metadata & JsonCompatible<Metadata>) | undefined;
  /** Token to be paid in. Default: USDC. */
  token?: words.Token | undefined;
}

/** Says which intents to list. Without a filter: all of them. */
export interface ListPaymentIntents {
  /** Most intents on a page, 1 to 100. Default: 20. */
  pageSize?: number | undefined;
  /** Only intents with this status. */
  status?: words.PaymentIntentStatus | undefined;
  /** Only intents on this chain. */
  chain?: words.Chain | undefined;
  /** Only intents of this lane. */
  lane?: words.Lane | undefined;
  /** Only the intent that was created with this idempotency key. */
  idempotencyKey?: string | undefined;
  /** Only intents created at this moment or later. */
  createdFrom?: Date | undefined;
  /** Only intents created before this moment. */
  createdBefore?: Date | undefined;
  /** Only intents with this label. */
  label?: string | undefined;
  /** Only intents that expect their payment at this wallet. */
  expectedWallet?: string | undefined;
  /** Only intents that succeeded at this moment or later. */
  succeededFrom?: Date | undefined;
  /** Only intents that succeeded before this moment. */
  succeededBefore?: Date | undefined;
  /**
   * Only intents whose metadata has this key, with `metadataValue` as its value. Always together with that.
   */
  metadataKey?: string | undefined;
  /**
   * The exact value, 1 to 255 bytes. An intent becomes searchable within 5 seconds of its creation, by the
   * first ten of its keys, in byte order, that have such a value.
   */
  metadataValue?: string | undefined;
}

/** Says what to return to whom. */
export interface CreateRefund<Metadata extends object = object> {
  /** Identifier of the intent whose money is returned. */
  paymentIntent: string;
  /** Amount to return, in the token's smallest unit. Default: all that can be returned. */
  amountUnits?: number | bigint | undefined;
  /**
   * Wallet of the payer: `0x` and 40 hexadecimal digits. Ask the payer for it: the wallet that a payment came
   * from may belong to an exchange or be a contract, where the money would be lost. Your own wallets are
   * refused.
   */
  destination: string;
  /** Why, in your words: at most 500 characters. The payer never sees it. */
  reason?: string | undefined;
  /** Your own data, as for an intent. */
  metadata?: (Metadata & JsonCompatible<Metadata>) | undefined;
}

/** Says which refunds to list. Without a filter: all. */
export interface ListRefunds {
  /** Most refunds on a page, 1 to 100. Default: 20. */
  pageSize?: number | undefined;
  /** Only refunds of this intent. */
  paymentIntent?: string | undefined;
  /** Only refunds with this status. */
  status?: words.RefundStatus | undefined;
}

/** Names the transaction that returned the money. */
export interface ConfirmRefund {
  /** Hash of the transaction. */
  transactionHash: string;
}

/** Says which transfers to list. Without a filter: all. */
export interface ListTransfers {
  /** Most transfers on a page, 1 to 100. Default: 20. */
  pageSize?: number | undefined;
  /** Only transfers with this status. `unattributed` leaves out reorged ones. */
  status?: words.TransferStatus | undefined;
  /** Only transfers of this transaction: the hash that a payer's wallet shows. */
  transactionHash?: string | undefined;
  /** Only the payments of this intent. */
  paymentIntent?: string | undefined;
  /** Only transfers from this wallet. */
  fromAddress?: string | undefined;
  /** Only transfers to this wallet. */
  toAddress?: string | undefined;
  /** Only transfers on this chain. */
  chain?: words.Chain | undefined;
  /** Only transfers in blocks of this moment or later. */
  blockTimeFrom?: Date | undefined;
  /** Only transfers in blocks before this moment. */
  blockTimeBefore?: Date | undefined;
}

/** Says whose payment a transfer is. */
export interface AttributeTransfer {
  /** Identifier of the intent. */
  paymentIntent: string;
  /**
   * Attribute it although the intent has ended or has its amount already: the transfer is recorded, and
   * labeled if it does not count.
   */
  allowEnded?: boolean | undefined;
}

/** The endpoint to create. */
export interface CreateWebhookEndpoint {
  /**
   * Where events are sent: https, with a name that resolves to public addresses. At most 2,048 characters.
   */
  url: string;
  /** The types of events to send. Default: `["*"]`, every type, later ones included. */
  eventTypes?: readonly EventType[] | undefined;
  /** False to create the endpoint without sending anything yet. Default: true. */
  enabled?: boolean | undefined;
  /** A note of your own: one line of at most 200 characters. */
  description?: string | undefined;
}

/** Says which page of the endpoints to list. */
export interface ListWebhookEndpoints {
  /** Most endpoints on a page, 1 to 100. Default: 20. */
  pageSize?: number | undefined;
}

/** What to change of an endpoint. */
export interface UpdateWebhookEndpoint {
  /** The new address. */
  url?: string | undefined;
  /** The new types. */
  eventTypes?: readonly EventType[] | undefined;
  /**
   * `true` enables the endpoint and forgets why it was disabled. `false` disables it: its pending deliveries
   * fail.
   */
  enabled?: boolean | undefined;
  /** The new note: one line of at most 200 characters. An empty one removes it. */
  description?: string | undefined;
}

/** Names the endpoint whose secret is replaced. */
export interface RotateWebhookSecret {
  /** Hours that the old secret signs besides the new one, 0 to 168. Default: 24. */
  overlapHours?: number | undefined;
}

/** Says which deliveries to list. */
export interface ListWebhookDeliveries {
  /** Most deliveries on a page, 1 to 100. Default: 20. */
  pageSize?: number | undefined;
  /** Only deliveries with this status. */
  status?: words.WebhookDeliveryStatus | undefined;
}

/** Says which deliveries to an endpoint to make due. */
export interface RedeliverWebhookEndpoint {
  /**
   * `failed` for deliveries that were given up, `pending` for those that wait for their next attempt.
   * Default: `failed`.
   */
  status?: 'failed' | 'pending' | undefined;
  /** Only deliveries made at this moment or later. */
  createdFrom?: Date | undefined;
  /** Only deliveries made before this moment. */
  createdBefore?: Date | undefined;
}

/** Says which event to deliver again. */
export interface RedeliverEvent {
  /** Identifier of the endpoint to deliver it to. Default: every enabled endpoint that wants its type. */
  webhookEndpoint?: string | undefined;
}

