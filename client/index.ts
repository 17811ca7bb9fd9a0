// The client that services of ours and merchants' backends create payment intents with.

import type { JsonObject } from '@bufbuild/protobuf';
import { PaymentIntentsError } from './error.ts';
import { grpc } from './grpc.ts';
import { json } from './json.ts';

export { PaymentIntentsError, type PaymentIntentsErrorCode } from './error.ts';

export interface PaymentIntentsClientOptions {
  /** Of the public port for JSON, such as `https://pay.example`, or of the internal port for gRPC. */
  baseUrl: string;
  /** Your secret API key. The client refuses to run where a payer could read it. */
  apiKey: string;
  /** Default: `json`. */
  protocol?: 'json' | 'grpc';
  /** Longest time of one try, in milliseconds. Default: 10,000. */
  timeoutMs?: number;
  /** Tries before a failure that may pass is given up. Default: 6, which takes some seconds. */
  maxTries?: number;
}

export interface CreatePaymentIntent {
  /** In the token's smallest unit: 12500000 is 12.50 USDC. From 1 to 2^53-1. */
  amountUnits: number | bigint;
  /** Default: `base`. */
  chain?: 'base' | 'polygon';
  /** Default: the merchant's own payout wallet. */
  walletAddress?: string;
  /** The server clamps it to 5 to 60. Default: 30. */
  expiresInMinutes?: number;
  /** Default: `sdk`. */
  lane?: 'sdk' | 'manual';
  metadata?: JsonObject;
  /** Default: `USDC`, the only one. */
  token?: 'USDC';
}

export interface CreateOptions {
  /**
   * Says which creations are the same one: give the order's id, and a process that takes over after a crash finds
   * the intent that the first one made. Default: a new UUID, kept across the retries of this call.
   */
  idempotencyKey?: string;
  /** Ends the call: it throws the signal's reason. The intent may have been made by then. */
  signal?: AbortSignal;
}

/** A payment intent, as the service answered it. */
export interface PaymentIntent {
  id: string;
  status: 'requires_payment';
  /** The one value that a frontend may see. */
  clientSecret: string;
  mode: 'testnet' | 'mainnet';
  chain: 'base' | 'polygon';
  chainId: number;
  confirmationsRequired: number;
  amountUnits: bigint;
  decimals: number;
  tokenSymbol: string;
  tokenAddress: string;
  expectedWallet: string;
  expiresAt: Date;
  expiresInMinutes: number;
  lane: 'sdk' | 'manual';
  metadata: JsonObject;
  /** True where an earlier call with the same idempotency key has made it. */
  replayed: boolean;
}

export interface PaymentIntentsClient {
  /**
   * Creates an intent and answers it once it is durable. What may pass (`rate_limited`, `unavailable`, `internal`, a
   * broken connection) is tried again with the same idempotency key, after the server's Retry-After or a growing pause.
   * Throws PaymentIntentsError for anything else, when the tries are used up, and where the server asks to wait for
   * more than a minute.
   */
  createPaymentIntent(create: CreatePaymentIntent, options?: CreateOptions): Promise<PaymentIntent>;
}

/** One try. Throws PaymentIntentsError, or the signal's reason. */
export type Send = (
  create: CreatePaymentIntent,
  idempotencyKey: string,
  signal: AbortSignal,
) => Promise<PaymentIntent>;

const firstPauseMs = 100;
const longestPauseMs = 5_000;
/** Where the server asks for more, the caller hears of it instead. */
const longestRetryAfterMs = 60_000;

/** Throws at once where it runs in a browser: an API key there belongs to everybody. */
export function createPaymentIntentsClient(options: PaymentIntentsClientOptions): PaymentIntentsClient {
  if ('window' in globalThis || 'importScripts' in globalThis) {
    throw new Error(
      'The payment intents client runs on servers only: an API key in a browser belongs to everybody. Call your own server, and let it call this.',
    );
  }
  const { protocol = 'json', timeoutMs = 10_000, maxTries = 6 } = options;
  const send: Send = protocol === 'grpc' ? grpc(options) : json(options);

  return {
    async createPaymentIntent(create, { idempotencyKey = crypto.randomUUID(), signal } = {}) {
      for (let tried = 1; ; tried++) {
        signal?.throwIfAborted();
        const timeout = AbortSignal.timeout(timeoutMs);
        try {
          return await send(create, idempotencyKey, signal ? AbortSignal.any([signal, timeout]) : timeout);
        } catch (reason) {
          signal?.throwIfAborted();
          const error = PaymentIntentsError.from(reason, idempotencyKey);
          if (!error.isRetryable || tried >= maxTries || error.retryAfterMs > longestRetryAfterMs)
            throw error;
          // Half of it by chance: many clients that failed together must not come back together.
          const backOffMs = Math.min(firstPauseMs * 2 ** tried, longestPauseMs) * (0.5 + Math.random() / 2);
          await pause(Math.max(backOffMs, error.retryAfterMs), signal);
        }
      }
    },
  };
}

function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', abort);
      resolve();
    }, ms);
    signal?.addEventListener('abort', abort, { once: true });
  });
}
