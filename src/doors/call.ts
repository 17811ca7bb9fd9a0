// Serves a call over JSON or plain gRPC: authenticates it by its headers, reads its message, runs the method.

import type { DescMethod, Message } from '@bufbuild/protobuf';
import type { Logger } from 'pino';
import type { RatePolicy } from '../config/config.ts';
import type { Authenticate, Method, ServedService } from '../requests/method.ts';
import type { RequestContext, RequestObserver } from '../requests/request-context.ts';
import type { RawHeaders, RequestHeader } from '../requests/request-header.ts';
import type { Operation } from '../requests/trace.ts';
import { beforeAbort } from '../scheduling/before-abort.ts';
import type { Tracing } from '../telemetry/tracing.ts';
import type { TakeFromLimit } from './rate-limit.ts';
import type { Connection, Strangers } from './strangers.ts';

/**
 * Authenticates a request before its body is read, then applies its caller's limit. Returns the caller or
 * throws the refusal.
 */
export async function admit<Caller>(
  authenticate: Authenticate<Caller>,
  ratePolicy: RatePolicy,
  takeFromLimit: TakeFromLimit,
  context: RequestContext,
  header: RequestHeader,
): Promise<Caller> {
  const caller = await authenticate(context, header);
  takeFromLimit(context, ratePolicy);
  return caller;
}

export interface ServedMethod {
  service: ServedService;
  implementation: Method<unknown, unknown, unknown>;
  /** How its calls appear in a trace. */
  operation: Operation;
}

/** A call whose message is not read yet. */
interface IncomingCall {
  context: RequestContext;
  header: RawHeaders;
  connection: Connection | undefined;
  /** Aborts when the client no longer waits for the answer. Without it the call always runs to its end. */
  signal?: AbortSignal;
}

/** What the public and the internal door need. */
export interface DoorOptions {
  /** The services that need a merchant's key or a client secret. */
  services: readonly ServedService[];
  takeFromLimit: TakeFromLimit;
  strangers: Strangers;
  logger: Logger;
  onEnd: RequestObserver;
  tracing?: Tracing | undefined;
  /** The time for a call to arrive and be processed, even if its client sets a longer deadline. */
  requestTimeoutMs: number;
}

/** Serves a call and returns its answer. `decode` reads the message or throws the refusal. */
export async function serveCall(
  { service: { authenticate }, implementation, operation }: ServedMethod,
  { context, header, connection, signal }: IncomingCall,
  decode: (caller: unknown) => Promise<Message>,
  { takeFromLimit, tracing, strangers }: DoorOptions,
): Promise<Message> {
  tracing?.begin(context, operation, header);
  let caller: unknown;
  try {
    caller = await admit(authenticate, implementation.ratePolicy, takeFromLimit, context, header);
  } catch (reason) {
    if (connection !== undefined) strangers.noteNoCredential(connection);
    throw reason;
  }
  if (connection !== undefined)
    context.identity ? strangers.noteValidKey(connection) : strangers.noteClientSecret(connection);
  const message = await decode(caller);
  const run = () => implementation.run(message, caller, { context, header, signal }) as Promise<Message>;
  return signal === undefined ? run() : beforeAbort(signal, run);
}

/** How a call of the method appears in a trace. gRPC-Web counts as gRPC there. */
export function operationOf(method: DescMethod, system: 'grpc' | 'connectrpc' = 'grpc'): Operation {
  const name = `${method.parent.typeName}/${method.name}`;
  const attributes = { 'rpc.system.name': system, 'rpc.method': name };
  return { name, attributes, okStatus: { 'rpc.status_code': 'OK' } };
}
