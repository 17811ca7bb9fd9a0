// How a service of the contract is implemented: one object per method, the same for every door.

import type { DescMethod, DescMethodUnary, DescService, MessageShape } from '@bufbuild/protobuf';
import type { ContextValues } from '@connectrpc/connect';
import type { FieldViolation } from '../contract/error-catalogue.ts';
import { isUnary } from '../contract/unary.ts';
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
   * Returns the faults of a well-formed request. `run` refuses such a request by itself. Doors call this only to report
   * these faults together with the faults of shape.
   */
  violations?(request: Input, values: ContextValues): FieldViolation[];
  /** Serves a request. Any error that is not a `ServiceError` is reported as `internal`. */
  run(request: Input, context: CallContext): Promise<Output>;
}

/** One object per method of a service, by the method's name in the descriptor. */
export type MethodsOf<Service extends DescService> = {
  readonly [Name in keyof Service['method']]: Service['method'][Name] extends DescMethodUnary<
    infer Input,
    infer Output
  >
    ? Method<MessageShape<Input>, MessageShape<Output>>
    : never;
};

/** A service of the contract and its methods. */
export interface ServedService {
  readonly desc: DescService;
  readonly methods: ReadonlyMap<DescMethodUnary, Method>;
}

/**
 * Combines a service of the contract with its methods. A missing or surplus method does not compile. It throws if the
 * compiler cannot detect it, so that a partly implemented contract never starts.
 */
export function implementService<Service extends DescService>(
  desc: Service,
  methods: MethodsOf<Service>,
): ServedService {
  const given = new Map(Object.entries<Method>(methods));
  const served = new Map<DescMethodUnary, Method>();
  for (const method of desc.methods) {
    const implementation = given.get(method.localName);
    if (implementation === undefined) throw new Error(`${nameOf(method)} is not implemented`);
    if (!isUnary(method)) throw new Error(`${nameOf(method)} streams, which no door serves yet`);
    given.delete(method.localName);
    served.set(method, implementation);
  }
  const [surplus] = given.keys();
  if (surplus !== undefined) throw new Error(`${desc.typeName} has no method ${surplus}`);
  return { desc, methods: served };
}

function nameOf(method: DescMethod): string {
  return `${method.parent.typeName}.${method.name}`;
}
