import { randomBytes } from 'node:crypto';
import { type ContextKey, type ContextValues, createContextKey } from '@connectrpc/connect';
import type { ChainName, ModeName } from '../contract/chains.ts';
import type { ErrorCode } from '../contract/error-catalogue.ts';
import type { WalletAddress } from '../contract/wallet-address.ts';
import type { ServiceError } from './errors.ts';
import type { Trace } from './trace.ts';

/** Whom an accepted API key stands for. */
export interface Identity {
  /** UUID. */
  merchantId: string;
  /** The merchant and the key in their public form, `mer_…` and `key_…`, ready for every request's line in the log. */
  merchantTypeId: string;
  keyTypeId: string;
  mode: ModeName;
  /** The merchant's wallets in that mode; a chain without one is missing. */
  payoutWallets: Readonly<Partial<Record<ChainName, WalletAddress>>>;
}

/** What the service knows of one request, from its first byte to its line in the log. */
export interface RequestContext {
  /** Ours, never the client's: it has to find one request and no other. */
  readonly requestId: string;
  readonly door: 'public' | 'internal';
  /** By `performance.now()`. */
  readonly startedAtMs: number;
  identity?: Identity;
  /** Called once the key is known to be one of ours, which is before `identity` is set if that has to be looked up. */
  onIdentified?: () => void;
  /** For an answer that goes on for as long as its client wants, from a method that limits how many there are. */
  stayOpen?: () => void;
  /** What is left of the key's allowance, as headers; there once this request has been counted. */
  rateLimit?: Readonly<Record<string, string>>;
  /** What the request was refused with. */
  error?: ServiceError;
  /** True where an idempotent creation was answered again. */
  replayed?: boolean;
  /** Its span, where requests are traced. */
  trace?: Trace;
}

/** Where interceptors and methods find the context of the request they serve. */
export const requestContextKey: ContextKey<RequestContext | undefined> = createContextKey<
  RequestContext | undefined
>(undefined, { description: 'the request being served' });

export function newRequestContext(door: RequestContext['door']): RequestContext {
  return { requestId: newRequestId(), door, startedAtMs: performance.now() };
}

/** Hexadecimal, drawn for many ids at a time: by itself each draw takes longer than all else about an id. */
let randomHex = '';
const idHexLength = 32;

function newRequestId(): string {
  if (randomHex.length < idHexLength) randomHex = randomBytes(2048).toString('hex');
  const id = randomHex.slice(0, idHexLength);
  randomHex = randomHex.slice(idHexLength);
  return `req_${id}`;
}

/** The context of the request; throws where a door forgot to set it. */
export function requestContextOf(values: ContextValues): RequestContext {
  const context = values.get(requestContextKey);
  if (context === undefined) throw new Error('a door has set no request context');
  return context;
}

/** Who makes the request; throws where it was let in without authentication. */
export function identityOf(values: ContextValues): Identity {
  const { identity } = requestContextOf(values);
  if (identity === undefined) throw new Error('a request was let in without authentication');
  return identity;
}

/** How a request ended: a code of the catalogue, `ok`, `canceled` by the client, or another gRPC code. */
export type RequestOutcome = 'ok' | 'canceled' | ErrorCode | (string & {});

/** Told of every request that has ended; `rpc` is undefined for a path that is nobody's. */
export type RequestObserver = (
  context: RequestContext,
  rpc: string | undefined,
  outcome: RequestOutcome,
) => void;
