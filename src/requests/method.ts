// How a service of the contract is implemented: one object per method, the same for every door.

import type {
  DescMethod,
  DescMethodServerStreaming,
  DescMethodUnary,
  DescService,
  Message,
  MessageShape,
} from '@bufbuild/protobuf';
import type { ContextValues } from '@connectrpc/connect';
import type { FieldViolation } from '../contract/error-catalogue.ts';
import { isServerStreaming, isUnary } from '../contract/unary.ts';
import { refuseUnknownFields } from './fields.ts';
import type { RequestHeader } from './request-header.ts';

/** The part of a Connect HandlerContext that methods use. Every door can provide it. */
export interface CallContext {
  readonly values: ContextValues;
  readonly requestHeader: RequestHeader;
  readonly responseHeader: Headers;
  /** Aborts when the client no longer waits for the answer. Work that has not started by then can be skipped. */
  readonly signal: AbortSignal;
}

/** A method's implementation and settings. */
export interface Method<Input = unknown, Output = unknown> {
  /** The policy in the rate limit's configuration that limits its requests. */
  readonly ratePolicy: string;
  /**
   * Returns the violations of a well-formed request. `run` also refuses such a request. Doors call this only to list
   * these violations together with those of shape.
   */
  violations?(request: Input, values: ContextValues): FieldViolation[];
  /** Serves a request. Any error that is not a `ServiceError` is reported as `internal`. */
  run(request: Input, context: CallContext): Promise<Output>;
}

/** The implementation and settings of a method whose answer is a stream. */
export interface StreamMethod<Input = unknown, Output = unknown> {
  /** The policy in the rate limit's configuration that limits how many streams are opened. */
  readonly ratePolicy: string;
  /**
   * Serves a request. The first message is sent as soon as it is available; the next is requested when the client is
   * ready for it. Errors are handled as in `Method`.
   */
  run(request: Input, context: CallContext): AsyncIterable<Output>;
}

/** One object per method of a service, by the method's name in the descriptor. */
export type MethodsOf<Service extends DescService> = {
  readonly [Name in keyof Service['method']]: Service['method'][Name] extends DescMethodUnary<
    infer Input,
    infer Output
  >
    ? Method<MessageShape<Input>, MessageShape<Output>>
    : Service['method'][Name] extends DescMethodServerStreaming<infer Input, infer Output>
      ? StreamMethod<MessageShape<Input>, MessageShape<Output>>
      : never;
};

/** A service of the contract and its methods. */
export interface ServedService {
  readonly desc: DescService;
  readonly methods: ReadonlyMap<DescMethodUnary, Method>;
  /** Only the internal door serves streams. */
  readonly streams: ReadonlyMap<DescMethodServerStreaming, StreamMethod>;
}

/**
 * Combines a service of the contract with its methods. A missing or surplus method does not compile. It throws if the
 * compiler cannot detect it, so that a partly implemented contract never starts.
 */
export function implementService<Service extends DescService>(
  desc: Service,
  methods: MethodsOf<Service>,
): ServedService {
  const given = new Map(Object.entries<Method | StreamMethod>(methods));
  const served = new Map<DescMethodUnary, Method>();
  const streams = new Map<DescMethodServerStreaming, StreamMethod>();
  for (const method of desc.methods) {
    const implementation = given.get(method.localName);
    if (implementation === undefined) throw new Error(`${nameOf(method)} is not implemented`);
    given.delete(method.localName);
    // `MethodsOf` pairs each kind of method with its kind of implementation.
    if (isUnary(method)) served.set(method, strict(implementation as Method));
    else if (isServerStreaming(method)) streams.set(method, strictStream(implementation as StreamMethod));
    else throw new Error(`${nameOf(method)} takes a stream, which no door serves yet`);
  }
  const [surplus] = given.keys();
  if (surplus !== undefined) throw new Error(`${desc.typeName} has no method ${surplus}`);
  return { desc, methods: served, streams };
}

/** A method without validation of its own still refuses unknown fields. */
function strict(method: Method): Method {
  if (method.violations !== undefined) return method;
  return {
    ...method,
    async run(request, context) {
      refuseUnknownFields(request as Message);
      return method.run(request, context);
    },
  };
}

function strictStream(method: StreamMethod): StreamMethod {
  return {
    ...method,
    async *run(request, context) {
      refuseUnknownFields(request as Message);
      yield* method.run(request, context);
    },
  };
}

function nameOf(method: DescMethod): string {
  return `${method.parent.typeName}.${method.name}`;
}
