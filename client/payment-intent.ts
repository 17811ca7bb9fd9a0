import type { ApiResource, JsonObject, JsonValue } from './api-resource.ts';
import type {
  Chain,
  Label,
  Lane,
  Mode,
  PaymentIntentStatus,
  PaymentStatus,
  Token,
  Unknown,
} from './enums.ts';
import type { AnyTransfer } from './transfer.ts';

/**
 * The part of a type that JSON can hold: not a Date, a bigint, or anything else with methods. The text is what a
 * compiler says of a Date.
 */
export type JsonCompatible<T> = unknown extends T
  ? T
  : T extends JsonValue | undefined
    ? T
    : T extends Date
      ? 'not JSON: send the toISOString() of a Date'
      : T extends bigint | symbol | ((...values: never) => unknown)
        ? never
        : { [Name in keyof T]: JsonCompatible<T[Name]> };

/** A payment intent to create. Only `amountUnits` is required; a field that is `undefined` counts as left out. */
export interface CreatePaymentIntent<Metadata extends object = object> {
  /** In the token's smallest unit: 12500000 is 12.50 USDC. From 1 to 2^53-1. */
  amountUnits: number | bigint;
  /** The chain to be paid on. Default: `base`. */
  chain?: Chain | undefined;
  /** The wallet to be paid: `0x` and 40 hexadecimal digits. Default: the merchant's own payout wallet. */
  walletAddress?: string | undefined;
  /** Minutes until the intent expires, an integer. The server clamps it to 5 to 60. Default: 30. */
  expiresInMinutes?: number | undefined;
  /** The checkout lane: `sdk` for the hosted checkout, `manual` if the payer sends the transfer. Default: `sdk`. */
  lane?: Lane | undefined;
  /**
   * Your own identifiers, such as `order_id`; they are returned as they were sent. An object of JSON values: at most 50
   * keys of at most 64 characters, 15 levels deep, 16 KiB. Members that are `undefined` are left out. Anything else
   * that JSON cannot write (a Date, a bigint, NaN, an instance of a class) is refused, with its path. Default: `{}`.
   */
  metadata?: (Metadata & JsonCompatible<Metadata>) | undefined;
  /** The token to be paid in. Default: `USDC`, the only one. */
  token?: Token | undefined;
}

/** What is known of an intent from its creation on. */
export interface AnyPaymentIntent extends ApiResource {
  /** Identifier of the intent, such as `pi_01m7yzn0mtexwagr0spq4wg7vz`. Store it with your order. */
  id: string;
  /** Where the payment stands: `requires_payment` for a new intent. Statuses will be added: see {@link Unknown}. */
  status: PaymentIntentStatus | Unknown;
  /** Test money or real money, as the API key decides. A value newer than this client is an {@link Unknown}. */
  mode: Mode | Unknown;
  /** The chain that the payment is made on. Chains will be added: see {@link Unknown}. */
  chain: Chain | Unknown;
  /** EIP-155 id of the chain: 8453 or 84532 for Base, 137 or 80002 for Polygon. */
  chainId: number;
  /** Blocks after which the payment counts as final on the chain: 10 on Base, 12 on Polygon. */
  confirmationsRequired: number;
  /** The amount to be paid, in the token's smallest unit: 12500000n is 12.50 USDC. */
  amountUnits: bigint;
  /** Decimal places of the token: 6 for USDC. */
  decimals: number;
  /** Symbol of the token: `USDC`. */
  tokenSymbol: string;
  /** The token's contract on the chain, as an EIP-55 checksummed address. */
  tokenAddress: string;
  /** The wallet that has to receive the payment, as an EIP-55 checksummed address. */
  expectedWallet: string;
  /** The moment the intent expires. Nobody can pay it from then on: create another, with a new idempotency key. */
  expiresAt: Date;
  /** Minutes from its creation to its expiry, after clamping: 5 to 60. */
  expiresInMinutes: number;
  /** The checkout lane that it was created for. A value newer than this client is an {@link Unknown}. */
  lane: Lane | Unknown;
  /** Your own identifiers, as they were sent. */
  metadata: JsonObject;
}

/** A payment intent, as its creation returned it. A later call with the same key returns the same again. */
export interface PaymentIntent extends AnyPaymentIntent {
  /** Opens the hosted checkout for this one intent. The only value that a frontend may see; keep it out of logs. */
  clientSecret: string;
  /** True if an earlier call with the same idempotency key created this intent, and this call only found it. */
  replayed: boolean;
}

/** A payment intent in its present state; in an event, as it was right after the change. */
export interface PaymentIntentState extends AnyPaymentIntent {
  /** The moment the intent was created. */
  createdAt: Date;
  /** Sum of the payments that count, in the token's smallest unit: USDC, on the chain now, in time. */
  amountReceivedUnits: bigint;
  /** The newest 100 transfers attributed to the intent, oldest first, including those that do not count. */
  payments: Payment[];
  /** How many transfers are attributed to the intent. */
  paymentsCount: number;
  /** Facts that you have to know, such as `underpaid` and `overpaid`. Labels will be added. */
  labels: Label[];
  /** The moment the intent succeeded. */
  succeededAt: Date | undefined;
  /** The moment the intent was canceled. */
  canceledAt: Date | undefined;
  /** The moment the intent expired: when this was decided, not `expiresAt`. */
  expiredAt: Date | undefined;
}

/** A payment intent in its present state, with its client secret: lists and events do not have that. */
export interface RetrievedPaymentIntent extends PaymentIntentState {
  /** Opens the hosted checkout for this one intent. The only value that a frontend may see; keep it out of logs. */
  clientSecret: string;
}

/** A transfer on the chain that belongs to an intent. */
export interface Payment extends AnyTransfer {
  /** Where the transfer stands. A value newer than this client is an {@link Unknown}. */
  status: PaymentStatus | Unknown;
  /** Whether the transfer is part of the intent's `amountReceivedUnits`. Undefined in events of before the field. */
  counts: boolean | undefined;
}

/** Which intents to list. Without a filter: all of them. */
export interface ListPaymentIntents {
  /** Only intents with this status. */
  status?: PaymentIntentStatus | undefined;
  /** Only intents on this chain. */
  chain?: Chain | undefined;
  /** Only intents of this lane. */
  lane?: Lane | undefined;
  /** Only the intent that was created with this idempotency key. */
  idempotencyKey?: string | undefined;
  /** Only intents created at this moment or later. */
  createdFrom?: Date | undefined;
  /** Only intents created before this moment. */
  createdBefore?: Date | undefined;
  /** Intents in one answer, 1 to 100. Default: 20. */
  pageSize?: number | undefined;
}
