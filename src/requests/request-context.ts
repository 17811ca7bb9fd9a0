import { randomUUID } from 'node:crypto';
import { type ContextKey, type ContextValues, createContextKey } from '@connectrpc/connect';
import type { ErrorCode } from '../contract/error-catalogue.ts';
import type { WalletAddress } from '../contract/wallet-address.ts';
import type { ChainName, ModeName } from '../contract/words.ts';
import type { ServiceError } from './errors.ts';
import type { Trace } from './trace.ts';

/** The identity behind an accepted API key. */
export interface Identity {
  /** UUID. */
  merchantId: string;
  /** The public ids of the merchant and the key, `mer_…` and `key_…`, ready for each request's log line. */
  merchantTypeId: string;
  keyTypeId: string;
  mode: ModeName;
  /** The merchant's wallets in that mode. A chain without a wallet is absent. */
  payoutWallets: Readonly<Partial<Record<ChainName, WalletAddress>>>;
}

/** The intent that a client secret opens. */
export interface OpenedIntent {
  /** UUID. */
  id: string;
  /** Its public id, `pi_…`. */
  typeId: string;
}

/** The state of one request, from its first byte to its log line. */
export interface RequestContext {
  /** Generated here, never taken from the client: it must identify exactly one request. */
  readonly requestId: string;
  readonly door: 'public' | 'internal' | 'console';
  /** From `performance.now()`. */
  readonly startedAtMs: number;
  identity?: Identity;
  /** The intent whose client secret came with the request, if its method takes one instead of an API key. */
  openedIntent?: OpenedIntent;
  /** The public id of the intent that the request creates or names, for the log. */
  paymentIntent?: string;
  /** What requests without a key are counted under: the client's address or network, or a console's session. */
  countedUnder?: () => string;
  /** Called once the credential is known to be issued here: before its lookup if possible, and after it. */
  onIssuedKey?: () => void;
  /** Exempts an answer of unlimited duration from the time limit. Its method limits the number of them. */
  stayOpen?: () => void;
  /** The caller's remaining quota, as headers. Set once this request has been counted. */
  rateLimit?: Readonly<Record<string, string>>;
  /**
   * Charges this many further requests to the caller, which may put it into debt; a negative number is a
   * refund. Set once this request has been counted, unless there is no limit.
   */
  charge?: (requests: number) => void;
  /** The caller that Connect's gate has admitted. */
  admitted?: { caller: unknown };
  /** True once Connect has read the message: a later refusal by it is not the client's fault. */
  isRead?: boolean;
  error?: ServiceError;
  /** `canceled` or `deadline_exceeded`, if the client ended the request. */
  endedByClient?: string;
  /** True if an idempotent creation was replayed. */
  replayed?: boolean;
  /** Its span, if requests are traced. */
  trace?: Trace;
}

/** The key under which interceptors and methods find the context of their request. */
export const requestContextKey: ContextKey<RequestContext | undefined> = createContextKey<
  RequestContext | undefined
>(undefined, { description: 'the request being served' });

export function newRequestContext(door: RequestContext['door']): RequestContext {
  return { requestId: newRequestId(), door, startedAtMs: performance.now() };
}

/** Node makes random UUIDs many at a time. 16 random bytes for each would take longer than the rest. */
export const newRequestId = () => `req_${randomUUID().replaceAll('-', '')}`;

/** Returns the context of the request. Throws if a door did not set it. */
export function requestContextOf(values: ContextValues): RequestContext {
  const context = values.get(requestContextKey);
  if (context === undefined) throw new Error('a door has set no request context');
  return context;
}

/** The answer's headers for this request: the remaining quota, and whether it was replayed. */
export function answerHeaders({ rateLimit, replayed }: RequestContext): [string, string][] {
  const headers: [string, string][] = replayed ? [['Idempotent-Replayed', 'true']] : [];
  return rateLimit === undefined ? headers : [...headers, ...Object.entries(rateLimit)];
}

/** How a request ended: a code of the catalogue, `ok`, `canceled` by the client, or another gRPC code. */
export type RequestOutcome = 'ok' | 'canceled' | ErrorCode | (string & {});

/** Called at the end of every request. `rpc` is undefined if no route matched. */
export type RequestObserver = (
  context: RequestContext,
  rpc: string | undefined,
  outcome: RequestOutcome,
) => void;
