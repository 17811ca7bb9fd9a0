// How a service of the contract is implemented: one object per method, the same for every door.

import type {
  DescMethod,
  DescMethodServerStreaming,
  DescMethodUnary,
  DescService,
  Message,
  MessageShape,
} from '@bufbuild/protobuf';
import type { RatePolicy } from '../config/config.ts';
import type { FieldViolation } from '../contract/error-catalogue.ts';
import { isUnary } from '../contract/unary.ts';
import { refuseInvalid } from './errors.ts';
import type { Identity, RequestContext } from './request-context.ts';
import type { RequestHeader } from './request-header.ts';
import { orUnavailable, unavailableOr } from './unavailable.ts';

/** What a method gets besides its request and its caller. */
interface Call {
  readonly context: RequestContext;
  readonly header: RequestHeader;
  /** Aborts when the client no longer waits for the answer. Work not started by then can be skipped. */
  readonly signal?: AbortSignal | undefined;
}

/** A method's implementation and settings. It gets the caller that its service's authentication returns. */
export interface Method<Input = unknown, Output = unknown, Caller = Identity> {
  /** The policy that limits its requests. */
  readonly ratePolicy: RatePolicy;
  /**
   * Returns the violations of a well-formed request besides unknown fields. If there are any, `run` is not
   * called. Doors call this only to list these violations together with those of shape.
   */
  violations?(request: Input, caller: Caller): FieldViolation[];
  /** True if `run` itself refuses invalid requests, because its parser finds the violations. */
  readonly isSelfChecking?: boolean;
  /** Serves a request. Database errors that may pass become `unavailable`, other unknown ones `internal`. */
  run(request: Input, caller: Caller, call: Call): Promise<Output>;
}

/** The implementation and settings of a method whose answer is a stream. */
export interface StreamMethod<Input = unknown, Output = unknown, Caller = Identity> {
  /** The policy that limits how many streams are opened. */
  readonly ratePolicy: RatePolicy;
  /**
   * Serves a request. The first message is sent as soon as it is available; the next is requested when the
   * client is ready for it. Errors are handled as in `Method`.
   */
  run(request: Input, caller: Caller, call: Call & { signal: AbortSignal }): AsyncIterable<Output>;
}

/** One object per method of a service, by the method's name in the descriptor. */
export type MethodsOf<Service extends DescService, Caller = Identity> = {
  readonly [Name in keyof Service['method']]: Service['method'][Name] extends DescMethodUnary<
    infer Input,
    infer Output
  >
    ? Method<MessageShape<Input>, MessageShape<Output>, Caller>
    : Service['method'][Name] extends DescMethodServerStreaming<infer Input, infer Output>
      ? StreamMethod<MessageShape<Input>, MessageShape<Output>, Caller>
      : never;
};

/** Returns the caller of a request, by its headers alone, or throws the refusal. */
export type Authenticate<Caller> = (
  context: RequestContext,
  header: RequestHeader,
) => Caller | Promise<Caller>;

/** A service of the contract and its methods, still without authentication: see `authenticated`. */
export interface ImplementedService<Caller> {
  readonly desc: DescService;
  readonly methods: ReadonlyMap<DescMethodUnary, Method<unknown, unknown, Caller>>;
  /** Only the internal door serves streams. */
  readonly streams: ReadonlyMap<DescMethodServerStreaming, StreamMethod<unknown, unknown, Caller>>;
}

/** A service that doors may serve. What `authenticate` returns is the caller of its methods. */
export interface ServedService extends ImplementedService<unknown> {
  readonly authenticate: Authenticate<unknown>;
}

/** Adds authentication to a service. Authentication that returns another kind of caller does not compile. */
export function authenticated<Caller>(
  service: ImplementedService<Caller>,
  authenticate: Authenticate<Caller>,
): ServedService {
  return { ...(service as ImplementedService<unknown>), authenticate };
}

/**
 * Combines a service of the contract with its methods. A missing or surplus method does not compile. If the
 * compiler cannot detect it, this throws, so that a partly implemented contract never starts.
 */
export function implementService<Service extends DescService, Caller = Identity>(
  desc: Service,
  methods: MethodsOf<Service, Caller>,
): ImplementedService<Caller> {
  type Unary = Method<unknown, unknown, Caller>;
  type Stream = StreamMethod<unknown, unknown, Caller>;
  const given = new Map(Object.entries<Unary | Stream>(methods));
  const served = new Map<DescMethodUnary, Unary>();
  const streams = new Map<DescMethodServerStreaming, Stream>();
  for (const method of desc.methods) {
    const implementation = given.get(method.localName);
    if (implementation === undefined) throw new Error(`${nameOf(method)} is not implemented`);
    given.delete(method.localName);
    // `MethodsOf` pairs each kind of method with its kind of implementation.
    if (isUnary(method)) served.set(method, withChecks(implementation as Unary));
    else if (method.methodKind === 'server_streaming')
      streams.set(method as DescMethodServerStreaming, strictStream(implementation as Stream));
    else throw new Error(`${nameOf(method)} takes a stream, which no door serves yet`);
  }
  const [surplus] = given.keys();
  if (surplus !== undefined) throw new Error(`${desc.typeName} has no method ${surplus}`);
  return { desc, methods: served, streams };
}

/** The fields of a binary request that this server does not know. For JSON, the doors refuse them by name. */
export function unknownFieldViolations(request: Message): FieldViolation[] {
  return (request.$unknown ?? []).map(({ no }) => ({
    field: `field ${no}`,
    message: 'is not a field of this request: your contract is newer than this server, or damaged',
  }));
}

/**
 * Makes a method refuse requests with fields that this server does not know, and those that break its rules.
 * If the database is at fault, the method throws `unavailable`. A self-checking method does all this itself.
 */
export function withChecks<Input, Output, Caller>(
  method: Method<Input, Output, Caller>,
): Method<Input, Output, Caller> {
  if (method.isSelfChecking) return method;
  const violations = (request: Input, caller: Caller) => [
    ...unknownFieldViolations(request as Message),
    ...(method.violations?.(request, caller) ?? []),
  ];
  return {
    ...method,
    violations,
    async run(request, caller, call) {
      refuseInvalid(violations(request, caller));
      return orUnavailable(() => method.run(request, caller, call));
    },
  };
}

function strictStream<Caller>(
  method: StreamMethod<unknown, unknown, Caller>,
): StreamMethod<unknown, unknown, Caller> {
  return {
    ...method,
    async *run(request, caller, call) {
      refuseInvalid(unknownFieldViolations(request as Message));
      try {
        yield* method.run(request, caller, call);
      } catch (reason) {
        throw unavailableOr(reason);
      }
    },
  };
}

const nameOf = (method: DescMethod): string => `${method.parent.typeName}.${method.name}`;
